"""Drafts of several sizes: table and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from simulator.report.console import WIDEST, item, new_table
from simulator.report.markdown import table
from simulator.report.run_summary import number
from simulator.studies.drafts import RATES, DraftPoint, DraftStudy

SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)
HEAD = ("draft", "1e9 weights", "ms a token", *(f"at {rate:.0%}" for rate in SHOWN), "pays above", "needs, for level")
LEGEND = (
    "By law, one request. At 50 %, ...: speed-up over autoregressive decoding and (best window) where each draft token is kept "
    "with that chance. Pays above: the chance at which it is level with no draft. Needs: the chance at which it is level with "
    "the scenario's own draft at what that keeps. What a bigger draft is kept in truth has to be recorded."
)


def rows(study: DraftStudy) -> Iterator[tuple[str, ...]]:
    """One line for each draft, under ``HEAD``."""
    for one in study.points:
        at = (_nearest(rate) for rate in SHOWN)
        worth = (f"{one.speedups[place]:.2f} ({one.windows[place]})" for place in at)
        yield (one.model, number(one.billions, 3), number(one.draft_ms, 3), *worth, _share(one.pays), _share(one.needed))


def _nearest(rate: float) -> int:
    return min(range(len(RATES)), key=lambda place: abs(RATES[place] - rate))


def _share(rate: float | None) -> str:
    return "never" if rate is None else f"{rate:.0%}"


def sentences(study: DraftStudy) -> Iterator[str]:
    """The answer in words."""
    own, *others = study.points
    source = "stand-in: recorded from small models" if study.stand_in else "of the scenario"
    yield (
        f"{own.model} keeps {study.own_rate:.0%} of its tokens (acceptance {source}) and is worth "
        f"{study.own_speedup:.2f} times autoregressive decoding with its best window."
    )
    for one in others:
        yield f"{one.model}, {one.billions / own.billions:.1f} times as big, {_verdict(one, study.own_rate)}."


def _verdict(one: DraftPoint, own_rate: float) -> str:
    if one.needed is None:
        return "cannot come level, whatever it is kept"
    return f"has to be kept {one.needed:.0%} ({(one.needed - own_rate) * 100:+.0f} points) to come level"


def print_drafts(study: DraftStudy, console: Console) -> None:
    """The table and the sentences."""
    width = min(console.width, WIDEST)
    shown = new_table(*HEAD)
    for row in rows(study):
        shown.add_row(*row)
    console.print(shown, width=width)
    for sentence in (*sentences(study), LEGEND):
        item(console, sentence, width)


def sections(study: DraftStudy) -> Iterator[str]:
    """The same as blocks of a page."""
    yield "\n".join(f"- {sentence}" for sentence in sentences(study))
    yield table(HEAD, rows(study))
    yield LEGEND
