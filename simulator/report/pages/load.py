"""Scenarios under the same load: their points, and in words which of them brings more tokens from
which size on.
"""

from collections.abc import Iterator

from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, NullLocator

from simulator.core.plain import PlainData
from simulator.report.blocks import (
    Block,
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Section,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import WIDTH_IN, PointLabel, canvas, label_points
from simulator.report.panels import dress, look
from simulator.report.wording import number, short_names
from simulator.studies.load import Curves, LoadPoint, LoadStudy, crossing

LEGEND = (
    "Simulation of a closed loop: clients send their next request as soon as their last one has "
    "ended. Tokens per second are of all requests, prefills included in the time. Ms per token: of "
    "one request behind its first token, waiting to be admitted left out. TBT: between two "
    "deliveries to a request, however many tokens they bring."
)


def page(result: LoadStudy) -> Page:
    """Return the page of scenarios under the same load: their picture, who is ahead, and a table
    per scenario.
    """
    curves = result.curves
    title = "Tokens per second against time per token"
    opening: list[Block] = [Figure(title, "load.svg", lambda: load_figure(curves))]
    comparisons = list(sentences(curves))
    if comparisons:
        opening.append(Bullets(comparisons))
    opening.append(Paragraph(LEGEND))
    return Page(
        "Scenarios under the same load",
        answer=headline(curves),
        highlights=list(highlights(curves)),
        opening=opening,
        sections=[Section(name, [_loads(name, points)]) for name, points in curves.items()],
    )


def headline(curves: Curves) -> str:
    """Return which scenario brings the most tokens, and which is fastest for few clients."""
    most = _most_tokens(curves)
    fastest = _fastest(curves)
    rate = number(most.tokens_per_s, 3)
    answer = f"With {most.clients} clients {most.scenario} brings {rate} tokens per second"
    if len(curves) > 1:
        answer += f", the most of {len(curves)} scenarios"
    answer += f"; with {fastest.clients}, "
    if fastest.scenario != most.scenario:
        answer += f"{fastest.scenario} is fastest: "
    return f"{answer}{number(fastest.tpot_ms, 3)} ms per token (simulation)."


def highlights(curves: Curves) -> Iterator[Highlight]:
    """Yield the most tokens per second, the time per token there, and that for few clients."""
    most = _most_tokens(curves)
    fastest = _fastest(curves)
    rate = number(most.tokens_per_s, 3)
    many_ms = number(most.tpot_ms, 3)
    few_ms = number(fastest.tpot_ms, 3)
    yield Highlight(rate, f"tokens per second with {most.clients} clients")
    yield Highlight(f"{many_ms} ms", f"per token with {most.clients} clients")
    yield Highlight(f"{few_ms} ms", f"per token with {fastest.clients}")


def _most_tokens(curves: Curves) -> LoadPoint:
    """Return the point with the most tokens per second, of those with the most clients."""
    most_clients = [points[-1] for points in curves.values()]
    return max(most_clients, key=lambda point: point.tokens_per_s)


def _fastest(curves: Curves) -> LoadPoint:
    """Return the point with the least time per token, of those with the fewest clients."""
    fewest_clients = [points[0] for points in curves.values()]
    return min(fewest_clients, key=lambda point: point.tpot_ms)


def _loads(name: str, points: list[LoadPoint]) -> Table:
    columns: list[Column[LoadPoint]] = [
        Column("clients", lambda point: point.clients),
        Column("tokens per second", lambda point: number(point.tokens_per_s)),
        Column("ms per token", lambda point: number(point.tpot_ms)),
        Column("TBT p50", lambda point: number(point.tbt_p50_ms)),
        Column("TBT p99", lambda point: number(point.tbt_p99_ms)),
        Column("preempted", lambda point: point.preemptions),
    ]
    return table(f"Load of {name}", points, columns)


def sentences(curves: Curves) -> Iterator[str]:
    """Yield how scenarios stand to the first: crossings of tokens per second, and ratios from two
    clients on.
    """
    (reference, theirs), *challengers = curves.items()
    for name, ours in challengers:
        compared = f"{name} against {reference}: {_ahead(ours, theirs)}"
        rates = []
        times = []
        for our, their in zip(ours, theirs, strict=True):
            if our.clients > 1:
                rates.append(our.tokens_per_s / their.tokens_per_s)
                times.append(their.tpot_ms / our.tpot_ms)
        if rates:
            compared += (
                f". From two clients on its throughput is {min(rates):.2f} to {max(rates):.2f} "
                f"times as high, and tokens follow each other {min(times):.2f} to "
                f"{max(times):.2f} times as fast"
            )
        yield f"{compared}."


def _ahead(ours: list[LoadPoint], theirs: list[LoadPoint]) -> str:
    """Return in words with how many clients a scenario brings more tokens than the reference."""
    passed = crossing(ours, theirs)
    more = []
    for our, their in zip(ours, theirs, strict=True):
        if our.tokens_per_s > their.tokens_per_s:
            more.append(str(our.clients))
    if passed is not None:
        fewer = f"fewer tokens per second from {passed} clients on"
        if more:
            return f"{fewer}, more with {', '.join(more)}"
        return fewer
    if more:
        return f"more tokens per second with {', '.join(more)} clients"
    return "never fewer, never more tokens per second"


def load_figure(curves: Curves) -> Drawing:
    """Return rate against time per token, points marked with their clients, and the tail by
    clients.
    """
    with canvas(4.4, WIDTH_IN * 1.15) as figure:
        trade, tail = figure.subplots(1, 2, sharey=True)
        names = short_names(list(curves))
        labels = []
        for place, (name, points) in enumerate(zip(names, curves.values(), strict=True)):
            colour, marker, _ = look(place)
            drawn = {"color": colour, "marker": marker, "ms": 4, "lw": 1.2}
            rates = [point.tokens_per_s for point in points]
            times = [point.tpot_ms for point in points]
            trade.plot(rates, times, "-", label=name, **drawn)
            clients = [point.clients for point in points]
            medians = [point.tbt_p50_ms for point in points]
            tails = [point.tbt_p99_ms for point in points]
            tail.plot(clients, medians, "-", **drawn)
            tail.plot(clients, tails, ":", **drawn)
            small: PlainData = {"size": 7, "color": colour}
            for end in (0, -1):
                labels.append(PointLabel(f"{clients[end]}", rates[end], times[end], small))
        dress(
            trade,
            x_label="tokens per second, all requests",
            y_label="time of one request (ms)",
            title="per token, mean; at the ends: clients",
            log_x=2,
            yscale="log",
        )
        dress(
            tail,
            x_label="clients",
            title="between deliveries: median (line), 99th percentile (dots)",
            log_x=2,
            yscale="log",
        )
        for axes in (trade, tail):
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        figure.legend(loc="outside lower center", ncols=2)
        label_points(figure, trade, labels)
        return figure
