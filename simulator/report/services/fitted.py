"""The page of terms that were fitted to a running service: how far it is, and what is not known."""

from collections.abc import Sequence
from typing import NamedTuple

from simulator.core.plain import PlainData
from simulator.evidence.live.calibration import (
    KNOWN,
    NEXT_TO_NOTHING,
    FittedTerm,
    PartScore,
    ServiceFit,
)
from simulator.report.blocks import (
    THEN,
    Block,
    Bullets,
    Page,
    Paragraph,
    Remark,
    Standing,
    Table,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.wording import number, share, signed_share
from simulator.scenario.live.service import ScenarioFact

OTHERS_FIRST = "others come first"
"""How the reason begins why a term was not tried."""


class _Stated(NamedTuple):
    observation: str
    fact: ScenarioFact


def fitted_page(fit: ServiceFit) -> Page:
    """Return the page of a fit: its error on what was held out first, its terms, each part of each
    observation, and what would tell the rest.
    """
    tried = [term for term in fit.terms if OTHERS_FIRST not in term.kept]
    left = [term.term.name for term in fit.terms if OTHERS_FIRST in term.kept]
    lines = [f"{term.term.name}: {term.kept}." for term in tried if term.kept]
    if left:
        lines.append(f"{', '.join(left)}: not tried; name those to fit with --free.")
    blocks: list[Block] = [Paragraph(_roles(fit)), _scores(fit.scores), _terms(tried)]
    if lines:
        blocks.append(Paragraph("Kept as the profile has them, with their ranges:"))
        blocks.append(Bullets(lines))
    return Page(
        title=_title(fit),
        answer=_answer(fit),
        opening=blocks,
        sections=sections(("What the scenarios state", [_facts(fit)])),
        standing=_standing(fit),
    )


def _standing(fit: ServiceFit) -> Standing:
    """Return which terms the files tell, and which they do not."""
    told = [term.term.name for term in fit.terms if term.is_identified]
    kept = [f"{term.term.name}: {term.kept}" for term in fit.terms if term.kept]
    more = [Remark("Told", f"{', '.join(told)}.", THEN)] if told else []
    return Standing(doubts=kept, more=more)


def _title(fit: ServiceFit) -> str:
    names = ", ".join(case.name for case in fit.cases if not case.held_out)
    return f"{fit.start.device.name} under {fit.start.engine.name}, fitted to {names}"


def _answer(fit: ServiceFit) -> str:
    """Return the errors on what was held out, in a sentence; on what was fitted where nothing
    was.
    """
    held = [score for score in fit.scores if score.part == "held out"]
    if not held:
        why = "the files hold sums"
        if any(case.measured for case in fit.cases):
            why = "none of so few requests falls to the rule"
        return (
            f"Mean errors on what was fitted: {_errors(fit.scores)}. Nothing was held out: {why}; "
            "name another observation by --hold-out."
        )
    requests = sum(score.requests for score in held)
    return f"Mean errors on {requests:,} requests that were held out: {_errors(held)}."


def _errors(scores: Sequence[PartScore]) -> str:
    """Return the mean error of each number of some parts, without its sign."""
    parts = []
    for name, errors in (
        ("time per token", [score.tpot_error for score in scores]),
        ("time to first token", [score.ttft_error for score in scores]),
        ("throughput", [score.throughput_error for score in scores]),
    ):
        known = [abs(error) for error in errors if error is not None]
        if known:
            parts.append(f"{name} {share(sum(known) / len(known))}")
    return ", ".join(parts)


def _roles(fit: ServiceFit) -> str:
    """Return who was held out by which rule, in a sentence."""
    whole = [case.name for case in fit.cases if case.held_out]
    words = f"Held out, fixed before the fit: {fit.rule}"
    if whole:
        words += f"; all of {', '.join(whole)}"
    return (
        f"{words}. A term is identified where its standard error is at most {KNOWN:.0%} of it or, "
        f"of a time, moves no fitted number by more than {NEXT_TO_NOTHING:.0%}."
    )


def _scores(scores: Sequence[PartScore]) -> Table:
    """Return how far the simulation is from each part of each observation."""
    columns: list[Column[PartScore]] = [
        Column("observation", lambda score: score.observation),
        Column("part", lambda score: score.part),
        Column("n", lambda score: f"{score.requests:,}"),
        Column("TPOT ms", lambda score: _shown(score.tpot_ms)),
        Column("error", lambda score: _error(score.tpot_error)),
        Column("before", lambda score: _error(score.tpot_before)),
        Column("each", lambda score: _each(score.tpot_each)),
        Column("TTFT ms", lambda score: _shown(score.ttft_ms)),
        Column("error ", lambda score: _error(score.ttft_error)),
        Column("before ", lambda score: _error(score.ttft_before)),
        Column("each ", lambda score: _each(score.ttft_each)),
        Column("tokens/s", lambda score: _error(score.throughput_error)),
    ]
    if any(score.pass_error is not None for score in scores):
        columns.append(Column("passes", lambda score: _each(score.pass_error)))
    return table("Errors of means; each: median error of a request or pass", scores, columns)


def _terms(terms: Sequence[FittedTerm]) -> Table:
    """Return the terms, and what is known of them."""
    columns: list[Column[FittedTerm]] = [
        Column("term", lambda term: term.term.name),
        Column("before", lambda term: number(term.before)),
        Column("fitted", lambda term: number(term.value) if term.is_identified else "kept"),
        Column("+-", lambda term: _shown(term.error)),
        Column("what it is", lambda term: term.term.what),
    ]
    return table("Terms, with standard errors", terms, columns)


def _facts(fit: ServiceFit) -> Table:
    """Return what the scenarios state, and where that comes from; what all have from the one that
    was named once.
    """
    rows: list[_Stated] = []
    for case in fit.cases:
        rows += [_Stated(case.name, fact) for fact in case.made.facts if fact.of != "like"]
    named = {fact: "all" for case in fit.cases for fact in case.made.facts if fact.of == "like"}
    rows += [_Stated(name, fact) for fact, name in named.items()]
    columns: list[Column[_Stated]] = [
        Column("observation", lambda row: row.observation),
        Column("what", lambda row: row.fact.what),
        Column("value", lambda row: row.fact.value),
        Column("from", lambda row: row.fact.of),
    ]
    return table("", rows, columns)


def _shown(value: float | None) -> str:
    return "" if value is None else number(value)


def _error(value: float | None) -> str:
    return "" if value is None else signed_share(value)


def _each(value: float | None) -> str:
    return "" if value is None else share(value)


def fitted_data(fit: ServiceFit) -> PlainData:
    """Return a fit as plain data; errors are shares."""
    return {
        "terms": [
            {
                "name": term.term.name,
                "before": term.before,
                "value": term.value,
                "standard_error": term.error,
                "identified": term.is_identified,
                "kept": term.kept,
            }
            for term in fit.terms
        ],
        "scores": [score._asdict() for score in fit.scores],
        "rule": fit.rule,
        "rows": fit.rows,
        "spread": fit.spread,
        "facts": {case.name: [fact._asdict() for fact in case.made.facts] for case in fit.cases},
    }
