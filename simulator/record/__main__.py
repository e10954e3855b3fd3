"""``python -m simulator.record --work DIR --out scenarios/traces``: train the family, record the traces.

Needs the extra ``record`` and, for the text, a Debian with apt-get. About an hour on two cores;
interrupted, it goes on from the last checkpoint in DIR.
"""

from __future__ import annotations

from pathlib import Path

import click

from simulator.record.recorder import record_all
from simulator.record.training import train_family


@click.command(help=__doc__)
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder for packages, tokens and checkpoints.")
@click.option("--out", type=click.Path(path_type=Path, exists=True), required=True, help="Folder that receives the .npz files.")
@click.option("--requests", default=28, show_default=True, help="Requests per flavour in each trace.")
def main(work: Path, out: Path, requests: int) -> None:
    """Train or resume, then record."""
    for path in record_all(train_family(work), out, requests):
        click.echo(f"{path}: {path.stat().st_size:,} bytes")


main()
