"""What nobody measured, each with what moves it by one deviation; :mod:`simulator.scenario.uncertainty` draws from it."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import NormalDist

from simulator.cost.engine import Engine, RowCosts
from simulator.cost.kernels import lacks_curve
from simulator.files.schema import Part, Ranged, replace_nested
from simulator.scenario import Loaded, Scenario
from simulator.scenario.ranks import Continued, continued

SHARE = 0.9
"""Share of the draws that an interval holds."""
SHARE_DEVIATIONS = NormalDist().inv_cdf((1.0 + SHARE) / 2.0)
"""Standard deviations from the middle of an interval to its end; a range is taken as such an interval."""
ROWS_WITHOUT_A_CURVE = RowCosts(row=Ranged(value=0.2), most=8)
"""What eight rows cost where no curve of a quantised format is known: 2.4 times one, as on an RTX 3090 in llama.cpp."""


def changed(kind: type[Part], change: Callable[[Part], Part], loaded: Loaded) -> Loaded:
    """Return the scenario with every ``kind`` in it replaced by what ``change`` returns."""
    return Loaded(replace_nested(loaded.scenario, kind, change), loaded.trace, loaded.document)


def uncurved(scenario: Scenario) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield formats whose products take the curve of another format on the device, with rows that cost as in llama.cpp."""
    dearer = partial(changed, Engine, lambda engine: engine.model_copy(update={"rows": {"quantised": ROWS_WITHOUT_A_CURVE}}))
    for role, place in (("target", scenario.target), ("draft", scenario.draft)):
        if place and lacks_curve(place.device, place.weights) and not place.engine.rows:
            yield f"{role}: rows of products in {place.weights} on {place.device.name}", dearer


def continued_further(scenario: Scenario) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield all-reduces of more ranks than were fitted, each with what makes it one deviation slower, if never faster."""

    def slower(one: Continued, loaded: Loaded) -> Loaded:
        times = 1.0 + (one.longest - 1.0) / SHARE_DEVIATIONS
        return Loaded(one.slower(times, loaded.scenario), loaded.trace, loaded.document)

    for one in continued(scenario):
        yield one.words, partial(slower, one)
