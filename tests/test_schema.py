"""Models inside models: which are visited, and in which order."""

from __future__ import annotations

from simulator.core.quantities import Frozen, Positive, nested


class Wheel(Frozen):
    inches: Positive
    spare: Wheel | None = None


class Car(Frozen):
    name: str
    front: tuple[Wheel, ...]
    rear: dict[str, Wheel]
    tank: Positive | None = None


CAR = Car(
    name="car",
    front=(
        Wheel(inches=Positive(value=1)),
        Wheel(inches=Positive(value=2), spare=Wheel(inches=Positive(value=9))),
    ),
    rear={"left": Wheel(inches=Positive(value=3)), "right": Wheel(inches=Positive(value=4))},
)


def test_models_are_visited_in_the_order_of_fields_through_tuples_and_mappings() -> None:
    assert [wheel.inches.value for wheel in nested(CAR, Wheel)] == [1, 2, 3, 4], (
        "what is inside a wheel is not searched"
    )
    assert [number.value for number in nested(CAR, Positive)] == [1, 2, 9, 3, 4]


def test_a_model_visits_itself_and_nothing_else_has_parts() -> None:
    assert list(nested(CAR, Car)) == [CAR]
    assert list(nested("car", Car)) == list(nested(None, Car)) == []
