"""``python -m benchmarks.live decoding``: real decoding with the shipped small pair on this machine, beside its prediction.

Needs the extra ``record`` and two cores. ``validation`` is ``decoding`` by another name; ``budget`` tries DuoDecoding's gamma.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks.live.page import ROUNDS, budget_page, page, rounds_csv
from simulator.cli.measure import torch_needed
from simulator.cli.options import Sizes, answer, json_option
from simulator.report.page import page_files, write_files

COUNT = click.IntRange(min=1)
PROGRAM = "python -m benchmarks.live"
REQUESTS = click.IntRange(1, 120)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Decode live with the shipped small pair on this machine."""


@main.command()
@click.option("--budgets", type=Sizes(), help="Budgets to try [default: 1, 2, those around c, and twice c].")
@click.option("--tokens", type=click.IntRange(min=2), default=64, show_default=True, help="Tokens that each request writes.")
@click.option("--requests", type=REQUESTS, default=6, show_default=True, help="Requests in a round, flavours in turn.")
@click.option(
    "--rounds", type=COUNT, default=5, show_default=True, help="Every budget once a round; the spread is over rounds."
)
@click.option("--sequences", type=COUNT, help="A fixed number of sequences [default: dynamic].")
@json_option
def budget(budgets: list[int] | None, tokens: int, requests: int, rounds: int, sequences: int | None, as_json: bool) -> None:
    """Measure DuoDecoding's c on this machine, and try gamma = c live against its neighbours.

    The shipped small target decodes on one core, its draft writes on another.
    """
    with torch_needed("decoding", PROGRAM):
        from benchmarks.live.budget import measure as measured

        study = measured(budgets or (), tokens, rounds, requests, sequences)
    answer(as_json, lambda: asdict(study), lambda: budget_page(study, f"{PROGRAM} budget"))


@main.command()
@click.option(
    "--gammas", type=Sizes(), default="1,2,3,4,6,8", show_default=True, help="Windows of serial and parallel decoding."
)
@click.option("--tokens", type=click.IntRange(8, 128), default=48, show_default=True, help="Tokens that each request writes.")
@click.option("--requests", type=REQUESTS, default=6, show_default=True, help="Requests in a round, flavours in turn.")
@click.option("--rounds", type=click.IntRange(min=2), default=5, show_default=True, help="The spread is over rounds.")
@click.option(
    "--clock",
    type=click.Choice(("wall", "processor")),
    default="wall",
    show_default=True,
    help="Of what one core does alone; processor time leaves out other programs' turns.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for a page and every round as CSV; in it `scenarios`, the trace and the last predictions.",
)
@json_option
def decoding(gammas: list[int], tokens: int, requests: int, rounds: int, clock: str, out: Path | None, as_json: bool) -> None:
    """Compare live decoding with its prediction; passes are timed between its blocks.

    Plain and serial decoding on one core; on two, the draft beside the target, and a pipeline of two stages with a tree.
    Exit code 1 if a step was not as simulated, 3 if an error is beyond its bound.
    """
    with torch_needed("recording", PROGRAM) as status:
        from benchmarks.live.validation import validate
        from simulator.evidence.machine import described

        blocks = iter(range(1, rounds * requests + 1))
        tick = lambda: status.update(f"request {next(blocks)} of {rounds * requests}")  # noqa: E731
        live = validate(gammas, tokens, requests, rounds, clock, out=out and out / "scenarios", tick=tick)
        data, words = live.data(), ["--gammas", ",".join(map(str, gammas)), "--clock", clock]
        counts = {"--tokens": tokens, "--requests": requests, "--rounds": rounds}
        words += [word for option, count in counts.items() for word in (option, str(count))]
        command = f"{PROGRAM} {shlex.join(['decoding', *words])}"
        answered = page(data, described(), f"{datetime.now(UTC):%Y-%m-%d}", command)
        if out:
            write_files(out, page_files(answered, "live") | {ROUNDS: rounds_csv(data)})
    answer(as_json, lambda: data, lambda: answered)
    raise SystemExit(live.exit_code)


main.add_command(decoding, "validation")

if __name__ == "__main__":
    main(prog_name=PROGRAM)
