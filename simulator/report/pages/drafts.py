"""Does a bigger draft pay: what drafts of several sizes are worth as their tokens are kept more often."""

from collections.abc import Iterator

from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section, Table
from simulator.report.drawing import canvas
from simulator.report.figures import BLUE, GREEN, GREY, ORANGE, VERMILLION
from simulator.report.numbers import number
from simulator.studies.drafts import RATES, DraftPoint, DraftStudy

SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)
HEAD = ("draft", "1e9 weights", "ms a token", *(f"at {rate:.0%}" for rate in SHOWN), "pays above", "needs, for level")
LEGEND = (
    "By law, one request. At 50 %, ...: speed-up over autoregressive decoding and (best window) where draft tokens are kept "
    "with that chance. Pays above: the chance at which it is level with no draft. Needs: the chance at which it is level with "
    "the scenario's draft at what that keeps. How often tokens of a bigger draft are really kept has to be recorded."
)
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, "#CC79A7", "#56B4E9")


def page(result: DraftStudy) -> Page:
    """Return the page of the draft study: its picture, the answer in words, and a table of drafts."""
    table = Table(HEAD, list(rows(result)), "Drafts of several sizes")
    return Page(
        title="Does a bigger draft pay?",
        opening=[
            Figure("Speed-up of drafts over the share of kept tokens", "drafts.svg", lambda: draft_figure(result)),
            Bullets(list(sentences(result))),
        ],
        sections=[Section(result.scenario, [table, Paragraph(LEGEND)])],
    )


def rows(study: DraftStudy) -> Iterator[tuple[str, ...]]:
    """Yield a row per draft, under ``HEAD``."""
    for point in study.points:
        places = [min(range(len(RATES)), key=lambda place: abs(RATES[place] - rate)) for rate in SHOWN]
        worth = (f"{point.speedups[place]:.2f} ({point.windows[place]})" for place in places)
        size = number(point.billions, 3), number(point.draft_ms, 3)
        yield (point.model, *size, *worth, _percentage(point.pays), _percentage(point.needed))


def _percentage(rate: float | None) -> Drawing:
    return "never" if rate is None else f"{rate:.0%}"


def sentences(study: DraftStudy) -> Iterator[str]:
    """Yield what the scenario's draft is worth, and what the further drafts need to come level with it."""
    base, *alternatives = study.points
    source = "stand-in: recorded from small models" if study.stand_in else "of the scenario"
    yield (
        f"{base.model} keeps {study.own_rate:.0%} of its tokens (acceptance {source}) and is worth "
        f"{study.own_speedup:.2f} times autoregressive decoding with its best window."
    )
    for point in alternatives:
        yield f"{point.model}, {point.billions / base.billions:.1f} times as big, {_verdict(point, study.own_rate)}."


def _verdict(point: DraftPoint, base_rate: float) -> str:
    if point.needed is None:
        return "cannot come level, however often its tokens are kept"
    points = (point.needed - base_rate) * 100
    return f"comes level where {point.needed:.0%} of its tokens are kept ({points:+.0f} points)"


# ---- the picture


def draft_figure(study: DraftStudy) -> str:
    """Return a curve per draft, and the level of the scenario's draft that a bigger one has to reach."""
    with canvas(3.8) as figure:
        axes = figure.subplots()
        for point, colour in zip(study.points, COLOURS, strict=False):
            label = f"{point.model}, {point.draft_ms:.2g} ms a token"
            axes.plot([rate * 100 for rate in RATES], point.speedups, color=colour, label=label)
            if point.needed is not None:
                axes.plot(point.needed * 100, study.own_speedup, "o", color=colour, ms=5)
        axes.axhline(study.own_speedup, color=GREY, lw=0.8, ls=":")
        axes.axhline(1.0, color=GREY, lw=0.8)
        axes.set_xlabel("draft tokens kept (%)")
        axes.set_ylabel("speed-up over autoregressive decoding")
        axes.set_title("best window at all points; dots: level with the scenario's draft", size=8, loc="left", color=GREY)
        axes.legend(loc="upper left")
        return figure
