"""What the page of claims says of them: verdicts, bounds, what is missing, commands."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.claims import claims as claims_in
from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.evidence.claims import (
    NO_VALUES,
    ClaimRow,
    Judged,
    Values,
    at_least,
    at_most,
    change_percent,
    values,
)
from simulator.evidence.fits import papers
from simulator.evidence.kept_claims import kept_claims
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.report.blocks import Bullets, Code, Paragraph, Strong, Table
from simulator.report.markdown import as_markdown
from simulator.report.pages.claims import (
    RULE,
    WHERE_REFUTED,
    as_data,
    claims_csv,
    counts,
    page,
    refuted_page,
)
from tests.apart import gone
from tests.toy_paper import toy_claim

RUN = "specsim law durations_only"


def judged(
    numbers: list[float],
    ends: tuple[list[float], ...] = (),
    ours: Values = NO_VALUES,
    **columns: Any,
) -> Judged:
    return Judged(ClaimRow("round", toy_claim(ours, **columns)), numbers, ends)


REPRODUCED = judged(
    [1.94],
    ours=change_percent(values("law.step_ms", RUN), values("law.step_ms", "specsim law other")),
    published="2..3",
    unit="x",
)
REFUTED = judged([1.0, 2.0], published="2", unit="x", bound=at_most(1.5), bound_why="3 / 2")
MISSING = judged(
    [1.6], ([1.5], [1.7]), values("law", RUN), shape=[at_least(2)], missing="acceptance"
)
BOUND_AT_ENDS = judged(
    [1.6], ([1.5], [1.7]), published="1", unit="x", bound=at_least(1.4), bound_why="by hand"
)


def test_the_table_of_claims() -> None:
    shown = page([REPRODUCED, REFUTED, MISSING, BOUND_AT_ENDS], "specsim validate --claims")
    (section,) = shown.sections
    count, claims = section.blocks
    assert isinstance(count, Paragraph)
    assert isinstance(claims, Table)
    assert (shown.title, section.title) == ("The papers, claim by claim", "round")
    assert shown.answer == "4 claims: 1 reproduced, 3 refuted."
    assert list(shown.opening) == [Paragraph(RULE), Paragraph(WHERE_REFUTED)]
    assert count.words == shown.answer
    assert claims.title == "Claims of round"
    assert claims.head == [
        "claim",
        "where",
        "paper",
        "ours",
        "verdict",
        "bound, or what is missing",
        "command",
    ]
    assert (claims.badges, claims.sortable, claims.terminal_columns) == ((4,), True, (0, 2, 3, 4))
    beside = f"{RUN} (change percent specsim law other)"
    assert claims.rows == [
        ("fast [a]", "T1", "2 to 3 x", "1.94", "reproduced", "", Code(beside)),
        ("fast [a]", "T1", "2 x", "1.00, 2.00", "refuted", "at most 1.5 x: 3 / 2", ""),
        (
            "fast [a]",
            "T1",
            "at least 2",
            "1.60",
            "refuted",
            "acceptance; at the ends of what is plausible: 1.50 to 1.70",
            Code(RUN),
        ),
        (
            "fast [a]",
            "T1",
            "1 x",
            "1.60",
            "refuted",
            "at least 1.4 x: by hand; at the ends of what is plausible: 1.50 to 1.70",
            "",
        ),
    ]


def test_the_page_of_what_did_not_come_out() -> None:
    """A bound that excludes the number is one thing, inputs whose ends miss it are another."""
    claims = [REPRODUCED, REFUTED, MISSING]
    shown = refuted_page(claims, "specsim claims --refuted")
    assert shown.answer == (
        "2 of 3 claims did not come out: 1 by a bound, 1 with no plausible value of an input that "
        "is not printed."
    )
    (section,) = shown.sections
    assert section.title == "round"
    assert section.blocks == [
        Bullets(
            [
                (
                    Strong("fast"),
                    " (T1; a). Paper: 2 x; ours: 1.00, 2.00. ",
                    "Bound: at most 1.5 x: 3 / 2.",
                ),
                (
                    Strong("fast"),
                    " (T1; a). Paper: at least 2; ours: 1.60. ",
                    "No plausible input: from 1.50 to 1.70. Not printed: acceptance.",
                ),
            ]
        )
    ]
    assert refuted_page([REPRODUCED], "").answer == "None of 1 claims is refuted."


@pytest.mark.skipif(bool(gone()), reason="pages are of all papers")
def test_the_kept_pages_are_those_of_the_kept_table() -> None:
    """What is kept beside the table is what the table gives, the verdicts included."""
    claims = kept_claims(claims_in(paper.name for paper in papers(Catalogue(), ())))
    folder = shipped() / "reports/claims"
    assert (folder / "refuted.md").read_text() == as_markdown(
        refuted_page(claims, "specsim claims --refuted")
    )
    assert (folder / "claims.md").read_text() == as_markdown(
        page(claims, "specsim validate --claims")
    )
    rows = csv.DictReader((folder / "claims.csv").read_text().splitlines())
    assert [row["verdict"] for row in rows] == [judged.verdict for judged in claims]


def test_the_command_prints_kept_verdicts(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["claims", "lyanna", "--refuted", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "Bound: at" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["refuted.html", "refuted.md"]
    done = CliRunner().invoke(main, ["claims", "lyanna", "--refuted", "--json"])
    verdicts = {record["verdict"] for record in json.loads(done.stdout)["claims"]}
    assert verdicts == {"refuted"}
    done = CliRunner().invoke(main, ["claims", "lyana"])
    assert done.exit_code == 2
    assert "lyanna" in done.stderr


def test_a_missing_table_says_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.evidence.kept_claims.shipped", lambda: tmp_path)
    with pytest.raises(BadInput, match="specsim validate --claims --out reports/claims"):
        kept_claims([])


def test_claims_without_a_verdict_are_counted_last() -> None:
    unjudged = judged([3.0], published="2")
    assert counts([unjudged, REPRODUCED]) == "1 reproduced, 1 without a verdict"
    claims = page([unjudged], "specsim validate --claims").sections[0].blocks[1]
    assert isinstance(claims, Table)
    assert claims.rows[0][4] == "none yet"
    assert page([], "specsim validate --claims").answer == "No claims are written down."


def test_claims_for_programs() -> None:
    head = (
        "paper,claim,where,says,published,unit,ours,ends,verdict,shape,bound,bound_why,missing,"
        "command,metric,against,combine,cells,remark"
    )
    assert claims_csv([MISSING, REPRODUCED]).splitlines() == [
        head,
        f"round,a,T1,fast,,,1.60,1.50 to 1.70,refuted,at_least 2,,,acceptance,{RUN},law,,,,",
        f"round,a,T1,fast,2..3,x,1.94,,reproduced,,,,,{RUN},law.step_ms,specsim law other,"
        "change_percent,,",
    ]
    never = judged([float("inf"), 1.5], published="2")
    (record,) = as_data([never])
    assert ",".join(record) == head
    assert record["ours"] == [None, 1.5]
    assert "never, 1.50" in claims_csv([never])
    assert (record["published"], record["verdict"], record["ends"]) == ("2", "", "")
    assert as_data([REFUTED])[0]["bound_why"] == "3 / 2"


def test_the_rule_of_verdicts() -> None:
    assert RULE == (
        "Reproduced: within 10 % of the number, or inside the range widened by 5 %, and in the "
        "shape that is claimed. In shape: the order or the trend comes out, the number is off or "
        "not printed. Refuted: a bound, computed from what the paper states, excludes the number, "
        "or no plausible input reproduces it. Inputs not printed: what would have to be known is "
        "named, and what the ends of its plausible range give."
    )
