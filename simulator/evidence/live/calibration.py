"""Terms of a device and an engine fitted to a running service, and held to what was kept out.

Roles are fixed before anything is computed: of every observation that is fitted, one request of
four is held out (:func:`simulator.evidence.live.cases.is_held_out`), and whole observations where
they are named. A fit sees times to the first token and times per token of the other requests, or
means where no file has each request, and times of passes with their composition where there are
any (of which every fourth is held out, too).

The fit is least squares of ``log(simulated / measured)``, where what lies further than
:data:`OUTLIER` counts less (soft L1). The simulation is that of the observed load. Where drafts are
drawn and not replayed, times behind first tokens are those of as many steps as were measured: of
each request where its steps are known, else in the mean and in blocks of :data:`BLOCK`.

*Rule of identification.* With J the derivative of the logarithms by the terms, W what each counts,
and s the spread of what is left, 0.01 at least, standard errors are the roots of the diagonal of
s^2 (J'WJ)^-1. A term
is identified where its standard error is at most :data:`KNOWN` of it or, of a time, moves no fitted
number by more than :data:`NEXT_TO_NOTHING`. Of those that are not, the one that is fewest standard
errors away from the profile that the fit started from keeps its value and range, and the others are
fitted again, until all are identified.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from simulator.core.faults import BadInput
from simulator.evidence.live.cases import (
    HELD_OUT,
    ObservedCase,
    SimulatedCase,
    TimedRequest,
    drafting_kinds,
    mean_of_times,
    pass_ms,
    simulated,
    with_profiles,
)
from simulator.evidence.live.terms import TOGETHER, Profiles, Term, terms_of
from simulator.scenario import Scenario

OUTLIER = 0.1
"""Difference of logarithms from which on a row counts less."""
BLOCK = 8
"""Requests whose times per token are compared together, where nobody has counted their steps."""
KNOWN = 0.25
"""Largest standard error of an identified term, relative to it."""
NEXT_TO_NOTHING = 0.01
"""Share by which what is not known of an identified time may move a fitted number."""
LEAST_SPREAD = 0.01
"""Least spread of what a fit leaves."""
STEP = 0.04
"""Step of derivatives, relative to a term or to its usual size."""
ACTS = 1e-6
"""Change of a fitted number by such a step from which on a term acts."""
MOST_EVALUATIONS = 20
"""Points at which derivatives are taken in one fit, at most."""
DEVIATIONS = 1.645
"""Standard errors of a range of 90 %."""
Floats = NDArray[np.float64]


class FittedTerm(NamedTuple):
    """A term behind a fit."""

    term: Term
    before: float
    """In the profile that the fit started from."""
    value: float
    """Of an efficiency the first of the profile."""
    error: float | None
    """Standard error in the unit of the term; None for one that is kept."""
    at: float
    """The value as a fit has it: the logarithm of a ratio for an efficiency."""
    at_error: float
    kept: str = ""
    """Why it keeps the value of the profile; empty for one that is identified."""

    @property
    def is_identified(self) -> bool:
        """Return whether the files tell it."""
        return not self.kept


class PartScore(NamedTuple):
    """How far a simulation is from what was measured of a part of an observation."""

    observation: str
    part: str
    """``fitted`` or ``held out``."""
    requests: int
    tpot_ms: float | None
    """Mean measured time per token."""
    ttft_ms: float | None
    tpot_error: float | None
    """Error of the mean, as a share of it; the same of the next."""
    ttft_error: float | None
    throughput_error: float | None
    tpot_each: float | None
    """Median error of a request, as a share; the same of the next."""
    ttft_each: float | None
    tpot_before: float | None
    """Error of the mean with the numbers that the fit started from; the same of the next."""
    ttft_before: float | None
    pass_error: float | None
    """Median error of a pass with its composition."""


@dataclass(frozen=True)
class ServiceFit:
    """A device and an engine fitted to observations."""

    cases: Sequence[ObservedCase]
    start: Profiles
    fitted: Profiles
    terms: Sequence[FittedTerm]
    scores: Sequence[PartScore]
    rows: int
    """Numbers that were fitted."""
    spread: float
    """Of what the fit left, as a share."""

    @property
    def rule(self) -> str:
        """Return how requests are held out, in words."""
        return f"every request whose row has a CRC-32 that {HELD_OUT} divides"


def fit_service(
    cases: Sequence[ObservedCase],
    free: Sequence[str] = (),
    told: Callable[[str], object] = lambda words: None,
) -> ServiceFit:
    """Fit terms to observations, of whose scenarios all have one device and one engine; ``free``
    names those that may be fitted, by default the first :data:`TOGETHER` that act. ``told`` is
    called with what the fit is at.

    Raises :class:`BadInput` where scenarios have no hardware or different ones, and where no time
    is known that could be fitted.
    """
    start = _profiles(cases)
    fitted_cases = [case for case in cases if not case.held_out]
    if not fitted_cases:
        raise BadInput.at("--hold-out", "holds out all observations; expected one to fit to")
    candidates = terms_of(drafting_kinds(fitted_cases), free)
    told("simulating as the profile is")
    model = _Model(fitted_cases, start, candidates)
    model.refuse_untimed()
    acting, idle = _acting(model, candidates, told)
    terms, left = acting[:TOGETHER], acting[TOGETHER:]
    kept = {term.name: _why_idle(term, fitted_cases) for term in idle}
    kept |= {term.name: f"{TOGETHER} others come first" for term in left}
    best = _Point(terms, {}, {}, 0.0)
    while terms:
        told(f"fitting {len(terms)} terms")
        best = model.fitted(terms, best.values)
        needless = _least_needed(best, model)
        if needless is None:
            break
        kept[needless.name] = _why_kept(needless, best)
        terms = [term for term in terms if term is not needless]
        values = dict(best.values)
        values.pop(needless.name, None)
        best = best._replace(values=values)
    if not terms:
        best = _Point([], {}, {}, 0.0)
    fitted = start.with_values(candidates, best.values)
    told("comparing")
    return ServiceFit(
        cases=cases,
        start=start,
        fitted=fitted,
        terms=[_fitted_term(term, start, best, kept) for term in candidates],
        scores=[score for case in cases for score in _scores(case, start, fitted)],
        rows=len(model.rows(best.values)),
        spread=best.spread,
    )


def _profiles(cases: Sequence[ObservedCase]) -> Profiles:
    """Return device and engine of the targets of observations; raises :class:`BadInput` where
    there are none, or several.
    """
    profiles_by_name: dict[str, Profiles] = {}
    for case in cases:
        target = case.scenario.target
        if target is None:
            message = "states durations, of which no device or engine can be fitted"
            raise BadInput.at(case.scenario.name, f"{message}; name a scenario with hardware")
        profiles = Profiles(target.device, target.engine)
        profiles_by_name.setdefault(f"{target.device.name} under {target.engine.name}", profiles)
    if len(profiles_by_name) > 1:
        message = f"expected one device and one engine, got {' and '.join(profiles_by_name)}"
        raise BadInput.at("--like", message)
    return next(iter(profiles_by_name.values()))


class _Point(NamedTuple):
    """Values of terms, their standard errors, and what they leave."""

    terms: Sequence[Term]
    values: Mapping[str, float]
    errors: Mapping[str, float]
    spread: float
    jacobian: Floats = np.zeros((0, 0))


class _Model:
    """What is simulated of observations with some values of terms, remembered."""

    def __init__(
        self, cases: Sequence[ObservedCase], start: Profiles, candidates: Sequence[Term]
    ) -> None:
        self.cases = cases
        self.start = start
        self.candidates = candidates
        self._known: dict[tuple[tuple[str, float], ...], Floats] = {}
        self._tokens: dict[str, float] = {}

    def rows(self, values: Mapping[str, float]) -> Floats:
        """Return the logarithms of simulated over measured numbers, each with its weight."""
        key = tuple(sorted(values.items()))
        if key not in self._known:
            profiles = self.start.with_values(self.candidates, values)
            rows = [row for case in self.cases for row in fitted_rows(case, profiles)]
            self._known[key] = np.array(rows)
        return self._known[key]

    def moved(self, term: Term, values: Mapping[str, float]) -> tuple[dict[str, float], float]:
        """Return values of which one is a step further, and the step."""
        data = self.start.data(term)
        at = values.get(term.name, term.start(data))
        low, high = term.ends(data)
        step = STEP * (1.0 if term.is_ratio else max(at, term.usual, 1e-9))
        if at + step > high:
            step = -step
        return {**values, term.name: max(low, at + step)}, step

    def refuse_untimed(self) -> None:
        """Raise :class:`BadInput` where observations hold no time."""
        if not len(self.rows({})):
            message = (
                "hold no time of a request, nor means of them; name the result of a benchmark, or "
                "scrapes of /metrics around it"
            )
            raise BadInput.at(self.cases[0].name, message)

    def jacobian(self, terms: Sequence[Term], values: Mapping[str, float]) -> Floats:
        """Return the derivative of all rows by each term, (rows, terms)."""
        base = self.rows(values)
        columns = []
        for term in terms:
            further, step = self.moved(term, values)
            columns.append((self.rows(further) - base) / step)
        return np.stack(columns, axis=1)

    def fitted(self, terms: Sequence[Term], near: Mapping[str, float]) -> _Point:
        """Return the values that fit best, from those that are ``near`` on."""
        data = [self.start.data(term) for term in terms]
        ends = [term.ends(each) for term, each in zip(terms, data, strict=True)]
        first = []
        for term, each, (low, high) in zip(terms, data, ends, strict=True):
            at = near.get(term.name, term.start(each))
            first.append(min(max(at, low + 1e-9), high - 1e-9))

        def named(moved: Any) -> dict[str, float]:
            return {term.name: float(value) for term, value in zip(terms, moved, strict=True)}

        scale = [1.0 if term.is_ratio else max(term.usual, 1e-9) for term in terms]

        def rows(moved: Any) -> Floats:
            return self.rows(named(moved))

        def jacobian_at(moved: Any) -> Floats:
            return self.jacobian(terms, named(moved))

        reached: Any = first
        for scale_of_outliers in (OUTLIER,) if near else (1.0, OUTLIER):
            best = least_squares(
                rows,
                reached,
                jac=jacobian_at,
                bounds=([low for low, _ in ends], [high for _, high in ends]),
                x_scale="jac",
                loss="soft_l1",
                f_scale=scale_of_outliers,
                max_nfev=MOST_EVALUATIONS,
                xtol=1e-4,
                ftol=1e-5,
            )
            reached = best.x
        values = named(reached)
        off = self.rows(values)
        weights = (1.0 + (off / OUTLIER) ** 2) ** -0.5
        freedom = max(1.0, float(np.sum(weights)) - len(terms))
        spread = max(LEAST_SPREAD, sqrt(float(np.sum(weights * off**2)) / freedom))
        jacobian = self.jacobian(terms, values)
        weighted = jacobian * np.sqrt(weights)[:, None]
        errors = standard_errors(weighted, scale, spread)
        return _Point(terms, values, named(errors), spread, jacobian)


def standard_errors(jacobian: Floats, scale: Sequence[float], spread: float) -> Floats:
    """Return the standard errors of terms, (terms,), whose derivatives are ``jacobian``, (rows,
    terms); without bound for those that no row tells from others.
    """
    scaled = jacobian * np.array(scale)
    _, sizes, directions = np.linalg.svd(scaled, full_matrices=False)
    sizes = np.maximum(sizes, 1e-9)
    variances = np.sum((directions / sizes[:, None]) ** 2, axis=0)
    errors: Floats = spread * np.sqrt(variances) * np.array(scale)
    return errors


def fitted_rows(case: ObservedCase, profiles: Profiles) -> Iterator[float]:
    """Yield ``log(simulated / measured)`` of what a fit sees of an observation."""
    scenario = with_profiles(case.scenario, *profiles)
    for number, observed in enumerate(case.passes):
        if number % HELD_OUT:
            yield log(pass_ms(case, scenario, observed) / observed.wall_ms)
    if not case.measured:
        if not case.passes or mean_of_times(case):
            yield from _rows_of_means(case, simulated(case, scenario))
        return
    places = case.fitted_places()
    done = simulated(case, scenario).as_many_steps(case)
    for place in places:
        yield from _log_ratio(done.requests[place].ttft_ms, case.measured[place].ttft_ms)
    size = 1 if case.stretched is not None else BLOCK
    for first in range(0, len(places), size):
        block = places[first : first + size]
        measured = [case.measured[place] for place in block]
        computed = [done.requests[place] for place in block]
        tpot_ms = _mean_tpot(computed, measured)
        yield from _log_ratio(tpot_ms, _mean_tpot(measured, measured), len(block))


def _log_ratio(
    computed: float | None, measured: float | None, requests: int = 1
) -> Iterator[float]:
    """Yield the logarithm of a computed over a measured time, where both are known, with the weight
    of so many requests.
    """
    if computed and measured:
        yield sqrt(requests) * log(computed / measured)


def _rows_of_means(case: ObservedCase, done: SimulatedCase) -> Iterator[float]:
    """Yield the rows of an observation of which means alone are known, as of a block each."""
    means = mean_of_times(case)
    requests = done.as_many_steps(case).requests
    yield from _log_ratio(_mean_ttft(requests, requests), means.get("ttft"), BLOCK)
    yield from _log_ratio(_mean_tpot(requests, requests), means.get("tpot"), BLOCK)


def _mean_ttft(requests: Sequence[TimedRequest], measured: Sequence[TimedRequest]) -> float | None:
    """Return the mean time to a first token of the requests of which it was measured."""
    times = []
    for request, other in zip(requests, measured, strict=True):
        if request.ttft_ms is not None and other.ttft_ms is not None:
            times.append(request.ttft_ms)
    return float(np.mean(times)) if times else None


def _mean_tpot(requests: Sequence[TimedRequest], measured: Sequence[TimedRequest]) -> float | None:
    """Return the time per token of the requests of which it was measured: all of their time behind
    first tokens, over the tokens behind these.
    """
    decoding_ms = 0.0
    tokens = 0
    for request, other in zip(requests, measured, strict=True):
        if request.decoding_ms is not None and other.decoding_ms is not None:
            decoding_ms += request.decoding_ms
            tokens += request.output_tokens - 1
    return decoding_ms / tokens if tokens else None


# ---- which terms


def _acting(
    model: _Model, candidates: Sequence[Term], told: Callable[[str], object]
) -> tuple[list[Term], list[Term]]:
    """Return the terms that move a fitted number, and those that move none."""
    told("looking which terms act")
    base = model.rows({})
    acting = []
    idle = []
    for term in candidates:
        has_number = bool(list(term.numbers(model.start.data(term)))) or not term.is_ratio
        further, _ = model.moved(term, {})
        moved = float(np.max(np.abs(model.rows(further) - base))) if has_number else 0.0
        if moved > ACTS:
            acting.append(term)
        else:
            idle.append(term)
    return acting, idle


def _why_idle(term: Term, cases: Sequence[ObservedCase]) -> str:
    """Return why a term moves nothing, in words."""
    speculates = any(case.scenario.schedule.window for case in cases)
    drafts = "speculation" in term.name or term.name == "engine.verified_row_us"
    if drafts and not speculates:
        return "nothing is drafted in these files; a run with speculation would tell it"
    return f"changes no time of these files, or is hidden; {term.remedy} might tell it"


def _least_needed(point: _Point, model: _Model) -> Term | None:
    """Return, of the terms that are not identified, the one that is fewest standard errors away
    from the profile, which explains least of what was measured; None where all are identified.
    """
    needless = None
    fewest = inf
    for place, term in enumerate(point.terms):
        error = point.errors[term.name]
        at = point.values[term.name]
        if _is_identified(term, at, error, point.jacobian[:, place]):
            continue
        away = abs(at - term.start(model.start.data(term))) / max(error, 1e-12)
        if away < fewest:
            needless, fewest = term, away
    return needless


def _is_identified(term: Term, at: float, error: float, moved: Floats) -> bool:
    """Return whether a term with this value and standard error is known by the rule of the module;
    ``moved`` are the derivatives of the fitted numbers by it.
    """
    if term.is_ratio:
        return error <= KNOWN
    if error <= KNOWN * abs(at):
        return True
    return float(np.max(np.abs(moved))) * error <= NEXT_TO_NOTHING


def _why_kept(term: Term, point: _Point) -> str:
    """Return why a term keeps its value: what it is not told apart from, and what would tell it."""
    place = list(point.terms).index(term)
    own = point.jacobian[:, place]
    nearest = ""
    most = 0.8
    for other, column in zip(point.terms, point.jacobian.T, strict=True):
        size = float(np.linalg.norm(own) * np.linalg.norm(column))
        if other is term or not size:
            continue
        alike = abs(float(own @ column)) / size
        if alike > most:
            nearest, most = other.name, alike
    words = f"not told apart from {nearest}" if nearest else "these files say too little of it"
    return f"{words}; {term.remedy} would tell it"


def _fitted_term(term: Term, start: Profiles, point: _Point, kept: Mapping[str, str]) -> FittedTerm:
    """Return a term behind the fit."""
    data = start.data(term)
    before = term.value(data)
    if term.name not in point.values:
        return FittedTerm(term, before, before, None, term.start(data), 0.0, kept[term.name])
    at = point.values[term.name]
    error = point.errors[term.name]
    term.put(data, at, {})
    value = term.value(data)
    return FittedTerm(term, before, value, error * value if term.is_ratio else error, at, error)


# ---- how far it is


def _scores(case: ObservedCase, start: Profiles, fitted: Profiles) -> Iterator[PartScore]:
    """Yield how far the simulation of an observation is from it, of each of its parts."""
    scenario = with_profiles(case.scenario, *fitted)
    done = simulated(case, scenario).as_many_steps(case)
    before = simulated(case, with_profiles(case.scenario, *start)).as_many_steps(case)
    parts = {"fitted": case.fitted_places(), "held out": case.held_places()}
    if not case.measured and mean_of_times(case):
        yield _score_of_means(case, done, before)
    for part, places in parts.items():
        pass_error = _pass_error(case, part, scenario)
        if places or pass_error is not None:
            yield _score(case, part, places, done, before)._replace(pass_error=pass_error)


def _pass_error(case: ObservedCase, part: str, scenario: Scenario) -> float | None:
    """Return the median error of the passes of a part."""
    errors = []
    for number, observed in enumerate(case.passes):
        held = case.held_out or not number % HELD_OUT
        if held == (part == "held out"):
            errors.append(abs(pass_ms(case, scenario, observed) / observed.wall_ms - 1.0))
    return float(np.median(errors)) if errors else None


def _score(
    case: ObservedCase,
    part: str,
    places: Sequence[int],
    done: SimulatedCase,
    before: SimulatedCase,
) -> PartScore:
    measured = [case.measured[place] for place in places]
    computed = [done.requests[place] for place in places]
    earlier = [before.requests[place] for place in places]
    tpot_ms = _mean_tpot(measured, measured)
    ttft_ms = _mean_ttft(measured, measured)
    return PartScore(
        observation=case.name,
        part=part,
        requests=len(places),
        tpot_ms=tpot_ms,
        ttft_ms=ttft_ms,
        tpot_error=_off(_mean_tpot(computed, measured), tpot_ms),
        ttft_error=_off(_mean_ttft(computed, measured), ttft_ms),
        throughput_error=_off(tokens_per_s(computed), tokens_per_s(measured)),
        tpot_each=_median_off(
            [(m.tpot_ms, c.tpot_ms) for m, c in zip(measured, computed, strict=True)]
        ),
        ttft_each=_median_off(
            [(m.ttft_ms, c.ttft_ms) for m, c in zip(measured, computed, strict=True)]
        ),
        tpot_before=_off(_mean_tpot(earlier, measured), tpot_ms),
        ttft_before=_off(_mean_ttft(earlier, measured), ttft_ms),
        pass_error=None,
    )


def _score_of_means(case: ObservedCase, done: SimulatedCase, before: SimulatedCase) -> PartScore:
    means = mean_of_times(case)
    tpot_ms = means.get("tpot")
    ttft_ms = means.get("ttft")
    return PartScore(
        observation=case.name,
        part="held out" if case.held_out else "fitted",
        requests=len(done.requests),
        tpot_ms=tpot_ms,
        ttft_ms=ttft_ms,
        tpot_error=_off(_mean_tpot(done.requests, done.requests), tpot_ms),
        ttft_error=_off(_mean_ttft(done.requests, done.requests), ttft_ms),
        throughput_error=_off(
            tokens_per_s(done.requests), case.made.observed.load.output_tokens_per_s
        ),
        tpot_each=None,
        ttft_each=None,
        tpot_before=_off(_mean_tpot(before.requests, before.requests), tpot_ms),
        ttft_before=_off(_mean_ttft(before.requests, before.requests), ttft_ms),
        pass_error=None,
    )


def _off(computed: float | None, measured: float | None) -> float | None:
    """Return the error of a computed number as a share of the measured one."""
    if not computed or not measured:
        return None
    return computed / measured - 1.0


def _median_off(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Return the median error of computed numbers as a share of the measured ones."""
    errors = []
    for measured, computed in pairs:
        if measured and computed:
            errors.append(abs(computed / measured - 1.0))
    return float(np.median(errors)) if errors else None


def tokens_per_s(requests: Sequence[TimedRequest]) -> float | None:
    """Return the output tokens a second of requests, from the arrival of the first to the end of
    the last; None where one of these is not known.
    """
    ends = []
    begins = []
    for request in requests:
        if request.arrival_s is None or request.e2e_ms is None:
            return None
        begins.append(request.arrival_s)
        ends.append(request.arrival_s + request.e2e_ms / 1e3)
    if not begins or max(ends) <= min(begins):
        return None
    return sum(request.output_tokens for request in requests) / (max(ends) - min(begins))
