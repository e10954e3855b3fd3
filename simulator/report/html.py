"""A page as a single HTML file that loads nothing: it contains its style, script and pictures.

Jinja escapes everything that is not a template; pictures are SVG made by this package, parsed and
serialised again. A content security policy allows the script of the page and nothing else, and no
request.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from simulator.inputs.writing import json_text
from simulator.report.blocks import (
    Block,
    Code,
    Figure,
    Hyperlink,
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
SHORT = 20
LONG = 36
"""Letters of a cell that stays on a single line, and of a cell that needs several."""


ANCHORS = ("answer", "made-by", "made-by-title", "sliders")
"""Anchors of every page that are not those of a section of its own."""
RESTS_ON = "What it rests on"
"""Title of what is folded of an opening."""
SAID = 2
"""Blocks of an opening that are not folded, beside picture and sliders."""


class Front(NamedTuple):
    """What a reader sees below the answer before anything is unfolded."""

    picture: Figure | None
    sliders: Sliders | None
    said: Sequence[Block]


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
    style, script, save, sliders = (
        (TEMPLATES / name).read_text("utf-8")
        for name in ("style.css", "script.js", "save.js", "sliders.js")
    )
    front, sections = laid_out(page)
    script += save if front.picture else ""
    script += sliders if front.sliders else ""
    parts = {"style": Markup(style), "script": Markup(script)}  # noqa: S704
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return rendered(
        "page.html", page=page, front=front, anchored=anchored(sections), digest=digest, **parts
    )


def laid_out(page: Page) -> tuple[Front, list[Section]]:
    """Return what stands below the answer (the first picture, the sliders, the first words of the
    opening), and the sections of all else.
    """
    picture = next(page.figures, None)
    sliders = next((block for block in page.blocks if isinstance(block, Sliders)), None)

    def others(blocks: Iterable[Block]) -> list[Block]:
        return [block for block in blocks if block is not picture and block is not sliders]

    said = others(page.opening)
    shown = SAID
    if len(said) > SAID and _leads_on(said[SAID - 1]):
        shown += 1
    folded = [Section(RESTS_ON, said[shown:])]
    folded += [Section(section.title, others(section.blocks)) for section in page.sections]
    sections = [section for section in folded if section.blocks]
    return Front(picture, sliders, said[:shown]), sections


def _leads_on(block: Block) -> bool:
    """Return whether a block is a sentence about the block behind it."""
    return isinstance(block, Paragraph) and plain(block.words).endswith(":")


def as_fragment(page: Page | None, table: str) -> str:
    """Return a part of another page: answer and highlights of ``page``, ``table`` (HTML of pandas),
    and the first picture.
    """
    figure = next(iter(page.figures), None) if page else None
    # pandas escapes its cells
    return rendered("fragment.html", page=page, table=Markup(table), figure=figure)  # noqa: S704


def rendered(template: str, **parts: Any) -> str:
    """Return the text of a template with its parts filled in; what is text in them is escaped."""
    text: str = _environment().get_template(template).render(**parts)
    return text


@cache
def _environment() -> Environment:
    """Return the Jinja environment of the templates, with the filters that they use."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": breakable,
        "marked": marked,
        "slug": slug,
        "cells": cells,
        "drawn": drawn,
        "drawn_for_phones": drawn_for_phones,
    }
    environment.filters["places"] = "{:.2f}".format
    environment.policies["json.dumps_function"] = json_text
    environment.policies["json.dumps_kwargs"] = {"indent": None, "sort_keys": True}
    return environment


def slug(title: str) -> str:
    """Return a title as the name of an anchor in the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"


def anchored(sections: Sequence[Section]) -> list[tuple[str, Section]]:
    """Return sections with the names of their anchors, no two of them alike."""
    named: dict[str, Section] = {}
    for section in sections:
        base = slug(section.title)
        names = (base, *(f"{base}-{number}" for number in range(2, len(sections) + 2)))
        free = next(name for name in names if name not in named and name not in ANCHORS)
        named[free] = section
    return list(named.items())


def breakable(title: str) -> Markup:
    """Return a title in which a line may break behind any underscore."""
    return Markup("_<wbr>").join(escape(part) for part in title.split("_"))


def marked(words: Words) -> Markup:
    """Return words with their marks as HTML; text is escaped."""
    match words:
        case Strong(text):
            return Markup("<strong>{}</strong>").format(text)
        case Code(text):
            return Markup("<code>{}</code>").format(text)
        case Hyperlink(text, to):
            return Markup('<a href="{}">{}</a>').format(to, text)
        case tuple():
            return Markup("").join(map(marked, words))
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


def drawn(figure: Figure) -> Markup:
    """Return a picture as an SVG element.

    Raises :class:`xml.etree.ElementTree.ParseError` where it is no SVG text.
    """
    return _element(figure.svg, figure.title, slug(figure.file))


def drawn_for_phones(figure: Figure) -> Markup:
    """Return a picture as an SVG element for the screen of a phone; nothing where it has none."""
    if figure.narrow_svg is None:
        return Markup()
    return _element(figure.narrow_svg, figure.title, f"{slug(figure.file)}-phone")


def _element(svg: str, words: str, key: str) -> Markup:
    """Return a picture as an SVG element with a title; its names and styles are made unique, so
    that a page may hold many.
    """
    for prefix, space in (("", SVG), ("xlink", XLINK)):
        ElementTree.register_namespace(prefix, space)
    # made by this package
    root = ElementTree.fromstring(svg)  # noqa: S314
    for name in ("metadata", "title"):
        for unwanted in root.findall(f"{{{SVG}}}{name}"):
            root.remove(unwanted)
    for element in root.iter():
        for name, value in element.attrib.items():
            element.set(name, _renamed(name, value, key))
        if element.tag == f"{{{SVG}}}style":
            element.text = f"#{key} {{ {element.text} }}"
    title = ElementTree.Element(f"{{{SVG}}}title", {"id": f"{key}-title"})
    title.text = words
    root.insert(0, title)
    root.attrib |= {"id": key, "role": "img", "aria-labelledby": f"{key}-title"}
    # serialised from a tree, so escaped
    return Markup(ElementTree.tostring(root, "unicode"))  # noqa: S704


def _renamed(name: str, value: str, key: str) -> str:
    """Return the value of an attribute in which names of elements begin with ``key``."""
    if name == "id":
        return "-".join((key, *value.split()))
    if name.endswith("href") and value.startswith("#"):
        return f"#{key}-{value[1:]}"
    return value.replace("url(#", f"url(#{key}-")
