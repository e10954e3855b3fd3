"""The picture of caches over time: what the device and each tier below it hold."""

from collections.abc import Sequence
from typing import NamedTuple

from simulator.report.blocks import Figure, Paragraph, Section
from simulator.report.chart import Chart, ChartLevel, ChartSeries, Panel
from simulator.report.panels import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION
from simulator.report.wording import number, plural
from simulator.scenario.cache_over_time import DEVICE, IN_USE, CacheOverTime, Filled
from simulator.scenario.outcome import Outcome

TITLE = "Caches over time"
PICTURE = "caches.svg"
OF_TIERS = (VERMILLION, GREEN, PURPLE, SKY)
NEAR = 4.0
"""A room is drawn up to so many times the most that is in it."""


class Unit(NamedTuple):
    """What the heights of a panel are in."""

    name: str
    tokens: float
    """Tokens of one."""


def section(outcome: Outcome) -> Section:
    """Return the picture of caches over time and what it shows; empty where nothing is kept."""
    if not outcome.cache:
        return Section(TITLE, [], terminal=False)
    figure = Figure(TITLE, PICTURE, lambda: chart(outcome.cache))
    return Section(TITLE, [figure, Paragraph(_explained(outcome.cache))], terminal=False)


def chart(caches: Sequence[CacheOverTime]) -> Chart:
    """Return a panel for the device and for each tier of each pool."""
    panels = []
    for cache in caches:
        in_use, device, *tiers = cache.levels
        panels.append(_panel(cache, "device", [device, in_use], (BLUE, ORANGE)))
        for place, tier in enumerate(tiers):
            panels.append(_panel(cache, tier.name, [tier], OF_TIERS[place % len(OF_TIERS) :]))
    return Chart("The most tokens of the KV cache in each memory, over time", panels)


def _panel(
    cache: CacheOverTime, memory: str, levels: Sequence[Filled], colours: Sequence[str]
) -> Panel:
    """Return the panel of one memory."""
    most = max(max(level.tokens, default=0.0) for level in levels)
    unit = _unit(cache.token_bytes, most)
    where = f"{cache.pool} {memory}".strip()
    series = []
    for level, colour in zip(levels, colours, strict=False):
        series.append(_stairs(cache.stretch_s, level, unit, _named(where, level.name), colour))
    highest = most
    rooms = []
    room = levels[0].room_tokens
    if room and room <= NEAR * most:
        rooms.append(
            ChartLevel(f"room: {number(room / unit.tokens, 3)} {unit.name}", room / unit.tokens)
        )
        highest = max(most, room)
    end_s = cache.stretch_s * len(levels[0].tokens)
    return Panel(
        "time (s)",
        f"{where} ({unit.name})",
        (0.0, end_s),
        (0.0, 1.05 * highest / unit.tokens or 1.0),
        series,
        levels=rooms,
    )


def _unit(token_bytes: float | None, most_tokens: float) -> Unit:
    if token_bytes is None:
        return Unit("1,000 tokens", 1e3)
    if most_tokens * token_bytes < 1e9:
        return Unit("MB", 1e6 / token_bytes)
    return Unit("GB", 1e9 / token_bytes)


def _named(where: str, level: str) -> str:
    if level == IN_USE:
        return "of it in use by running requests"
    if level == DEVICE:
        return f"{where}: in use and kept"
    return f"{where}: kept"


def _stairs(stretch_s: float, level: Filled, unit: Unit, label: str, colour: str) -> ChartSeries:
    """Return a line that is level through each stretch; equal ones in a row are one step."""
    x: list[float] = []
    y: list[float] = []
    last = len(level.tokens) - 1
    for place, tokens in enumerate(level.tokens):
        height = tokens / unit.tokens
        if not y or y[-1] != height:
            x.append(place * stretch_s)
            y.append(height)
        if place == last or level.tokens[place + 1] != tokens:
            x.append((place + 1) * stretch_s)
            y.append(height)
    return ChartSeries(label, colour, x, y, "-")


def _explained(caches: Sequence[CacheOverTime]) -> str:
    """Return how the picture is to be read."""
    stretch = number(max(cache.stretch_s for cache in caches), 3)
    whose = "a replica"
    if any(cache.replicas > 1 for cache in caches):
        every = max(cache.replicas for cache in caches)
        whose = f"a replica, mean over {plural(every, 'replica')}"
        if len(caches) > 1:
            whose = "a replica, mean over those of its pool"
    return (
        f"Origin: simulation; the most in each stretch of {stretch} s, of {whose}. What is kept "
        "and not in use makes way for running requests."
    )
