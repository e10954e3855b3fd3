"""Pages as files: a picture (.svg, .pdf, .png), a page and its picture (.md), one page with all
(.html), or a folder of them.

Beside every picture stand its data, as ``NAME.data.csv``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.core.faults import BadInput
from simulator.inputs import writing
from simulator.report.blocks import PICTURES, Block, Figure, Page
from simulator.report.forms import as_data, as_picture
from simulator.report.html import as_html
from simulator.report.markdown import as_markdown

DATA = ".data.csv"
ENDINGS = (*PICTURES, ".md", ".html")
Files = dict[str, str | bytes]
"""Contents of files by their names."""


def page_files(page: Page, name: str) -> Files:
    """Return files by name: ``name.md``, its pictures and their data, and ``name.html``, which
    contains them.
    """
    files: Files = {f"{name}.md": as_markdown(page), f"{name}.html": as_html(page)}
    for figure in page.figures:
        files |= _data(figure.drawing, Path(figure.file)) | {figure.file: figure.svg}
    return files


def picture_files(drawing: Any, path: Path) -> Files:
    """Return a drawing in the form of the ending of ``path``, and its data beside it."""
    return _data(drawing, path) | {str(path): as_picture(drawing, path.suffix)}


def _data(drawing: Any, path: Path) -> Files:
    """Return the data of a drawing as a file beside ``path``; SVG text has none."""
    data = as_data(drawing)
    if data is None:
        return {}
    return {str(path.with_suffix(DATA)): data}


def write_picture(path: Path, drawing: object) -> str:
    """Write a drawing in the form of the path's ending, and its data beside it; return the path as
    text.
    """
    return write_pictures({path: drawing})[0]


def write_pictures(drawings: Mapping[Path, object]) -> list[str]:
    """Write drawings as :func:`write_picture`, all of them or none; return their paths as text."""
    files: Files = {}
    for path, drawing in drawings.items():
        files |= picture_files(drawing, path)
    write_files(Path(), files)
    return list(map(str, drawings))


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write every content into its file in ``folder``, which is made: all of them or none, as
    :func:`writing.write_all`.
    """
    writing.write_all({folder / name: content for name, content in contents.items()})


@contextmanager
def page_file(path: Path, name: str) -> Iterator[Callable[[Page], None]]:
    """Yield the function that writes a page to ``path``; a path without one of ``ENDINGS`` is a
    folder for pages of ``name``.

    Files are made before the block runs and appear when it has ended, complete or not at all.
    Raises :class:`BadInput` where one cannot be made.
    """
    if path.suffix not in ENDINGS or path.is_dir():
        if path.is_file():
            expected = (
                "is a file; expected a folder, or a name that ends in "
                f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
            )
            raise BadInput.at(path, expected)
        yield lambda page: write_files(path, page_files(page, name))
        return
    endings = {".md": (".md", ".svg", DATA), ".html": (".html",)}.get(
        path.suffix, (path.suffix, DATA)
    )
    with ExitStack() as stack:
        made = {}
        for ending in endings:
            made[str(path.with_suffix(ending))] = stack.enter_context(
                writing.new_file(path.with_suffix(ending))
            )

        def write(page: Page) -> None:
            for file, content in _contents(page, path).items():
                made[file].write_bytes(content.encode() if isinstance(content, str) else content)
            for place in made.values():  # before the first of them takes its name
                writing.flush(place)

        yield write


def _contents(page: Page, path: Path) -> Files:
    """Return the page at ``path`` in the form of its ending, with the files beside it."""
    if path.suffix == ".html":
        return {str(path): as_html(page)}
    (figure,) = page.figures
    if path.suffix in PICTURES:
        return picture_files(figure.drawing, path)
    picture = path.with_suffix(".svg")
    return {str(path): as_markdown(_with_picture(page, picture.name))} | picture_files(
        figure.drawing, picture
    )


def _with_picture(page: Page, file: str) -> Page:
    """Return the page with its picture in ``file``."""

    def named(blocks: Sequence[Block]) -> list[Block]:
        return [
            replace(block, file=file) if isinstance(block, Figure) else block for block in blocks
        ]

    parts = [replace(section, blocks=named(section.blocks)) for section in page.sections]
    return replace(page, opening=named(page.opening), sections=parts)
