"""``specsim measure``. Imports torch when it runs, so that its ``--help`` does not need it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.options import beside_the_package, stated, working
from simulator.cli.record import EXTRA, INSTALL
from simulator.files.document import BadInput, Fault

if TYPE_CHECKING:
    from rich.status import Status

BESIDE = ("budget", "decoding")
"""Commands of ``benchmarks/live``, which only a checkout has."""


@contextmanager
def torch_needed(doing: str, command: str = "measure") -> Iterator[Status]:
    """Print bad input as lines, also a missing torch; yield the spinner that turns meanwhile."""
    with working(doing) as status:
        try:
            yield status
        except ModuleNotFoundError as error:
            if error.name not in EXTRA:
                raise
            raise BadInput([Fault((command, 0, 0), "", f"needs {error.name}; install it with {INSTALL}")]) from error


@click.group()
def measure() -> None:
    """Measure the machine that it runs on."""


for name in BESIDE:
    measure.add_command(
        click.Command(
            name,
            params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
            callback=lambda words, name=name: beside_the_package(f"measure {name}", f"{name}, with the same options"),
            context_settings={"ignore_unknown_options": True},
            add_help_option=False,
            hidden=True,
        )
    )


@measure.command("machine", params=stated("measure machine"))
def machine(name: str, out: Path, kind: str, as_json: bool) -> None:
    """Write the machine that it runs on as a device, an engine and a link, all called NAME.

    They are written as OUT/hardware_profiles/KIND/NAME.yaml, which `--catalogue OUT` finds, and all times as OUT/NAME.csv,
    which `specsim calibrate device` reads.
    """
    with torch_needed("timing") as status:
        import torch

        from simulator.evidence.calibrate.measurements import write
        from simulator.evidence.calibrate.profile import text
        from simulator.evidence.machine import measured
        from simulator.files import writing

        chip = kind
        if kind == "auto":
            chip = "cuda" if torch.cuda.is_available() else "cpu"
        if chip == "cuda" and not torch.cuda.is_available():
            raise BadInput([Fault(("--kind cuda", 0, 0), "", "torch finds no CUDA device here; expected cpu or auto")])
        profile = measured(chip, lambda what: status.update(f"timing {what}"))
        contents = {"devices": profile.device, "engines": profile.engine, "links": profile.link}
        paths = {folder: out / "hardware_profiles" / folder / f"{name}.yaml" for folder in contents}
        for folder, path in paths.items():
            writing.write(path, text(contents[folder]))
        write(profile.times, out / f"{name}.csv")
    if as_json:
        click.echo(json.dumps({"written": [*map(str, paths.values())], "pass_mape_percent": profile.pass_percent}, indent=2))
        return
    for model, percent in profile.pass_percent.items():
        click.echo(f"passes of the {model} model: mean error of the profiles {percent:.1f} %")
    click.echo("".join(f"written: {path}\n" for path in (*paths.values(), out / f"{name}.csv")), nl=False)
