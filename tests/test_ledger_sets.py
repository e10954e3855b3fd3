"""Released sets of measured runs: scored one by one, by what was decided with their rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import ledger
from simulator.core.cost.engine import EngineErrors
from simulator.evidence.ledger.rows import STEP
from simulator.evidence.validation import engine_fits
from simulator.inputs.catalogue import Catalogue
from simulator.report.markdown import as_markdown

HEAD = (
    "source,hardware,target_model,method,draft_steps,tokens_per_step,plain_tokens_per_s,"
    "speculative_tokens_per_s"
)
RUN = "{},H100 SXM,Llama-3.1-8B,EAGLE-3,3,2.5,150,{}"


def given(*sets: ledger.ReleasedSet) -> ledger.Facts:
    choice = ledger.Choice(what="a term", sentence="It was opened.")
    return ledger.Facts(sets=sets, choices=(choice,))


def released(name: str, role: ledger.Role, **more: object) -> ledger.ReleasedSet:
    fields = {"name": name, "file": "rows.csv", "known": "all", "role": role, "why": "so"}
    return ledger.ReleasedSet.model_validate(fields | more)


@pytest.fixture
def sets(tmp_path: Path) -> tuple[ledger.Facts, list[ledger.ScoredSet]]:
    """Two sources of one table, one of them with a row that cannot run."""
    rows = [RUN.format("a#1", 240), RUN.format("b#2", 120)]
    rows.append(RUN.format("b#2", 120).replace("H100 SXM", "RTX 1080"))
    (tmp_path / "rows.csv").write_text("\n".join([HEAD, *rows]) + "\n", "utf-8")
    facts = given(released("the rest", "blind"), released("named", "fitted", sources=["b#2"]))
    return facts, ledger.scored(facts, tmp_path, Catalogue())


def test_a_set_has_the_sources_it_names_and_another_one_the_rest(
    sets: tuple[ledger.Facts, list[ledger.ScoredSet]],
) -> None:
    rest, named = sets[1]
    assert [row.source for row in rest.rows] == ["a#1"]
    assert [row.source for row in named.rows] == ["b#2"]
    assert (len(rest.left_out), len(named.left_out)) == (0, 1)
    assert rest.speedups
    assert named.speedups
    assert (rest.speedups.ours.losses_found.rows, named.speedups.ours.losses_found.rows) == (0, 1)
    assert rest.steps[STEP].rows == 1
    assert rest.engines == ["vllm"]


def test_the_page_tells_roles_apart_and_names_what_could_not_run(
    sets: tuple[ledger.Facts, list[ledger.ScoredSet]],
) -> None:
    facts, found = sets
    fits = {"vllm": EngineErrors(source="b", rows=7, free=2, errors={"fitted": 0.01})}
    text = as_markdown(ledger.page(found, facts, fits))
    assert "1 set blind (1 row), 0 sets left out (0 rows), 1 set fitted (1 row)" in text
    assert "1 row could not run. 1 choice made after an error was seen." in text
    assert "- named: rows.csv:4:1: there is no device 'RTX 1080'" in text
    assert "- a term: It was opened." in text
    assert "| vllm | 2 | 7 | 1.0 % | b |" in text
    assert "| named | fitted | 1 | 0 % (1) | 0 % (1) |" in text
    assert "axes, measured by `python -m benchmarks.distance`" in text
    written = list(csv.DictReader(ledger.sets_csv(found).splitlines()))
    assert [(row["set"], row["quantity"]) for row in written] == [
        (name, quantity)
        for name in ("the rest", "named")
        for quantity in ("speed-up", "plain step", "speculative step")
    ]
    assert written[3]["losses"] == "1"


def test_cells_that_a_set_shares_hold_where_a_row_says_nothing(tmp_path: Path) -> None:
    lines = [HEAD, RUN.format("a", 240), RUN.format("a", 240).replace("H100 SXM", "")]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", "utf-8")
    facts = given(released("one", "blind", shared={"hardware": "H200 SXM"}))
    (one,) = ledger.scored(facts, tmp_path, Catalogue())
    devices = [row.loaded.scenario.target for row in one.rows]
    assert [target and target.device.name for target in devices] == ["h100_sxm", "h200_sxm"]


def test_the_readme_has_ten_sets_at_most(
    sets: tuple[ledger.Facts, list[ledger.ScoredSet]],
) -> None:
    lines = ledger.readme_table([*sets[1]] * 8).splitlines()
    assert len(lines) == 2 + ledger.MOST_ROWS
    assert lines[2].startswith("| the rest | blind | 1 | ")


def test_a_table_stands_between_its_marks() -> None:
    text = f"before\n{ledger.BEGIN}\nold\n{ledger.END}\nafter\n"
    assert ledger.with_table(text, "new") == text.replace("old", "\nnew\n")
    with pytest.raises(ValueError, match="expected <!-- sets"):
        ledger.with_table("nothing here", "new")


def test_every_set_says_what_was_known_and_why_it_has_its_role() -> None:
    facts = ledger.facts()
    assert len({one.name for one in facts.sets}) == len(facts.sets)
    assert all(one.known and one.why for one in facts.sets)
    assert {one.role for one in facts.sets} == set(ledger.ROLES)
    assert all(choice.sentence.endswith(".") for choice in facts.choices)
    rest = [one.file for one in facts.sets if not one.sources]
    assert len(rest) == len(set(rest))


@pytest.mark.full
@pytest.mark.skipif(not ledger.TABLES.is_dir(), reason="the tables are beside the repository")
def test_the_kept_report_is_that_of_the_tables(tmp_path: Path) -> None:
    done = CliRunner().invoke(ledger.main, ["--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for name in (ledger.PAGE, ledger.SETS):
        kept = (ledger.REPORT / name).read_text("utf-8")
        assert (tmp_path / name).read_text("utf-8") == kept, f"remake it: {ledger.COMMAND}"
    made = ledger.files(ledger.TABLES, Catalogue())[ledger.README.name]
    assert made in ledger.README.read_text("utf-8"), f"remake it: {ledger.COMMAND}"


@pytest.mark.full
@pytest.mark.skipif(not ledger.TABLES.is_dir(), reason="the tables are beside the repository")
def test_blind_sets_are_of_no_source_that_an_engine_was_fitted_to() -> None:
    catalogue = Catalogue()
    fitted_to = " ".join(fit.source for fit in engine_fits(catalogue).values())
    for one in ledger.scored(ledger.facts(), ledger.TABLES, catalogue):
        if one.released.role == "blind":
            assert not [row.source for row in one.rows if f"{row.source} " in fitted_to]
