"""Write the drawings of ``docs/background/laws.md``: what a step books on its lanes, and its law,
as the docstring of every strategy has them; and the laws of acceptance rules, as their classes have
them.

``python3 dev.py reference`` runs it; a test compares the committed drawings with what this writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import simulator
from simulator.core.acceptance.lossy.rules import EXACT, PASSES, LossyRule, RuleLaw
from simulator.core.quantities import descendants

PACKAGE = Path(simulator.__file__).parent
PAGE = Path(__file__).parent / "background" / "laws.md"
DRAWINGS = "drawings"
RULES = "rules"
LANE = re.compile(r"^ *(?:draft|target|stage \d) *\|", re.MULTILINE)
INDENTED = re.compile(r"^(?:(?: {4}.*)?\n)+", re.MULTILINE)


def drawn() -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of every module that draws a strategy, those of papers
    last.
    """
    paths = [*PACKAGE.glob("core/strategies/*.py"), *PACKAGE.glob("papers/*/*.py")]
    for path in sorted(paths):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")), clean=False) or ""
        if LANE.search(docstring):
            yield path.parent.name if path.stem == "strategy" else path.stem, docstring


def drawing(docstring: str) -> str:
    """Return the lanes of a docstring with the formulas below them: the indented lines around its
    first lane.
    """
    blocks = [match[0] for match in INDENTED.finditer(f"{docstring}\n")]
    lanes = next(block for block in blocks if LANE.search(block))
    return lanes.strip("\n").rstrip()


def summary(docstring: str) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join(docstring.partition("\n\n")[0].split())


def drawings() -> str:
    """Return the part of the page between its two marks."""
    parts = []
    for name, docstring in drawn():
        parts += [f"### `{name}`", summary(docstring), f"```\n{drawing(docstring)}\n```"]
    return "\n\n".join(parts)


def rule_laws() -> Iterator[tuple[str, RuleLaw]]:
    """Yield the law of verification without a rule, and of every rule by its name."""
    yield "none: exact", EXACT
    for rule in descendants(LossyRule):
        yield f"`{rule.model_fields['name'].default}`", rule.law
    yield "`passes` of a rule", PASSES


def rules() -> str:
    """Return the table of the acceptance rules."""
    rows = ["| rule | a draft token is kept | source | exact where |", "| --- | --- | --- | --- |"]
    for name, law in rule_laws():
        rows.append(f"| {name} | {law.kept} | {law.source} | {law.exact_where} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """Return the page with the drawings and the table of rules made anew."""
    for part, made in ((DRAWINGS, drawings()), (RULES, rules())):
        begin, end = (
            f"<!-- {part}: made by `python3 dev.py reference` -->",
            f"<!-- end of {part} -->",
        )
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{made}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
