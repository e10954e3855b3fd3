"""The answer of a study in at most ten lines of a terminal, in the same order for all of them: the
answer, between what it lies, whether speculation helps, more as far as there is room, the two
largest uncertainties, and where the page is. ``specsim run`` has the same order
(:mod:`simulator.report.run.brief`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.report.blocks import Brief, Page, Remark, Standing
from simulator.report.pages import decision as decided
from simulator.report.wording import as_sentence, whole_share
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.by_law import DecidedLaw
from simulator.scenario.uncertain.draws import SHARE, Interval

LINES = 9
"""Lines below the title."""
DOUBTS = 2
"""Numbers in doubt that are named."""
ALWAYS, FIRST, THEN, LAST = range(4)
DECIDED = "chance that it is faster than plain decoding"
"""Words of an answer that is a verdict already."""
MOST = {"Answer": 3, "Interval": 1, "Verdict": 1, "Uncertain": 2, "Report": 1}
"""Lines of what is always said, in its order; together no more than ``LINES``."""


def in_brief(page: Page, report: str = "", below: int = 0) -> Page:
    """Return a page as a terminal shows it: its answer in a few lines and nothing else.

    ``report``: how to get the page, where it was not written; ``below``: lines that follow, which
    say where it is.
    """
    remarks = list(_remarks(page, page.standing or Standing()))
    if report:
        remarks.append(Remark("Report", report, ALWAYS, MOST["Report"]))
    return replace(page, brief=Brief(remarks, LINES - below), sections=())


def _remarks(page: Page, standing: Standing) -> Iterator[Remark]:
    """Yield what is said of a page, in its order."""
    doubts = "; ".join(standing.doubts[:DOUBTS])
    told = {
        "Answer": page.answer,
        "Interval": _sentence(standing.interval),
        "Verdict": "" if DECIDED in page.answer else _sentence(standing.verdict),
        "Uncertain": doubts and f"{doubts}.",
    }
    for name, words in told.items():
        if name == "Uncertain":
            yield from _more(page, standing)
        if words:
            yield Remark(name, words, ALWAYS, MOST[name])


def _more(page: Page, standing: Standing) -> Iterator[Remark]:
    """Yield what is said as far as there is room, the numbers of the page last."""
    for name, words in standing.more:
        yield Remark(name, words, FIRST if name == "Beware" else THEN)
    numbers = "; ".join(f"{shown.value} {shown.what}" for shown in page.highlights)
    if numbers and not standing.more:
        yield Remark("Numbers", f"{numbers}.", LAST)


def _sentence(words: str) -> str:
    """Return words with a full stop, and a capital unless they begin with a name that is typed;
    nothing for none.
    """
    if not words:
        return ""
    first, _, _ = words.partition(" ")
    if "_" in first or "=" in first:
        return f"{words}."
    return as_sentence(words)


def of_decision(decision: Decision | None) -> str:
    """Return whether speculation helps, in a few words; empty without a decision."""
    if decision is None:
        return ""
    return f"{decision.verdict}, {decided.faster(decision.chance)}"


def within(interval: Interval, digits: int = 2) -> str:
    """Return an interval of a ratio in words."""
    ends = f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"
    return f"{whole_share(SHARE)} interval {ends}"


def standing_of(name: str, law: DecidedLaw, doubts: Sequence[str]) -> Standing:
    """Return what a speed-up by law of the scenario ``name`` is worth."""
    if law.decision is None:
        return Standing(doubts=doubts)
    speedup = f"{name}: speed-up by law {law.speedup.value:.2f}x"
    interval = f"{speedup} ({within(law.speedup.interval(SHARE))})"
    more = [("Flips", as_sentence(decided.flips(law.decision.flips)))]
    return Standing(interval, f"speculation {of_decision(law.decision)}", doubts, more)
