"""What the page of claims says of them: verdicts, bounds, what is missing, commands."""

from __future__ import annotations

from typing import Any

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
from simulator.report.blocks import Code, Paragraph, Table
from simulator.report.pages.claims import RULE, as_data, claims_csv, counts, page
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
    assert list(shown.opening) == [Paragraph(RULE)]
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
            "at_least 2",
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
