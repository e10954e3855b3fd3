"""The load that scenarios carry: verdicts, times and tokens, and how requests pile up under a
traffic.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.numeric import grouped
from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section, Strong
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, SMALL, VERMILLION
from simulator.report.wording import Wording, number, short_names
from simulator.studies.capacity import DRIFT, TOLERANCE, Capacity, CapacityStudy

say = Wording("capacity")
COLOURS = (BLUE, GREEN, VERMILLION, ORANGE, PURPLE, SKY)


def page(result: CapacityStudy) -> Page:
    """Return the page of capacities: the picture, the scenario that carries most, and tables of
    verdicts and of times.
    """
    capacities, short = result.capacities, scenario_names(result.capacities)
    verdicts, times = (say.table(key, capacities, short=short) for key in ("verdicts", "times"))
    legend = Paragraph(say("legend", drift=DRIFT, tolerance=TOLERANCE))
    return Page(
        **say.first_screen(capacities=capacities),
        opening=[
            Figure(say("picture"), "capacity.svg", lambda: capacity_figure(capacities)),
            Bullets([Strong(sentence) for sentence in answers(capacities)]),
        ],
        sections=[
            Section("Verdicts", [verdicts, legend]),
            Section("Times at the offered rate", [times]),
        ],
    )


def scenario_names(capacities: Sequence[Capacity]) -> dict[str, str]:
    """Return short names of the scenarios by their names."""
    names = list(dict.fromkeys(capacity.scenario for capacity in capacities))
    return dict(zip(names, short_names(names), strict=True))


def answers(capacities: Sequence[Capacity]) -> Iterator[str]:
    """Yield which scenarios carry a traffic and which of them carries most, a sentence per
    traffic.
    """
    short = scenario_names(capacities)
    for traffic, group in grouped(capacities, lambda capacity: capacity.workload).items():
        best = max(group, key=lambda capacity: capacity.carried_per_s)
        carriers = [short[capacity.scenario] for capacity in group if capacity.offered.carried]
        yield say(
            "answer", traffic=traffic, best=best, carriers=carriers, name=short[best.scenario]
        )


def capacity_figure(capacities: Sequence[Capacity]) -> Drawing:
    """Return a column per traffic: requests in the system over time, above carried against offered
    rate.
    """
    short, groups = (
        scenario_names(capacities),
        grouped(capacities, lambda capacity: capacity.workload),
    )
    colours = dict(zip(short, COLOURS * len(short), strict=False))
    with canvas(5.2, WIDTH_IN * 1.15) as figure:
        panels = figure.subplots(2, len(groups), squeeze=False, height_ratios=(3, 2))
        for column, (traffic, group) in enumerate(groups.items()):
            over_time, carried = panels[0][column], panels[1][column]
            labels = [short[capacity.scenario] for capacity in group]
            shades = [colours[capacity.scenario] for capacity in group]
            _over_time(over_time, group, labels, shades)
            over_time.set_ylabel("" if column else "requests in the system")
            over_time.set_title(traffic, **SMALL)
            _carried(carried, group, [] if column else labels, shades)
        figure.legend(
            *panels[0][0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=min(5, len(short)),
        )
        return figure


def _over_time(
    axes: Any, group: Sequence[Capacity], labels: Sequence[str], colours: Sequence[str]
) -> None:
    """Draw the requests in the system over time at the offered rate."""
    for capacity, label, colour in zip(group, labels, colours, strict=True):
        axes.plot(
            capacity.offered.hours[1:],
            capacity.offered.in_system[1:],
            color=colour,
            lw=1.1,
            label=label,
        )
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0)
    axes.set_xscale("log")
    axes.set_xlabel("hours; ends with the last request")


def _carried(
    axes: Any, group: Sequence[Capacity], labels: Sequence[str], colours: Sequence[str]
) -> None:
    """Draw the rates that are carried, and the offered rate."""
    places, rates = range(len(group)), [capacity.carried_per_s for capacity in group]
    bars = axes.barh(places, rates, color=colours, height=0.7)
    axes.bar_label(bars, [number(rate, 3) for rate in rates], padding=2, size=7)
    axes.margins(x=0.12)
    axes.axvline(group[0].offered.requests_per_s, color=GREY, ls="--", lw=1)
    axes.set_yticks(places if labels else [], labels)
    axes.invert_yaxis()
    axes.set_xlabel("requests per s carried; dashed: offered")
