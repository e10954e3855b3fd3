"""Pages as files: a page with its pictures in a folder; a study as a picture (.svg) or as a page (.md) with its picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from simulator.files import writing
from simulator.report.blocks import Page
from simulator.report.html import as_html
from simulator.report.markdown import as_markdown

Writer = Callable[[str, str, Iterable[str]], None]
"""A function to be called once with a title, a picture as SVG text, and the Markdown paragraphs below it."""


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


@contextmanager
def study_file(path: Path | None, command: str) -> Iterator[Writer | None]:
    """Yield a function that writes the study to ``path``, complete or not at all; None without a path.

    ``command`` is shown at the end of a page. Raises :class:`BadInput` where a file cannot be made.
    """
    if path is None:
        yield None
        return
    page = path.suffix == ".md"
    picture_path = path.with_suffix(".svg") if page else path
    with ExitStack() as stack:
        picture_file = stack.enter_context(writing.whole_file(picture_path))
        page_file = stack.enter_context(writing.whole_file(path if page else None))

        def write(title: str, picture: str, blocks: Iterable[str]) -> None:
            if picture_file is not None:
                picture_file.write(picture)
            if page_file is not None:
                shown = f"![{title}]({picture_path.name})"
                page_file.write("\n\n".join([f"# {title}", shown, *blocks, "## Made by", f"```\n{command}\n```"]) + "\n")

        yield write
