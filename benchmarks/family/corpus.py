"""Text of six flavours, from Debian packages and one seeded script, as documents.

The flavours differ in how predictable they are, which is what a trace needs: acceptance on sums
is not acceptance on novels. No text is shipped: a trace holds token ids, ranks and probabilities.
"""

import bz2
import hashlib
import html
import lzma
import random
import re
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCUMENT_CHARACTERS = 6_000
HELD_OUT_EVERY = 16


@dataclass(frozen=True)
class Flavour:
    """One flavour of text: where it comes from and under which licence it is used."""

    name: str
    packages: tuple[str, ...]
    licence: str
    about: str


CAMPAIGNS = tuple(
    f"wesnoth-1.16-{name}"
    for name in (
        "did",
        "dm",
        "dw",
        "ei",
        "httt",
        "l",
        "low",
        "nr",
        "sof",
        "sota",
        "sotbe",
        "thot",
        "trow",
        "tsg",
        "utbs",
    )
)

NAMES = """
    Ada Amir Boris Bruno Carla Chloe Dana Deniz Emma Erik Farid Freya Grete Gustav Hana Hugo Ines
    Ivan Jonas Jun Kaya Kofi Lena Luis Maya Milo Nadia Nils Olga Omar Petra Paulo Rosa Ravi Sofia
    Sven Tara Theo Uma Yusuf
"""
THINGS = """
    apples beads books bricks buttons candles cards coins cups eggs figs flags keys lamps lemons
    marbles nails notes nuts pages pears pebbles pencils pens plums ropes roses seeds shells spoons
    stamps stones tickets tiles toys tyres
"""
PLACES = (
    "at the market",
    "in the attic",
    "at school",
    "on the train",
    "by the lake",
    "in the garden",
    "at the fair",
    "outside",
)

FLAVOURS = (
    Flavour(
        "code",
        ("libpython3.11-stdlib", "libpython3.11-minimal"),
        "PSF-2.0",
        "CPython standard library",
    ),
    Flavour("docs", ("python3.11-doc",), "PSF-2.0", "sources of the Python documentation"),
    Flavour("prose", ("r-cran-janeaustenr",), "public domain text", "Jane Austen's six novels"),
    Flavour(
        "manual",
        ("debian-handbook",),
        "GPL-2+ or CC-BY-SA-3.0",
        "The Debian Administrator's Handbook",
    ),
    Flavour("dialogue", CAMPAIGNS, "GPL-2+", "spoken lines of Wesnoth campaigns"),
    Flavour("maths", (), "specsim's own", "word problems made by a seeded script"),
)


def unpack(packages: Path) -> Path:
    """Download the Debian packages named above into ``packages`` and unpack them; return the
    root.
    """
    root = packages / "root"
    if not root.exists():
        packages.mkdir(parents=True, exist_ok=True)
        names = [package for flavour in FLAVOURS for package in flavour.packages]
        subprocess.run(["apt-get", "download", "-q", *names], cwd=packages, check=True)
        for archive in sorted(packages.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(archive), str(root)], check=True)
    return root


def documents(root: Path) -> dict[str, list[str]]:
    """Return all documents by flavour, in a fixed order, each cut to at most 6,000 characters."""
    readers = {
        "code": (
            path.read_text("utf-8", "ignore")
            for path in sorted((root / "usr/lib/python3.11").rglob("*.py"))
        ),
        "docs": (
            path.read_text()
            for path in sorted(
                (root / "usr/share/doc").glob("python3.11/html/_sources/**/*.rst.txt")
            )
        ),
        "prose": _austen(root / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"),
        "manual": (
            _text_of(path)
            for path in sorted((root / "usr/share/doc/debian-handbook/html/en-US").glob("*.html"))
        ),
        "dialogue": (
            _spoken(path)
            for path in sorted((root / "usr/share/games/wesnoth").rglob("campaigns/**/*.cfg"))
        ),
        "maths": word_problems(count=2_500, seed=11),
    }
    return {
        name: [piece for text in texts for piece in _pieces(text)]
        for name, texts in readers.items()
    }


def split(pieces: list[str]) -> tuple[list[str], list[str]]:
    """Split documents into training and held-out ones, of which every sixteenth is one."""
    train = [piece for index, piece in enumerate(pieces) if index % HELD_OUT_EVERY]
    return train, pieces[::HELD_OUT_EVERY]


def digest(by_flavour: dict[str, list[str]]) -> str:
    """Return the BLAKE2b digest of all text, so that a trace says which text it came from without
    shipping it.
    """
    state = hashlib.blake2b(digest_size=16)
    for name, pieces in sorted(by_flavour.items()):
        for piece in (name, *pieces):
            state.update(piece.encode() + b"\0")
    return state.hexdigest()


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), DOCUMENT_CHARACTERS):
        piece = text[start : start + DOCUMENT_CHARACTERS].strip()
        if len(piece) >= 600:
            yield piece


def _austen(database: Path) -> Iterator[str]:
    """The novels in an R lazy-load database: chunks of big-endian length, packing letter, data.

    A packed R character vector stores each string as the flags 0x00040009, a length and the bytes.
    """
    raw = database.read_bytes()
    for match in re.finditer(rb"BZh9|\x78[\x01\x9c\xda]|\xfd7zXZ", raw):
        chunk = _unpacked(raw[match.start() :])
        lines, position = [], 0
        while (position := chunk.find(b"\x00\x04\x00\x09", position)) >= 0:
            length = int.from_bytes(chunk[position + 4 : position + 8], "big")
            lines.append(chunk[position + 8 : position + 8 + length].decode("utf-8", "ignore"))
            position += 8 + length
        if len(lines) > 1_000:
            yield "\n".join(lines)


def _unpacked(data: bytes) -> bytes:
    """Decompress what stands at the start of ``data``; empty where the magic was a coincidence."""
    try:
        if data.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(data)
        return (
            lzma.LZMADecompressor().decompress(data)
            if data.startswith(b"\xfd")
            else zlib.decompressobj().decompress(data)
        )
    except (OSError, zlib.error, lzma.LZMAError):
        return b""


def _text_of(page: Path) -> str:
    body = re.sub(r"<(script|style|head)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"</(p|h\d|div|li|dt|dd)>", "\n", body)))
    return re.sub(r"[ \t]*\n\s*", "\n", text)


def _spoken(script: Path) -> str:
    blocks = re.findall(
        r"\[message\](.*?)\[/message\]", script.read_text("utf-8", "ignore"), flags=re.DOTALL
    )
    lines = []
    for block in blocks:
        speaker = re.search(r"speaker\s*=\s*(\w[\w ]*)", block)
        message = re.search(r'message\s*=\s*_\s*"(.*?)"', block, flags=re.DOTALL)
        if speaker and message:
            lines.append(f"{speaker.group(1)}: {message.group(1)}")
    return "\n".join(lines)


def word_problems(count: int, seed: int) -> Iterator[str]:
    """Yield documents of ten worked sums each; the same seed gives the same text.

    Who, what, where and how much are free choices, which a draft cannot guess; the working and the
    result follow from them, and those it can.
    """
    rng = random.Random(seed)
    for _ in range(count):
        yield "\n\n".join(_problem(rng) for _ in range(10))


def _problem(rng: random.Random) -> str:
    who, other = rng.sample(NAMES.split(), 2)
    what, where = rng.choice(THINGS.split()), rng.choice(PLACES)
    a, b, c = rng.randint(11, 480), rng.randint(3, 90), rng.randint(2, 9)
    question, steps, result = rng.choice(
        (
            (
                f"{who} has {a} {what}. {other} brings {b} more {where}. How many are there now?",
                f"{a} + {b} = {a + b}.",
                a + b,
            ),
            (
                f"{who} counts {a + b} {what} {where} and loses {b}. How many are left?",
                f"{a + b} - {b} = {a}.",
                a,
            ),
            (
                f"{who} buys {c} boxes of {b} {what} {where}. How many is that in all?",
                f"{c} * {b} = {c * b}.",
                c * b,
            ),
            (
                f"{who} shares {b * c} {what} among {c} friends {where}. How many does each get?",
                f"{b * c} / {c} = {b}.",
                b,
            ),
            (
                (
                    f"{where.capitalize()}, {who} finds {a} {what}, and {other} finds {c} times "
                    f"{b}. How many have they together?"
                ),
                f"{c} * {b} = {c * b}. {a} + {c * b} = {a + c * b}.",
                a + c * b,
            ),
            (
                (
                    f"{who} and {other} had {a + b + c} {what}. {who} gave away {b}, {other} {c}. "
                    "How many remain?"
                ),
                f"{b} + {c} = {b + c}. {a + b + c} - {b + c} = {a}.",
                a,
            ),
        )
    )
    return f"Question: {question}\nAnswer: {steps} The answer is {result}."
