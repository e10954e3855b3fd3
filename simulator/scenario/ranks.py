"""What a reader should know of ranks: whether they start, over what they sum, and what was fitted
to fewer of them.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from simulator.core.cost.collectives import MeasuredAllReduce, RingAllReduce, TreeAllReduce
from simulator.core.cost.degrees import unknown_blocks
from simulator.core.cost.device import Link
from simulator.core.cost.placement import Placement
from simulator.core.quantities import replace_nested
from simulator.scenario.fields import Scenario


class Continued(NamedTuple):
    """A formula of an all-reduce is continued to more ranks than it was fitted to."""

    link: Link
    form: RingAllReduce | TreeAllReduce
    ranks: int

    @property
    def fitted(self) -> int:
        """Return the most ranks that it was fitted to."""
        return most_fitted(self.link, self.form)

    @property
    def longest(self) -> float:
        """Return how many times as long it may take: as messages would that every rank passes on
        one after the other.
        """
        return self.ranks / self.fitted

    @property
    def words(self) -> str:
        """Return what is continued, in words."""
        form = name_of(self.form)
        return (
            f"all-reduce of {self.ranks} ranks over {self.link.name} ({form}, fitted to "
            f"{self.fitted} at most)"
        )

    def slower(self, times: float, scenario: Scenario) -> Scenario:
        """Return the scenario in which the constant part of this all-reduce takes so many times as
        long.
        """

        def longer(link: Link) -> Link:
            if link != self.link:
                return link
            constant = "fixed_us" if isinstance(self.form, RingAllReduce) else "alpha_us"
            number = getattr(self.form, constant)
            changed = self.form.model_copy(
                update={constant: number.model_copy(update={"value": number.value * times})}
            )
            forms = {}
            for name in ("ring", "tree"):
                forms[name] = (
                    changed
                    if getattr(link.all_reduce, name) == self.form
                    else getattr(link.all_reduce, name)
                )
            return link.model_copy(update={"all_reduce": link.all_reduce.model_copy(update=forms)})

        changed: Scenario = replace_nested(scenario, Link, longer)
        return changed


def name_of(form: RingAllReduce | TreeAllReduce) -> Literal["ring", "tree"]:
    """Return the name of a formula of an all-reduce."""
    if isinstance(form, RingAllReduce):
        return "ring"
    return "tree"


def most_fitted(link: Link, form: RingAllReduce | TreeAllReduce) -> int:
    """Return the most ranks that a formula of a link was fitted to; 0 for none."""
    return max(link.all_reduce.fitted_ranks.get(name_of(form), ()), default=0)


def placements(scenario: Scenario) -> list[tuple[str, Placement]]:
    """Return the placements of a scenario by role."""
    roles = (("target", scenario.target), ("draft", scenario.draft))
    return [(role, place) for role, place in roles if place is not None]


def about_ranks(scenario: Scenario) -> Iterator[str]:
    """Yield cautions about the ranks of a scenario's models."""
    for role, place in placements(scenario):
        if cut := unknown_blocks(place):
            yield (
                f"nobody said whether {place.engine.name or 'the engine'} starts the {role}: "
                f"tensor_parallel {place.tensor_parallel} {cut}"
            )
        if not place.p2p and place.tensor_parallel > 1 and place.collectives.count:
            yield (
                f"the {role}'s ranks do not reach each other's memory (p2p: false): "
                f"{place.engine.name or 'the engine'} cannot use all-reduces of its own, and NCCL "
                "sums instead"
            )
        if place.servers > 1 and place.network is not None:
            yield (
                f"the {role}'s {place.tensor_parallel} ranks are on {place.servers} servers of "
                f"{place.ranks_inside}: every "
                f"all-reduce also goes over {place.network.name} ({_known(place)})"
            )
    for formula in continued(scenario):
        yield (
            f"the formula for an {formula.words} is continued: it may take "
            f"{formula.longest:.3g} times as long"
        )


def continued(scenario: Scenario) -> list[Continued]:
    """Return the formulas of all-reduces that are continued to more ranks than they were fitted to,
    each once.
    """
    found: list[Continued] = []
    for _, place in placements(scenario):
        if place.tensor_parallel > 1 and place.collectives.count:
            for form, link, ranks in place.all_reduce_forms():
                if isinstance(form, MeasuredAllReduce) or not 0 < most_fitted(link, form) < ranks:
                    continue
                if (formula := Continued(link, form, ranks)) not in found:
                    found.append(formula)
    return found


def _known(place: Placement) -> str:
    """Return how well the all-reduce between servers is known, in words."""
    form, link, _ = place.all_reduce_forms()[-1]
    number = getattr(form, "fixed_us", None) or getattr(form, "alpha_us", None)
    if number:
        return f"{number.confidence}: {number.source}"
    return link.about
