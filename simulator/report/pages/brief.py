"""An answer in at most ten lines of a terminal, in the same order for all commands: the answer,
between what it lies, whether speculation helps, more as far as there is room, the two largest
uncertainties, and where the page is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.report.blocks import ALWAYS, LAST, THEN, Brief, Page, Remark, Standing
from simulator.report.pages import decision as decided
from simulator.report.wording import as_sentence, whole_share
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.by_law import DecidedLaw
from simulator.scenario.uncertain.draws import SHARE, Interval

LINES = 9
"""Lines below the title."""
DOUBTS = 2
"""Numbers in doubt that are named."""
MOST = {"Answer": 3, "Interval": 1, "Verdict": 1, "Uncertain": 2, "Report": 1}
"""Lines of what is always said, in its order; together no more than ``LINES``."""


def in_brief(page: Page, report: str = "", below: int = 0) -> Page:
    """Return a page as a terminal shows it: its answer in a few lines, and the sections that were
    asked for.

    ``report``: where the page is, or how to get it; ``below``: lines that follow.
    """
    remarks = list(_remarks(page, page.standing or Standing()))
    if report:
        remarks.append(Remark("Report", report, ALWAYS))
    kept = [section for section in page.sections if section.brief]
    return replace(page, brief=Brief(remarks, LINES - below), sections=kept)


def _remarks(page: Page, standing: Standing) -> Iterator[Remark]:
    """Yield what is said of a page, in its order."""
    doubts = "; ".join(standing.doubts[:DOUBTS])
    yield from _said("Answer", standing.answer or page.answer)
    yield from _said("Interval", standing.interval)
    yield from _said("Verdict", standing.verdict)
    yield from page.in_short
    yield from standing.more
    numbers = "; ".join(f"{shown.value} {shown.what}" for shown in page.highlights)
    if numbers and not (standing.answer or standing.interval or standing.more):
        yield Remark("Numbers", f"{numbers}.", LAST)
    yield from _said("Uncertain", doubts and f"{doubts}.")


def _said(name: str, words: str) -> Iterator[Remark]:
    """Yield a remark that is always printed, unless it has no words."""
    if words:
        yield Remark(name, words, ALWAYS, MOST[name])


def of_decision(decision: Decision | None) -> str:
    """Return whether speculation helps, in a few words; empty without a decision."""
    if decision is None:
        return ""
    return f"{decision.verdict}, {decided.faster(decision.chance)}"


def within(interval: Interval, digits: int = 2) -> str:
    """Return an interval of a ratio in words."""
    ends = f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"
    return f"{whole_share(SHARE)} interval {ends}"


def standing_of(page: Page, name: str, law: DecidedLaw, doubts: Sequence[str]) -> Standing:
    """Return what a speed-up by law of the scenario ``name`` is worth, as an answer of a page."""
    if law.decision is None:
        return Standing(doubts=doubts)
    speedup = f"{name}: speed-up by law {law.speedup.value:.2f}x"
    interval = f"{speedup} ({within(law.speedup.interval(SHARE))})."
    verdict = "" if page.decides else f"Speculation {of_decision(law.decision)}."
    more = [Remark("Flips", as_sentence(decided.flips(law.decision.flips)), THEN)]
    return Standing(interval, verdict, doubts, more)
