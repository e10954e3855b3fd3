"""Scenarios under the same load: their points, and in words which of them brings more tokens from which size on."""

from collections.abc import Iterable, Iterator, Sequence

from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, NullLocator

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section, Table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import BLUE, GREEN, GREY, ORANGE, VERMILLION
from simulator.report.numbers import number, short_names
from simulator.studies.load import Curves, LoadPoint, LoadStudy, crossing

HEAD = ("clients", "tokens per second", "ms per token", "TBT p50", "TBT p99", "preempted")
LEGEND = (
    "Simulation of a closed loop: clients send their next request as soon as their last one has ended. Tokens per second are "
    "of all requests, prefills included in the time. Ms per token: of one request behind its first token, waiting to be "
    "admitted left out. TBT: between two deliveries to a request, however many tokens they bring."
)
LINES = ((BLUE, "o"), (GREY, "s"), (GREEN, "D"), (VERMILLION, "v"), (ORANGE, "^"), ("#CC79A7", "P"), ("#56B4E9", "X"))


def page(result: LoadStudy) -> Page:
    """Return the page of scenarios under the same load: their picture, who is ahead, and a table per scenario."""
    curves = result.curves
    picture = Figure("Tokens per second against time per token", "load.svg", lambda: load_figure(curves))
    comparisons = list(sentences(curves))
    return Page(
        title="Scenarios under the same load",
        opening=[picture, *([Bullets(comparisons)] if comparisons else []), Paragraph(LEGEND)],
        sections=[Section(name, [Table(HEAD, list(rows(points)), f"Load of {name}")]) for name, points in curves.items()],
    )


def rows(points: Iterable[LoadPoint]) -> Iterator[tuple[str, ...]]:
    """Yield a row per size, under ``HEAD``."""
    for point in points:
        times = (point.tokens_per_s, point.tpot_ms, point.tbt_p50_ms, point.tbt_p99_ms)
        yield (str(point.clients), *map(number, times), str(point.preemptions))


def sentences(curves: Curves) -> Iterator[str]:
    """Yield how scenarios stand to the first: crossings of tokens per second, and ratios from two clients on."""
    (reference, theirs), *challengers = curves.items()
    for name, ours in challengers:
        yield f"{name} against {reference}: {_crossed(ours, theirs)}{_ratios(ours, theirs)}."


def _crossed(ours: Sequence[LoadPoint], theirs: Sequence[LoadPoint]) -> str:
    """Return in words at which sizes ours bring more tokens per second, and from which size on fewer."""
    pairs = zip(ours, theirs, strict=True)
    ahead = ", ".join(str(our.clients) for our, their in pairs if our.tokens_per_s > their.tokens_per_s)
    passed = crossing(ours, theirs)
    if passed is not None:
        return f"fewer tokens per second from {passed} clients on" + (f", more with {ahead}" if ahead else "")
    return f"more tokens per second with {ahead} clients" if ahead else "never fewer, never more tokens per second"


def _ratios(ours: Sequence[LoadPoint], theirs: Sequence[LoadPoint]) -> str:
    """Return in words the ratios of throughput and time per token with two clients or more; empty without such a size."""
    pairs = [(our, their) for our, their in zip(ours, theirs, strict=True) if our.clients > 1]
    if not pairs:
        return ""
    rates = [our.tokens_per_s / their.tokens_per_s for our, their in pairs]
    times = [their.tpot_ms / our.tpot_ms for our, their in pairs]
    return (
        f". From two clients on its throughput is {min(rates):.2f} to {max(rates):.2f} times as high, "
        f"and tokens follow each other {min(times):.2f} to {max(times):.2f} times as fast"
    )


# ---- the picture


def load_figure(curves: Curves) -> Drawing:
    """Return rate against time per token, points marked with their clients, and the tail by clients."""
    with canvas(4.4, WIDTH_IN * 1.15) as figure:
        trade, tail = figure.subplots(1, 2, sharey=True)
        names = short_names(list(curves))
        for name, points, (colour, marker) in zip(names, curves.values(), LINES * len(curves), strict=False):
            look = {"color": colour, "marker": marker, "ms": 4, "lw": 1.2}
            trade.plot([point.tokens_per_s for point in points], [point.tpot_ms for point in points], "-", label=name, **look)
            clients = [point.clients for point in points]
            tail.plot(clients, [point.tbt_p50_ms for point in points], "-", **look)
            tail.plot(clients, [point.tbt_p99_ms for point in points], ":", **look)
            for point, offset in (points[0], (-9, 4)), (points[-1], (4, 4)):
                at = (point.tokens_per_s, point.tpot_ms)
                trade.annotate(f"{point.clients}", at, offset, textcoords="offset points", size=7, color=colour)
        trade.set_xlabel("tokens per second, all requests")
        trade.set_ylabel("time of one request (ms)")
        trade.set_title("per token, mean; at the ends: clients", size=8, loc="left", color=GREY)
        tail.set_xlabel("clients")
        tail.set_title("between deliveries: median (line), 99th percentile (dots)", size=8, loc="left", color=GREY)
        for axes in (trade, tail):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        figure.legend(loc="outside lower center", ncols=2)
        return figure
