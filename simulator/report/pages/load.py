"""Scenarios under the same load: their points, and in words which of them brings more tokens from
which size on.
"""

from collections.abc import Iterator

from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, NullLocator

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import panel
from simulator.report.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION
from simulator.report.wording import Wording, short_names
from simulator.studies.load import Curves, LoadStudy, crossing

say = Wording("load")
LINES = (
    (BLUE, "o"),
    (GREY, "s"),
    (GREEN, "D"),
    (VERMILLION, "v"),
    (ORANGE, "^"),
    (PURPLE, "P"),
    (SKY, "X"),
)


def page(result: LoadStudy) -> Page:
    """Return the page of scenarios under the same load: their picture, who is ahead, and a table
    per scenario.
    """
    curves = result.curves
    picture = Figure(say("picture"), "load.svg", lambda: load_figure(curves))
    comparisons = list(sentences(curves))
    return Page(
        **say.first_screen(curves=curves),
        opening=[
            picture,
            *([Bullets(comparisons)] if comparisons else []),
            Paragraph(say("legend")),
        ],
        sections=[
            Section(name, [say.table("load", points, name=name)]) for name, points in curves.items()
        ],
    )


def sentences(curves: Curves) -> Iterator[str]:
    """Yield how scenarios stand to the first: crossings of tokens per second, and ratios from two
    clients on.
    """
    (reference, theirs), *challengers = curves.items()
    for name, ours in challengers:
        pairs = list(zip(ours, theirs, strict=True))
        several = [(our, their) for our, their in pairs if our.clients > 1]
        yield say(
            "against",
            name=name,
            reference=reference,
            ahead=[our.clients for our, their in pairs if our.tokens_per_s > their.tokens_per_s],
            passed=crossing(ours, theirs),
            rates=[our.tokens_per_s / their.tokens_per_s for our, their in several],
            times=[their.tpot_ms / our.tpot_ms for our, their in several],
        )


def load_figure(curves: Curves) -> Drawing:
    """Return rate against time per token, points marked with their clients, and the tail by
    clients.
    """
    with canvas(4.4, WIDTH_IN * 1.15) as figure:
        trade, tail = figure.subplots(1, 2, sharey=True)
        names = short_names(list(curves))
        for name, points, (colour, marker) in zip(
            names, curves.values(), LINES * len(curves), strict=False
        ):
            look = {"color": colour, "marker": marker, "ms": 4, "lw": 1.2}
            trade.plot(
                [point.tokens_per_s for point in points],
                [point.tpot_ms for point in points],
                "-",
                label=name,
                **look,
            )
            clients = [point.clients for point in points]
            tail.plot(clients, [point.tbt_p50_ms for point in points], "-", **look)
            tail.plot(clients, [point.tbt_p99_ms for point in points], ":", **look)
            for point, offset in (points[0], (-9, 4)), (points[-1], (4, 4)):
                at = (point.tokens_per_s, point.tpot_ms)
                trade.annotate(
                    f"{point.clients}", at, offset, textcoords="offset points", size=7, color=colour
                )
        panel(trade, say, "trade_panel", ())
        panel(tail, say, "tail_panel", ())
        for axes in (trade, tail):
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        figure.legend(loc="outside lower center", ncols=2)
        return figure
