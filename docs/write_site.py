"""Make the site: the books, the notebooks and the kept reports as pages with a search, in
``build/site``.

``python3 dev.py site`` runs it. What git keeps is copied, links between pages are made to fit,
Sphinx makes the pages, and every link of the result is followed: a broken one, or a page that loads
something from a network, is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jupytext

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
EXECUTED = BUILD / "notebooks"
KEPT = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/*.svg",
    "reports",
    "tests/MUTANTS.md",
)
BOOKS = {
    "Tutorial": "docs/tutorial",
    "How-to": "docs/how-to",
    "Reference": "docs/reference",
    "Background": "docs/background",
}
LINK = re.compile(r"\[([^\]\n]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LOADED = {"img", "script", "link", "iframe", "source"}
"""Elements that a browser fetches without being asked."""


@cache
def kept() -> list[Path]:
    """Return the files that git keeps, or would, of those that the site shows; relative to the
    checkout.
    """
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *KEPT)
    return sorted(
        {Path(name) for name in filter(None, listed.split("\0")) if (ROOT / name).is_file()}
    )


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout


def stage(pages: Path) -> None:
    """Fill a folder with what Sphinx reads."""
    shutil.rmtree(pages, ignore_errors=True)
    files = kept()
    for path in files:
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            (pages / path).write_text(page(path), "utf-8")
        elif path.suffix != ".html":
            shutil.copy2(ROOT / path, pages / path)
    stage_notebooks(pages / "notebooks")
    reports = [path for path in files if path.parts[0] == "reports"]
    (pages / "gallery.md").write_text("\n\n".join(gallery(reports)) + "\n", "utf-8")
    with (pages / "README.md").open("a", encoding="utf-8") as readme:
        readme.write("\n".join(contents(files, pages)) + "\n")


def page(path: Path) -> str:
    """Return a page as Sphinx is to read it."""
    text = LINK.sub(lambda match: fitted(path, match), (ROOT / path).read_text("utf-8"))
    text = MERMAID.sub(lambda match: house(match[1]), text)
    if (ROOT / path).with_suffix(".html").is_file() and path.with_suffix(".html") in kept():
        title, _, rest = text.partition("\n")
        text = (
            f'{title}\n\n<p><a href="{path.stem}.interactive.html">This page as an interactive '
            f"one</a></p>\n{rest}"
        )
    return text


def fitted(path: Path, match: re.Match[str]) -> str:
    """Return a link as it is on the site: a folder is its page, a notebook not its source; what git
    ignores is a word.
    """
    words, link, name = match[1], match[2], match[3] or ""
    target = (ROOT / path.parent / link).resolve()
    if target.is_dir():
        return f"[{words}]({link.rstrip('/')}/README.md{name})"
    if target.parent.name == "notebooks":
        return f"[{words}]({re.sub(r'[.]py$', '.ipynb', link)}{name})"
    return (
        match[0]
        if target.relative_to(ROOT) in kept() or not git("check-ignore", str(target))
        else words
    )


def stage_notebooks(folder: Path) -> None:
    """Write each notebook as ``dev.py notebooks`` left it, if it has not changed since, and else
    without its results.
    """
    folder.mkdir()
    (folder / "README.md").write_text(page(Path("notebooks/README.md")), "utf-8")
    plain = []
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        notebook, executed = jupytext.read(path), EXECUTED / f"{path.stem}.ipynb"
        done = jupytext.read(executed) if executed.is_file() else notebook
        fresh = executed.is_file() and [cell.source for cell in done.cells] == [
            cell.source for cell in notebook.cells
        ]
        plain += [] if fresh else [path.stem]
        jupytext.write(done if fresh else notebook, folder / f"{path.stem}.ipynb")
    if plain:
        print(f"without their results, which `dev.py notebooks` makes: {', '.join(plain)}")


def house(drawing: str) -> str:
    """Return the drawing of the house as boxes, floor by floor, each with the rooms that it imports
    from.
    """
    arrows: dict[str, list[str]] = {}
    for above, below in re.findall(r"^ *(\w+) --> (\w+)$", drawing, re.MULTILINE):
        arrows.setdefault(above, []).append(below)
    rows = []
    for rooms in re.findall(r"subgraph .*?\n(.*?)\n *end$", drawing, re.MULTILINE | re.DOTALL):
        boxes = (
            f"<div>{room}<small>{', '.join(arrows.get(room, []))}</small></div>"
            for room in rooms.split()
        )
        rows.append(f'<div class="floor">{"".join(boxes)}</div>')
    return "\n".join(rows) + "\n\nBelow each name: the rooms that it imports.\n"


def gallery(reports: list[Path]) -> Iterator[str]:
    """Yield the blocks of the gallery: the kept reports and their pictures, folder by folder."""
    yield "# Kept reports"
    yield (
        "Every page and picture was written by the command that stands beside it in [the "
        "list](reports/README.md)."
    )
    for folder in sorted(
        {path.parent for path in reports if path.suffix in (".md", ".svg")} - {Path("reports")}
    ):
        yield f"## {folder.relative_to('reports')}"
        here = [path for path in reports if path.parent == folder]
        for path in here:
            if path.suffix == ".md":
                other = f"{path.with_suffix('')}.interactive.html"
                too = (
                    f' (<a href="{other}">interactive</a>)'
                    if path.with_suffix(".html") in reports
                    else ""
                )
                yield f"* [{title(path)}]({path}){too}"
        figures = [
            f":::{{figure}} {path}\n{path.stem.replace('_', ' ')}\n:::"
            for path in here
            if path.suffix == ".svg"
        ]
        if figures:
            yield "\n".join(["::::{container} gallery", *figures, "::::"])


def title(path: Path) -> str:
    """Return the heading of a page."""
    return (ROOT / path).read_text("utf-8").partition("\n")[0].removeprefix("# ")


def contents(files: list[Path], pages: Path) -> Iterator[str]:
    """Yield the lines of the tables of contents that stand at the side of every page."""
    books = {
        name: [path for path in files if str(path.parent) == folder]
        for name, folder in BOOKS.items()
    }
    books["Notebooks"] = [
        path.relative_to(pages) for path in sorted((pages / "notebooks").iterdir())
    ]
    books["Reports"] = [Path("gallery.md")]
    books["Project"] = [
        Path("docs/README.md"),
        Path("CONTRIBUTING.md"),
        Path("CHANGELOG.md"),
        Path("tests/MUTANTS.md"),
    ]
    for name, paths in books.items():
        yield from ("", "```{toctree}", ":hidden:", f":caption: {name}", *map(str, paths), "```")
    reports = [path for path in files if path.parts[0] == "reports" and path.suffix == ".md"]
    with (pages / "gallery.md").open("a", encoding="utf-8") as text:
        text.write("\n".join(["", "```{toctree}", ":hidden:", *map(str, reports), "```", ""]))


def build(pages: Path, site: Path) -> int:
    """Let Sphinx make the site of the pages; return its exit code."""
    shutil.rmtree(site, ignore_errors=True)
    options = [
        "-W",
        "--keep-going",
        "-q",
        "-j",
        "2",
        "-c",
        str(ROOT / "docs"),
        "-d",
        str(pages.parent / "doctrees"),
    ]
    code = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(pages), str(site)], check=False
    ).returncode
    (site / "index.html").write_text(
        '<!doctype html><title>specsim</title><meta http-equiv="refresh" content="0; '
        'url=README.html">'
    )
    for path in kept():
        # what interactive pages show and link to, too
        if path.parts[0] == "reports" and path.suffix != ".md":
            copy = site / path.with_suffix(path.suffix.replace(".html", ".interactive.html"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, copy)
    return code


class Links(HTMLParser):
    """The names that a page can be entered by, what it links to, and what it loads from
    elsewhere.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = {"", "top"}
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called and where it points."""
        for key, value in attrs:
            if key in ("id", "name") and value:
                self.names.add(value)
            elif key in ("href", "src") and value is not None:
                self.targets.append(value)
                if tag in LOADED and urlsplit(value).netloc:
                    self.loaded.append(value)


def check(site: Path) -> tuple[int, int, list[str]]:
    """Return how many links lead inside the site, how many to other sites, and a line for each that
    is broken.
    """
    pages = {path: Links(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    inside = outside = 0
    broken = []
    for path, links in pages.items():
        broken += [f"{path.relative_to(site)}: loads {target}" for target in links.loaded]
        for link in links.targets:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                outside += 1
                continue
            inside += 1
            target = (
                Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            )
            missing = target in pages and unquote(parts.fragment) not in pages[target].names
            if not target.is_file() or missing:
                broken.append(f"{path.relative_to(site)}: {link}")
    return inside, outside, broken


def main() -> int:
    """Make the site and follow its links; return 1 for any that is broken and for what Sphinx warns
    of.
    """
    pages, site = BUILD / "pages", BUILD / "site"
    stage(pages)
    code = build(pages, site)
    inside, outside, broken = check(site)
    print(*broken, sep="\n", end="\n" if broken else "")
    made = f"{os.path.relpath(site)}/index.html: {sum(1 for _ in site.rglob('*.html'))} pages"
    print(f"{made}, {inside} links, {len(broken)} broken; {outside} to other sites")
    return 1 if broken or code else 0


if __name__ == "__main__":
    sys.exit(main())
