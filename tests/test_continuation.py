"""A curve of mean lengths is continued: whole drafters left out, forms compared, the interval, the
way into a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.optimize import least_squares

from simulator.core.acceptance.continuation import (
    LONGEST,
    SPREAD,
    continued,
    continued_rates,
    even,
    half_interval,
    half_of_measured,
)
from simulator.core.acceptance.sources import Rates, Replay
from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.acceptance.statistics import independent
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read_once
from simulator.scenario import load
from simulator.scenario.evaluate import law, run
from simulator.studies.plan.robustness import fewer_accepted

GOLDEN = Path(__file__).parents[2] / "shared/data/acceptance_curves"
needs_curves = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="the data files are not part of the repository"
)
WIDEST, KNOWN = 8, 3
DRAFTERS = ("draft", "plain", "eagle", "lyanna", "lookup", "ngram")
"""Recorded to eight draft tokens or more."""


class Curve(NamedTuple):
    """Mean lengths at windows 1 to 8 of one drafter on one kind of text."""

    drafter: str
    lengths: tuple[float, ...]


@cache
def curves() -> list[Curve]:
    """Every drafter of the three shipped recordings, on all text and on each kind of it."""
    measured = []
    shipped = Catalogue().names("trace")
    for path in (shipped[name] for name in shipped if name.startswith("six_flavours")):
        for drafter in DRAFTERS:
            trace = read_once(path).drafted_by(drafter)
            for flavours in ((), *((flavour,) for flavour in trace.flavours)):
                windows = WindowReplay.of(Replay(trace, flavours))
                measured.append(
                    Curve(
                        drafter, tuple(1.0 + windows.mean(gamma) for gamma in range(1, WIDEST + 1))
                    )
                )
    return measured


# ---- the forms that were compared

Form = Callable[[Sequence[float]], float]
PLACES = np.arange(1.0, WIDEST + 1.0)


def fitted(
    survival: Callable[..., NDArray[np.float64]], first: Sequence[float], most: Sequence[float]
) -> Form:
    """The length at 8 of the survival curve whose sums are nearest to the known lengths."""

    def length(known: Sequence[float]) -> float:
        def misses(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
            return survival(*parameters).cumsum()[: len(known)] + 1.0 - known

        best = least_squares(misses, first, bounds=(np.full(len(first), 1e-3), most)).x
        return 1.0 + float(survival(*best).sum())

    return length


FORMS: dict[str, Form] = {
    "i.i.d. from one token": lambda known: 1.0 + independent(known[0] - 1.0, WIDEST),
    "constant": fitted(lambda rate: rate**PLACES, [0.6], [1.0]),
    "falling geometric": fitted(
        lambda rate, fall: np.cumprod(np.minimum(rate * fall ** (PLACES - 1.0), 1.0)),
        [0.6, 0.9],
        [1.0, 1.3],
    ),
    "easy and hard (beta)": fitted(
        lambda a, b: np.cumprod((a + PLACES - 1.0) / (a + b + PLACES - 1.0)), [1.0, 1.0], [1e4, 1e4]
    ),
    "first apart, then constant": fitted(
        lambda first, rate: first * rate ** (PLACES - 1.0), [0.6, 0.8], [1.0, 1.0]
    ),
    "discrete Weibull": fitted(
        lambda scale, bend: np.exp(-scale * PLACES**bend), [0.5, 1.0], [9.0, 3.0]
    ),
    "discrete Weibull, bend drawn to 1": lambda known: continued(tuple(known), WIDEST)[-1],
}
"""Forms with one or two parameters; the first is the textbook's."""


@cache
def errors(form: str) -> NDArray[np.float64]:
    """The error at 8 from lengths at 1 to 3, in per cent, of every curve."""
    lengths = [curve.lengths for curve in curves()]
    return np.array(
        [100.0 * abs(FORMS[form](known[:KNOWN]) / known[-1] - 1.0) for known in lengths]
    )


def by_drafter(form: str, drafters: Sequence[str]) -> float:
    """The mean error of a form, every drafter counting alike."""
    names = np.array([curve.drafter for curve in curves()])
    return float(np.mean([errors(form)[names == drafter].mean() for drafter in drafters]))


def test_whole_drafters_left_out() -> None:
    """The form is chosen without the drafter on which it is judged: mean error below 5 %, nine in
    ten within 10 %.
    """
    names = np.array([curve.drafter for curve in curves()])
    judged = []
    for drafter in DRAFTERS:
        others = [name for name in DRAFTERS if name != drafter]
        chosen = min(FORMS, key=lambda form: by_drafter(form, others))
        judged.append(errors(chosen)[names == drafter])
    judged_errors = np.concatenate(judged)
    assert judged_errors.mean() < 5.0
    assert (judged_errors <= 10.0).mean() > 0.9
    shipped, textbook = errors("discrete Weibull, bend drawn to 1"), errors("i.i.d. from one token")
    assert shipped.mean() == pytest.approx(2.21, abs=0.1)
    assert textbook.mean() == pytest.approx(5.27, abs=0.1)


def test_the_interval_holds_four_in_five_of_a_thousand_stretches() -> None:
    """A random half of the requests of a random drafter and kind of text, known and wanted windows
    at random.
    """
    random, hits, halves, misses = np.random.default_rng(22), [], [], []
    totals = list(kept_and_windows())
    for _ in range(1_000):
        by_request = totals[random.integers(len(totals))]
        some = random.permutation(by_request.shape[1])[: by_request.shape[1] // 2]
        kept, windows = by_request[:, some].sum(axis=1).T
        lengths = tuple((1.0 + kept / windows).tolist())
        known = int(random.integers(2, 6))
        window = int(random.integers(known + 1, WIDEST + 1))
        length, half = continued(lengths[:known], window)[-1], half_interval(known, window)
        misses.append(abs(lengths[window - 1] / length - 1.0))
        hits.append(misses[-1] <= half)
        halves.append(half)
    assert 0.75 <= np.mean(hits) <= 0.85
    assert 2.0 * np.median(halves) < 3.0 * np.mean(misses)


@needs_curves
def test_the_interval_of_measured_lengths_holds_the_windows_of_single_runs() -> None:
    """Known lengths of engines err themselves: with that the golden curves lie within in 81 of 100
    cases, without it in 46.
    """
    curves = [curve for file in sorted(GOLDEN.glob("*.yaml")) for curve in curves_of(file)]
    assert len(curves) == 7
    hits: dict[str, list[bool]] = {"measured": [], "exact": []}
    for known in range(1, 6):
        for curve in curves:
            for window in range(known + 1, len(curve) + 1):
                miss = abs(curve[window - 1] / continued(tuple(curve[:known]), window)[-1] - 1.0)
                hits["measured"].append(miss <= half_of_measured(curve[:known], window))
                hits["exact"].append(miss <= half_interval(known, window))
    assert np.mean(hits["measured"]) == pytest.approx(0.811, abs=0.01)
    assert np.mean(hits["exact"]) == pytest.approx(0.457, abs=0.01)


def curves_of(file: Path) -> list[list[float]]:
    models = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [
        list(map(float, curve.values())) for modes in models.values() for curve in modes.values()
    ]


def test_an_interval_of_measured_lengths_is_never_narrower() -> None:
    for lengths in ((1.84, 2.50, 2.99), (1.0, 1.0), (1.5,), (1.9, 2.8, 3.7)):
        for window in (len(lengths), 8, 20):
            assert half_of_measured(lengths, window) >= half_interval(len(lengths), window)


def kept_and_windows() -> Iterator[NDArray[np.int64]]:
    """(windows, requests, 2) tokens kept and windows, by drafter and kind of text of the
    recordings.
    """
    for path in (
        path for name, path in Catalogue().names("trace").items() if name.startswith("six_flavours")
    ):
        for drafter in DRAFTERS:
            trace = read_once(path).drafted_by(drafter)
            for flavour in trace.flavours:
                windows = WindowReplay.of(Replay(trace, [flavour]))
                yield np.array([windows.totals(gamma) for gamma in range(1, WIDEST + 1)])


# ---- the curve


@given(st.floats(0.02, 0.98), st.integers(1, 6))
def test_an_independent_curve_is_continued_as_it_is(rate: float, known: int) -> None:
    lengths = tuple(1.0 + independent(rate, window) for window in range(1, known + 1))
    assert continued(lengths, 12)[-1] == pytest.approx(1.0 + independent(rate, 12), rel=1e-5)
    assert continued_rates(lengths, 12) == pytest.approx([rate] * 12, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_known_lengths_stay_and_gains_fall(rates: list[float]) -> None:
    gains = np.cumprod(rates)
    lengths = tuple((1.0 + gains.cumsum()).tolist())
    curve = continued(lengths, 20)
    assert curve[: len(lengths)] == pytest.approx(lengths, abs=1e-9)
    further = np.diff([1.0, *curve])
    assert (np.diff(further) <= 1e-9).all()
    assert (further >= -1e-9).all()
    assert Rates(tuple(continued_rates(lengths))).odds(20, None).committed() == pytest.approx(
        curve[-1], abs=1e-6
    )


def test_a_measured_curve_that_jumps_is_made_even_within_its_repeat_error() -> None:
    """DeepSeek-V4-Pro's head, thinking off (InferenceX 843c625): 3.16 at six tokens, 3.00 at seven,
    3.11 at eight.
    """
    jumping = [1.92, 2.61, 2.97, 3.00, 3.10, 3.16, 3.00, 3.11]
    assert np.abs(np.array(even(jumping)) / jumping - 1.0).max() < 0.035
    assert (np.diff(even(jumping), n=2) <= 1e-9).all()
    for wrong in ([], [1.8, 1.2], [2.5], [1.5, 2.4], [float("nan")], [1.5, float("inf")], [0.8]):
        with pytest.raises(ValueError, match="rates from 0 to 1 that fall"):
            even(wrong)


def test_published_curves_from_their_first_three_windows() -> None:
    """GLM-5.2 and DeepSeek-V4-Pro, thinking on: 4.06 and 2.58 at eight, where the i.i.d. formula
    says 4.96 and 4.19.
    """
    assert continued((1.84, 2.50, 2.99), 8)[-1] == pytest.approx(4.06, rel=0.01)
    assert continued((1.79, 2.27, 2.49), 8)[-1] == pytest.approx(2.58, rel=0.03)
    assert 1.0 + independent(0.84, 8) == pytest.approx(4.95, abs=0.02)
    assert half_interval(3, 8) == SPREAD * log(8 / 3)
    assert half_interval(3, 2) == 0.0


# ---- the way into a run


def test_lengths_of_a_scenario_give_law_replay_and_simulation() -> None:
    lengths = [1.84, 2.50, 2.99]
    loaded = load(
        "durations_only", overrides=["strategy.gamma=8", f"acceptance={{lengths: {lengths}}}"]
    )
    wanted = continued(tuple(lengths), 8)[-1]
    assert law(loaded.scenario, loaded.acceptance()).verified_per_step == pytest.approx(
        wanted, abs=1e-9
    )
    result = run(loaded)
    assert result.simulated.tokens_per_step == pytest.approx(wanted, rel=0.05)
    assert any(
        f"at 8 the curve is continued: {wanted:.3g} tokens a step" in text
        for text in result.cautions
    )
    known = run(
        load("durations_only", overrides=["strategy.gamma=3", f"acceptance={{lengths: {lengths}}}"])
    )
    assert not any("continued" in text for text in (*known.cautions, *known.caveats))


def test_a_plan_that_accepts_fewer_scales_the_rates_of_a_curve() -> None:
    loaded = fewer_accepted(
        load("durations_only", overrides=["acceptance={lengths: [1.84, 2.50, 2.99]}"])
    )
    rates = loaded.scenario.acceptance.stated_rates
    assert loaded.scenario.acceptance.lengths is None
    assert rates[:2] == pytest.approx([0.9 * 0.84, 0.9 * 0.66 / 0.84])


def test_lengths_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="rates from 0 to 1 that fall from position to position"):
        load("durations_only", overrides=["acceptance={lengths: [1.8, 1.2]}"])
    assert len(AcceptanceSpec(lengths=(1.5, 1.7)).stated_rates) == LONGEST
