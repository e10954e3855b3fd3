"""Show stated fleets side by side: which of them do, what each costs and serves, and what limits
it.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path

from simulator.report.blocks import (
    Block,
    Bullets,
    Page,
    Paragraph,
    Table,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.page import page_files, write_files
from simulator.report.pages.plan import listings
from simulator.report.wording import number, whole_share
from simulator.scenario.uncertain.draws import SHARE, Interval
from simulator.studies.plan.limits import limit_name
from simulator.studies.plan.search import not_enough
from simulator.studies.plan.stated import (
    FleetGroup,
    FleetRun,
    StatedFleet,
    StatedFleets,
    fleet_exports,
    good_per_s,
    strain,
    tightest_of,
    usd_per_million_tokens,
)

LEGEND = (
    "All devices of a fleet serve, with the method that carries most. Where it misses the SLO at "
    "the planned traffic, it is the method that meets it on the fewest devices; where none does, "
    "the one that misses by least. Good requests: within every limit of the SLO, at the planned "
    "traffic. Carries: the highest rate at which the SLO is met, whatever is planned, to 5 %. "
)
TOGETHER = (
    "Devices joined by + serve side by side: requests are dealt among them by share, in proportion "
    "to what they carry, and none waits for the others. Such a fleet carries what its devices "
    "carry together. "
)
NAME = "fleets"


def write_fleets(compared: StatedFleets, folder: Path, command: str = "") -> None:
    """Write the page, and for each group of a fleet that does the files that serve it, in a folder
    of its own; raises BadInput where a folder cannot be made.
    """
    exports = fleet_exports(compared)
    write_files(folder, {**page_files(page(compared, command, exports), NAME), **exports})


def page(
    compared: StatedFleets, command: str = "", exports: Mapping[str, str] | None = None
) -> Page:
    """Return the page of stated fleets, with the scripts among their files."""
    fleets = compared.fleets
    runs = f"In brackets: {whole_share(SHARE)} interval over {compared.draws} resampled runs."
    groups = _groups(compared)
    methods = list(dict.fromkeys(f"{part.group}: {_method(part)}" for part in groups))
    folded = sections(
        ("Exported", listings(exports or {})), ("Taken by default", _assumed(compared))
    )
    legend = LEGEND
    if any(len(fleet.groups) > 1 for fleet in fleets):
        legend += TOGETHER
    return Page(
        f"{compared.plans[0].file.name} on stated fleets",
        about=f"{', '.join(fleet.name for fleet in fleets)}, asked in one line",
        answer=headline(compared),
        opening=[_fleets(compared), Bullets(methods), Paragraph(f"{legend}{runs}")],
        sections=folded,
        command=command,
    )


def _assumed(compared: StatedFleets) -> Iterator[Block]:
    if compared.assumed:
        yield Bullets(compared.assumed)


def _groups(compared: StatedFleets) -> Iterator[FleetGroup]:
    for fleet in compared.fleets:
        yield from fleet.groups


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
    """Return whether a fleet does, at which price, and what it takes of it or lacks; or that it
    does in a burst alone.
    """
    if not fleet.does:
        return _falls_short(fleet)
    words = f"{fleet.name} {_do(fleet)}"
    if fleet.usd_per_hour is not None:
        words += f" for {number(fleet.usd_per_hour, 3)} USD an hour"
    if fleet.burst:
        carries = number(fleet.carried_per_s, 3)
        return f"{words}, but for a burst alone: when it lasts, {carries} requests a second"
    if len(fleet.groups) > 1:
        return f"{words} ({_shares(fleet)})"
    (part,) = fleet.groups
    if part.fewest and sum(part.fewest.devices.values()) < part.group.count:
        words += f" ({sum(part.fewest.devices.values())} of them suffice)"
    return words


def _falls_short(fleet: StatedFleet) -> str:
    """Return that a fleet does not do, and how many devices of its kind would, or which of its
    groups does not.
    """
    if len(fleet.groups) > 1:
        behind = [str(part.group) for part in fleet.serving if not part.does]
        missed = f"{' and '.join(behind)} miss the SLO" if behind else "none of them has room"
        return f"{fleet.name} do not do: {missed} ({_shares(fleet)})"
    (part,) = fleet.groups
    if part.most:
        return not_enough(part.group.count, part.group.device, part.would, part.most)
    return f"{fleet.name} {_do(fleet)} not do: {part.refused}"


def _shares(fleet: StatedFleet) -> str:
    """Return the share of the requests that each group of a fleet is dealt."""
    dealt = []
    for part in fleet.groups:
        share = whole_share(part.share) if part.share else "none"
        dealt.append(f"{part.group} {share}")
    return f"share of requests: {', '.join(dealt)}"


def _do(fleet: StatedFleet) -> str:
    return "does" if sum(part.group.count for part in fleet.groups) == 1 else "do"


def _method(part: FleetGroup) -> str:
    """Return what a group of devices runs, or why it runs nothing."""
    if part.whole is None:
        return part.refused
    return f"{part.whole.replicas} x {part.whole.candidate.name}"


def _fleets(compared: StatedFleets) -> Table:
    columns: list[Column[StatedFleet]] = [
        Column("fleet", lambda fleet: fleet.name),
        Column("does", lambda fleet: "yes" if fleet.does else "no"),
        Column("SLO met in runs", lambda fleet: _met(fleet, compared.draws)),
        Column("USD/hour", lambda fleet: number(fleet.usd_per_hour, 3)),
        Column("USD/million tokens", _usd_per_million_tokens),
        Column("good requests/s", lambda fleet: _with(fleet, good_per_s)),
        Column("carries requests/s", _carries),
        Column("limited by", _limited_by),
    ]
    return table("Stated fleets", compared.fleets, columns, terminal_columns=(0, 1, 2, 3, 5, 6, 7))


def _met(fleet: StatedFleet, draws: int) -> str:
    if fleet.whole is None:
        return ""
    return f"{fleet.kept} of {draws}"


def _with(fleet: StatedFleet, of: Callable[[FleetRun], float | None]) -> str:
    """Return a number of a fleet's run, with the interval of its resampled runs."""
    if fleet.whole is None:
        return ""
    return f"{number(of(fleet.whole), 3)}{_between(fleet.interval(of))}"


def _between(interval: Interval | None, times: float = 1.0) -> str:
    if interval is None:
        return ""
    return f" ({number(times * interval.low, 3)} to {number(times * interval.high, 3)})"


def _usd_per_million_tokens(fleet: StatedFleet) -> str:
    if fleet.usd_per_hour is None:
        return ""
    return _with(fleet, usd_per_million_tokens)


def _carries(fleet: StatedFleet) -> str:
    """Return the rate that a fleet carries, and between what it lies where few requests are
    known.
    """
    if fleet.carried_per_s is None:
        return "unknown" if fleet.carrying else ""
    at_least = "at least " if fleet.capped else ""
    return f"{at_least}{number(fleet.carried_per_s, 3)}{_between(fleet.carried_between)}"


def _limited_by(fleet: StatedFleet) -> str:
    """Return the tightest limit of a fleet, and how much of it is taken."""
    if fleet.whole is None:
        return "; ".join(part.refused for part in fleet.groups if part.refused)
    tightest = tightest_of(fleet.whole).tightest
    taken = f"{number(100.0 * tightest.strain, 3)} %{_between(fleet.interval(strain), 100.0)}"
    return f"{limit_name(tightest.limit)} at {taken}"
