"""Every kind of page there is, in a headless Chromium: for everybody, on a phone, in the dark, on
paper, and without words on words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.report.html import as_html
from tests.every_page import every_page, makers
from tests.test_browser import SCREENS, Opened, axe, chromium, opened, pytestmark

__all__ = ["chromium", "opened", "pytestmark"]
OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("figure svg")) {
    const words = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim());
    const boxes = words.map((one) => one.getBoundingClientRect()).map((box, place) => [box, place]);
    const shown = boxes.filter(([box]) => box.width && box.height);
    for (const [a, i] of shown) for (const [b, j] of shown) {
      if (j <= i) continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 0.35 * Math.min(a.height, b.height)) {
        found.push(`${words[i].textContent.trim()} | ${words[j].textContent.trim()}`);
      }
    }
  }
  return found;
}"""
"""Pairs of words in pictures of which one lies on the other."""


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each maker as a file."""
    folder = tmp_path_factory.mktemp("every")
    found = {}
    for maker, made in every_page(folder).items():
        path = folder / f"{maker.replace(':', '_')}.html"
        path.write_text(as_html(made), "utf-8")
        found[maker] = path
    return found


def unfold(shown: Any) -> None:
    shown.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


@pytest.mark.parametrize(("screen", "scheme"), [("desk", "light"), ("phone", "dark")])
@pytest.mark.parametrize("maker", makers())
def test_a_page_is_for_everybody(
    maker: str, screen: str, scheme: str, every: dict[str, Path], opened: Opened
) -> None:
    """As it opens and unfolded, axe finds nothing at all, and it is no wider than its screen."""
    shown = opened(every[maker], SCREENS[screen], unfolded=False, color_scheme=scheme)
    for unfolded in (False, True):
        if unfolded:
            unfold(shown)
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found = axe.Axe().run(shown).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []


@pytest.mark.parametrize("maker", makers())
def test_no_words_lie_on_others_in_a_picture(
    maker: str, every: dict[str, Path], opened: Opened
) -> None:
    assert opened(every[maker], SCREENS["desk"]).evaluate(OVERLAPS) == []


def test_words_on_words_are_found(every: dict[str, Path], opened: Opened) -> None:
    shown = opened(every["simulator.report.run.page:run_page"], SCREENS["desk"])
    shown.evaluate(
        "const word = [...document.querySelectorAll('.still svg text')].find("
        "(one) => one.getBoundingClientRect().width); word.after(word.cloneNode(true))"
    )
    assert len(shown.evaluate(OVERLAPS)) >= 1


@pytest.mark.parametrize("maker", makers())
def test_the_answer_is_printed_on_a_sheet(
    maker: str, every: dict[str, Path], opened: Opened
) -> None:
    """With its numbers and its picture, before any table."""
    shown = opened(every[maker], unfolded=False)
    shown.evaluate("for (const one of document.querySelectorAll('main, .said')) one.remove()")
    assert shown.pdf(format="A4").count(b"/Type /Page\n") == 1
