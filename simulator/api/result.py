"""The result of a call: numbers, and the forms in which a notebook shows, tabulates and saves
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import pandas as pd

    from simulator.report.blocks import Page

Value = TypeVar("Value")


class Picture:
    """A picture as SVG text, which a notebook draws."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg


class Result(Generic[Value]):
    """The result of a call: ``value`` holds the numbers, and its attributes are attributes of the
    result, too.
    """

    def __init__(
        self,
        value: Value,
        data: Callable[[], dict[str, Any]],
        frame: Callable[[], pd.DataFrame],
        page: Callable[[], Page] | None = None,
        write: Callable[[Path], object] | None = None,
    ) -> None:
        """Hold ``value``; ``data``, ``frame`` and ``page`` give its other forms, ``write`` fills
        the folder of a report.
        """
        self.value = value
        self._data = data
        self._frame = frame
        self._page = page
        self._write = write

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the numbers; raise AttributeError where they have none of this
        name.
        """
        if name.startswith("_") or name == "value":
            raise AttributeError(name)
        return getattr(self.value, name)

    def __dir__(self) -> Iterable[str]:
        return sorted(
            {*super().__dir__(), *(name for name in dir(self.value) if not name.startswith("_"))}
        )

    def __repr__(self) -> str:
        name = type(self.value).__name__
        if self.page:
            return f"<{name}: {self.page.answer or self.page.title}>"
        return f"<{name}>"

    def with_frame(self, frame: Callable[[], pd.DataFrame]) -> Result[Value]:
        """Return the same result with another table."""
        return Result(self.value, self._data, frame, self._page, self._write)

    @cached_property
    def page(self) -> Page | None:
        """Return the report as blocks; None for a result that has no report."""
        if self._page:
            return self._page()
        return None

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a pandas table; its columns carry their units."""
        return self._frame()

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, as the command prints them with ``--json``."""
        return self._data()

    def picture(self, name: str = "") -> Picture:
        """Return a picture of the report by a part of its file's name, by default the first; raise
        KeyError where none is.
        """
        figures = list(self.page.figures) if self.page else []
        for figure in figures:
            if name in figure.file:
                return Picture(figure.svg)
        files = [figure.file for figure in figures]
        if not files:
            raise KeyError("this result draws no picture; to_frame().plot() draws one of its table")
        raise KeyError(f"no picture is called '{name}'; there are {files}")

    def save(self, path: str | Path) -> Path:
        """Write the result and return where it is.

        A name that ends in .json, .csv, .html or .md is a single file; any other name is the folder
        that ``--out`` of the command writes. Raises ValueError for a name that is neither,
        :class:`BadInput` where nothing can be written.
        """
        from simulator.inputs.writing import write

        place = Path(path)
        text = self._text(place.suffix)
        if text is not None:
            write(place, text)
        elif self._write and not place.suffix:
            self._write(place)
        else:
            folder = ", or the name of a folder" if self._write else ""
            raise ValueError(
                f"{path}: expected a name that ends in .json, .csv, .html or .md{folder}"
            )
        return place

    def _text(self, suffix: str) -> str | None:
        """Return the text of a file by its ending; None for an ending that no file has."""
        from simulator.inputs.writing import json_text, plain_frame

        if suffix == ".json":
            return json_text(self.to_dict()) + "\n"
        if suffix == ".csv":
            return str(plain_frame(self.to_frame()).to_csv(lineterminator="\n"))
        if suffix == ".html" and self.page:
            from simulator.report.html import as_html

            return as_html(self.page)
        if suffix == ".md" and self.page:
            from simulator.report.markdown import as_markdown

            return as_markdown(self.page)
        return None

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the answer, its numbers, the table and the first
        picture.
        """
        from simulator.report.html import as_fragment

        return as_fragment(
            self.page,
            self.to_frame().to_html(max_rows=20, float_format=lambda number: f"{number:.4g}"),
        )
