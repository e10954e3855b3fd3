"""Pictures of a page are saved without a network: as SVG, PNG, PDF and CSV."""

from __future__ import annotations

import csv
import re
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.test_browser import Image, Opened, chromium, files, opened, pytestmark

__all__ = ["chromium", "files", "opened", "pytestmark"]


def saved(shown: Any, form: str) -> tuple[str, bytes]:
    """Name and content of what the first picture is saved as."""
    with shown.expect_download() as download:
        shown.locator(f"[data-save={form}]:visible").first.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_is_saved_light_in_every_form(
    scheme: str, files: dict[str, Path], opened: Opened
) -> None:
    for kind, name in (("plan", "plan"), ("run", "timeline"), ("sweep", "small_1")):
        shown = opened(files[kind], color_scheme=scheme)
        forms = {form: saved(shown, form) for form in ("svg", "png", "pdf", "csv")}
        assert [at for at, _ in forms.values()] == [f"{name}.{form}" for form in forms]
        root = ElementTree.fromstring(forms["svg"][1])
        assert root.tag.endswith("svg")
        drawn = np.asarray(Image.open(BytesIO(forms["png"][1])).convert("L"))
        assert drawn.shape[1] == pytest.approx(4 * float(root.get("width", "0")), abs=4)
        assert drawn[0].min() > 240
        assert (drawn < 128).mean() > 0.01
        rows = list(csv.reader(StringIO(forms["csv"][1].decode())))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 3


def test_the_pdf_has_one_page_with_every_object_where_its_table_says(
    files: dict[str, Path], opened: Opened
) -> None:
    _, content = saved(opened(files["plan"]), "pdf")
    assert content.startswith(b"%PDF-1.4")
    start = int(content.rsplit(b"startxref\n", 1)[1].split()[0])
    assert content[start:].startswith(b"xref\n0 6\n")
    places = [int(place) for place in re.findall(rb"(\d{10}) 00000 n", content[start:])]
    for number, place in enumerate(places, 1):
        assert content[place:].startswith(b"%d 0 obj\n" % number)
    (length,) = re.findall(rb"/DCTDecode /Length (\d+)", content)
    begin = content.index(b"stream\n", content.index(b"/DCTDecode")) + len(b"stream\n")
    jpeg = Image.open(BytesIO(content[begin : begin + int(length)]))
    assert jpeg.format == "JPEG"
    assert content[begin + int(length) :].startswith(b"\nendstream")
