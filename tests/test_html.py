"""HTML reports without a browser: nothing from a file becomes markup, every name is its own,
colours can be read.
"""

from __future__ import annotations

import csv
import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from html.parser import HTMLParser
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as some

from benchmarks.live import page as live_page
from benchmarks.live.page import rounds_csv
from simulator.cli.main import main
from simulator.core.world import Span
from simulator.report import html, panels, timeline
from simulator.report.blocks import (
    Bullets,
    Code,
    Figure,
    Highlight,
    Hyperlink,
    Listing,
    Page,
    Paragraph,
    Section,
    Strong,
    Table,
    Words,
)
from simulator.report.html import TEMPLATES, as_html, cells, plain
from simulator.report.markdown import as_markdown, inline
from tests.pages import KINDS, LIVE, SWEEP, page

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"><style>*{fill:red}</style><g '
    'id="a b"/></svg>'
)
VOID = {"meta", "input", "link", "br", "wbr"}


class Parsed(HTMLParser):
    """Elements as (tag, attributes, text inside, tags around)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str], tuple[str, ...]]] = []
        self.open: list[int] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        around = tuple(self.elements[page][0] for page in self.open)
        self.elements.append((tag, {name: value or "" for name, value in attrs}, [], around))
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.elements[self.open.pop()][0] == tag

    def handle_data(self, data):
        for place in self.open:
            self.elements[place][2].append(data)

    def all(self, tag):
        return [
            (attributes, "".join(text))
            for name, attributes, text, _ in self.elements
            if name == tag
        ]


class Lazy(dict[str, Any]):
    """Made when first asked for."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, kind: str) -> Any:
        self[kind] = self.make(kind)
        return self[kind]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    return Lazy(lambda kind: page(kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture(scope="module")
def parsed(pages: dict[str, Page]) -> dict[str, Parsed]:
    return Lazy(lambda kind: Parsed(as_html(pages[kind])))


every_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.full) if kind == "plan" else kind for kind in KINDS],
)
"""A plan takes some seconds."""


def every_word(one: Page) -> list[Words]:
    """All that a page says, in order, without the figures."""
    found: list[Words] = [one.title, one.about, one.answer]
    for blocks in (one.opening, *(section.blocks for section in one.sections)):
        for block in blocks:
            match block:
                case Paragraph(words):
                    found.append(words)
                case Bullets(items):
                    found += items
                case Table(head, rows):
                    found += [*head, *chain.from_iterable(rows)]
                case Listing(text):
                    found.append(text)
    return [*found, one.command]


# ---- what came from a file


def everywhere(text: str) -> Page:
    """A page with the same words in every place that takes any."""
    marks: Words = (text, Strong(text), Code(text), Hyperlink(text, text))
    blocks = (
        Paragraph(marks),
        Bullets([marks]),
        Table((text, "b"), [(marks, text), (text, "50.0 %")], text, bars=(1,), badges=(0,)),
        Figure(text, "a.svg", SVG, {"lanes": [text]}),
        Listing(text, "yaml", text),
        Listing(text),
    )
    return Page(
        text, text, text, blocks, (Section(text, blocks[:1]),), text, (Highlight(text, text),)
    )


@pytest.mark.parametrize(
    "text",
    [
        "</script><script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "{{ 7*7 }}{% raw %}",
        "<!--",
        "]]>&lt;",
    ],
)
def test_text_is_never_markup(text: str) -> None:
    nasty, tame = Parsed(as_html(everywhere(text))), Parsed(as_html(everywhere("tame")))
    shape = [
        [(tag, set(attributes)) for tag, attributes, _, _ in one.elements] for one in (nasty, tame)
    ]
    assert shape[0] == shape[1]
    for tag in (
        "title",
        "h1",
        "h2",
        "p",
        "li",
        "caption",
        "th",
        "td",
        "summary",
        "code",
        "dt",
        "dd",
        "figcaption",
        "strong",
        "a",
    ):
        assert any(text in got for _, got in nasty.all(tag)), tag


@given(some.text(max_size=40))
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    one = Parsed(as_html(Page("t", "", "", (Paragraph((Code(text), Strong(text))),), (), "")))
    assert (
        [got for _, got in one.all("strong")] == [text] == [got for _, got in one.all("code")[:1]]
    )


@every_kind
def test_nothing_is_loaded_and_only_the_own_script_runs(
    kind: str, pages: dict[str, Page], parsed: dict[str, Parsed]
) -> None:
    for tag, attributes, text, _ in parsed[kind].elements:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form")
        assert tag not in ("image", "use") or attributes["xlink:href"].startswith(
            ("#", "data:image/png;")
        )
        assert not [name for name in attributes if name.startswith("on")]
        assert "src" not in attributes
        if tag == "link":
            assert attributes["href"] == "data:,"
        held = " ".join([*attributes.values(), *(text if tag == "style" else ())])
        assert not re.search(r"url\((?!#)|@import", held)
    (policy,) = [held["content"] for held, _ in parsed[kind].all("meta") if "http-equiv" in held]
    scripts = {
        text for held, text in parsed[kind].all("script") if held.get("type") != "application/json"
    }
    assert {
        f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts
    } == set(re.findall(r"'sha256-[^']+'", policy))
    assert policy.startswith("default-src 'none'; ")


# ---- the same facts as Markdown


@every_kind
def test_both_tell_everything_that_the_page_holds(
    kind: str, pages: dict[str, Page], parsed: dict[str, Parsed]
) -> None:
    (_, body), text = parsed[kind].all("body")[0], as_markdown(pages[kind])
    body = body.replace("\u00a0", " ")
    for words in every_word(pages[kind]):
        assert plain(words) in body
        told = inline(words).rstrip()
        listed = words.rstrip() if isinstance(words, str) else told
        assert told in text or listed in text or told.replace("|", "\\|").replace("\n", " ") in text


@every_kind
def test_the_same_page_gives_the_same_text(kind: str, pages: dict[str, Page]) -> None:
    assert as_html(pages[kind]) == as_html(pages[kind])
    assert len(as_html(pages[kind])) < 1_500_000


# ---- for everybody


@every_kind
def test_names_are_unique_and_lead_somewhere(kind: str, parsed: dict[str, Parsed]) -> None:
    names = Counter(held["id"] for _, held, _, _ in parsed[kind].elements if "id" in held)
    assert [name for name, count in names.items() if count > 1 or re.search(r"\s", name)] == []
    for _, held, _, _ in parsed[kind].elements:
        for name in (held.get("aria-labelledby"), held.get("aria-describedby")):
            assert name is None or name in names
        for name, value in held.items():
            assert not (name.endswith("href") and value.startswith("#")) or value[1:] in names, (
                value
            )
            for used in re.findall(r"url\(#([^)]+)\)", value):
                assert used in names


@every_kind
def test_pictures_tables_and_what_can_be_focused_have_names(
    kind: str, parsed: dict[str, Parsed]
) -> None:
    one = parsed[kind]
    titles = {held["id"] for held, text in one.all("title") if "id" in held and text}
    for held, _ in one.all("svg"):
        assert held["role"] == "img"
        assert held["aria-labelledby"] in titles
    assert len(one.all("caption")) == len(one.all("table")) > 0
    assert all(text for _, text in one.all("caption"))
    for held, text in one.all("th"):
        assert held["scope"] in ("col", "row")
        assert text.strip()
    for tag, held, _, _ in one.elements:
        if "tabindex" in held and tag != "pre":
            assert held["aria-label"]
            assert held["role"]
    assert [len(one.all(tag)) for tag in ("h1", "main", "title")][:2] == [1, 1]
    assert one.all("html")[0][0]["lang"] == "en"
    levels = [int(tag[1]) for tag, *_ in one.elements if re.fullmatch("h[1-6]", tag)]
    assert levels == [1, *[2] * (len(levels) - 1)]


def luminance(colour: str) -> float:
    """Relative, 0 to 1 (WCAG 2)."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Between two colours, 1 to 21 (WCAG 2)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_round_numbers() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(scheme: str) -> None:
    style = (TEMPLATES / "style.css").read_text("utf-8")
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part)) for part in style.split("@media")[:2]
    )
    assert set(light) == set(dark)
    colours = light if scheme == "light" else dark
    pairs = [(ink, page) for ink in ("ink", "soft", "accent") for page in ("page", "card")]
    pairs += [
        ("ink", "bar"),
        *((name.removesuffix("-page"), name) for name in colours if name.endswith("-page")),
    ]
    assert len(pairs) == 14
    assert {
        f"{ink} on {page}": round(contrast(colours[ink], colours[page]), 2)
        for ink, page in pairs
        if contrast(colours[ink], colours[page]) < 4.5
    } == {}


@pytest.mark.parametrize(
    "fill", sorted({*timeline.SPANS, *chain.from_iterable(timeline.FAMILIES.values())})
)
def test_words_on_spans_stand_out(fill: str) -> None:
    assert contrast(timeline.ink_on(fill), fill) >= 4.5


# ---- tables, figures, timelines


def test_columns_of_numbers_shares_and_long_words() -> None:
    rows = [
        ("a", "1,234.5", "82.3 %", "x" * 50, "–"),
        (Strong("b"), "-5.84 %", "", "", "73.5 % (70.8 to 76.0)"),
    ]
    head, shown = cells(Table(("a", "b", "c", "d", "e"), rows, "t", bars=(2,), badges=(0,)))
    assert [cell.style for cell in head] == ["short", "number", "number", "long", "number"]
    assert [cell.bar_percent for cell in shown[0]] == [None, None, 82.3, None, None]
    assert shown[1][2].bar_percent is None
    assert [row[0].badge for row in shown] == ["a", "b"]


def test_a_picture_keeps_its_names_and_its_style_to_itself() -> None:
    svg = (
        '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
        "<title>old</title><metadata>who</metadata><style>*{fill:red}</style>"
        '<clipPath id="p 1"/><g clip-path="url(#p)"><use xlink:href="#m"/></g></svg>'
    )
    shown = str(html.drawn(Figure("new & better", "two words.svg", svg)))
    assert shown == (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'id="two-words-svg" role="img" '
        'aria-labelledby="two-words-svg-title"><title id="two-words-svg-title">new &amp; '
        "better</title>"
        '<style>#two-words-svg { *{fill:red} }</style><clipPath id="two-words-svg-p-1" />'
        '<g clip-path="url(#two-words-svg-p)"><use xlink:href="#two-words-svg-m" /></g></svg>'
    )


def test_spans_for_a_drawing_to_be_zoomed() -> None:
    spans = [
        Span("target", 0.0, 0.010, "verify"),
        Span("stage 2", 0.010, 0.012, "compute"),
        Span("link 1", 0.010, 0.010, "nothing"),
        Span("stage 1", 0.012, 0.013, "compute"),
        Span("link 1", 0.0125, 0.0135, "transmit"),
        Span("target", 0.020, 0.030, "left out"),
    ]
    assert timeline.span_data(spans, (0.005, 0.013), limit=5) == {
        "lanes": ["target", "stage 1", "link 1", "stage 2"],
        "kinds": [
            {"lane": "target", "label": "verify", "fill": panels.SKY, "ink": "#000000"},
            {"lane": "stage", "label": "compute", "fill": panels.BLUE, "ink": "#ffffff"},
            {"lane": "link", "label": "transmit", "fill": panels.VERMILLION, "ink": "#000000"},
        ],
        "spans": [
            [0, 0, 0.0, 10000.0],
            [3, 1, 10000.0, 2000.0],
            [1, 1, 12000.0, 1000.0],
            [2, 2, 12500.0, 1000.0],
        ],
        "view": [5000.0, 13000.0],
    }


def test_templates_are_small_and_load_nothing() -> None:
    for path in TEMPLATES.iterdir():
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= 400, path.name
        assert not re.search(r"(?<!xmlns=\")https?://(?!www\.w3\.org/2000/svg)", text), path.name
    assert {path.stem for path in Path(TEMPLATES).glob("*.html")} == {
        *("page", "fragment", "paragraph", "bullets", "table", "figure", "listing", "sliders")
    }


# ---- live decoding


def test_a_live_run_is_told_with_what_it_missed_and_every_round() -> None:
    data = json.loads(LIVE.read_text("utf-8"))
    one = live_page.page(data, "a machine", "2026-11-21", "python -m benchmarks.live decoding")
    assert one.about == "a machine; 2026-11-21."
    assert one.answer.startswith(
        "5 of 6 settings are predicted within their bounds, half of them within 7.5 %; 100.0 % "
        "of the"
    )
    assert one.answer.endswith("36 of 36 requests took the simulated steps one by one.")
    assert [
        item for block in one.opening if isinstance(block, Bullets) for item in block.items
    ] == ["duodecoding with γ = 2: -17.7 %, and 12.0 % were allowed"]
    rows = list(csv.DictReader(StringIO(rounds_csv(data))))
    assert len(rows) == sum(len(point["measured_ms"]) for point in data["points"])
    assert rows[4] == {
        "strategy": "vanilla_sd",
        "gamma": "2",
        "round": "2",
        "measured_ms": "26.86",
        "predicted_ms": "31.258",
    }
    for point in data["points"]:
        point["held"] = True
    (told,) = (
        block for block in live_page.page(data, "m", "d", "c").opening if isinstance(block, Bullets)
    )
    assert told.items == [
        "Every error is within its bound: 8 or 12 %, or the spread of rounds where that is larger."
    ]


# ---- sweeps


def test_a_sweep_is_told_with_its_best_point_and_how_to_look_closer(pages: dict[str, Page]) -> None:
    one = pages["sweep"]
    assert one.title == "small: 12 points of durations_only"
    assert one.answer.startswith(
        "Best at strategy.gamma = 8, durations.draft_ms = 6 (time per token (ms), simulation: "
    )
    assert [(held.value, held.what) for held in one.highlights[2:]] == [
        ("12 of 12", "points evaluated"),
        ("3", "of them could not run"),
    ]
    text = as_markdown(one)
    assert (
        "specsim run durations_only --set requests.count=4 --set requests.output_tokens=33 "
        "--set strategy.gamma=8 --set durations.draft_ms=6" in text
    )
    assert re.search(
        r"The law \(marginal rates\) is off the simulation's time per token by \S+ % in the "
        r"median, and by \S+ % at strategy.gamma = \S+, durations.draft_ms = \S+, the worst. "
        r"Points that both evaluated: 4\.",
        text,
    )
    assert "| strategy.gamma=1, durations.draft_ms=-1 | " in text
    assert [figure.file for figure in one.figures] == ["small_1.svg"]
    points = next(
        block
        for section in one.sections
        if section.title == "Every point"
        for block in section.blocks[1:]
    )
    assert len(points.rows) == 9
    assert sum(row[-1] != "" for row in points.rows) == 4


def test_the_command_writes_the_page_its_pictures_and_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SWEEP, "utf-8")
    arguments = [
        "sweep",
        "small.yaml",
        "--set",
        "seed=3",
        "--evaluate",
        "law",
        "--workers",
        "1",
        "--report",
        "out",
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert {path.name for path in Path("out").iterdir()} == {
        "small.md",
        "small.html",
        "small.csv",
        "small_1.svg",
        "small_1.data.csv",
    }
    assert "specsim sweep small.yaml --set seed=3 --evaluate law\n" in Path(
        "out/small.md"
    ).read_text("utf-8")
    assert len(Path("out/small.csv").read_text().splitlines()) == 13


class Shown(HTMLParser):
    """The words of a page that are read before anything is unfolded, and how many pictures and
    numbers are among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.words, self.figures, self.numbers, self.within = 0, 0, 0, 0, list[str]()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        folded = (
            tag in ("details", "style", "script", "svg", "title", "nav")
            or ("hidden", None) in attributes
        )
        if folded or self.within[-1:] == [tag]:
            self.within.append(tag)
        self.figures += tag == "figure" and not self.within
        self.numbers += tag == "dd" and not self.within

    def handle_endtag(self, tag: str) -> None:
        if self.within and tag == self.within[-1]:
            self.within.pop()

    def handle_data(self, data: str) -> None:
        self.words += 0 if self.within else len(data.split())


MOST_WORDS = 400


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_screen_is_short(kind: str, pages: dict[str, Page]) -> None:
    """An answer, one picture, sliders, a few numbers; the rest is folded."""
    shown = Shown()
    shown.feed(as_html(pages[kind]))
    assert 20 < shown.words <= MOST_WORDS
    assert shown.figures <= 2  # a picture, and sliders
    assert 2 <= shown.numbers <= 4
