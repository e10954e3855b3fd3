"""Numbers are at home on the device that they were fitted on; on another one they are borrowed, the
wider the further it is.

How wide was judged from runs that took no part in a fit:

- the same architecture: hosts that run one program beside one card differ by 0.82 to 1.54
  (``host_ratio`` of ``hf_eager``);
- another architecture of a maker: a step with an MTP head on an RTX PRO 6000
  (sudoingX/qwen38-mtp, pull 11) leaves some 0.95 ms to a host that took 0.29 beside an H100: 1.8 to
  3.8 times;
- another maker: a step of vLLM on a Ryzen AI Max is further off than that
  (kyuz0/amd-strix-halo-vllm-toolboxes#53); judged;
- another engine: twice as far again, judged.
"""

from collections.abc import Iterable

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine, Home
from simulator.core.quantities import Open, Ranged, Sourced, nested
from simulator.inputs.derived import FITTED

SAME_ARCHITECTURE = 1.5
SAME_MAKER = 4.0
OTHER_MAKER = 8.0
"""Factor within which a number lies that was fitted on another device."""
OTHER_ENGINE = 2.0
"""Further factor for a number that another engine lends."""
LENT = "borrowed"


def distance(home: Home, device: Device) -> float:
    """Return the factor within which a number that was fitted at ``home`` lies on a device: 1 on
    the same one.
    """
    if home.holds(device):
        return 1.0
    if device.maker and device.maker != home.maker:
        return OTHER_MAKER
    if home.near(device):
        return SAME_ARCHITECTURE
    return SAME_MAKER


def away(engine: Engine, device: Device) -> dict[Sourced, Open]:
    """Return the times of an engine's host and the costs of its rows that were fitted elsewhere, as
    they are known here.
    """
    ratios = {id(number) for costs in engine.rows.values() for number in (costs.step, costs.beyond)}
    numbers = (number for number in nested(engine, Sourced) if id(number) not in ratios)
    return from_home(numbers, engine.fitted_on, device)


def from_home(numbers: Iterable[Sourced], home: Home | None, device: Device) -> dict[Sourced, Open]:
    """Return those of some numbers that were fitted at ``home``, as they are known on a device;
    none on the same one.
    """
    known = dict[Sourced, Open]()
    if home is None:
        return known
    for number in numbers:
        lent = number.confidence == LENT
        factor = distance(home, device) * (OTHER_ENGINE if lent else 1.0)
        if (lent or number.confidence in FITTED) and factor > 1.0 and number.value:
            known[number] = _borrowed(number, home, factor)
    return known


def _borrowed(number: Sourced, home: Home, factor: float) -> Open:
    """Return a number as it is known within a factor, its own range inside."""
    low, high = (number.low, number.high) if isinstance(number, Ranged) else (None, None)
    ends = [
        number.value / factor,
        number.value * factor,
        *(end for end in (low, high) if end is not None),
    ]
    return Open(
        value=number.value,
        low=min(ends),
        high=max(ends),
        source=f"calibrated on {home.card}; borrowed (within a factor of {factor:g}): "
        f"{number.source}",
        confidence=LENT,
    )
