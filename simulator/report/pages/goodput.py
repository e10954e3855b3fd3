"""The picture of what good requests cost: fleets by price and goodput, and the best for each
price.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulator.report.blocks import Block, Figure, Paragraph
from simulator.report.chart import Chart, ChartLevel, ChartSeries, Panel
from simulator.report.panels import GREY, look
from simulator.report.wording import number
from simulator.studies.plan.search import Finding

TITLE = "Price against good requests"
PICTURES = ("goodput.svg", "goodput.data.csv")


class PricedFleet(NamedTuple):
    """What a fleet costs, and how many good requests it serves."""

    usd_per_hour: float
    goodput_requests_per_s: float
    asked_per_s: float
    """Requests that came and count, per second."""
    family: tuple[str, str]
    """Hardware and strategy."""


def blocks(fleets: Sequence[Finding]) -> Iterator[Block]:
    """Yield the picture of these fleets and what it shows; nothing without two to compare,
    or where all cost nothing.
    """
    priced = list(_priced(fleets))
    if len(priced) < 2 or not any(fleet.usd_per_hour for fleet in priced):
        return
    yield Figure(TITLE, PICTURES[0], lambda: chart(priced))
    yield Paragraph(
        "Origin: simulation; each line is the cheapest fleet of a strategy on some hardware with "
        "fewer and more replicas. Good: within every limit of the SLO by itself."
    )


def _priced(fleets: Sequence[Finding]) -> Iterator[PricedFleet]:
    """Yield the fleets whose good requests a run has counted."""
    for fleet in fleets:
        counted = fleet.outcome.serving.counted if fleet.outcome else None
        if counted is None or counted.goodput_requests_per_s is None:
            continue
        asked = counted.requests / counted.seconds
        good = counted.goodput_requests_per_s
        yield PricedFleet(fleet.cost_usd_per_hour, good, asked, fleet.candidate.family)


def chart(fleets: Sequence[PricedFleet]) -> Chart:
    """Return fleets by price and goodput, a line for each family, and the best for each price."""
    families: dict[tuple[str, str], list[PricedFleet]] = {}
    for fleet in sorted(fleets):
        families.setdefault(fleet.family, []).append(fleet)
    best = list(frontier(fleets))
    dearest = max(fleet.usd_per_hour for fleet in fleets)
    ends = [*(fleet.usd_per_hour for fleet in best[1:]), dearest]
    x: list[float] = []
    y: list[float] = []
    for fleet, end in zip(best, ends, strict=True):
        x += [fleet.usd_per_hour, end]
        y += [fleet.goodput_requests_per_s] * 2
    series = [ChartSeries("best for its price", GREY, x, y, "--")]
    for place, ((hardware, strategy), members) in enumerate(families.items()):
        colour, mark, line = look(place)
        label = f"{strategy} on {hardware}"
        prices = [fleet.usd_per_hour for fleet in members]
        good = [fleet.goodput_requests_per_s for fleet in members]
        series.append(ChartSeries(label, colour, prices, good, line, mark))
    asked = max(fleet.asked_per_s for fleet in fleets)
    panel = Panel(
        "USD per hour",
        "good requests per second",
        (0.0, 1.05 * dearest),
        (0.0, 1.1 * asked),
        series,
        levels=[ChartLevel(f"asked: {number(asked, 3)} requests per second", asked)],
    )
    return Chart("Good requests per second against the price of fleets", [panel])


def frontier(fleets: Sequence[PricedFleet]) -> Iterator[PricedFleet]:
    """Yield the fleets that serve more good requests than all that cost no more, the cheapest
    first.
    """
    most = 0.0
    ranked = sorted(fleets, key=lambda fleet: (fleet.usd_per_hour, -fleet.goodput_requests_per_s))
    for fleet in ranked:
        if fleet.goodput_requests_per_s > most:
            most = fleet.goodput_requests_per_s
            yield fleet
