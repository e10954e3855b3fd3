"""The load that scenarios carry: verdicts, times and tokens, and how requests pile up under a
traffic.
"""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.core.numeric import grouped
from simulator.report.blocks import (
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Section,
    Strong,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.panels import GREY, SMALL, look
from simulator.report.wording import number, percent, short_names
from simulator.studies.capacity import DRIFT, TOLERANCE, Capacity, CapacityStudy

LEGEND = (
    f"Stable: at most {DRIFT:.0%} of the arrivals between the middles of the second and the last "
    "third stay in the system. Carries: what is delivered when work never lacks, as an unstable "
    "run shows and a stable one with all requests at once; with an SLO the highest rate that meets "
    f"it, bisected to {TOLERANCE:.0%} on the first requests. Times and tokens are those of the "
    "whole traffic at its own rate: of an unstable system they grow with its length."
)


def page(result: CapacityStudy) -> Page:
    """Return the page of capacities: the picture, the scenario that carries most, and tables of
    verdicts and of times.
    """
    capacities = result.capacities
    title = "Requests in the system, and rates carried"
    drawing = Figure(title, "capacity.svg", lambda: capacity_figure(capacities))
    answered = Bullets([Strong(sentence) for sentence in answers(capacities)])
    verdicts = Section("Verdicts", [_verdicts(capacities), Paragraph(LEGEND)])
    times = Section("Times at the offered rate", [_times(capacities)])
    return Page(
        "How much traffic each scenario carries",
        answer=headline(capacities),
        highlights=list(highlights(capacities)),
        opening=[drawing, answered],
        sections=[verdicts, times],
    )


def headline(capacities: Sequence[Capacity]) -> str:
    """Return which scenario carries the most of every traffic, and how many times the offered
    rate.
    """
    clauses = []
    for traffic, group in sorted(_by_traffic(capacities).items()):
        best = _carries_most(group)
        carried = number(best.carried_per_s, 3)
        offered = number(best.offered.requests_per_s, 3)
        clauses.append(
            f"{traffic}: {best.scenario} carries the most, {carried} requests per second, "
            f"{best.headroom:.2f} times the {offered} offered"
        )
    return f"{'; '.join(clauses)}."


def highlights(capacities: Sequence[Capacity]) -> Iterator[Highlight]:
    """Yield the largest headroom, the rate carried there, and how many pairs are stable."""
    best = max(capacities, key=lambda capacity: capacity.headroom)
    stable = [capacity for capacity in capacities if capacity.offered.stable]
    what = f"the offered rate of {best.workload}, carried by {best.scenario}"
    yield Highlight(f"{best.headroom:.2f} ×", what)
    yield Highlight(number(best.carried_per_s, 3), "requests per second there")
    pairs = f"of {len(capacities)} pairs of traffic and scenario are stable"
    yield Highlight(str(len(stable)), pairs)


def _by_traffic(capacities: Sequence[Capacity]) -> dict[str, list[Capacity]]:
    return grouped(capacities, lambda capacity: capacity.workload)


def _carries_most(group: Sequence[Capacity]) -> Capacity:
    return max(group, key=lambda capacity: capacity.carried_per_s)


def _verdicts(capacities: Sequence[Capacity]) -> Table:
    columns = [
        *_names(capacities),
        Column("offered (req/s)", lambda capacity: number(capacity.offered.requests_per_s, 3)),
        Column("verdict", lambda capacity: capacity.verdict),
        Column("drift", lambda capacity: percent(100 * capacity.offered.drift)),
        Column("carries (req/s)", lambda capacity: number(capacity.carried_per_s, 3)),
        Column("of the offered", lambda capacity: f"{capacity.headroom:.2f} x"),
    ]
    return table("Verdicts and rates", capacities, columns)


def _names(capacities: Sequence[Capacity]) -> list[Column[Capacity]]:
    """Return the columns that say which traffic meets which scenario."""
    short = scenario_names(capacities)
    return [
        Column("traffic", lambda capacity: capacity.workload),
        Column("scenario", lambda capacity: short[capacity.scenario]),
    ]


def _times(capacities: Sequence[Capacity]) -> Table:
    columns = [
        *_names(capacities),
        Column("TTFT p50 (s)", lambda capacity: number(capacity.offered.ttft_p50_ms / 1e3, 3)),
        Column("TTFT p99 (s)", lambda capacity: number(capacity.offered.ttft_p99_ms / 1e3, 3)),
        Column("TPOT p50 (ms)", lambda capacity: number(capacity.offered.tpot_p50_ms, 3)),
        Column("tokens per s", lambda capacity: number(capacity.offered.tokens_per_s, 3)),
        Column("mean in system", lambda capacity: number(capacity.offered.mean_in_system, 3)),
        Column("Little's law off by", lambda capacity: f"{abs(capacity.offered.littles_gap):.0e}"),
        Column("CPU s, run + search", _cpu_seconds),
    ]
    return table("Times, tokens and requests at the offered rate", capacities, columns)


def _cpu_seconds(capacity: Capacity) -> str:
    return f"{capacity.offered.cpu_s:.0f} + {capacity.search_cpu_s:.0f}"


def scenario_names(capacities: Sequence[Capacity]) -> dict[str, str]:
    """Return short names of the scenarios by their names."""
    names = list(dict.fromkeys(capacity.scenario for capacity in capacities))
    return dict(zip(names, short_names(names), strict=True))


def answers(capacities: Sequence[Capacity]) -> Iterator[str]:
    """Yield which scenarios carry a traffic and which of them carries most, a sentence per
    traffic.
    """
    short = scenario_names(capacities)
    for traffic, group in _by_traffic(capacities).items():
        best = _carries_most(group)
        offered = number(best.offered.requests_per_s, 3)
        most = number(best.carried_per_s, 3)
        carriers = [short[capacity.scenario] for capacity in group if capacity.offered.carried]
        names = ", ".join(carriers) or "none"
        yield (
            f"{traffic}, {offered} requests per second: carried by {names}; "
            f"{short[best.scenario]} carries the most, {most} requests per second"
        )


def capacity_figure(capacities: Sequence[Capacity]) -> Drawing:
    """Return a column per traffic: requests in the system over time, above carried against offered
    rate.
    """
    short = scenario_names(capacities)
    groups = _by_traffic(capacities)
    colours = {scenario: look(place).colour for place, scenario in enumerate(short)}
    with canvas(5.2, WIDTH_IN * 1.15) as figure:
        panels = figure.subplots(2, len(groups), squeeze=False, height_ratios=(3, 2))
        for column, (traffic, group) in enumerate(groups.items()):
            over_time, carried = panels[:, column]
            labels = [short[capacity.scenario] for capacity in group]
            shades = [colours[capacity.scenario] for capacity in group]
            _over_time(over_time, group, labels, shades)
            over_time.set_title(traffic, **SMALL)
            if column == 0:
                over_time.set_ylabel("requests in the system")
                _carried(carried, group, labels, shades)
            else:
                _carried(carried, group, [], shades)
        handles, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(5, len(short)))
        return figure


def _over_time(
    axes: Axes, group: Sequence[Capacity], labels: Sequence[str], colours: Sequence[str]
) -> None:
    """Draw the requests in the system over time at the offered rate."""
    for capacity, label, colour in zip(group, labels, colours, strict=True):
        hours = capacity.offered.hours[1:]
        requests = capacity.offered.in_system[1:]
        axes.plot(hours, requests, color=colour, lw=1.1, label=label)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0)
    axes.set_xscale("log")
    axes.set_xlabel("hours; ends with the last request")


def _carried(
    axes: Axes, group: Sequence[Capacity], labels: Sequence[str], colours: Sequence[str]
) -> None:
    """Draw the rates that are carried, and the offered rate."""
    places = range(len(group))
    rates = [capacity.carried_per_s for capacity in group]
    bars = axes.barh(places, rates, color=colours, height=0.7)
    axes.bar_label(bars, [number(rate, 3) for rate in rates], padding=2, size=7)
    axes.margins(x=0.12)
    axes.axvline(group[0].offered.requests_per_s, color=GREY, ls="--", lw=1)
    ticks = places[: len(labels)]
    axes.set_yticks(ticks, labels)
    axes.invert_yaxis()
    axes.set_xlabel("requests per s carried; dashed: offered")
