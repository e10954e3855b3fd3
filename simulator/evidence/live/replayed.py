"""An observed log run again by a simulation, request by request beside what was measured.

Nothing is fitted. Where drafts are drawn, times behind first tokens are those of as many steps as
were measured (:meth:`simulator.evidence.live.cases.SimulatedCase.as_many_steps`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from simulator.core.faults import BadInput
from simulator.evidence.live.cases import ObservedCase, TimedRequest, simulated

ReplayedTime = Literal["ttft", "tpot", "e2e"]
TIMES: Sequence[ReplayedTime] = ("ttft", "tpot", "e2e")


class ReplayedRequest(NamedTuple):
    """A request, as it was measured and as it was simulated."""

    row: int
    """In the table of requests, from 1."""
    prompt_tokens: int
    measured: TimedRequest
    simulated: TimedRequest

    def pair(self, time: ReplayedTime) -> tuple[float, float] | None:
        """Return the measured and the simulated time, in ms; None where one is not known."""
        measured = getattr(self.measured, f"{time}_ms")
        computed = getattr(self.simulated, f"{time}_ms")
        if not measured or not computed:
            return None
        return measured, computed


class TimeAgreement(NamedTuple):
    """How far the simulated times of one kind are from the measured ones."""

    time: ReplayedTime
    requests: int
    measured_ms: float
    """Mean."""
    simulated_ms: float
    """Mean."""
    median_error: float
    """Of a request, as a share; the same of the next."""
    worst_error: float
    """With its sign."""
    worst_row: int
    correlation: float | None
    """Of simulated with measured times; None where they do not vary."""

    @property
    def error(self) -> float:
        """Return the error of the mean, as a share."""
        return self.simulated_ms / self.measured_ms - 1.0


@dataclass(frozen=True)
class Replayed:
    """An observation beside its simulation."""

    case: ObservedCase
    requests: Sequence[ReplayedRequest]
    agreements: Sequence[TimeAgreement]


def replayed(case: ObservedCase) -> Replayed:
    """Return an observation beside its simulation; raises :class:`BadInput` where it has no times
    of each request.
    """
    if not any(request.ttft_ms for request in case.measured):
        message = (
            "holds no times of each request; observe a detailed result of a benchmark "
            "(vllm bench serve --save-detailed)"
        )
        raise BadInput.at(case.name, message)
    done = simulated(case, case.scenario).as_many_steps(case)
    pairs = []
    for row, asked, measured, computed in zip(
        case.made.rows, case.made.requests, case.measured, done.requests, strict=True
    ):
        pairs.append(ReplayedRequest(row, asked.prompt_tokens or 0, measured, computed))
    agreements = []
    for time in TIMES:
        agreement = _agreement(time, [pairs[place] for place in case.later_places])
        if agreement is not None:
            agreements.append(agreement)
    return Replayed(case, pairs, agreements)


def _agreement(time: ReplayedTime, requests: Sequence[ReplayedRequest]) -> TimeAgreement | None:
    """Return how far the times of one kind agree; None where none are known."""
    rows = []
    pairs = []
    for request in requests:
        pair = request.pair(time)
        if pair is not None:
            rows.append(request.row)
            pairs.append(pair)
    if not pairs:
        return None
    measured, computed = np.array(pairs).T
    errors = computed / measured - 1.0
    worst = int(np.argmax(np.abs(np.log(computed / measured))))
    return TimeAgreement(
        time=time,
        requests=len(pairs),
        measured_ms=float(np.mean(measured)),
        simulated_ms=float(np.mean(computed)),
        median_error=float(np.median(np.abs(errors))),
        worst_error=float(errors[worst]),
        worst_row=rows[worst],
        correlation=_correlation(measured, computed),
    )


def _correlation(measured: np.ndarray, computed: np.ndarray) -> float | None:
    """Return the correlation of two rows of numbers; None where one of them does not vary."""
    spreads = float(np.std(measured)), float(np.std(computed))
    if len(measured) < 3 or min(spreads) < 1e-9:
        return None
    return float(np.corrcoef(measured, computed)[0, 1])
