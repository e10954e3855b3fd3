#!/usr/bin/env python3
"""The loaders of ``fuzz.py`` under atheris, which keeps what reaches code that nothing reached
before and goes on from there.

    pip install 'specdecode-sim[fuzz]'
    python3 tools/fuzz_guided.py -max_total_time=600 [any other option of libFuzzer]

The first byte of an input says which loader it is for. What raises anything but :class:`BadInput`
is kept as ``crash-*`` in the present folder; give its path to try it alone.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

sys.path.insert(0, str(Path(__file__).parent.parent))
with atheris.instrument_imports(include=["simulator", "yaml"]):
    import fuzz

KINDS = {kind: loader for kind, loader in fuzz.loaders().items() if kind != "trace"}
"""A trace is an archive with checksums, which changed bytes do not get past."""
LONGEST = 4_000
"""Bytes of a file to begin with; what is short is tried often."""


def begin(folder: Path) -> None:
    """The shortest sound file of each kind, with its kind in front."""
    for number, loader in enumerate(KINDS.values()):
        for place, (_, content) in enumerate(sorted(loader.sound, key=lambda one: len(one[1]))[:3]):
            (folder / f"{number}-{place}").write_bytes(bytes([number]) + content[:LONGEST])


def attempt(data: bytes) -> None:
    """One input; raises what a loader should not."""
    loader = list(KINDS.values())[data[0] % len(KINDS)] if data else None
    if loader:
        path = Path(loader.sound[0][0])
        path.write_bytes(data[1:])
        fuzz.outcome(loader, path)


def main() -> None:
    """The command line of libFuzzer, with sound files to begin with and a folder of its own to work
    in.
    """
    warnings.simplefilter("ignore")
    here = Path.cwd()
    with TemporaryDirectory() as folder, TemporaryDirectory() as seeds:
        words = [str(here / word) if not word.startswith("-") else word for word in sys.argv[1:]]
        begin(Path(seeds))
        os.chdir(folder)
        alone = any(not word.startswith("-") for word in words)
        options = [
            f"-artifact_prefix={here}/",
            "-timeout=20",
            "-max_len=4001",
            *words,
            *([] if alone else [seeds]),
        ]
        atheris.Setup([sys.argv[0], *options], attempt)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
