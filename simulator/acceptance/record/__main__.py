"""``python -m simulator.acceptance.record --work DIR --out scenarios``: train the family, record the traces.

Writes OUT/pairs/six_flavours.npz (the family) and OUT/traces/*.npz. Needs the extra ``record`` and, for
the text, a Debian with apt-get. About two hours on two cores, a quarter of it recording; interrupted, it goes
on from the last checkpoint in DIR.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from simulator.acceptance.record.recorder import record_all
from simulator.acceptance.record.training import train_family


@click.command(help=__doc__)
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder for packages, tokens and checkpoints.")
@click.option("--out", type=click.Path(path_type=Path, exists=True), required=True, help="Receives pairs/ and traces/.")
@click.option("--requests", default=20, show_default=True, help="Requests per flavour in each trace.")
def main(work: Path, out: Path, requests: int) -> None:
    """Train or resume the family, then record traces with the weights as they are shipped."""
    trained, text = train_family(work)
    for folder in ("pairs", "traces"):
        (out / folder).mkdir(exist_ok=True)
    shipped = out / "pairs" / "six_flavours.npz"
    shutil.copyfile(trained, shipped)
    for path in (shipped, *record_all(shipped, text, out / "traces", requests)):
        click.echo(f"{path}: {path.stat().st_size:,} bytes")


main()
