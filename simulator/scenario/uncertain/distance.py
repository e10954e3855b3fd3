"""How far a scenario is from what its engine was fitted on, and how much less is known there.

Inside of the hull of a fit a step is known as well as the fit's left-out groups show. Outside, two
errors grow with the distance along each axis: one that every pass has, of plain decoding too, which
cancels in a speed-up, and one of a speculative step alone. Each is a standard deviation of the log
of a time; the errors of several axes are independent, so that their squares add up.

The constants are measured: ``python -m benchmarks.distance TABLE`` shares the squared error of each
source of a table, as far as the other doubts do not hold it, among the axes on which it lies
outside, and takes the mean over the sources of each axis. What a source showed stands beside it.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine, Home
from simulator.core.cost.formats import WEIGHT_BYTES
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.hull import Hull, doublings, kinds_of
from simulator.core.cost.placement import Placement
from simulator.core.quantities import Sourced, nested
from simulator.core.strategies.common.base import rows_of_a_request
from simulator.inputs.derived import FITTED
from simulator.scenario import Scenario
from simulator.scenario.ranks import placements

Axis = Literal[
    "batch",
    "rows",
    "verification",
    "ranks",
    "kind",
    "model",
    "format",
    "drafting",
    "card",
    "architecture",
    "maker",
]
"""What a scenario can differ in from the runs that decided a fit."""


OUTSIDE = "outside of the fit"
"""What is in doubt by distance has these words in its name."""


PLAIN = (1, 1)
"""Rows of a request in plain decoding."""


class Growth(NamedTuple):
    """What one unit of distance along an axis adds: a standard deviation of the log of a time."""

    every_pass: float
    """Of a pass, in plain decoding and in speculation alike."""
    speculation: float
    """Of a speculative step beyond that."""
    source: str
    """Which runs, left out of every fit, showed it."""


GROWTH: Mapping[Axis, Growth] = {
    "batch": Growth(
        0.01,
        0.03,
        "tomasruizt/vllm-scripts d94d714, Qwen3-32B in vLLM on an H100 of 94 GB: fitted to one "
        "request, 8 to 128 left out; plain steps of 2 to 256 are met within 2 %, speed-ups of 8, "
        "64 and 128 are said too high by 6, 17 and 32 %",
    ),
    "rows": Growth(
        0.0,
        0.24,
        "vtimuchen-lab/qwen38-mtp-gb10-benchmark, chains of 10 and 16 (fitted to 8 rows); "
        "sgl-project/SpecForge#339, a tree of 8 levels",
    ),
    "verification": Growth(
        0.0,
        0.16,
        "engines whose constants were read off plain decoding alone, before products that were "
        "measured with many rows: DuoDecoding, SpecPipe and Speculative Streaming verify 2 to 121 "
        "rows; predicted cells are 0.02 to 0.16 off by method and quantity (root mean square of "
        "the log, reports/validation/cells.csv), 0.16 those of the worst",
    ),
    "ranks": Growth(
        0.21,
        0.08,
        "fitted to one card, left out: two (Llama-3.3-70B of the runs above, without peer-to-peer "
        "access; SpecForge#339) and eight (sgl-project/sglang#3582)",
    ),
    "kind": Growth(
        0.17,
        0.29,
        "fitted to dense models, left out: mixtures (SpecForge#339, sglang#3582, "
        "kyuz0/amd-strix-halo-vllm-toolboxes#53) and hybrids (sudoingX/qwen38-mtp pull 11, "
        "bstnxbt/dflash-mlx#32)",
    ),
    "model": Growth(
        0.16,
        0.26,
        "nine sources of another target than the fit saw; at vllm-project/vllm#20780 nothing else "
        "differs but a card of the same chip",
    ),
    "format": Growth(
        0.17,
        0.3,
        "fitted to 16 bits, left out: 8 (sglang#3582, lmstudio-ai/mlx-engine#113) and 4 (pull 11, "
        "dflash-mlx#32, toolboxes#53)",
    ),
    "drafting": Growth(
        0.0,
        0.21,
        "fitted to heads, left out: a draft model (mlx-engine#113), trees (SpecForge#339)",
    ),
    "card": Growth(
        0.13, 0.16, "vllm#20780, SpecForge#339, mlx-engine#113, Llama-3.3-70B of the runs above"
    ),
    "architecture": Growth(
        0.27, 0.25, "qwen38-mtp-gb10-benchmark, pull 11, Aryagm/dflash-mlx#2 (M4 Max)"
    ),
    "maker": Growth(0.27, 0.25, "at least another architecture; toolboxes#53 (Ryzen AI Max) alone"),
}
"""Growth by axis. The unit is a doubling (or a half) of the batch, the rows or the ranks beyond
those of the hull; else that it is another one.
"""


def distances(
    hull: Hull, home: Home | None, place: Placement, scenario: Scenario, batch: int | None = None
) -> dict[Axis, float]:
    """Return how far a scenario's placement is outside of a hull, by axis; 0 inside. ``batch``:
    requests that decode together; None: one for every place.

    Constants that were read off plain decoding, not fitted, leave rows to the products of the
    device, which were measured: however many there are, it is one step away.
    """
    rows = rows_of_a_request(scenario.schedule)
    found: dict[Axis, float] = {
        "batch": doublings(batch or scenario.batch, hull.batch),
        "rows": doublings(rows, hull.rows),
        "verification": 0.0,
        "ranks": doublings(place.tensor_parallel, hull.ranks),
        "kind": 0.0,
        "model": 0.0,
        "format": 0.0,
        "drafting": 0.0,
    }
    if hull.rows == PLAIN and place.engine.fit is None and rows > 1:
        found |= {"rows": 0.0, "verification": 1.0}
    target = scenario.target or place
    if hull.kinds:
        found["kind"] = float(len(kinds_of(target.model) - {*hull.kinds}))
    if hull.models:
        found["model"] = float(target.model.name not in hull.models)
    if hull.formats:
        known = {_width(form) for form in hull.formats}
        found["format"] = float(_width(target.weights) not in known)
    drafting = scenario.cost.drafting if isinstance(scenario.cost, HardwareCost) else None
    if hull.drafting and drafting:
        found["drafting"] = float(drafting not in hull.drafting)
    if home is not None:
        found |= _of_device(home, place.device)
    return found


def _width(weights: str) -> int:
    """Return bits of a weight, those of scales left out: formats of one width have like kernels."""
    return int(8 * WEIGHT_BYTES[weights])


def _of_device(home: Home, device: Device) -> dict[Axis, float]:
    """Return which of three steps away from home a device is: another card, another architecture,
    another maker; at most one of them is 1.
    """
    found: dict[Axis, float] = {"card": 0.0, "architecture": 0.0, "maker": 0.0}
    if home.holds(device):
        return found
    if device.maker and device.maker != home.maker:
        found["maker"] = 1.0
    elif home.near(device):
        found["card"] = 1.0
    else:
        found["architecture"] = 1.0
    return found


class FarFit(NamedTuple):
    """Says how far a placement is outside of a fit on one axis."""

    axis: Axis
    distance: float
    hull: Hull
    home: Home | None
    place: Placement

    def in_words(self, scenario: Scenario, batch: int) -> str:
        """Return what is outside there, of ``batch`` requests that decode together, and of numbers
        what the fit saw.
        """
        rows = rows_of_a_request(scenario.schedule)
        words: dict[Axis, str] = {
            "batch": f"batch of {batch:,} beyond {_ends(self.hull.batch)}",
            "rows": f"{rows} rows a request beyond {_ends(self.hull.rows)}",
            "verification": "verification",
            "ranks": f"{self.place.tensor_parallel} ranks beyond {_ends(self.hull.ranks)}",
            "kind": "kind of model",
            "format": "format of weights",
            "drafting": "way to draft",
        }
        return words.get(self.axis, self.axis)


def _ends(span: tuple[int, int] | None) -> str:
    """Return the ends of what a fit saw, in words."""
    low, high = span or (1, 1)
    return f"{low}" if low == high else f"{low} to {high}"


def farthest_fits(scenario: Scenario, batch: int | None = None) -> dict[Axis, FarFit]:
    """Return the fits of a scenario's engines and of its method of which it is farthest outside, by
    axis. Axes on which it is inside of all are left out.
    """
    fits: dict[Axis, FarFit] = {}
    for _, place in placements(scenario):
        saw = [(place.engine.hull, place.engine.fitted_on)]
        if scenario.method:
            saw.append((scenario.method.hull, scenario.method.fitted_on))
        for hull, home in saw:
            if hull is None:
                continue
            for axis, distance in distances(hull, home, place, scenario, batch).items():
                if distance and (axis not in fits or distance > fits[axis].distance):
                    fits[axis] = FarFit(axis, distance, hull, home, place)
    return fits


def farthest(scenario: Scenario, batch: int | None = None) -> dict[Axis, float]:
    """Return how far a scenario is outside of the fits of its engines and of its method, by axis:
    the farthest of them. Axes on which it is inside of all are left out.
    """
    return {axis: far.distance for axis, far in farthest_fits(scenario, batch).items()}


class Outside(NamedTuple):
    """What is not known of a time because a scenario lies outside of a fit on one axis."""

    axis: Axis
    every_pass: float
    """Standard deviation of the log of every pass."""
    speculation: float
    """Standard deviation of the log of a speculative step, beyond that."""


def outside(
    distance: Mapping[Axis, float], growth: Mapping[Axis, Growth] = GROWTH
) -> Iterator[Outside]:
    """Yield what each distance adds to what is not known: in proportion to it."""
    for axis, far in distance.items():
        if axis in growth:
            yield Outside(axis, far * growth[axis].every_pass, far * growth[axis].speculation)


def lone_window(engine: Engine) -> int | None:
    """Return the rows of a request in the one window that an engine was fitted to; None where the
    fit saw several, or plain decoding.
    """
    rows = engine.hull.rows if engine.hull and engine.fit else None
    return rows[0] if rows and rows[0] == rows[1] > 1 else None


def fitted_here(scenario: Scenario) -> list[Placement]:
    """Return the placements whose engines were fitted to runs on their devices: what the groups
    left out of the fit show is the spread of both, so that neither the device nor ranges of single
    numbers are drawn beside it.
    """
    found = []
    for _, place in placements(scenario):
        home = place.engine.fitted_on
        if place.engine.fit is not None and home is not None and home.holds(place.device):
            found.append(place)
    return found


def held_by_fits(scenario: Scenario, batch: int | None = None) -> set[Sourced]:
    """Return the numbers of engines that are not drawn on the devices of their fits
    (:func:`fitted_here`): inside of the hull all of them, outside those that were fitted.
    ``batch``: requests that decode together; None: one for every place.
    """
    inside = not farthest(scenario, batch)
    found = set[Sourced]()
    for place in fitted_here(scenario):
        for number in nested(place.engine, Sourced):
            if inside or number.confidence in FITTED:
                found.add(number)
    return found
