"""What a message advises works as it is printed: settings are taken, options and commands are
there, and the fault is gone.

A remedy is followed until the command runs, however many of them that takes. The faults are
provoked one by one here; of those that the corpus of broken files provokes, every option and
command that is named has to exist.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from bad_inputs import command as broken_command, corpus
from click.testing import CliRunner, Result
from command_tree import children, every

from simulator.cli.main import main
from tests.apart import kept

VANILLA: dict[str, Any] = {
    "strategy": {"name": "vanilla_sd", "gamma": 2},
    "durations": {"target_ms": 30, "draft_ms": 5},
    "acceptance": {"rate": 0.7},
}
POISSON = {"arrivals": {"name": "poisson", "rate_per_s": 1}, "count": 4, "output_tokens": 5}
PREFILL_FIRST = {"name": "prefill_first", "max_requests": 2}
SERVED = {"serving": {"policy": PREFILL_FIRST}}
WINDOWED = VANILLA | {
    "acceptance": {"trace": "./three.npz", "stand_in": True},
    "strategy": {"name": "vanilla_sd", "gamma": 9},
}


def recorded(form: str, file: str) -> dict[str, Any]:
    return {"requests": {"arrivals": {"name": "file", "format": form, "file": file}}}


MOST_CACHED = recorded("mooncake", "traffic.jsonl") | {
    "serving": SERVED["serving"] | {"replicas": 2, "router": "most_cached"}
}
LONG = {"requests": POISSON | {"count": 2, "prompt_tokens": 20_000}}
NARROW = {"serving": {"policy": PREFILL_FIRST | {"batch_tokens": 100}}}
FILES: dict[str, dict[str, Any]] = {
    "arriving": VANILLA | {"requests": POISSON},
    "replicas": VANILLA | {"requests": POISSON, "serving": {"replicas": 2}},
    "served": VANILLA | SERVED | {"requests": POISSON},
    "cached": VANILLA | MOST_CACHED,
    "untimed": VANILLA | SERVED | recorded("log", "untimed.csv"),
    "strange": VANILLA | SERVED | recorded("log", "strange.csv"),
    "windowed": WINDOWED,
    "long": VANILLA | LONG | NARROW,
}
ARRIVALS = shlex.quote(f"requests={json.dumps(POISSON)}")
PLAN = "plan --model Qwen/Qwen3-8B --device h100_sxm --ttft-p95 1s --draws 1 --traffic"
THREE = "--set 'acceptance={trace: ./three.npz, stand_in: true}'"
FAULTS = (
    "law arriving.yaml",
    "run arriving.yaml",
    "law replicas.yaml",
    "run cached.yaml",
    "run long.yaml",
    "law untimed.yaml",
    "law strange.yaml",
    f"{PLAN} untimed.csv",
    f"{PLAN} strange.csv",
    "batches served.yaml --sizes 1,2 --simulate 1",
    "load served.yaml --sizes 1,2",
    "law windowed.yaml",
    f"law duodecoding_llama_2_7b_a800 --set {ARRIVALS}",
    "law duodecoding_llama_2_7b_a800 --set strategy.gamma=60",
    f"law duodecoding_llama_2_7b_a800 {THREE}",
    "batches duodecoding_llama_2_7b_a800 --sizes 2 --simulate 2",
    "law vanilla_qwen3_32b_a100 --set 'acceptance={trace: six_flavours_greedy}'",
    "law streaming_vicuna_7b_a100 --set strategy.streams=6",
    "law streaming_vicuna_7b_a100 --set strategy.kept=7",
    "law lyanna_llama_2_7b_h800 --set strategy.chain=tokens",
    "law autoregressive_qwen3_32b_a100 --set target.tensor_parallel=1 --set target.weights=fp32",
    (
        "law autoregressive_qwen3_32b_a100 --set target.device.memory_gb=20 --set "
        "target.tensor_parallel=1"
    ),
    "law durations_only --set strategy.gama=3",
    "law durations_only --set gamma=3",
    "law durations_onli",
    "show durations_onl",
)
SETTING = r"[a-z_]+(?:\.[a-z_]+)+=(?:\{[^}]*\}|[^\s,;]+)"
REMEDY = re.compile(
    rf"(?P<both>\band )?(?P<setting>\b{SETTING})|as in (?P<key>[a-z_]+): (?P<block>\{{.*\}})"
)
OPTION = re.compile(
    r"(?<![\w-])(--[a-z][a-z0-9-]+)(?:[ =](?!of )([A-Za-z0-9_=,./]+))?\)?(?: of specsim ([a-z]+))?"
)
COMMAND = re.compile(
    r"\bspecsim ([a-z]+)(?: "
    r"(info|convert|rescale|record|compare|plot|device|engine|link|passes|score|import)\b)?"
)
WRITTEN = {
    "prompt=COLUMN": "prompt=pt",
    "prompt: COLUMN": "prompt: pt",
    "output=COLUMN": "output=ot",
    "output: COLUMN": "output: ot",
}
WRITTEN |= {
    "arrival=COLUMN": "arrival=prompt_tokens",
    "arrival: COLUMN": "arrival: prompt_tokens",
    "=RATE": "=1",
}
"""What a reader writes for the words in capitals."""
VALUES = {"--rate": "1"}
"""What a reader writes behind an option that is named without a value."""


def ran(words: list[str]) -> Result:
    done = CliRunner().invoke(main, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done


def known(verb: str, option: str) -> bool:
    """Whether a command, or one below it, has an option."""
    entries = [
        command for words, command in every() if words == verb or words.startswith(f"{verb} ")
    ]
    return any(option in parameter.opts for entry in entries for parameter in entry.params)


def remedies(words: list[str], message: str) -> Iterator[list[str]]:
    """Yield the command as each remedy of a message changes it; those that only a command of
    another name has are looked up.
    """
    _, _, advice = message.partition("; ")
    for capitals, meant_by in WRITTEN.items():
        advice = advice.replace(capitals, meant_by)
    together: list[str] = []
    for found in REMEDY.finditer(advice):
        setting = found["setting"] or f"{found['key']}={found['block']}"
        together = [*(together if found["both"] else []), "--set", setting]
        behind = advice[found.end() :]
        if not re.match(rf"\s*and {SETTING}", behind) and not (
            behind.startswith(" elsewhere") and words[0] == "plan"
        ):
            yield [*words, *together]
    for option, value, other in OPTION.findall(advice):
        assert known(other or words[0], option), (
            f"{message}: specsim {other or words[0]} has no {option}"
        )
        stated = value or VALUES.get(option, "")
        if other in ("", words[0]) and stated:
            kept = (
                words[: words.index(option)] + words[words.index(option) + 2 :]
                if option in words
                else words
            )
            yield [*kept, option, stated]
    if meant := re.search(r"did you mean '([^']+)'\?", message):
        wrong = re.search(r": ([\w.]+): unknown field", message)
        yield (
            [re.sub(rf"(?<![\w.]){wrong[1]}=", f"{meant[1]}=", word) for word in words]
            if wrong
            else [words[0], meant[1]]
        )


def follow(words: list[str], depth: int = 5) -> None:
    """Follow every remedy of every message, and those of what comes then."""
    done = ran(words)
    if done.exit_code == 0:
        return
    message = done.stderr.strip().removeprefix("error: ")
    assert depth, f"does not end: {words}: {message}"
    advised = [changed for line in message.splitlines() for changed in remedies(words, line)]
    assert advised, f"no remedy: {words}: {message}"
    for changed in advised:
        assert changed != words, message
        follow(changed, depth - 1)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the faults."""
    monkeypatch.chdir(tmp_path)
    traffic = [
        {"timestamp": at, "input_length": 512, "output_length": 5, "hash_ids": [1]}
        for at in (0, 100, 200)
    ]
    (tmp_path / "traffic.jsonl").write_text("\n".join(map(json.dumps, traffic)))
    (tmp_path / "untimed.csv").write_text("prompt_tokens,output_tokens\n10,5\n20,5\n")
    (tmp_path / "strange.csv").write_text("pt,ot,arrival_s\n10,5,0\n10,5,1\n")
    (tmp_path / "steps.jsonl").write_text(
        "\n".join([json.dumps({"accepted": [2, 0, 3, 1] * 20})] * 4)
    )
    for name, fields in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps(fields))
    assert (
        ran(["trace", "convert", "steps.jsonl", "--from", "steps", "--out", "three.npz"]).exit_code
        == 0
    )
    return tmp_path


@pytest.mark.few(8)
@pytest.mark.parametrize("typed", kept(FAULTS))
def test_a_remedy_works_as_it_is_printed(typed: str, work: Path) -> None:
    words = shlex.split(typed)
    assert ran(words).exit_code != 0, (
        "is no fault any more: take it out, or provoke it in another way"
    )
    follow(words)


def test_options_and_commands_that_messages_name_are_there(work: Path) -> None:
    for broken in corpus():
        shutil.copy(broken.path, work)
        words = shlex.split(broken_command(broken.folder, broken.path.name))
        for line in ran(words).stderr.splitlines():
            for verb, below in COMMAND.findall(line):
                assert verb in children(main), line
                entry = children(main)[verb]
                if below and isinstance(entry, click.Group):
                    assert below in children(entry), line
            for option, _, other in OPTION.findall(line.partition("; ")[2]):
                assert known(other or words[0], option), line


def test_a_field_of_the_default_policy_is_set_without_its_name(work: Path) -> None:
    assert ran(["run", "arriving.yaml", "--set", "serving.policy.max_requests=2"]).exit_code == 0, (
        "as 'set it' of the fault says"
    )
