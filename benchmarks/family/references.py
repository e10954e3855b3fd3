"""``python -m benchmarks.family.references --work DIR --out FILE``: where each recording began.

A row for each request of each shipped trace: the held-out document and the token in it at which its
prompt starts, a digest of the prompt's token ids, and the ids themselves where the text may be
passed on. Every request is written again by the target of the shipped family, and must come out as
the trace has it.
"""

import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import torch

from benchmarks.family import corpus
from benchmarks.family.members import Members
from benchmarks.family.recorder import (
    CANDIDATES,
    OUTPUT_TOKENS,
    TRACES,
    least_repetitive,
    prompt_windows,
)
from benchmarks.family.training import TokenStreams
from benchmarks.family.writing import generate
from simulator.inputs.traces.file import read

HEAD = ("trace", "request", "flavour", "document", "first_token", "blake2b", "ids")
OPEN = ("PSF-2.0", "public domain text", "specsim's own")
"""Licences under which token ids are passed on."""
SEED = 7


@click.command(help=__doc__)
@click.option(
    "--work", type=click.Path(path_type=Path), required=True, help="Folder for packages and tokens."
)
@click.option(
    "--scenarios",
    type=click.Path(path_type=Path, exists=True),
    default="scenarios",
    show_default=True,
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="CSV file to write.")
def main(work: Path, scenarios: Path, out: Path) -> None:
    """Write the table; raises where a request does not come out again."""
    family, text = Members.read(scenarios / "pairs/six_flavours.npz"), TokenStreams(work)
    with out.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEAD)
        for name in TRACES:
            table.writerows(rows(name, scenarios / f"traces/{name}.npz", family, text))


def rows(
    name: str, path: Path, family: Members, text: TokenStreams
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a trace, in its order."""
    trace = read(path)
    if trace.header["text"]["digest"] != text.digest:
        raise click.UsageError(f"{path} was recorded on another text than these packages hold")
    per_flavour = len(trace.flavour) // len(corpus.FLAVOURS)
    for index, flavour in enumerate(corpus.FLAVOURS):
        windows = list(prompt_windows(text, flavour.name))[: per_flavour * CANDIDATES]
        prompt = torch.from_numpy(np.stack([ids for _, _, ids in windows]).astype(np.int64))
        generator = torch.Generator().manual_seed(
            int(np.random.SeedSequence((SEED, index)).generate_state(1)[0])
        )
        written = generate(family.target, prompt, OUTPUT_TOKENS, TRACES[name], generator)
        for request, chosen in enumerate(
            least_repetitive(written, per_flavour).tolist(), start=index * per_flavour
        ):
            start = int(trace.offsets[request])
            if written[chosen].tolist() != trace.token[start : start + OUTPUT_TOKENS].tolist():
                raise click.ClickException(f"{name}: request {request} comes out otherwise")
            document, first, ids = windows[chosen]
            digest = hashlib.blake2b(ids.astype("<u2").tobytes(), digest_size=8).hexdigest()
            shown = " ".join(map(str, ids.tolist())) if flavour.licence in OPEN else ""
            yield name, request, flavour.name, document, first, digest, shown


if __name__ == "__main__":
    main()
