"""The page of the laws: its drawings are those of the docstrings, one for every strategy, and its
table of acceptance rules has every rule that a scenario may name.
"""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from docs.write_laws import PAGE, drawing, drawn, page, rule_laws, summary
from simulator.core.acceptance.lossy.rules import EXACT, PASSES, LossyRule, Rule
from simulator.core.acceptance.sources import Rates
from simulator.core.quantities import descendants
from simulator.core.strategies import strategies
from tests.apart import gone

WAIT_AND_GO = """The draft writes,
then the target reads.

    draft  |=1=|
    target     |==2==|

    T = 1 + 2

A further paragraph.

    not | of it
"""


@pytest.mark.skipif(bool(gone()), reason="drawings of a paper that was taken away are missing")
def test_the_committed_drawings_are_those_of_the_docstrings() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run `python3 dev.py reference`"


def test_a_drawing_is_the_lanes_with_the_formulas_below_them() -> None:
    assert summary(WAIT_AND_GO) == "The draft writes, then the target reads."
    assert drawing(WAIT_AND_GO) == "    draft  |=1=|\n    target     |==2==|\n\n    T = 1 + 2"


def test_every_strategy_is_drawn() -> None:
    shipped = {
        name
        for name, strategy in strategies().items()
        if strategy.__module__.startswith("simulator.")
    }
    assert {name for name, _ in drawn()} == shipped


def test_every_rule_of_acceptance_has_a_law_on_the_page() -> None:
    """Rules are found as the classes derived from theirs, and are those that a file may name."""
    table = PAGE.read_text("utf-8")
    found = list(descendants(LossyRule))
    named = TypeAdapter(Rule).json_schema()["discriminator"]["mapping"]
    assert {rule.model_fields["name"].default for rule in found} == set(named)
    for rule in found:
        assert "law" in vars(rule), f"{rule.__name__} has no law of its own"
        name = rule.model_fields["name"].default
        assert f"| `{name}` | {rule.law.kept} | {rule.law.source} |" in table
    laws = [law for _, law in rule_laws()]
    assert (laws[0], laws[-1]) == (EXACT, PASSES)
    assert all(all(law) for law in laws)


def test_a_step_brings_as_many_tokens_as_the_page_says() -> None:
    """1 + 0.8 + 0.8 0.5 + 0.8 0.5 0.5 of a window of three."""
    kept = Rates((0.8, 0.5)).odds(3, None).accepted
    assert 1 + sum(tokens * chance for tokens, chance in enumerate(kept)) == pytest.approx(2.4)
