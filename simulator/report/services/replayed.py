"""The page of an observed log beside its simulation, request by request, with a table of all."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.figure import Figure as Drawing

from simulator.core.plain import PlainData
from simulator.evidence.live.replayed import (
    TIMES,
    Replayed,
    ReplayedRequest,
    ReplayedTime,
    TimeAgreement,
)
from simulator.inputs.writing import csv_text
from simulator.report.blocks import (
    Block,
    Figure,
    Highlight,
    Page,
    Standing,
    Table,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, GREY, dress
from simulator.report.wording import number, share, signed_share
from simulator.scenario.live.service import ScenarioFact

PICTURE = "replayed.svg"
REQUESTS = "replayed_requests.csv"
SHOWN_REQUESTS = 12
"""Requests that a terminal shows."""
NAMES: Mapping[ReplayedTime, str] = {
    "ttft": "time to first token",
    "tpot": "time per token",
    "e2e": "whole request",
}


def replayed_page(seen: Replayed, command: str = "") -> Page:
    """Return the page of an observed log beside its simulation."""
    opening: list[Block] = [
        _agreements(seen.agreements),
        Figure("Simulated over measured times", PICTURE, lambda: figure(seen)),
    ]
    return Page(
        title=f"{seen.case.name}: measured and simulated, request by request",
        answer=_answer(seen),
        highlights=list(_highlights(seen.agreements)),
        opening=opening,
        sections=sections(
            ("Requests", [_requests(seen.requests)]),
            ("What the scenario states", [_facts(seen)]),
        ),
        command=command,
        standing=_standing(seen),
    )


def _standing(seen: Replayed) -> Standing:
    """Return how far the means of all requests are off, and the worst request of each time."""
    means = []
    worst = []
    for agreement in seen.agreements:
        name = NAMES[agreement.time]
        means.append(f"{name} {signed_share(agreement.error)}")
        row = f"row {agreement.worst_row}"
        worst.append(f"{name} of {row} {signed_share(agreement.worst_error)} off")
    interval = f"Means of all requests: {', '.join(means)}." if means else ""
    return Standing(interval, doubts=worst)


def _answer(seen: Replayed) -> str:
    """Return how far requests are off, in a sentence."""
    parts = []
    for agreement in seen.agreements:
        name = NAMES[agreement.time]
        parts.append(f"{name} {share(agreement.median_error)}")
    how = "each with the steps that it took"
    if seen.case.stretched is None:
        how = "with as many tokens a step as were observed in the mean"
    return f"Median errors of a request: {', '.join(parts)}; {how}."


def _highlights(agreements: Sequence[TimeAgreement]) -> Iterator[Highlight]:
    for agreement in agreements:
        what = f"median error of a request, {NAMES[agreement.time]}"
        yield Highlight(share(agreement.median_error), what)


def _agreements(agreements: Sequence[TimeAgreement]) -> Table:
    """Return how far each kind of time is off."""
    columns: list[Column[TimeAgreement]] = [
        Column("ms", lambda each: NAMES[each.time]),
        Column("n", lambda each: f"{each.requests:,}"),
        Column("measured", lambda each: number(each.measured_ms)),
        Column("simulated", lambda each: number(each.simulated_ms)),
        Column("error", lambda each: signed_share(each.error)),
        Column("median of a request", lambda each: share(each.median_error)),
        Column("worst", lambda each: f"{signed_share(each.worst_error)} (row {each.worst_row})"),
        Column("correlation", lambda each: _correlation(each.correlation)),
    ]
    return table("Means, and errors of requests", agreements, columns)


def _correlation(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _requests(requests: Sequence[ReplayedRequest]) -> Table:
    """Return every request, measured / simulated."""
    columns: list[Column[ReplayedRequest]] = [
        Column("row", lambda request: str(request.row)),
        Column("prompt", lambda request: f"{request.prompt_tokens:,}"),
        Column("output", lambda request: f"{request.measured.output_tokens:,}"),
    ]
    for time in TIMES:
        columns.append(_pair_column(time))
    return table("Measured / simulated, in ms", requests, columns, terminal_rows=SHOWN_REQUESTS)


def _pair_column(time: ReplayedTime) -> Column[ReplayedRequest]:
    def shown(request: ReplayedRequest) -> str:
        pair = request.pair(time)
        return "" if pair is None else f"{number(pair[0])} / {number(pair[1])}"

    return Column(NAMES[time], shown)


def _facts(seen: Replayed) -> Table:
    """Return what the scenario states, and where that comes from."""
    columns: list[Column[ScenarioFact]] = [
        Column("what", lambda fact: fact.what),
        Column("value", lambda fact: fact.value),
        Column("from", lambda fact: fact.of),
    ]
    return table("", seen.case.made.facts, columns)


def figure(seen: Replayed) -> Drawing:
    """Draw simulated over measured times of every request, a panel for each kind of time."""
    with canvas(2.6) as drawing:
        panels = drawing.subplots(1, len(TIMES), squeeze=False).ravel()
        for axes, time in zip(panels, TIMES, strict=True):
            pairs = [pair for request in seen.requests if (pair := request.pair(time))]
            if not pairs:
                axes.set_visible(False)
                continue
            measured, computed = zip(*pairs, strict=True)
            ends = [min(*measured, *computed) * 0.9, max(*measured, *computed) * 1.1]
            axes.plot(ends, ends, "-", color=GREY, lw=0.8)
            axes.plot(measured, computed, ".", color=BLUE, ms=4)
            dress(axes, "measured (ms)", "simulated (ms)", NAMES[time], xlim=ends, ylim=ends)
        return drawing


def replayed_data(seen: Replayed) -> PlainData:
    """Return an observed log beside its simulation as plain data."""
    return {
        "observation": seen.case.name,
        "times": [each._asdict() | {"error": each.error} for each in seen.agreements],
        "requests": [_row(request) for request in seen.requests],
        "facts": [fact._asdict() for fact in seen.case.made.facts],
    }


def requests_csv(seen: Replayed) -> str:
    """Return a line for every request, measured and simulated, as CSV."""
    rows = [_row(request) for request in seen.requests]
    return csv_text(list(rows[0]), [list(row.values()) for row in rows])


def _row(request: ReplayedRequest) -> PlainData:
    row: PlainData = {
        "row": request.row,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.measured.output_tokens,
        "measured_arrival_s": request.measured.arrival_s,
        "simulated_arrival_s": request.simulated.arrival_s,
    }
    for time in TIMES:
        row[f"measured_{time}_ms"] = getattr(request.measured, f"{time}_ms")
        row[f"simulated_{time}_ms"] = getattr(request.simulated, f"{time}_ms")
    return row
