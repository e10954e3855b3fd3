"""A page as a single HTML file that loads nothing: it contains its style, script and pictures.

All text goes through :func:`escape`; pictures are SVG made by this package, parsed and serialised
again. A content security policy allows the script of the page and nothing else, and no request.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from simulator.core.plain import PlainMapping
from simulator.inputs.writing import json_text
from simulator.report.blocks import (
    Block,
    Bullets,
    Code,
    Figure,
    Highlight,
    Hyperlink,
    Listing,
    Page,
    Paragraph,
    Section,
    Sliders,
    Strong,
    Table,
    Words,
)

TEMPLATES = Path(__file__).parent / "templates"
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
NUMBER = re.compile(r"\s*[-+−<>~±]*\s*[\d,.]+(e[-+]?\d+)?( ?[%×])?(\s*\(.*\)| to [\d.,]+)?\s*")
SHARE = re.compile(r"(\d+(?:\.\d+)?) %")
UNIT = re.compile(r"(?<=\d) (?=(%|×|[mu]?s)(?![\w]))")
"""Matches the blank between a number and its unit, where no line may end."""
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})
JSON_ESCAPES = str.maketrans({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "'": "\\u0027"})
"""What text, and JSON inside of a script, may not hold."""
SHORT = 20
LONG = 36
"""Letters of a cell that stays on a single line, and of a cell that needs several."""


ANCHORS = ("answer", "made-by", "made-by-title")
"""Anchors of every page that are not those of a section of its own."""


class TableCell(NamedTuple):
    """A cell of a table: its words, the classes of its style and badge, and the width of the bar
    behind it in per cent.
    """

    words: Words
    style: str
    badge: str
    bar_percent: float | None


def as_html(page: Page) -> str:
    """Return a page as HTML text; the same page gives the same text."""
    style, script, sliders = (
        (TEMPLATES / name).read_text("utf-8") for name in ("style.css", "script.js", "sliders.js")
    )
    script += sliders if any(isinstance(block, Sliders) for block in page.blocks) else ""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    picture = next(page.figures, None)
    sections = anchored(page)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(page.title)} · specsim</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
{_lines(_header(page, picture))}</header>
<nav aria-label="Contents">
<ul>
{_lines(_contents(sections))}</ul>
</nav>
<main>
{_lines(_sections(sections, picture))}<section id="made-by" aria-labelledby="made-by-title">
<details>
<summary><h2 id="made-by-title">Made by</h2></summary>
{_typed(page.command or "(the command was not recorded)")}
</details>
</section>
</main>
<script>{script}</script>
</body>
</html>"""


def as_fragment(page: Page | None, table: str) -> str:
    """Return a part of another page: answer and highlights of ``page``, ``table`` (HTML of pandas,
    which escapes its cells), and the first picture.
    """
    return f"""<div class="specsim" style="max-width: 60em">
{_lines(_said(page) if page else ())}{table}
{_lines(_first_picture(page) if page else ())}</div>"""


def _said(page: Page) -> Iterator[str]:
    """Yield title, answer and highlights of a page for a notebook."""
    yield f"<p><strong>{escape(page.title)}</strong></p>"
    if page.answer:
        yield f"<p>{marked(page.answer)}</p>"
    if page.highlights:
        yield "<table>"
        for one in page.highlights:
            what, value = escape(one.what), escape(one.value)
            left = 'style="text-align: left"'
            yield f"<tr><th {left}>{what}</th><td {left}>{value}</td></tr>"
        yield "</table>"


def _first_picture(page: Page) -> Iterator[str]:
    for figure in islice(page.figures, 1):
        yield f'<div style="background: white">{drawn(figure)}</div>'


def escape(text: str) -> str:
    """Return text in which nothing is markup, also inside of an attribute."""
    return str(text).translate(ESCAPES)


def _lines(lines: Iterable[str]) -> str:
    """Return lines, each with its end."""
    return "".join(f"{line}\n" for line in lines)


def _header(page: Page, picture: Figure | None) -> Iterator[str]:
    """Yield the title and the answer, with the first picture and what it rests on."""
    yield f"<h1>{breakable(page.title)}</h1>"
    if page.about:
        yield f'<p class="about">{escape(page.about)}</p>'
    yield '<section id="answer" aria-label="Answer">'
    if page.highlights:
        yield '<dl class="highlights">'
        yield from map(_highlight, page.highlights)
        yield "</dl>"
    if page.answer:
        yield f'<p class="answer">{marked(page.answer)}</p>'
    if picture:
        yield _figure(picture)
    said = [_block(block) for block in page.opening if block is not picture]
    yield from said[:2]
    if said[2:]:
        yield '<details class="more">\n<summary>What it rests on</summary>'
        yield from said[2:]
        yield "</details>"
    yield "</section>"


def _highlight(one: Highlight) -> str:
    return f"<div><dt>{escape(one.what)}</dt><dd>{escape(one.value)}</dd></div>"


def _contents(sections: Iterable[tuple[str, Section]]) -> Iterator[str]:
    for anchor, section in sections:
        yield f'<li><a href="#{anchor}">{escape(section.title)}</a></li>'
    yield '<li><a href="#made-by">Made by</a></li>'


def _sections(sections: Iterable[tuple[str, Section]], picture: Figure | None) -> Iterator[str]:
    for anchor, section in sections:
        title = f"{anchor}--title"
        yield f'<section id="{anchor}" aria-labelledby="{title}">'
        yield f'<details>\n<summary><h2 id="{title}">{escape(section.title)}</h2></summary>'
        for block in section.blocks:
            if block is not picture:
                yield _block(block)
        yield "</details>\n</section>"


def _block(block: Block) -> str:
    """Return a block of a page as HTML."""
    match block:
        case Paragraph(words):
            return f"<p>{marked(words)}</p>"
        case Bullets(items):
            return f"<ul>\n{_lines(f'<li>{marked(item)}</li>' for item in items)}</ul>"
        case Listing():
            return _listing(block)
        case Table():
            return _table(block)
        case Figure():
            return _figure(block)
        case Sliders():
            return _sliders(block)


def _listing(listing: Listing) -> str:
    typed = _typed(listing.text)
    if not listing.title:
        return typed
    return f"<details>\n<summary>{escape(listing.title)}</summary>\n{typed}\n</details>"


def _typed(text: str) -> str:
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def _table(table: Table) -> str:
    head, rows = cells(table)
    title = escape(table.title)
    sortable = " data-sortable" if table.sortable else ""
    return f"""<div class="scroll" role="region" aria-label="Table: {title}" tabindex="0">
<table{sortable}>
<caption>{title}</caption>
<thead><tr>
{_lines(map(_head_cell, head))}</tr></thead>
<tbody>
{_lines(map(_row, rows))}</tbody>
</table>
</div>"""


def _head_cell(cell: TableCell) -> str:
    if not cell.words:
        return "<td></td>"
    return f'<th scope="col" class="{cell.style}">{escape(plain(cell.words))}</th>'


def _row(row: list[TableCell]) -> str:
    each = (_cell(cell, first=place == 0) for place, cell in enumerate(row))
    return f"<tr>{''.join(each)}</tr>"


def _cell(cell: TableCell, first: bool) -> str:
    words = marked(cell.words)
    if cell.badge:
        words = f'<span class="badge {cell.badge}">{words}</span>'
    style = f'class="{cell.style}"'
    if cell.bar_percent is not None:
        style = f'class="{cell.style} bar" style="--share: {cell.bar_percent}%"'
    if first and cell.words:
        return f'<th scope="row" {style}>{words}</th>'
    return f"<td {style}>{words}</td>"


def _figure(figure: Figure) -> str:
    title = escape(figure.title)
    timeline = " data-timeline" if figure.spans else ""
    inked = "" if "prefers-color-scheme" in figure.svg else " inked"
    live = f"\n{_live_timeline(figure, figure.spans)}" if figure.spans else ""
    return f"""<figure{timeline}>
<div class="still scroll{inked}" role="group" aria-label="{title}" tabindex="0">
{drawn(figure)}
</div>{live}
<figcaption>{title}</figcaption>
</figure>"""


KEYS = (
    "Drag to pan, pinch to zoom; the wheel zooms once the drawing is clicked, or with Ctrl. Keys: "
    "arrows from span to span, + and − zoom, Shift with arrows pans, End shows all, Home resets."
)
"""How a timeline is moved about."""


def _live_timeline(figure: Figure, spans: PlainMapping) -> str:
    """Return the place where the script draws a timeline that can be zoomed, and its data."""
    title = escape(figure.title)
    keys = f"{slug(figure.file)}-keys"
    return f"""<div class="live" hidden>
<div class="tools" role="toolbar" aria-label="Zoom and pan">
<button type="button" data-do="closer">Zoom in</button>
<button type="button" data-do="wider">Zoom out</button>
<button type="button" data-do="earlier">Earlier</button>
<button type="button" data-do="later">Later</button>
<button type="button" data-do="all">All</button>
<button type="button" data-do="reset">Reset</button>
</div>
<div class="chart" tabindex="0" role="application" aria-label="{title}, to be zoomed" \
aria-describedby="{keys}"></div>
<p class="details" role="status" aria-live="polite">Point at a span, touch it, or move to it with \
the arrow keys.</p>
<ul class="legend"></ul>
<p class="keys" id="{keys}">{KEYS}</p>
</div>
{_data(spans)}"""


def _data(data: PlainMapping) -> str:
    """Return data for the script of the page."""
    text = json_text(data, indent=None, sort_keys=True).translate(JSON_ESCAPES)
    return f'<script type="application/json">{text}</script>'


def _sliders(sliders: Sliders) -> str:
    """Return the sliders over a law, which the script of the page shows where it runs."""
    law = sliders.data
    as_it_is = law["shares"].index(1.0)
    last_share = len(law["shares"]) - 1
    last_rate = len(law["rates"]) - 1
    last_window = len(law["windows"]) - 1
    rate, window = law["start"]
    priced = law["usd_per_hour"] is not None
    durations = law["durations"]
    duration = usd = ""
    if durations:
        options = _lines(f"<option>{escape(name)}</option>" for name in durations)
        chosen = f'<select data-dial="duration">\n{options}</select>'
        duration = f"<label><span>Part of a step</span>{chosen}</label>\n"
    if priced:
        what = "<dt>per million tokens, decoding alone</dt>"
        usd = f'<div>{what}<dd data-shows="usd"></dd></div>\n'
    return f"""<figure class="sliders" data-sliders>
<p class="still">Sliders over this law stand here where the page may run its script.</p>
<div class="live" hidden>
<div class="dials">
{_dial("rate", "Chance that a draft token is kept", last_rate, rate, last_rate > 0)}
{_dial("window", "Draft tokens in a window", last_window, window, last_window > 0)}
{duration}{_dial("share", "How much of it there is", last_share, as_it_is, bool(durations))}
{_dial("price", "Price of a replica", last_share, as_it_is, priced)}
<div class="tools"><button type="button" data-do="reset">As it is</button></div>
</div>
<div role="status" aria-live="polite">
<dl class="highlights">
<div><dt>per token, by law</dt><dd data-shows="tpot"></dd></div>
<div><dt>the speed of plain decoding</dt><dd data-shows="speedup"></dd></div>
<div><dt>a step, of <span data-shows="tokens"></span> tokens a request</dt>\
<dd data-shows="step"></dd></div>
{usd}</dl>
</div>
<div class="curve"></div>
</div>
{_data(law)}
<figcaption>{escape(sliders.title)}</figcaption>
</figure>"""


def _dial(name: str, words: str, last: int, start: int, shown: bool) -> str:
    hidden = "" if shown else " hidden"
    steps = f'min="0" max="{last}" step="1" value="{start}"'
    dial = f'<input type="range" data-dial="{name}" {steps}><output></output>'
    return f"<label{hidden}><span>{words}</span>{dial}</label>"


def slug(title: str) -> str:
    """Return a title as the name of an anchor in the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"


def anchored(page: Page) -> list[tuple[str, Section]]:
    """Return the sections of a page with the names of their anchors, no two of them alike."""
    sections: dict[str, Section] = {}
    for section in page.sections:
        base = slug(section.title)
        names = (base, *(f"{base}-{number}" for number in range(2, len(page.sections) + 2)))
        sections[next(name for name in names if name not in sections and name not in ANCHORS)] = (
            section
        )
    return list(sections.items())


def breakable(title: str) -> str:
    """Return a title as HTML in which a line may break behind any underscore."""
    return escape(title).replace("_", "_<wbr>")


def marked(words: Words) -> str:
    """Return words with their marks as HTML; text is escaped."""
    match words:
        case Strong(text):
            return f"<strong>{escape(text)}</strong>"
        case Code(text):
            return f"<code>{escape(text)}</code>"
        case Hyperlink(text, to):
            return f'<a href="{escape(to)}">{escape(text)}</a>'
        case tuple():
            return "".join(map(marked, words))
        case _:
            return escape(UNIT.sub("\u00a0", words))


def plain(words: Words) -> str:
    """Return words without their marks."""
    match words:
        case Strong(text) | Code(text) | Hyperlink(text, _):
            return text
        case tuple():
            return "".join(map(plain, words))
        case _:
            return words


def cells(table: Table) -> tuple[list[TableCell], list[list[TableCell]]]:
    """Return the head and the rows of a table as cells with the style of their column."""
    texts = [[plain(cell) for cell in row] for row in table.rows]
    styles = [
        _style([row[place] for row in texts if place < len(row)])
        for place in range(len(table.head))
    ]
    head = []
    for name, style in zip(table.head, styles, strict=True):
        head.append(TableCell(name, style, "", None))

    def row(words: tuple[Words, ...], plain_texts: list[str]) -> Iterator[TableCell]:
        for place, (cell, text) in enumerate(zip(words, plain_texts, strict=True)):
            share = SHARE.match(text) if place in table.bars else None
            badge = slug(text) if place in table.badges else ""
            yield TableCell(
                cell, styles[place], badge, min(100.0, float(share[1])) if share else None
            )

    return head, [
        list(row(tuple(words), row_texts))
        for words, row_texts in zip(table.rows, texts, strict=True)
    ]


def _style(texts: list[str]) -> str:
    """Return the style of a column: ``number``, or by its longest text ``short``, ``words`` or
    ``long``.
    """
    filled = [text for text in texts if text not in ("", "–")]
    if filled and all(NUMBER.fullmatch(text) for text in filled):
        return "number"
    longest = max(map(len, filled), default=0)
    if longest > LONG:
        return "long"
    if longest > SHORT:
        return "words"
    return "short"


def drawn(figure: Figure) -> str:
    """Return a picture as an SVG element with a title; its names and styles are made unique, so
    that a page may hold many.

    Raises :class:`xml.etree.ElementTree.ParseError` where it is no SVG text.
    """
    for prefix, space in (("", SVG), ("xlink", XLINK)):
        ElementTree.register_namespace(prefix, space)
    # made by this package
    root, key = ElementTree.fromstring(figure.svg), slug(figure.file)  # noqa: S314
    for name in ("metadata", "title"):
        for unwanted in root.findall(f"{{{SVG}}}{name}"):
            root.remove(unwanted)
    for element in root.iter():
        for name, value in element.attrib.items():
            element.set(name, _renamed(name, value, key))
        if element.tag == f"{{{SVG}}}style":
            element.text = f"#{key} {{ {element.text} }}"
    title = ElementTree.Element(f"{{{SVG}}}title", {"id": f"{key}-title"})
    title.text = figure.title
    root.insert(0, title)
    root.attrib |= {"id": key, "role": "img", "aria-labelledby": f"{key}-title"}
    return ElementTree.tostring(root, "unicode")


def _renamed(name: str, value: str, key: str) -> str:
    """Return the value of an attribute in which names of elements begin with ``key``."""
    if name == "id":
        return "-".join((key, *value.split()))
    if name.endswith("href") and value.startswith("#"):
        return f"#{key}-{value[1:]}"
    return value.replace("url(#", f"url(#{key}-")
