"""Pages as files: a picture (.svg), a page and its picture (.md), one page with everything (.html), or a folder of all."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

from simulator.files import writing
from simulator.files.document import BadInput, Fault
from simulator.report.blocks import Block, Figure, Page
from simulator.report.html import as_html
from simulator.report.markdown import as_markdown

ENDINGS = (".svg", ".md", ".html")


def page_files(page: Page, name: str) -> dict[str, str]:
    """Return texts by file name: ``name.md`` and its pictures, and ``name.html``, which contains them."""
    return {
        f"{name}.md": as_markdown(page),
        f"{name}.html": as_html(page),
        **{figure.file: figure.svg for figure in page.figures},
    }


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV text."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write every text into its file in ``folder``, which is made; each file complete or not at all.

    Raises :class:`BadInput` where that cannot be done.
    """
    for name, text in texts.items():
        writing.write(folder / name, text)


@contextmanager
def page_file(path: Path, name: str) -> Iterator[Callable[[Page], None]]:
    """Yield the function that writes a page to ``path``; a path without one of ``ENDINGS`` is a folder for pages of ``name``.

    Files are made before the block runs and appear when it has ended, complete or not at all. Raises :class:`BadInput` where
    one cannot be made.
    """
    if path.suffix not in ENDINGS or path.is_dir():
        if path.is_file():
            raise BadInput(
                [Fault((str(path), 0, 0), "", "is a file; expected a folder, or a name that ends in .svg, .md or .html")]
            )
        yield lambda page: write_files(path, page_files(page, name))
        return
    picture_path = path.with_suffix(".svg")
    with ExitStack() as stack:
        file = stack.enter_context(writing.whole_file(path))
        picture = stack.enter_context(writing.whole_file(picture_path if path.suffix == ".md" else None))

        def write(page: Page) -> None:
            if file is not None:
                file.write(_in_file(page, path))
            if picture is not None:
                picture.write(_picture(page))

        yield write


def _in_file(page: Page, path: Path) -> str:
    """Return what stands in the file itself, by its ending."""
    if path.suffix == ".svg":
        return _picture(page)
    if path.suffix == ".html":
        return as_html(page)
    return as_markdown(_with_picture(page, path.with_suffix(".svg").name))


def _picture(page: Page) -> str:
    """Return the one picture of a study as SVG text."""
    (figure,) = page.figures
    return figure.svg


def _with_picture(page: Page, file: str) -> Page:
    """Return the page with its picture in ``file``."""

    def named(blocks: Sequence[Block]) -> list[Block]:
        return [replace(block, file=file) if isinstance(block, Figure) else block for block in blocks]

    parts = [replace(section, blocks=named(section.blocks)) for section in page.sections]
    return replace(page, opening=named(page.opening), sections=parts)
