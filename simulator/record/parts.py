"""The work folder of a recording: finished batches beside a manifest of what they were made from.

``OUT.npz.part/`` holds ``manifest.json`` and one ``batch-00000.npz`` per finished batch. Files
appear whole or not at all, so that a recording can be killed at any time and loses the batch it was
at.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from simulator.core.acceptance.trace import Trace
from simulator.core.faults import BadInput, told
from simulator.core.plain import PlainMapping
from simulator.inputs.traces import file as trace_file
from simulator.inputs.writing import json_text, replacing, write

MANIFEST = "manifest.json"
RESTATES = "command"
"""The setting that says again what the others say."""


class Parts:
    """Finished batches of the recording that becomes ``out``; ``settings`` is everything that
    shapes their content.
    """

    def __init__(self, out: Path, settings: PlainMapping) -> None:
        self.out = out
        self.folder = folder_of(out)
        self.settings = json.loads(json_text(settings))

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make or reopen the folder and lock it against other processes; a folder without a batch
        is removed at the end.
        """
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                message = "another process is recording here; wait for it or choose another --out"
                raise BadInput.at(self.folder, message) from error
            self._check()
            write(self.folder / MANIFEST, json_text(self.settings, indent=1, sort_keys=True))
            try:
                yield
            finally:
                if self.folder.exists() and not self._batches():
                    shutil.rmtree(self.folder)

    def finished(self, number: int) -> bool:
        """Return whether this batch has been recorded."""
        return self._file(number).exists()

    def add(self, number: int, arrays: PlainMapping) -> None:
        """Store a batch."""
        with replacing(self._file(number)) as new:
            np.savez(new, **dict(arrays))

    def merged(self, count: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return every array of all ``count`` batches, joined along positions."""
        parts = []
        for number in range(count):
            with np.load(self._file(number), allow_pickle=False) as file:
                parts.append({name: file[name] for name in file.files})
        return {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}

    def finish(self, trace: Trace) -> None:
        """Put the whole trace in place and remove the folder."""
        trace_file.write(trace, self.out)
        shutil.rmtree(self.folder)

    def _check(self) -> None:
        """Refuse to mix batches of different settings; drop those without a manifest, as a kill
        while tidying leaves them.
        """
        manifest = self.folder / MANIFEST
        if not manifest.exists():
            for file in self._batches():
                file.unlink()
        if not self._batches():
            return
        begun = dict(_flat(json.loads(manifest.read_text("utf-8"))))
        now = dict(_flat(self.settings))
        differ = [
            name
            for name in sorted(begun | now)
            if name != RESTATES and begun.get(name) != now.get(name)
        ]
        if differ:
            listed = ", ".join(
                f"{name} {told(begun.get(name))} (now {told(now.get(name))})" for name in differ
            )
            message = (
                f"was begun with {listed}; go on with what it was begun with, or delete this "
                "folder to start over"
            )
            raise BadInput.at(self.folder, message)

    def _batches(self) -> list[Path]:
        return list(self.folder.glob("batch-*.npz"))

    def _file(self, number: int) -> Path:
        return self.folder / f"batch-{number:05}.npz"


def folder_of(out: Path) -> Path:
    """Return the folder where the batches of a recording wait until it is whole."""
    return out.with_name(out.name + ".part")


def _flat(settings: PlainMapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted name."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
