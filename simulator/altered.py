"""A frozen model with some of what it holds changed, wherever in it that stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from simulator.schema import Frozen

Part = TypeVar("Part", bound=Frozen)


def altered(one: Any, kind: type[Part], change: Callable[[Part], Part]) -> Any:
    """``one`` with every ``kind`` in it replaced by what ``change`` makes of it; itself where that changes nothing.

    What holds something changed is made anew, so that nothing it has computed is kept.
    """
    if isinstance(one, kind):
        return change(one)
    if isinstance(one, tuple):
        parts = [altered(part, kind, change) for part in one]
        return one if all(new is old for new, old in zip(parts, one, strict=True)) else type(one)(parts)
    if isinstance(one, dict):
        held = {key: altered(value, kind, change) for key, value in one.items()}
        return one if all(held[key] is one[key] for key in one) else held
    if isinstance(one, Frozen):
        held = {name: getattr(one, name) for name in type(one).model_fields}
        fields = {name: altered(value, kind, change) for name, value in held.items()}
        return one if all(fields[name] is held[name] for name in held) else type(one)(**fields)
    return one
