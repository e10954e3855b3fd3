"""A study in a file: a picture alone (.svg), or a page (.md) with its picture beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from simulator.report.logs import whole_file

Writer = Callable[[str, str, Iterable[str]], None]
"""Called once with a title, a picture as SVG text, and the blocks of the page below it."""


@contextmanager
def study_file(path: Path | None, command: str) -> Iterator[Writer | None]:
    """What writes the study to ``path`` (None without one), as :func:`whole_file`: complete, or not at all.

    ``command`` stands at the end of a page. Raises :class:`BadInput` where a file cannot be made.
    """
    if path is None:
        yield None
        return
    page = path.suffix == ".md"
    picture_path = path.with_suffix(".svg") if page else path
    with ExitStack() as stack:
        picture_file = stack.enter_context(whole_file(picture_path))
        page_file = stack.enter_context(whole_file(path if page else None))

        def write(title: str, picture: str, blocks: Iterable[str]) -> None:
            if picture_file is not None:
                picture_file.write(picture)
            if page_file is not None:
                shown = f"![{title}]({picture_path.name})"
                page_file.write("\n\n".join([f"# {title}", shown, *blocks, "## Made by", f"```\n{command}\n```"]) + "\n")

        yield write
