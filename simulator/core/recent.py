"""What is made of equal things is made once: the last few are kept and found again by equality."""

from collections.abc import Callable
from typing import Generic, TypeVar, TypeVarTuple

Made = TypeVar("Made")
Of = TypeVarTuple("Of")


class Recent(Generic[Made]):
    """Keeps the ``most`` things that were asked for last, each with what it was made of.

    Parts need not be hashable, as large frozen models are not: equality looks at identity first and
    stops at the first difference.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: list[tuple[tuple[object, ...], Made]] = []

    def of(self, make: Callable[[*Of], Made], *parts: *Of) -> Made:
        """Return what ``make`` made of equal ``parts``, or makes of them now."""
        place = next((at for at, kept in enumerate(self._kept) if kept[0] == parts), None)
        if place is None:
            made = make(*parts)
            self._kept.insert(0, (parts, made))
            del self._kept[self.most :]
            return made
        self._kept.insert(0, self._kept.pop(place))
        return self._kept[0][1]
