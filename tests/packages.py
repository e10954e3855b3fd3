"""Run specsim in a process of its own, with a package of another author on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPECSIM = "from simulator.cli.main import main; main(prog_name='specsim')"


def python_with(
    package: Path | None, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with ``package`` on the path, or with none, and with further environment
    variables.
    """
    folders = [ROOT] if package is None else [ROOT, package]
    path = os.pathsep.join(map(str, folders))
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def specsim_with(
    package: Path | None, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of specsim with ``package`` on the path, or with none."""
    return python_with(package, "-c", SPECSIM, *words, **variables)
