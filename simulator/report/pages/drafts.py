"""Does a bigger draft pay: what drafts of several sizes are worth as their tokens are kept more
often.
"""

from collections.abc import Iterator

from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Highlight, Page, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import GREY, dress, look
from simulator.report.wording import number, shown
from simulator.studies.drafts import RATES, DraftPoint, DraftStudy

SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of kept tokens that the table shows."""


LEGEND = (
    "By law, one request. At 50 %, ...: speed-up over autoregressive decoding and (best window) "
    "where draft tokens are kept with that chance. Pays above: the chance at which it is level "
    "with no draft. Needs: the chance at which it is level with the scenario's draft at what that "
    "keeps. How often tokens of a bigger draft are really kept has to be recorded."
)


def page(result: DraftStudy) -> Page:
    """Return the page of the draft study: its picture, the answer in words, and a table of
    drafts.
    """
    title = "Speed-up of drafts over the share of kept tokens"
    picture = Figure(title, "drafts.svg", lambda: draft_figure(result))
    said = Bullets(list(sentences(result)))
    compared = Section(result.scenario, [_drafts(result), Paragraph(LEGEND)])
    return Page(
        "Does a bigger draft pay?",
        answer=headline(result),
        highlights=list(highlights(result)),
        opening=[picture, said],
        sections=[compared],
    )


def headline(study: DraftStudy) -> str:
    """Return what the scenario's draft is worth, and where the others come level with it."""
    base, *others = study.points
    parts = [
        f"{base.model} is worth {study.own_speedup:.2f} times autoregressive decoding with its "
        "best window"
    ]
    for point in others:
        if point.needed is None:
            parts.append(f"{point.model} never comes level")
        else:
            kept = f"{point.needed:.0%} of its tokens are kept"
            parts.append(f"{point.model} comes level where {kept}")
    return f"{'; '.join(parts)}."


def highlights(study: DraftStudy) -> Iterator[Highlight]:
    """Yield the speed-up of the scenario's draft, how often it is right, and how often it has to
    be.
    """
    base = study.points[0]
    what = f"as fast as autoregressive decoding, with {base.model}"
    yield Highlight(f"{study.own_speedup:.2f} ×", what)
    yield Highlight(f"{study.own_rate:.0%}", "of its tokens are kept")
    if base.pays is not None:
        yield Highlight(f"{base.pays:.0%}", "would have to be kept for it to pay")


def _drafts(study: DraftStudy) -> Table:
    """Return the table of drafts: what each is worth by how often its tokens are kept."""
    columns: list[Column[DraftPoint]] = [
        Column("draft", lambda point: point.model),
        Column("1e9 weights", lambda point: number(point.billions, 3)),
        Column("ms a token", lambda point: number(point.draft_ms, 3)),
        *(_at(rate) for rate in SHOWN),
        Column("pays above", lambda point: shown(point.pays, ".0%") or "never"),
        Column("needs, for level", lambda point: shown(point.needed, ".0%") or "never"),
    ]
    return table("Drafts of several sizes", study.points, columns)


def _at(rate: float) -> Column[DraftPoint]:
    """Return the column of speed-ups, with the best window, where this share of tokens is kept."""
    place = min(range(len(RATES)), key=lambda place: abs(RATES[place] - rate))

    def speedup(point: DraftPoint) -> str:
        return f"{point.speedups[place]:.2f} ({point.windows[place]})"

    return Column(f"at {rate:.0%}", speedup)


def sentences(study: DraftStudy) -> Iterator[str]:
    """Yield what the scenario's draft is worth, and what the further drafts need to come level with
    it.
    """
    base, *others = study.points
    origin = "of the scenario"
    if study.stand_in:
        origin = "stand-in: recorded from small models"
    yield (
        f"{base.model} keeps {study.own_rate:.0%} of its tokens (acceptance {origin}) and is worth "
        f"{study.own_speedup:.2f} times autoregressive decoding with its best window."
    )
    for point in others:
        bigger = f"{point.model}, {point.billions / base.billions:.1f} times as big"
        if point.needed is None:
            yield f"{bigger}, cannot come level, however often its tokens are kept."
        else:
            points = 100 * (point.needed - study.own_rate)
            yield (
                f"{bigger}, comes level where {point.needed:.0%} of its tokens are kept "
                f"({points:+.0f} points)."
            )


def draft_figure(study: DraftStudy) -> Drawing:
    """Return a curve per draft, and the level of the scenario's draft that a bigger one has to
    reach.
    """
    percents = [rate * 100 for rate in RATES]
    with canvas(3.8) as figure:
        axes = figure.subplots()
        for place, point in enumerate(study.points):
            colour, mark, line = look(place)
            label = f"{point.model}, {point.draft_ms:.2g} ms a token"
            axes.plot(percents, point.speedups, line, color=colour, label=label)
            if point.needed is not None:
                axes.plot(point.needed * 100, study.own_speedup, mark, color=colour, ms=5)
        axes.axhline(study.own_speedup, color=GREY, lw=0.8, ls=":")
        axes.axhline(1.0, color=GREY, lw=0.8)
        dress(
            axes,
            x_label="draft tokens kept (%)",
            y_label="speed-up over autoregressive decoding",
            title="best window at all points; marks: level with the scenario's draft",
        )
        axes.legend(loc="upper left")
        return figure
