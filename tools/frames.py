"""Count the functions that a reader passes from ``run()`` to the price of a product: frames of the
package on the deepest way, both ends included.

``python tools/frames.py SCENARIO ...`` prints the deepest way of each scenario, and how many frames
it has. Frames of SimPy, three where an event runs a process, are not counted: they are not ours to
remove.
"""

import sys
from collections.abc import Iterable
from inspect import unwrap
from types import CodeType, FrameType, FunctionType
from typing import Any

from simulator.api.scenario import load
from simulator.core.cost.device import Device
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.kernels import (
    experts_time,
    head_time,
    layer_products,
    side_product_time,
)
from simulator.scenario.evaluate import run


def inner(function: FunctionType) -> CodeType:
    """Return the code of the function that another one makes."""
    constants = function.__code__.co_consts
    return next(constant for constant in constants if isinstance(constant, CodeType))


HAVE_PRODUCTS: tuple[Any, ...] = (
    layer_products,
    experts_time,
    side_product_time,
    head_time,
    HardwareCost.rendezvous,
)
"""Functions that ask for the seconds of products."""
PRODUCTS = {unwrap(function).__code__ for function in HAVE_PRODUCTS}
ROOFLINE = inner(Device.timer)
"""What says the seconds of every operation; that of a product is called by one of ``PRODUCTS``."""


class DeepestWay:
    """A profile hook keeps the longest way to the roofline of a product."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """Names of the functions on it, from ``run`` on."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Look at one call, as :func:`sys.setprofile` has it."""
        if event != "call" or frame.f_code is not ROOFLINE:
            return
        caller = frame.f_back
        if caller is not None and caller.f_code in PRODUCTS:
            way = names_from_run(frame)
            if len(way) > len(self.names):
                self.names = way


def names_from_run(frame: FrameType) -> list[str]:
    """Return the names of the package's functions from ``run`` to this frame."""
    names = []
    above: FrameType | None = frame
    while above is not None:
        module = above.f_globals["__name__"]
        if module.startswith("simulator."):
            names.append(f"{module.removeprefix('simulator.')}.{above.f_code.co_qualname}")
        if above.f_code is run.__code__:
            break
        above = above.f_back
    names.reverse()
    return names


def deepest_way(scenario: str, overrides: Iterable[str] = ()) -> list[str]:
    """Return the names of the functions on the deepest way from ``run()`` to a product."""
    loaded = load(scenario, list(overrides))
    hook = DeepestWay()
    sys.setprofile(hook)
    try:
        run(loaded)
    finally:
        sys.setprofile(None)
    return hook.names


if __name__ == "__main__":
    for name in sys.argv[1:]:
        names = deepest_way(name)
        print(f"{name}: {len(names)} frames\n  " + "\n  ".join(names))
