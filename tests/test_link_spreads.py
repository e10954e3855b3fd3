"""All-reduces that take longer than a link's table by the spread that it states."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simulator.core.cost.device import Link
from simulator.core.cost.placement import Placement
from simulator.core.quantities import Positive
from simulator.scenario import Loaded, load
from simulator.scenario.uncertain.doubts import changed
from simulator.scenario.uncertain.intervals import doubt_of
from simulator.scenario.uncertain.links import slower_all_reduces

NAME = "mirror_qwen3_32b_a100"
"""A scenario over eight ranks."""


def told(spreads: dict[str, float]) -> Loaded:
    """Return the scenario with links that state these spreads."""
    stated = {form: Positive(value=value) for form, value in spreads.items()}
    return changed(Link, lambda link: link.model_copy(update={"spreads": stated}), load(NAME))


def link_of(loaded: Loaded) -> Link:
    place = loaded.scenario.target
    assert isinstance(place, Placement)
    assert place.link
    return place.link


def test_one_table_takes_longer_by_its_spread_and_the_others_stay() -> None:
    loaded = told({"vllm_graph": 0.25})
    ((name, change),) = slower_all_reduces(loaded)
    assert name == f"all-reduces over {link_of(loaded).name}"
    before, after = (link_of(one).all_reduce.measured for one in (loaded, change(loaded)))
    for size in (8_192, 1_000_000):
        longer = after["vllm_graph"].seconds(size, 8)
        assert longer == pytest.approx(1.25 * before["vllm_graph"].seconds(size, 8))
    assert after["nccl"] == before["nccl"]


def test_links_without_spreads_are_taken_as_they_are() -> None:
    assert not list(slower_all_reduces(load(NAME)))


def test_a_spread_of_no_table_is_refused() -> None:
    content: dict[str, Any] = dict(link_of(load(NAME)))
    with pytest.raises(ValidationError, match="there is no table 'gloo'"):
        Link(**{**content, "spreads": {"gloo": Positive(value=0.1)}})


def test_the_interval_of_a_step_is_in_doubt_of_its_all_reduces() -> None:
    name = f"all-reduces over {link_of(load(NAME)).name}"
    form = link_of(load(NAME)).all_reduce.measured.keys()
    doubt = doubt_of(told(dict.fromkeys(form, 0.2)), [(0.0, 1)])
    assert name in doubt.changes
    assert name not in doubt_of(load(NAME), [(0.0, 1)]).changes
