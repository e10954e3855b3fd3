"""Mutation testing: what is broken, by which tests it is held, and that the page says how well."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import mutate
import pytest

from simulator.inputs.catalogue import strategy_files

PAGE = mutate.PAGE.read_text()


def test_every_law_is_broken_and_every_named_file_is_there() -> None:
    package = mutate.ROOT / "simulator"
    laws = {
        path.relative_to(package).with_suffix("").as_posix() for path in strategy_files().values()
    }
    assert laws <= set(mutate.TESTS)
    assert [module for module in mutate.TESTS if not (package / f"{module}.py").exists()] == []
    named = {name for tests in mutate.TESTS.values() for name in tests}
    assert [name for name in named if not (mutate.ROOT / f"tests/test_{name}.py").exists()] == []


@pytest.mark.parametrize("group", mutate.GROUPS)
def test_the_page_states_a_score_of_every_module_and_owns_up_to_a_low_one(group: str) -> None:
    scores = mutate.kept(PAGE)
    untried = set(mutate.GROUPS[group]) - set(scores) - set(mutate.laws())
    assert not untried or (
        "not tried yet" in PAGE and all(f"`{module}`" in PAGE for module in untried)
    )
    tried = [scores[module] for module in mutate.GROUPS[group] if module in scores]
    if not tried:
        return
    whole = mutate.total(group, tried)
    assert whole.line in PAGE
    assert whole.killed >= mutate.GOAL * whole.tried or f"{group} misses" in PAGE


def test_scores_are_written_in_the_place_of_older_ones() -> None:
    page = f"# Title\n\n{mutate.BEGIN}\n{mutate.END}\n\nText | that stays.\n"
    one = mutate.Score("core/world", 200, 100, 85, 3, "2026-01-02 abc")
    other = mutate.Score("core/strategies/tree_sd", 10, 10, 9, 0, "2026-01-03 def")
    third = mutate.Score("core/numeric", 30, 30, 30, 1, "2026-01-01 def")
    once = mutate.written(page, {"core/world": one, "core/strategies/tree_sd": other})
    again = mutate.written(once, {"core/world": one._replace(killed=90), "core/numeric": third})
    assert mutate.kept(again) == {
        "core/world": one._replace(killed=90),
        "core/strategies/tree_sd": other,
        "core/numeric": third,
    }
    assert [line.split(" | ")[0] for line in again.splitlines() if line.startswith("| ")] == [
        *(
            "| part",
            "| **world**",
            "| core/world",
            "| **laws**",
            "| core/strategies/tree_sd",
            "| core/numeric",
        ),
    ]
    assert "| **laws** | 40 | 40 | 39 | 1 | 97.5% | 2026-01-01 |" in again
    assert "| core/world | 200 | 100 | 90 | 3 | 90.0% (82.6% to 94.5%) |" in again
    assert again.startswith("# Title\n\n")
    assert again.endswith("\n\nText | that stays.\n")


def test_decorated_functions_are_broken_too() -> None:
    pytest.importorskip("libcst", reason="needs the extra 'mutate'")
    source = (
        "class A:\n    @property\n    def f(self): return 1\n\n    @one(2)\n    @classmethod\n  "
        "  def g(cls): return 3\n"
    )
    tree = ast.parse(mutate.without_decorators(source))
    (body,) = tree.body
    assert isinstance(body, ast.ClassDef)
    assert [ast.unparse(each).splitlines()[0] for each in body.body] == [
        *("def f(self):", "f = property(f)", "def g(cls):", "g = one(2)(classmethod(g))"),
    ]


def test_the_program_knows_its_modules() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(mutate.__file__)), "worlds"],
        capture_output=True,
        text=True,
        cwd=mutate.ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert "no module or group: worlds; there are world, acceptance, cost, laws" in done.stderr
