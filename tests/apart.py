"""Papers whose folder may be taken away, with all that is called after them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

PAPERS = ("duodecoding", "lyanna", "mirror_sd", "specpipe", "speculative_streaming")
FOLDER = Path(__file__).parent.parent / "simulator/papers"
Case = TypeVar("Case")


def gone() -> list[str]:
    """Return the papers that were taken away."""
    return [paper for paper in PAPERS if not (FOLDER / paper).is_dir()]


def kept(cases: Iterable[Case]) -> list[Case]:
    """Return the cases of a test but for those that name a paper that was taken away."""
    missing = gone()
    return [case for case in cases if not any(paper in str(case) for paper in missing)]
