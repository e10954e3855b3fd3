"""Reports of results: terminal, Markdown and HTML. Nothing here runs a simulation."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Wanted:
    """What the user asks of drawings: how many columns wide (0: that of the page), and style files
    over the shipped one.
    """

    paper_columns: int = 0
    style: tuple[Path, ...] = ()

    @property
    def narrow(self) -> bool:
        """Return whether drawings are one column wide, of a journal or on a phone."""
        return self.paper_columns == 1


WANTED = Wanted()


@contextmanager
def in_one_column() -> Iterator[None]:
    """Let what is drawn meanwhile be one column wide, as a phone shows it."""
    asked = WANTED.paper_columns
    WANTED.paper_columns = 1
    try:
        yield
    finally:
        WANTED.paper_columns = asked
