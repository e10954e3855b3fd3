"""HTML reports in a headless Chromium: they open quietly, zoom, sort, load nothing, and lie on the
screen as they should.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.inputs.catalogue import shipped
from simulator.report.html import as_html
from simulator.scenario import load
from simulator.scenario.evaluate import tuned
from simulator.studies.plan.study import study as plan_study
from simulator.studies.what_if import what_if
from tests.pages import LAW, PAGES, page
from tests.test_plan import small
from tests.test_sliders import by_law, positions

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra 'browser'")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="needs the extra 'browser'"
)
Image = pytest.importorskip("PIL.Image", reason="needs the extra 'browser'")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SCREENS = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs chromium (Debian: apt-get install chromium)"
    ),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each kind as a file."""
    found = {}
    for kind in PAGES:
        folder = tmp_path_factory.mktemp(kind)
        found[kind] = folder / f"{kind}.html"
        found[kind].write_text(as_html(page(kind, folder)), "utf-8")
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


Opened = Callable[..., Any]


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opened]:
    """Opens a file as a page of its own; fails behind the test where anything was asked for or
    complained of.
    """
    contexts, complaints, asked = [], [], []

    def open_(
        path: Path, viewport: dict[str, int] = DESK, unfolded: bool = True, **options: Any
    ) -> Any:
        context = chromium.new_context(viewport=viewport, **options)
        contexts.append(context)
        shown = context.new_page()
        shown.on("console", lambda message: complaints.append(message.text))
        shown.on("pageerror", lambda error: complaints.append(str(error)))
        shown.on(
            "request",
            lambda request: asked.append(request.url) if request.url != path.as_uri() else None,
        )
        shown.goto(path.as_uri())
        if unfolded:
            shown.evaluate(
                "for (const one of document.querySelectorAll('main details')) one.open = true"
            )
        return shown

    yield open_
    for context in contexts:
        context.close()
    assert (complaints, asked) == ([], [])


def view(shown: Any) -> tuple[float, float]:
    """What the timeline shows, in microseconds."""
    return tuple(
        shown.eval_on_selector(
            "[data-timeline]", "figure => [+figure.dataset.from, +figure.dataset.to]"
        )
    )


def details(shown: Any) -> str:
    return str(shown.inner_text(".details"))


# ---- every kind


@pytest.mark.parametrize("kind", PAGES)
def test_it_opens_quietly_and_fits_a_phone(
    kind: str, files: dict[str, Path], opened: Opened
) -> None:
    for options in (
        {},
        {"color_scheme": "dark"},
        {"viewport": PHONE, "is_mobile": True, "has_touch": True},
    ):
        shown = opened(files[kind], **options)
        wide, inner = shown.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= inner
        assert shown.title().endswith("· specsim")
        first = shown.locator(".answer, .highlights").first.bounding_box()
        assert first["y"] < 400  # the answer comes first, on a phone too


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("kind", PAGES)
def test_the_first_screen_has_answer_three_numbers_and_picture(
    kind: str, screen: str, files: dict[str, Path], opened: Opened
) -> None:
    """Numbers and answer are all there, the picture at least in a third of the screen."""
    shown = opened(files[kind], SCREENS[screen], unfolded=False)
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    high = SCREENS[screen]["height"]

    def box(selector: str) -> Any:
        return shown.locator(selector).first.bounding_box()

    for selector in (*(f".highlights div:nth-child({place})" for place in (1, 2, 3)), ".answer"):
        assert box(selector)["y"] + box(selector)["height"] < high, selector
    picture = box("figure")
    assert min(picture["y"] + picture["height"], high) - picture["y"] > min(
        high / 3, 0.99 * picture["height"]
    )
    shown.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("kind", PAGES)
def test_a_phone_sees_one_picture_of_each_whole_unless_panels_stand_side_by_side(
    kind: str, files: dict[str, Path], opened: Opened
) -> None:
    shown = opened(files[kind], SCREENS["phone"])
    seen = shown.eval_on_selector_all(
        ".still:has(svg + svg)",
        """all => all.filter(one => one.offsetParent).map(one => [
            [...one.querySelectorAll(":scope > svg")].map(svg => svg.getBoundingClientRect().width),
            one.scrollWidth <= one.clientWidth])""",
    )
    for (wide, narrow), fits in seen:
        assert (wide, narrow > 0.0, fits) == (0.0, True, True)
    desk = opened(files[kind], SCREENS["desk"])
    phones = desk.eval_on_selector_all(
        ".still > svg + svg", "all => all.map(svg => svg.getBoundingClientRect().width)"
    )
    assert set(phones) <= {0}


@pytest.mark.parametrize(("screen", "scheme"), [("desk", "light"), ("phone", "dark")])
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing_serious(
    kind: str, screen: str, scheme: str, files: dict[str, Path], opened: Opened
) -> None:
    """As the page opens, and with everything unfolded."""
    shown = opened(files[kind], SCREENS[screen], unfolded=False, color_scheme=scheme)
    for unfolded in (False, True):
        if unfolded:
            shown.evaluate(
                "for (const one of document.querySelectorAll('details')) one.open = true"
            )
        assert serious(shown) == []


def serious(shown: Any) -> list[tuple[str, str]]:
    """What axe-core finds on a page that is serious or critical: the rule, and the first place."""
    found = axe.Axe().run(shown).response["violations"]
    return [
        (one["id"], one["nodes"][0]["html"])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_axe_would_find_faint_words_and_a_page_without_a_language(
    files: dict[str, Path], opened: Opened
) -> None:
    shown = opened(files["run"])
    shown.evaluate("document.querySelector('.answer').style.color = '#bbb'")
    shown.evaluate("document.querySelector('html').removeAttribute('lang')")
    assert {rule for rule, _ in serious(shown)} == {"color-contrast", "html-has-lang"}


def test_a_page_that_would_ask_or_complain_is_caught(
    files: dict[str, Path], chromium: Any, tmp_path: Path
) -> None:
    """The policy refuses what a broken template might let in, and what it refuses is seen."""
    evil = tmp_path / "evil.html"
    text = files["live"].read_text("utf-8")
    evil.write_text(
        text.replace(
            "<h1>",
            "<img src='https://example.org/x.png'><script>document.title = 'mine'</script><h1>",
            1,
        )
    )
    shown, complaints = chromium.new_page(), []
    shown.on("console", lambda message: complaints.append(message.text))
    shown.goto(evil.as_uri())
    assert shown.title() != "mine"
    assert sum("Content Security Policy" in complaint for complaint in complaints) == 2
    shown.close()


def test_the_committed_report_opens_too(opened: Opened) -> None:
    committed = shipped() / "reports/validation/validation.html"
    for viewport in (DESK, PHONE):
        shown = opened(committed, viewport)
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert committed.stat().st_size < 1_500_000


def test_dark_is_dark_and_figures_with_it(files: dict[str, Path], opened: Opened) -> None:
    """Charts of ours have colours for both; what matplotlib drew is turned around."""
    drawn = {"run": ("body", ".still:not(.inked) svg", ".highlights div"), "load": (".inked svg",)}
    for scheme, dark in (("light", False), ("dark", True)):
        for kind, selectors in drawn.items():
            shown = opened(files[kind], color_scheme=scheme)
            for selector in selectors:
                visible = shown.locator(f"{selector}:visible").first
                pixels = np.asarray(Image.open(BytesIO(visible.screenshot())).convert("L"))
                assert (np.median(pixels) < 60) == dark, (kind, selector)


def test_print_unfolds_and_has_no_tools(files: dict[str, Path], opened: Opened) -> None:
    shown = opened(files["run"], unfolded=False)
    assert not shown.is_visible("[data-timeline] .still")
    shown.emulate_media(media="print")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shown.is_visible("[data-timeline] .still svg")
    assert shown.is_visible("details pre")
    for gone in ("nav", ".tools", ".chart"):
        assert not shown.is_visible(gone)
    shown.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown.locator("details[open]").count() == 0


@pytest.mark.parametrize("kind", PAGES)
def test_the_answer_is_printed_on_a_sheet_of_its_own(
    kind: str, files: dict[str, Path], opened: Opened
) -> None:
    """With its picture, before what is folded on a screen."""
    shown = opened(files[kind], unfolded=False)
    sheets = shown.pdf(format="A4").count(b"/Type /Page\n")
    shown.evaluate("document.querySelector('main').remove()")
    assert shown.pdf(format="A4").count(b"/Type /Page\n") == 1 < sheets


def test_it_reads_without_the_script(files: dict[str, Path], opened: Opened) -> None:
    shown = opened(files["run"], java_script_enabled=False)
    assert shown.is_visible("[data-timeline] .still svg")
    assert not shown.is_visible(".tools")


# ---- tables


def test_tables_sort_by_number_and_by_word(files: dict[str, Path], opened: Opened) -> None:
    shown = opened(files["run"])
    table = shown.locator("table[data-sortable]", has=shown.get_by_text("parameter"))

    def column(place: int) -> list[str]:
        return [
            str(text) for text in table.locator(f"tbody tr > :nth-child({place})").all_inner_texts()
        ]

    before, value = column(3), table.get_by_role("columnheader", name="value")
    value.get_by_role("button").click()
    assert [float(text) for text in column(3)] == sorted(map(float, before))
    assert value.get_attribute("aria-sort") == "ascending"
    value.get_by_role("button").press("Enter")
    assert [float(text) for text in column(3)] == sorted(map(float, before), reverse=True)
    assert value.get_attribute("aria-sort") == "descending"
    table.get_by_role("columnheader", name="confidence").get_by_role("button").click()
    assert column(1) == sorted(column(1))
    assert value.get_attribute("aria-sort") is None
    assert sorted(column(3)) == sorted(before)


def test_what_is_empty_comes_last(files: dict[str, Path], opened: Opened) -> None:
    shown = opened(files["live"])
    table = shown.locator("table[data-sortable]").first
    for _ in ("ascending", "descending"):
        table.get_by_role("columnheader", name="γ").get_by_role("button").click()
        held = table.locator("tbody tr > :nth-child(2)").all_inner_texts()
        assert [bool(text) for text in held] == sorted(map(bool, held), reverse=True)
        assert len(set(held)) == 3


# ---- the timeline


def test_the_wheel_zooms_where_it_points_once_the_drawing_has_been_clicked(
    files: dict[str, Path], opened: Opened
) -> None:
    shown = opened(files["run"])
    chart, first = shown.locator(".chart"), view(shown)
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    at = box["x"] + 0.75 * box["width"], box["y"] + 60
    shown.mouse.move(*at)
    shown.mouse.wheel(0, -200)
    shown.wait_for_timeout(200)
    assert view(shown) == first  # the page has scrolled instead
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    at = box["x"] + 0.75 * box["width"], box["y"] + 60
    shown.mouse.click(*at)
    widths = [view(shown)[1] - view(shown)[0]]
    for turn in (-400, -400, 800):
        shown.mouse.wheel(0, turn)
        shown.wait_for_timeout(100)
        widths.append(view(shown)[1] - view(shown)[0])
    assert widths[1] == pytest.approx(widths[0] * 1.0015**-400)
    assert widths[2] == pytest.approx(widths[0] * 1.0015**-800)
    assert view(shown) == pytest.approx(first)


@pytest.mark.parametrize("kind", ["run", "pipeline"])
def test_keys_zoom_pan_and_walk_from_span_to_span(
    kind: str, files: dict[str, Path], opened: Opened
) -> None:
    shown = opened(files[kind])
    chart, (begin, end) = shown.locator(".chart"), view(shown)
    chart.press("+")
    assert view(shown)[1] - view(shown)[0] == pytest.approx(0.6 * (end - begin))
    left, right = view(shown)
    for key, share in (("Shift+ArrowRight", 0.25), ("Shift+ArrowLeft", 0.0)):
        chart.press(key)
        assert view(shown) == pytest.approx(
            (left + share * (right - left), right + share * (right - left))
        )
    chart.press("-")
    assert view(shown) == pytest.approx((begin, end))
    chart.press("Home")
    assert view(shown) == (begin, end)
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft"):
        chart.press(key)
        seen.append(details(shown))
    assert all(" ms, from " in one for one in seen)
    lanes = [one.partition(":")[0] for one in seen]
    assert lanes[0] == lanes[1] != lanes[2]
    assert lanes[3] == lanes[0]
    assert len(set(seen)) >= 3
    assert shown.locator("rect.chosen").count() == 1
    chart.press("End")
    assert view(shown)[0] == 0
    assert view(shown)[1] > end


def test_a_mouse_shows_details_and_pans_and_buttons_do_the_same(
    files: dict[str, Path], opened: Opened
) -> None:
    shown = opened(files["run"])
    chart, first = shown.locator(".chart"), view(shown)
    chart.scroll_into_view_if_needed()
    before = details(shown)
    shown.locator("rect.span").nth(1).hover()
    assert details(shown) != before
    assert " ms, from " in details(shown)
    box = chart.bounding_box()
    shown.mouse.move(box["x"] + 500, box["y"] + 40)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 300, box["y"] + 40, steps=4)
    shown.mouse.up()
    moved = view(shown)
    assert moved[0] > first[0]
    assert moved[1] - moved[0] == pytest.approx(first[1] - first[0])
    for button, check in {
        "Reset": lambda: view(shown) == first,
        "Zoom in": lambda: view(shown)[1] - view(shown)[0] < first[1] - first[0],
        "Zoom out": lambda: view(shown) == pytest.approx(first),
        "Later": lambda: view(shown)[0] > first[0],
        "Earlier": lambda: view(shown) == pytest.approx(first),
        "All": lambda: view(shown)[0] == 0,
    }.items():
        shown.get_by_role("button", name=button, exact=True).click()
        assert check(), button


def test_two_fingers_zoom(files: dict[str, Path], opened: Opened) -> None:
    shown = opened(files["run"], PHONE, is_mobile=True, has_touch=True)
    shown.locator(".chart").scroll_into_view_if_needed()
    box, first = shown.locator(".chart").bounding_box(), view(shown)
    devtools = shown.context.new_cdp_session(shown)

    def touch(kind: str, *across: float) -> None:
        points = [
            {"x": box["x"] + x, "y": box["y"] + 50, "id": finger} for finger, x in enumerate(across)
        ]
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 170, 230)
    for apart in (10, 20, 30, 40):
        touch("touchMove", 170 - apart, 230 + apart)
    touch("touchEnd")
    assert view(shown)[1] - view(shown)[0] < 0.6 * (first[1] - first[0])


def test_spans_lie_where_their_times_say(files: dict[str, Path], opened: Opened) -> None:
    shown = opened(files["run"])
    begin, end = view(shown)
    found = shown.evaluate(
        """() => [...document.querySelectorAll("rect.span")].map((box) =>
            [box.span.start, box.span.end, +box.getAttribute("x"), +box.getAttribute("width")])"""
    )
    row = shown.eval_on_selector(
        "rect.row", "row => [+row.getAttribute('x'), +row.getAttribute('width')]"
    )
    assert len(found) > 5
    for start, stop, x, wide in found:
        left, right = (
            row[0] + (min(max(time, begin), end) - begin) / (end - begin) * row[1]
            for time in (start, stop)
        )
        assert x == pytest.approx(left, abs=1e-6)
        assert wide == pytest.approx(max(right - left, 1), abs=1e-6)


# ---- sliders


def placed(shown: Any, **places: Any) -> dict[str, float]:
    """What the page says with its sliders at these places."""
    sliders = shown.locator("figure[data-sliders]")
    for name, place in places.items():
        dial = sliders.locator(f"[data-dial={name}]")
        if name == "duration":
            dial.select_option(place)
        elif dial.is_visible():
            dial.fill(str(place))
    found = sliders.evaluate(
        "f => [...f.querySelectorAll('[data-shows]')].map(one => [one.dataset.shows, "
        "+one.dataset.value])"
    )
    return {str(name): float(value) for name, value in found}


@pytest.mark.parametrize(
    "viewport",
    [{"width": 1440, "height": 900}, {"width": 390, "height": 844}],
    ids=["desk", "phone"],
)
def test_sliders_show_what_python_says(
    viewport: dict[str, int], files: dict[str, Path], opened: Opened, tmp_path: Path
) -> None:
    """To 1e-9, on the page of a law and on that of a plan; what a browser reads is what the law is
    asked for.
    """
    fleet = plan_study(small(tmp_path), draws=1)
    drafted = next(
        one for one in fleet.search.by_family.values() if one.candidate.strategy == "drafted"
    ).candidate
    laws = {"law": (load(*LAW), None), "plan": (tuned(drafted.loaded), fleet.law["requests"])}
    for kind, (loaded, requests) in laws.items():
        shown, pieces = opened(files[kind], viewport), what_if(loaded, requests)
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for where in positions(pieces, 15):
            rate, window, duration, share = where
            said = placed(shown, rate=rate, window=window, duration=duration, share=share, price=30)
            expected = by_law(loaded, pieces, where)
            expected |= {
                "speedup": pieces["plain_s"] / expected["tpot"],
                "usd": expected["usd"] * 1.5,
            }
            assert said == pytest.approx(expected, rel=1e-9, abs=1e-15), (kind, where)


@pytest.mark.parametrize("kind", ["law", "run", "plan"])
@pytest.mark.parametrize(
    "viewport",
    [{"width": 1440, "height": 900}, {"width": 390, "height": 844}],
    ids=["desk", "phone"],
)
def test_sliders_are_moved_by_keys(
    kind: str, viewport: dict[str, int], files: dict[str, Path], opened: Opened
) -> None:
    shown = opened(files[kind], viewport)
    sliders = shown.locator("figure[data-sliders]")
    first = placed(shown)
    dials = [dial for dial in sliders.locator("[data-dial]").all() if dial.is_visible()]
    dials[0].focus()
    for dial in dials[1:]:  # one after the other by Tab
        shown.keyboard.press("Tab")
        assert dial.evaluate("dial => dial === document.activeElement")
    changed = []
    for name, key in (("rate", "End"), ("window", "Home"), ("share", "ArrowRight")):
        dial = sliders.locator(f"[data-dial={name}]")
        before = placed(shown), dial.get_attribute("aria-valuetext")
        dial.press(key)
        assert (placed(shown), dial.get_attribute("aria-valuetext")) != before
        changed.append(placed(shown)["tpot"])
        assert dial.bounding_box()["x"] + dial.bounding_box()["width"] <= viewport["width"]
    assert len({*changed, first["tpot"]}) == 4
    assert sliders.locator(".curve svg").count() == 1
    sliders.get_by_role("button", name="As it is").press("Enter")
    assert placed(shown) == first


def test_without_the_script_a_page_says_where_sliders_are(
    files: dict[str, Path], opened: Opened
) -> None:
    shown = opened(files["law"], java_script_enabled=False)
    assert shown.get_by_text("Sliders over this law").is_visible()
    assert not shown.is_visible("[data-dial]")


def test_a_plan_fits_one_screen(files: dict[str, Path], opened: Opened) -> None:
    shown = opened(files["plan"], {"width": 1440, "height": 900}, unfolded=False)
    for part in (
        ".answer",
        ".highlights",
        "#answer figure",
        ".said > ul >> nth=0",
        ".said > ul >> nth=1",
    ):
        box = shown.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 900, part
    assert shown.locator("details[open]").count() == 0
