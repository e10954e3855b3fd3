"""How plainly the code reads: ``python3 tools/plainness.py [ROOT]``, the last thing that
``dev.py lint`` prints.

A table to look at, not a gate. Statements are nodes of the syntax tree without docstrings, density
is expressions a statement, complexity is McCabe's as radon counts it. A room that passes its budget
says in the commit what the reader got for it.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from pathlib import Path

from radon.complexity import cc_visit

ROOT = Path(__file__).resolve().parent.parent
WIDEST_COLUMNS = 100
MOST_COMPLEX = 15
BUDGETS = {
    "core": 6_500,
    "inputs": 2_300,
    "record": 450,
    "scenario": 1_300,
    "studies": 3_700,
    "evidence": 2_200,
    "papers": 2_500,
    "report": 4_000,
    "api": 700,
    "cli": 700,
}
"""Statements of each room of the house; ``docs/background/house.md`` says what stands in which."""
HOLDERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
ESCAPES = ("Any", "object", "cast")


@dataclass
class Table:
    """Counts over the modules of a tree."""

    lines: int = 0
    wide: int = 0
    code: int = 0
    statements: int = 0
    expressions: int = 0
    ternaries: int = 0
    nested: int = 0
    ignored_types: int = 0
    ignored_rules: int = 0
    rooms: dict[str, int] = field(default_factory=dict)
    escapes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ESCAPES, 0))
    complex: list[str] = field(default_factory=list)

    def add(self, text: str, module: Path) -> None:
        """Count a module, by its path in the tree."""
        for line in text.splitlines():
            self.lines += 1
            self.wide += len(line) > WIDEST_COLUMNS
            self.code += bool(line.strip()) and not line.strip().startswith("#")
            self.ignored_types += "# type: ignore" in line
            self.ignored_rules += "# noqa" in line
        nodes = list(ast.walk(ast.parse(text)))
        statements = sum(isinstance(node, ast.stmt) for node in nodes) - _docstrings(nodes)
        room = module.parts[0] if len(module.parts) > 1 else "(top)"
        self.rooms[room] = self.rooms.get(room, 0) + statements
        self.statements += statements
        self.expressions += sum(isinstance(node, ast.expr) for node in nodes)
        self.ternaries += sum(isinstance(node, ast.IfExp) for node in nodes)
        self.nested += sum(_holds_a_comprehension(node) for node in nodes)
        for node in nodes:
            if isinstance(node, ast.Name) and node.id in ESCAPES:
                self.escapes[node.id] += 1
        for block in cc_visit(text):
            if block.complexity > MOST_COMPLEX:
                self.complex.append(f"{module}:{block.lineno} {block.name} {block.complexity}")

    def __str__(self) -> str:
        """Return the table as lines of text."""
        rows = [
            f"lines {self.lines:,}, over {WIDEST_COLUMNS} columns {self.wide}",
            f"statements {self.statements:,}, expressions a statement "
            f"{self.expressions / self.statements:.2f}",
            f"ternaries per 1,000 lines {1_000 * self.ternaries / self.code:.1f}, "
            f"nested comprehensions {self.nested}",
            f"blocks above complexity {MOST_COMPLEX}: {len(self.complex)}",
            *(f"  {block}" for block in self.complex),
            ", ".join(f"{name} {count}" for name, count in self.escapes.items())
            + f", type: ignore {self.ignored_types}, noqa {self.ignored_rules}",
            "statements of a room    budget",
        ]
        for room, statements in sorted(self.rooms.items()):
            budget = f"{BUDGETS[room]:8,}" if room in BUDGETS else "       -"
            rows.append(f"  {room:12} {statements:6,} {budget}")
        return "\n".join(rows)


def _docstrings(nodes: list[ast.AST]) -> int:
    """Return how many modules, classes and functions say what they are."""
    holders = [node for node in nodes if isinstance(node, HOLDERS)]
    return sum(ast.get_docstring(node, clean=False) is not None for node in holders)


def _holds_a_comprehension(node: ast.AST) -> bool:
    """Return whether it is a comprehension that makes further collections inside."""
    if not isinstance(node, (*COMPREHENSIONS, ast.GeneratorExp)):
        return False
    return any(isinstance(inner, COMPREHENSIONS) for inner in ast.walk(node) if inner is not node)


def table(root: Path) -> Table:
    """Return the counts of a tree."""
    counts = Table()
    for path in sorted(root.rglob("*.py")):
        counts.add(path.read_text("utf-8"), path.relative_to(root))
    return counts


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "simulator"))
