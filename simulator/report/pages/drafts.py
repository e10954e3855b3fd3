"""Does a bigger draft pay: what drafts of several sizes are worth as their tokens are kept more
often.
"""

from collections.abc import Iterator

from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section
from simulator.report.drawing import canvas
from simulator.report.figures import panel
from simulator.report.panels import GREY, LOOKS
from simulator.report.wording import Wording
from simulator.studies.drafts import RATES, DraftStudy

say = Wording("drafts")
SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of kept tokens that the table shows."""


def page(result: DraftStudy) -> Page:
    """Return the page of the draft study: its picture, the answer in words, and a table of
    drafts.
    """
    places = [min(range(len(RATES)), key=lambda place: abs(RATES[place] - rate)) for rate in SHOWN]
    picture = Figure(say("picture"), "drafts.svg", lambda: draft_figure(result))
    table = say.table("drafts", result.points, places=places)
    return Page(
        **say.first_screen(study=result),
        opening=[picture, Bullets(list(sentences(result)))],
        sections=[Section(result.scenario, [table, Paragraph(say("legend"))])],
    )


def sentences(study: DraftStudy) -> Iterator[str]:
    """Yield what the scenario's draft is worth, and what the further drafts need to come level with
    it.
    """
    base, *alternatives = study.points
    yield say("base", base=base, study=study)
    for point in alternatives:
        yield say("other", one=point, base=base, rate=study.own_rate)


def draft_figure(study: DraftStudy) -> Drawing:
    """Return a curve per draft, and the level of the scenario's draft that a bigger one has to
    reach.
    """
    with canvas(3.8) as figure:
        axes = figure.subplots()
        for point, (colour, _) in zip(study.points, LOOKS, strict=False):
            label = f"{point.model}, {point.draft_ms:.2g} ms a token"
            axes.plot([rate * 100 for rate in RATES], point.speedups, color=colour, label=label)
            if point.needed is not None:
                axes.plot(point.needed * 100, study.own_speedup, "o", color=colour, ms=5)
        axes.axhline(study.own_speedup, color=GREY, lw=0.8, ls=":")
        axes.axhline(1.0, color=GREY, lw=0.8)
        panel(axes, say, "panel", ())
        axes.legend(loc="upper left")
        return figure
