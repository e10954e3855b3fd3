"""``python -m benchmarks.family --work DIR --out scenarios``: train the family, record the traces.

Writes OUT/pairs/six_flavours.npz (the family) and OUT/traces/*.npz. Needs the extra ``record`` and,
for the text, a Debian with apt-get. About two hours on two cores, a quarter of it recording;
interrupted, it goes on from the last checkpoint in DIR. With ``--family`` nothing is trained; with
``--trace`` one trace is recorded.
"""

import shutil
from pathlib import Path

import click

from benchmarks.family.pair import Family
from benchmarks.family.recorder import TRACES, record_all
from benchmarks.family.training import TokenStreams, train_family
from simulator.record.scores import Sampling

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(help=__doc__)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for packages, tokens and checkpoints.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="Receives pairs/ and traces/.",
)
@click.option(
    "--requests", default=20, show_default=True, help="Requests per flavour in each trace."
)
@click.option(
    "--family", type=FILE, help="Record with the family of this file instead of training one."
)
@click.option(
    "--trace",
    help="Record only a trace of this name, drawn as the next options say [default: the shipped "
    "ones].",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0.0),
    default=0.0,
    show_default=True,
    help="0 is greedy.",
)
@click.option(
    "--top-k",
    type=click.IntRange(min=0),
    default=0,
    help="Sample from the likeliest K tokens only [default: all].",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=1.0,
    help="Sample from the fewest that reach P.",
)
def main(
    work: Path,
    out: Path,
    requests: int,
    family: Path | None,
    trace: str | None,
    temperature: float,
    top_k: int,
    top_p: float,
) -> None:
    """Train or resume the family, then record traces with the weights as they are shipped."""
    sampling = Sampling(temperature, top_k, top_p)
    if sampling != Sampling() and not (trace and temperature):
        raise click.UsageError(
            "--top-k and --top-p need a --temperature, and all three the name of a --trace"
        )
    for folder in ("pairs", "traces"):
        (out / folder).mkdir(exist_ok=True)
    if family is None:
        trained, text = train_family(work)
        family = out / "pairs" / "six_flavours.npz"
        shutil.copyfile(trained, family)
        click.echo(f"{family}: {family.stat().st_size:,} bytes")
    else:
        text = TokenStreams(work)
        if text.digest != Family.read(family).header["text"]["digest"]:
            raise click.BadParameter(
                "was trained on another text than these packages hold", param_hint="--family"
            )
    for path in record_all(
        family, text, out / "traces", requests, TRACES if trace is None else {trace: sampling}
    ):
        click.echo(f"{path}: {path.stat().st_size:,} bytes")


main()
