"""Show stated fleets side by side: which of them do, what each costs and serves, and what limits
it.
"""

from collections.abc import Callable
from math import inf

from simulator.report.blocks import Bullets, Page, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.wording import number, whole_share
from simulator.scenario.uncertain.draws import SHARE, Interval
from simulator.studies.plan.limits import limit_name
from simulator.studies.plan.search import Finding, not_enough
from simulator.studies.plan.split_or_not import goodput_per_s
from simulator.studies.plan.stated import StatedFleet, StatedFleets, strain

LEGEND = (
    "All devices of a fleet serve, with the method that meets the SLO on the fewest of them; where "
    "none does, with the one that misses by least. Good requests: within every limit of the SLO, "
    "at the planned traffic. Carries: the highest rate at which the SLO is met, found to 5 %. "
)


def page(compared: StatedFleets, command: str = "") -> Page:
    """Return the page of stated fleets."""
    fleets = compared.fleets
    runs = f"In brackets: {whole_share(SHARE)} interval over {compared.draws} resampled runs."
    methods = [f"{_devices(fleet)}: {_method(fleet)}" for fleet in fleets]
    assumed = [Section("Taken by default", [Bullets(compared.assumed)])]
    return Page(
        f"{compared.plans[0].file.name} on stated fleets",
        about=f"{', '.join(map(_devices, fleets))}, asked in one line",
        answer=headline(compared),
        opening=[_fleets(compared), Bullets(methods), Paragraph(f"{LEGEND}{runs}")],
        sections=assumed if compared.assumed else [],
        command=command,
    )


def headline(compared: StatedFleets) -> str:
    """Return which fleets meet the SLO, and how many devices of the others would."""
    return " ".join(f"{_verdict(fleet)}." for fleet in _cheapest_first(compared))


def _cheapest_first(compared: StatedFleets) -> list[StatedFleet]:
    """Return the fleets that do, the cheapest first and those without a price last, and then the
    others likewise.
    """

    def place(fleet: StatedFleet) -> tuple[bool, float]:
        return not fleet.does, inf if fleet.usd_per_hour is None else fleet.usd_per_hour

    return sorted(compared.fleets, key=place)


def _verdict(fleet: StatedFleet) -> str:
    """Return whether a fleet does, and how many devices of its kind would."""
    if fleet.fewest is None:
        if fleet.most:
            return not_enough(fleet.count, fleet.device, fleet.would, fleet.most)
        return f"{_devices(fleet)} {_do(fleet)} not do: {fleet.refused}"
    needed = sum(fleet.fewest.devices.values())
    words = f"{_devices(fleet)} {_do(fleet)}"
    if fleet.usd_per_hour is not None:
        words += f" for {number(fleet.usd_per_hour, 3)} USD an hour"
    if needed < fleet.count:
        words += f" ({needed} of them suffice)"
    return words


def _do(fleet: StatedFleet) -> str:
    return "does" if fleet.count == 1 else "do"


def _devices(fleet: StatedFleet) -> str:
    return f"{fleet.count} x {fleet.device}"


def _method(fleet: StatedFleet) -> str:
    """Return what a fleet runs, or why it runs nothing."""
    if fleet.whole is None:
        return fleet.refused
    return f"{fleet.whole.replicas} x {fleet.whole.candidate.name}"


def _fleets(compared: StatedFleets) -> Table:
    columns: list[Column[StatedFleet]] = [
        Column("fleet", _devices),
        Column("does", lambda fleet: "yes" if fleet.does else "no"),
        Column("SLO met in runs", lambda fleet: _met(fleet, compared.draws)),
        Column("USD/hour", lambda fleet: number(fleet.usd_per_hour, 3)),
        Column("USD/million tokens", _usd_per_million_tokens),
        Column("good requests/s", lambda fleet: _with(fleet, goodput_per_s)),
        Column("carries requests/s", _carries),
        Column("limited by", _limited_by),
    ]
    return table("Stated fleets", compared.fleets, columns, terminal_columns=(0, 1, 2, 3, 5, 6, 7))


def _met(fleet: StatedFleet, draws: int) -> str:
    if fleet.whole is None:
        return ""
    return f"{fleet.kept} of {draws}"


def _with(fleet: StatedFleet, of: Callable[[Finding], float | None]) -> str:
    """Return a number of a fleet's run, with the interval of its resampled runs."""
    if fleet.whole is None:
        return ""
    value = of(fleet.whole)
    return f"{number(value, 3)}{_between(fleet.interval(of), 1.0)}"


def _between(interval: Interval | None, times: float) -> str:
    if interval is None:
        return ""
    return f" ({number(times * interval.low, 3)} to {number(times * interval.high, 3)})"


def _usd_per_million_tokens(fleet: StatedFleet) -> str:
    if fleet.usd_per_hour is None:
        return ""
    return _with(fleet, lambda run: run.cost_usd_per_million_tokens if run.expenses else None)


def _carries(fleet: StatedFleet) -> str:
    """Return the rate that a fleet carries, and between what it lies where few requests are
    known.
    """
    room = fleet.headroom
    if room is None or room.times is None or fleet.carried_per_s is None:
        return "unknown" if fleet.does else ""
    words = number(fleet.carried_per_s, 3)
    if room.capped:
        words = f"at least {words}"
    if room.interval and room.times:
        offered = fleet.carried_per_s / room.times
        low, high = (number(offered * times, 3) for times in room.interval)
        words += f" ({low} to {high})"
    return words


def _limited_by(fleet: StatedFleet) -> str:
    """Return the tightest limit of a fleet, and how much of it is taken."""
    if fleet.whole is None:
        return fleet.refused
    tightest = fleet.whole.tightest
    interval = fleet.interval(strain)
    between = _between(interval, 100.0)
    return f"{limit_name(tightest.limit)} at {number(100.0 * tightest.strain, 3)} %{between}"
