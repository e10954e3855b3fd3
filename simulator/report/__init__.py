"""Reports of results: terminal, Markdown and HTML. Nothing here runs a simulation."""

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Wanted:
    """What the user asks of drawings: how many columns wide (0: that of the page), and style files
    over the shipped one.
    """

    paper_columns: int = 0
    style: tuple[Path, ...] = ()


WANTED = Wanted()
