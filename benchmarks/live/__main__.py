"""``python -m benchmarks.live decoding``: real decoding with the shipped small pair on this
machine, beside its prediction.

Needs the extra ``record`` and two cores. ``validation`` is ``decoding`` by another name; ``budget``
tries DuoDecoding's gamma; ``machine`` writes the machine as profiles.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.live.page import ROUNDS, budget_page, page, rounds_csv
from simulator.cli.options import Sizes, answer, working
from simulator.cli.record import EXTRA, INSTALL
from simulator.core.faults import BadInput, Fault
from simulator.inputs import writing
from simulator.report.page import page_files, write_files

if TYPE_CHECKING:
    from simulator.cli.bars import Display
    from simulator.cli.display import Lines

COUNT = click.IntRange(min=1)
PROGRAM = "python -m benchmarks.live"
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
REQUESTS = click.IntRange(1, 120)


@contextmanager
def torch_needed(doing: str) -> Iterator[Display | Lines]:
    """Print bad input as lines, also a missing torch; yield the spinner that turns meanwhile."""
    with working(doing) as status:
        try:
            yield status
        except ModuleNotFoundError as error:
            if error.name not in EXTRA:
                raise
            raise BadInput(
                [Fault((PROGRAM, 0, 0), "", f"needs {error.name}; install it with {INSTALL}")]
            ) from error


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Decode live with the shipped small pair on this machine."""


@main.command()
@click.option(
    "--budgets", type=Sizes(), help="Budgets to try [default: 1, 2, those around c, and twice c]."
)
@click.option(
    "--tokens",
    type=click.IntRange(min=2),
    default=64,
    show_default=True,
    help="Tokens that each request writes.",
)
@click.option(
    "--requests",
    type=REQUESTS,
    default=6,
    show_default=True,
    help="Requests in a round, flavours in turn.",
)
@click.option(
    "--rounds",
    type=COUNT,
    default=5,
    show_default=True,
    help="Every budget once a round; the spread is over rounds.",
)
@click.option("--sequences", type=COUNT, help="A fixed number of sequences [default: dynamic].")
@json_option
def budget(
    budgets: list[int] | None,
    tokens: int,
    requests: int,
    rounds: int,
    sequences: int | None,
    as_json: bool,
) -> None:
    """Measure DuoDecoding's c on this machine, and try gamma = c live against its neighbours.

    The shipped small target decodes on one core, its draft writes on another.
    """
    with torch_needed("decoding"):
        from benchmarks.live.budget import measure as measured

        study = measured(budgets or (), tokens, rounds, requests, sequences)
    answer(as_json, lambda: asdict(study), lambda: budget_page(study, f"{PROGRAM} budget"))


@main.command()
@click.option(
    "--gammas",
    type=Sizes(),
    default="1,2,3,4,6,8",
    show_default=True,
    help="Windows of serial and parallel decoding.",
)
@click.option(
    "--tokens",
    type=click.IntRange(8, 128),
    default=48,
    show_default=True,
    help="Tokens that each request writes.",
)
@click.option(
    "--requests",
    type=REQUESTS,
    default=6,
    show_default=True,
    help="Requests in a round, flavours in turn.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="The spread is over rounds.",
)
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
    help="Folder for a page and every round as CSV; in it `scenarios`, the trace and the last "
    "predictions.",
)
@json_option
def decoding(
    gammas: list[int],
    tokens: int,
    requests: int,
    rounds: int,
    clock: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare live decoding with its prediction; passes are timed between its blocks.

    Plain and serial decoding on one core; on two, the draft beside the target, and a pipeline of
    two stages with a tree. Exit code 1 if a step was not as simulated, 3 if an error is beyond its
    bound.
    """
    with torch_needed("recording") as status:
        from benchmarks.live.machine import described
        from benchmarks.live.validation import validate

        blocks = iter(range(1, rounds * requests + 1))
        tick = lambda: status.update(f"request {next(blocks)} of {rounds * requests}")  # noqa: E731
        live = validate(
            gammas, tokens, requests, rounds, clock, out=out and out / "scenarios", tick=tick
        )
        data, words = live.data(), ["--gammas", ",".join(map(str, gammas)), "--clock", clock]
        counts = {"--tokens": tokens, "--requests": requests, "--rounds": rounds}
        words += [word for option, count in counts.items() for word in (option, str(count))]
        command = f"{PROGRAM} {shlex.join(['decoding', *words])}"
        answered = page(data, described(), f"{datetime.now(UTC):%Y-%m-%d}", command)
        if out:
            write_files(out, page_files(answered, "live") | {ROUNDS: rounds_csv(data)})
    answer(as_json, lambda: data, lambda: answered)
    raise SystemExit(live.exit_code)


@main.command()
@click.argument("name")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    help="Catalogue folder [default: here].",
)
@click.option(
    "--kind", type=click.Choice(("auto", "cpu", "cuda")), default="auto", show_default=True
)
@json_option
def machine(name: str, out: Path, kind: str, as_json: bool) -> None:
    """Write the machine that it runs on as a device, an engine and a link, all called NAME.

    They are written as OUT/hardware_profiles/KIND/NAME.yaml, which `--catalogue OUT` finds, and all
    times as OUT/NAME.csv, which `specsim calibrate device` reads.
    """
    with torch_needed("timing") as status:
        import torch

        from benchmarks.live.machine import measured
        from simulator.evidence.calibrate.measurements import write
        from simulator.evidence.calibrate.profile import text

        chip = kind
        if kind == "auto":
            chip = "cuda" if torch.cuda.is_available() else "cpu"
        if chip == "cuda" and not torch.cuda.is_available():
            raise BadInput(
                [
                    Fault(
                        ("--kind cuda", 0, 0),
                        "",
                        "torch finds no CUDA device here; expected cpu or auto",
                    )
                ]
            )
        profile = measured(chip, lambda what: status.update(f"timing {what}"))
        contents = {"devices": profile.device, "engines": profile.engine, "links": profile.link}
        paths = {folder: out / "hardware_profiles" / folder / f"{name}.yaml" for folder in contents}
        for folder, path in paths.items():
            writing.write(path, text(contents[folder]))
        write(profile.times, out / f"{name}.csv")
    if as_json:
        click.echo(
            json.dumps(
                {"written": [*map(str, paths.values())], "pass_mape_percent": profile.pass_percent},
                indent=2,
                allow_nan=False,
            )
        )
        return
    for model, percent in profile.pass_percent.items():
        click.echo(f"passes of the {model} model: mean error of the profiles {percent:.1f} %")
    click.echo(
        "".join(f"written: {path}\n" for path in (*paths.values(), out / f"{name}.csv")), nl=False
    )


main.add_command(decoding, "validation")

if __name__ == "__main__":
    main(prog_name=PROGRAM)
