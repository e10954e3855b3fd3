"""Links whose all-reduces take longer than their tables by what sizes left out of these showed."""

from collections.abc import Callable, Iterator
from functools import partial

from simulator.core.cost.collectives import MeasuredAllReduce
from simulator.core.cost.device import Link
from simulator.core.quantities import nested
from simulator.scenario import Loaded
from simulator.scenario.uncertain.doubts import changed


def slower_all_reduces(loaded: Loaded) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield what makes the tables of each link that states ``spreads`` longer by these, with its
    name.
    """
    for link in dict.fromkeys(one for one in nested(loaded.scenario, Link) if one.spreads):
        yield f"all-reduces over {link.name}", partial(changed, Link, partial(_longer, link.name))


def _longer(name: str, link: Link) -> Link:
    """Return a link of this name with all-reduces one standard deviation longer; another one as it
    is.
    """
    if link.name != name:
        return link
    tables = dict(link.all_reduce.measured)
    for form, spread in link.spreads.items():
        tables[form] = _stretched(tables[form], 1.0 + spread.value)
    reduces = link.all_reduce.model_copy(update={"measured": tables})
    return link.model_copy(update={"all_reduce": reduces})


def _stretched(table: MeasuredAllReduce, factor: float) -> MeasuredAllReduce:
    """Return a table whose every time is so many times as long."""
    times = {ranks: tuple(us * factor for us in column) for ranks, column in table.time_us.items()}
    return table.model_copy(update={"time_us": times})
