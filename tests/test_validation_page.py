"""The page of ``specsim validate`` word by word, of a paper with a cell of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.core.cost.engine import EngineErrors
from simulator.evidence.claims import ClaimRow, Judged
from simulator.evidence.fits import OpenChoice, Paper
from simulator.evidence.law_check import LawGap
from simulator.evidence.published import Contradiction, PaperFigure, PublishedCell, Role
from simulator.evidence.validation import Errors, Prediction, Shortfall, Validated
from simulator.report.blocks import Page
from simulator.report.markdown import as_markdown
from simulator.report.pages.validate import (
    as_data,
    as_good,
    cells_csv,
    cells_page,
    headline,
    highlights,
    laws_headline,
    page,
    what,
)
from simulator.scenario.uncertain.draws import Interval
from tests.toy_paper import toy_claim

COMMAND = "specsim validate round"


def cell(name: str, role: Role, **columns: object) -> PublishedCell:
    stated = {"cell": name, "source": "T1", "quantity": "ms_per_token", "published": "10"}
    return PublishedCell.model_validate(stated | {"role": role, "unit": "ms"} | columns)


WHOLE = cell(
    "t:1",
    "predict",
    method="SD",
    model="small",
    task="chat",
    temperature=0.5,
    batch_size=4,
    qualifier="at_most",
)
UNMAPPED = cell("t:5", "report", reason="not printed")
FORGOTTEN = cell("t:6", "predict")
CELLS = (WHOLE, UNMAPPED, FORGOTTEN)
CHOICES = (
    OpenChoice(what="tree", value=4, rests_on="Figure 2", after_seeing=True),
    OpenChoice(what="window", value="all", rests_on="the text", after_seeing=False),
)
PAPER = Paper("round", CELLS, {}, {}, Path(), (), CHOICES)


def validated() -> Validated:
    far = Prediction("round", WHOLE, 12.0, 11.0, Interval(11.5, 12.5), "poems are long")
    near = Prediction("round", cell("t:2", "predict", method="SD"), 10.1, 12.5, None, "", True)
    again = Prediction("round", cell("t:3", "predict", same_as="t:2"), 8.5, None)
    fitted = Prediction("round", cell("t:7", "calibrate"), 10.2, None)
    checked = Prediction("round", cell("t:4", "check", task="code"), 9.0, None, None, "by hand")
    reported = Prediction("round", cell("t:8", "report"), 11.0, None)
    return Validated(
        PAPER, [far, near, again], [fitted], [checked], [reported], [UNMAPPED, FORGOTTEN]
    )


def gaps() -> list[LawGap]:
    return [
        LawGap("kept", "exact", 10.0, 10.001, 5.0, 5.1),
        LawGap("off", "exact", 10.0, 10.2, 5.0, 4.9, "twice as long", True),
        LawGap("bound", "upper bound", 10.0, 11.0, 5.0, 5.0),
    ]


def whole_page() -> Page:
    figures = [
        PaperFigure(
            paper="round",
            figure="Figure 1",
            shows="speed",
            command="specsim figure round 1",
            picture="round/1.svg",
            claims="a b",
            remark="as drawn",
        ),
        PaperFigure(paper="round", figure="Figure 2", shows="a sketch", remark="nothing to run"),
    ]
    slips = [
        Contradiction(
            id="K01",
            paper="round",
            kind="slip",
            where="T1",
            finding="12 is 21",
            treatment="21",
            weight="large",
        ),
        Contradiction(
            id="K02", paper="round", kind="slip", where="T2", finding="typo", weight="none"
        ),
    ]
    left = {"fitted": 0.02, "without #a": 0.03, "without #b": 0.25, "one constant": 0.1}
    fits = {"eager": EngineErrors(source="by hand", rows=10, free=3, errors=left)}
    missed = [Shortfall("all papers", "MAPE", 0.105, 0.06)]
    claims = [Judged(ClaimRow("round", toy_claim(published="2", missing="speed")), [])]
    return page([validated()], gaps(), missed, figures, slips, COMMAND, claims, fits)


def test_the_page_word_by_word() -> None:
    """A paper with a far cell, an interpolated one, one that is printed twice, and other roles."""
    kept = (Path(__file__).parent / "data" / "validation_page.md").read_text("utf-8")
    assert as_markdown(whole_page()) == kept


def test_the_page_of_nothing() -> None:
    bare = page([], [], [], [], [], COMMAND)
    assert (bare.answer, bare.highlights) == ("", ())
    text = as_markdown(bare)
    assert "No law was checked." in text
    assert "Arithmetic is nowhere as good. Arithmetic has the same inputs" in text
    assert "- every bound is met" in text
    assert "| all papers | 0 of 0 | 0 |  |  |  |  |  |  |  |  | 0 |" in text


def test_cells_for_programs() -> None:
    head = (
        "paper,role,cell,source,model,task,method,hardware,temperature,batch_size,quantity,unit,"
        "published,run,error_percent,low,high,baseline,baseline_error_percent,kind,same_as,note"
    )
    rows = [
        "round,predict,t:1,T1,small,chat,SD,,0.5,4,ms_per_token,ms,10,12,20,11.5,12.5,11,10,"
        "prediction,,poems are long",
        "round,predict,t:2,T1,,,SD,,,,ms_per_token,ms,10,10.1,1,,,12.5,25,interpolation,,",
        "round,predict,t:3,T1,,,,,,,ms_per_token,ms,10,8.5,-15,,,,,prediction,t:2,",
        "round,check,t:4,T1,,code,,,,,ms_per_token,ms,10,9,-10,,,,,,,by hand",
        "round,report,t:8,T1,,,,,,,ms_per_token,ms,10,11,10,,,,,,,",
        "round,calibrate,t:7,T1,,,,,,,ms_per_token,ms,10,10.2,2,,,,,,,",
    ]
    assert cells_csv([validated()]).splitlines() == [head, *rows]
    data = as_data([validated()], gaps(), [])
    assert [",".join(record.values()) for record in data["cells"]] == rows
    assert ",".join(data["cells"][0]) == head
    assert data["unmapped"] == [
        {"paper": "round", "cell": "t:5", "role": "report"},
        {"paper": "round", "cell": "t:6", "role": "predict"},
    ]


def test_the_headline_counts_what_is_printed_twice() -> None:
    errors = Errors(20, 0.055, 0.036, 0.2, -0.005, 0.5, 0.82)
    assert headline(errors, 0) == (
        "20 published values predicted from runs: 5.5 % off on average, half of them by less than "
        "3.6 %, 82 % within 10 %."
    )
    assert headline(errors, 4).startswith(
        "20 published values predicted from runs (24 cells, 4 of them printed twice): 5.5 % off"
    )
    assert [(shown.value, shown.what) for shown in highlights(errors)] == [
        ("5.5 %", "mean absolute error of 20 predicted values"),
        ("3.6 %", "median"),
        ("82 %", "of them within 10 %"),
        ("-0.5 %", "bias"),
    ]


def test_laws_that_are_no_equality_are_not_in_the_headline() -> None:
    assert laws_headline(gaps()[:1]) == (
        "Law against simulation, 1 shipped scenario whose law claims to be exact: a step by law is "
        "within 1.0e-04 of the simulated one in half of them; furthest off is kept (+0.0 %)."
    )
    assert laws_headline(gaps()[2:]) == "No law was checked."


def test_arithmetic_that_is_worse_is_not_named() -> None:
    better = Prediction("round", WHOLE, 10.1, 11.0)
    assert as_good([Validated(PAPER, [better], [], [], [], [])]) == "Arithmetic is nowhere as good."


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"task": "code", "temperature": 0}, "code, T 0: ms per token"),
        ({"method": "SD", "batch_size": 1}, "SD: ms per token"),
        ({"model": "large", "batch_size": 8}, "large, batch 8: ms per token"),
    ],
)
def test_what_a_cell_is_about(columns: dict[str, object], words: str) -> None:
    assert what(cell("t:1", "predict", **columns)) == words


def test_single_cells_beside_their_runs() -> None:
    single = {
        "cell": "t:1",
        "quantity": "tpot",
        "published": 10.0,
        "run": 12.0,
        "error_percent": 20.0,
        "commands": ["specsim run a", "specsim run b"],
    }
    assert as_markdown(cells_page([single], "specsim validate --cell t:1")) == (
        "# Published values beside runs\n\n"
        "| cell | quantity | published | run | error |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| t:1 | tpot | 10.00 | 12.00 | +20.0 % |\n\n"
        "- t:1: specsim run a against specsim run b\n\n"
        "## Made by\n\n```\nspecsim validate --cell t:1\n```\n"
    )
