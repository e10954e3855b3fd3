"""Pages as files: a page with everything that belongs to it, in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from simulator.files import writing
from simulator.report.blocks import Page
from simulator.report.html import as_html
from simulator.report.markdown import as_markdown


def page_files(page: Page, name: str) -> dict[str, str]:
    """Return texts by file name: ``name.md`` and its pictures, and ``name.html``, which contains them."""
    return {
        f"{name}.md": as_markdown(page),
        f"{name}.html": as_html(page),
        **{figure.file: figure.svg for figure in page.figures},
    }


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write every text into its file in ``folder``, which is made; each file complete or not at all.

    Raises :class:`BadInput` where that cannot be done.
    """
    for name, text in texts.items():
        writing.write(folder / name, text)
