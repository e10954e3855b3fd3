"""Frozen models are found again by their values: as keys, whatever mappings they hold."""

import pickle
from copy import copy, deepcopy

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict

from simulator.core.quantities import Frozen, Positive, has_hash


class Card(Frozen):
    """A model with all that fields are made of."""

    name: str
    speed: Positive
    peaks: dict[str, Positive]
    curve: tuple[Positive, ...] = ()


PEAKS = st.dictionaries(st.sampled_from(("fp8", "fp16", "int8")), st.integers(1, 3))
CURVES = st.lists(st.integers(1, 3), max_size=2)


@st.composite
def cards(draw: st.DrawFn) -> Card:
    """Few enough that equal ones come up."""
    return Card(
        name="card",
        speed=draw(st.integers(1, 2)),  # type: ignore[arg-type]
        peaks=draw(PEAKS),  # type: ignore[arg-type]
        curve=tuple(draw(CURVES)),
    )


@given(cards(), cards())
def test_a_key_is_found_again_by_an_equal_model_alone(one: Card, other: Card) -> None:
    found = {one: "one"}
    assert (other in found) == (other == one)
    assert (hash(other) == hash(one)) == (other == one)


def test_the_order_of_a_mapping_makes_no_difference() -> None:
    peaks = {"fp8": 2, "fp16": 1}
    turned = dict(reversed(peaks.items()))
    one, other = (Card(name="a", speed=1, peaks=stated) for stated in (peaks, turned))  # type: ignore[arg-type]
    assert list(one.peaks) != list(other.peaks)
    assert hash(one) == hash(other)


def test_a_copy_has_a_hash_of_its_own() -> None:
    card = Card(name="a", speed=1, peaks={"fp8": 2})  # type: ignore[arg-type]
    assert hash(card.model_copy(update={"name": "b"})) != hash(card)
    # a hash of texts is another one in every process
    sent = pickle.loads(pickle.dumps(card))  # noqa: S301
    for made in (card.model_copy(), copy(card), deepcopy(card), sent):
        assert made == card
        assert not hasattr(made, "_hash")


class Loose(BaseModel):
    """A model of another package that is not frozen."""

    banned: set[int]


class Holder(Frozen):
    """A model of another package with a field of any kind."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    held: set[int] | Loose | np.ndarray


@pytest.mark.parametrize("held", [{1, 2}, Loose(banned={1, 2})])
def test_a_model_with_a_field_that_is_no_key_is_one(held: set[int] | Loose) -> None:
    assert has_hash(Holder(held=held))
    assert not has_hash(held)
    assert hash(Holder(held=deepcopy(held))) == hash(Holder(held=held))
    other: set[int] | Loose = {3} if isinstance(held, set) else Loose(banned={3})
    assert hash(Holder(held=other)) != hash(Holder(held=held))


def test_a_model_with_an_array_is_no_key() -> None:
    assert not has_hash(Holder(held=np.zeros(2)))
