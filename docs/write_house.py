"""Write the drawing of ``docs/background/house.md``: which room imports which, read from the source
code.

``python3 dev.py reference`` runs it; a test compares the committed drawing with what this writes.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import simulator

PACKAGE = Path(simulator.__file__).parent
PAGE = Path(__file__).parent / "background" / "house.md"
BEGIN, END = "<!-- drawing: made by `python3 dev.py reference` -->", "<!-- end of the drawing -->"

Imports = Mapping[str, set[str]]
"""Rooms that each room imports directly, itself left out."""


def imports() -> dict[str, set[str]]:
    """Return the rooms that each room imports; a room is a package in the package or a single
    module in it.
    """
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {path.stem for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    arrows: dict[str, set[str]] = {room: set() for room in sorted(rooms)}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in rooms:
            arrows[room] |= imported_rooms(path.read_text("utf-8")) & rooms - {room}
    return arrows


def imported_rooms(source: str) -> set[str]:
    """Return the names behind ``simulator.`` in the imports of a module, wherever they stand in
    it.
    """
    modules: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "simulator":
            modules += [f"simulator.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
    return {module.split(".")[1] for module in modules if module.startswith("simulator.")}


def floors(arrows: Imports) -> list[list[str]]:
    """Return the rooms by floor from the ground up: a room lies above all that it imports.

    Raises :class:`ValueError` where rooms import each other in a circle.
    """
    placed: dict[str, int] = {}
    while len(placed) < len(arrows):
        ready = [
            room for room, used in arrows.items() if room not in placed and used <= placed.keys()
        ]
        if not ready:
            raise ValueError(f"a circle among {sorted(arrows.keys() - placed.keys())}")
        level = max(placed.values(), default=-1) + 1
        placed |= dict.fromkeys(ready, level)
    return [
        sorted(room for room in placed if placed[room] == level)
        for level in range(max(placed.values()) + 1)
    ]


def necessary(arrows: Imports) -> list[tuple[str, str]]:
    """Return the arrows that do not follow from others: a room that is imported by way of another
    is left out.
    """
    below: dict[str, set[str]] = {}
    for floor in floors(arrows):
        for room in floor:
            below[room] = set().union(arrows[room], *(below[used] for used in arrows[room]))
    lines = []
    for room, used in sorted(arrows.items()):
        implied = set().union(*(below[name] for name in used))
        lines += [(room, name) for name in sorted(used - implied)]
    return lines


def drawing(arrows: Imports) -> str:
    """Return the rooms by floor as a Mermaid flowchart, the top floor first."""
    lines = ["```mermaid", "flowchart TD"]
    for level, rooms in reversed(list(enumerate(floors(arrows)))):
        lines.append(f'    subgraph floor{level}["floor {level}"]')
        lines += [f"        {room}" for room in rooms]
        lines.append("    end")
    lines += [f"    {room} --> {used}" for room, used in necessary(arrows)]
    return "\n".join([*lines, "```"])


def page(text: str) -> str:
    """Return the page with the drawing between its two marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{drawing(imports())}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
