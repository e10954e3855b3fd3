"""``python -m benchmarks.exports.accepted FOLDER``: what vLLM and SGLang say of exported commands.

Runs in the environment of the engines, which has neither the simulator nor its packages.
``FOLDER/commands.json`` has words by the name of a command, and by engine. A command of vLLM is
read by the parser of ``vllm serve``, and the engine's configuration is made of it as a server does
before it loads weights; checkpoints are folders below ``FOLDER/models``, named as on Hugging Face.
One of SGLang is read by its parser alone, as what follows asks for a GPU.
``FOLDER/verdicts.json`` has what each came to; an empty text where it was accepted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

OWN = 2
"""Words of a command of vLLM before its options."""
MODULE = 3
"""Words that call a Python module."""


def main(folder: Path) -> None:
    """Put every command to its engine, and write what they say."""
    commands = json.loads((folder / "commands.json").read_text())
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    os.chdir(folder / "models")
    engines = {"vllm": by_vllm(), "sglang": by_sglang()}
    verdicts: dict[str, dict[str, str]] = {}
    for engine, judge in engines.items():
        verdicts[engine] = {}
        for name, words in commands[engine].items():
            verdicts[engine][name] = said(judge, words)
            sys.stdout.write(f"{engine}: {name}: {verdicts[engine][name] or 'accepted'}\n")
            sys.stdout.flush()
    versions = {"vllm": version("vllm"), "sglang": version("sglang")}
    told = {"versions": versions, "verdicts": verdicts}
    text = json.dumps(told, indent=1, allow_nan=False)
    (folder / "verdicts.json").write_text(text)


def said(judge: Callable[[list[str]], None], words: list[str]) -> str:
    """Return why a command is refused, in the engine's words; empty where it is accepted."""
    errors = StringIO()
    try:
        with redirect_stderr(errors):
            judge(words)
    except SystemExit:
        return errors.getvalue().strip().rpartition("error: ")[2] or "the parser ends"
    except Exception as error:  # whatever an engine raises is its answer
        words = " ".join(str(error).split()).partition(" [type=")[0]  # pydantic's own words
        return f"{type(error).__name__}: {words}"
    return ""


def by_vllm() -> Callable[[list[str]], None]:
    """Return how vLLM judges the words of a command."""
    from vllm import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.entrypoints.launchers.cli_args import validate_parsed_serve_args
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser", required=True))

    def judge(words: list[str]) -> None:
        arguments = parser.parse_args(words[1:])
        arguments.model = words[OWN]
        validate_parsed_serve_args(arguments)
        engine = AsyncEngineArgs.from_cli_args(arguments)
        made = engine.create_engine_config(UsageContext.OPENAI_API_SERVER)
        if made.speculative_config:
            as_started(made)

    return judge


def as_started(made: Any) -> None:
    """Raise what a worker of vLLM raises of a speculative configuration when it starts."""
    from vllm.v1.spec_decode.draft_model import DraftModelProposer
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    speculative = made.speculative_config
    if speculative.method == "draft_model":
        proposer: Any = SimpleNamespace(speculative_config=speculative)
        DraftModelProposer._raise_if_draft_tp_mismatch(proposer)
    schedule = speculative.num_speculative_tokens_per_batch_size
    if schedule:
        places = made.scheduler_config.max_num_seqs
        build_dynamic_sd_schedule_lookup(schedule, places, speculative.num_speculative_tokens)


def by_sglang() -> Callable[[list[str]], None]:
    """Return how SGLang judges the words of a command."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)

    def judge(words: list[str]) -> None:
        ServerArgs.from_cli_args(parser.parse_args(words[MODULE:]))

    return judge


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
