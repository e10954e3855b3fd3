"""Numbers with their sources, in frozen models that state what a number may be."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from simulator.core.faults import told
from simulator.core.plain import PlainMapping
from simulator.core.plugin_group import broken, loaded, registered

Confidence = Literal[
    "measured", "calibrated", "datasheet", "published", "computed", "borrowed", "assumed"
]
"""How well a number is known."""


class Frozen(BaseModel):
    """Base of all models that are read from files: immutable; unknown keys and infinite numbers are
    refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
    __slots__ = ("_hash",)
    if TYPE_CHECKING:
        _hash: int

    def __hash__(self) -> int:
        """Return the hash of all fields, mappings too, worked out once: what is made of a model is
        found again by it. A copy, also one in another process, works out its own. Raises TypeError
        where a field of another package has no hash (:func:`has_hash`).
        """
        try:
            return self._hash
        except AttributeError:
            fields = self.__dict__
            values = [_hashable(fields[name]) for name in type(self).model_fields]
            object.__setattr__(self, "_hash", hash((type(self), *values)))
            return self._hash

    def model_copy(self, *, update: PlainMapping | None = None, deep: bool = False) -> Self:
        """Return a copy, with fields replaced; what a cached property worked out of the old fields
        is left behind.
        """
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys() if update else ():
            del copied.__dict__[name]
        return copied


def _hashable(value: Any) -> Hashable:
    """Return what stands for a value of a field in a hash: the same for equal values."""
    if isinstance(value, dict):
        return frozenset((key, _hashable(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(_hashable, value))
    if isinstance(value, BaseModel) and not isinstance(value, Frozen):
        fields = [_hashable(getattr(value, name)) for name in type(value).model_fields]
        return type(value), *fields
    hashable: Hashable = value
    return hashable


def has_hash(value: object) -> bool:
    """Return whether a value can be a key; a model of another package may have a field that cannot,
    such as an array.
    """
    try:
        hash(value)
    except TypeError:
        return False
    return True


def descendants(base: type[Any]) -> Iterator[type[Any]]:
    """Yield every class that is derived from ``base``, directly or not."""
    for child in base.__subclasses__():
        yield child
        yield from descendants(child)


Rules = tuple[tuple[Callable[[float], bool], str], ...]
"""Conditions on a number, each with what is expected in words."""


class Sourced(Frozen):
    """A sourced number states where it comes from; the key that holds it carries its unit."""

    rules: ClassVar[Rules] = ()
    value: float
    """The number, in the unit of the key that holds it."""
    source: str = "not stated"
    """Where it comes from: a paper, a datasheet, a measurement."""
    confidence: Confidence = "assumed"
    """How well the number is known."""

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, data: object) -> object:
        if isinstance(data, bool | dict | Sourced):
            return data
        return {"value": data}

    @model_validator(mode="after")
    def _within_rules(self) -> Self:
        for allowed, words in self.rules:
            if not allowed(self.value):
                raise ValueError(f"expected {words}, got {self.value:g}")
        return self


class SourcedTable(Frozen):
    """A sourced table states once where all of its numbers come from."""

    source: str = "not stated"
    """Where they come from: a paper, a datasheet, a measurement."""
    confidence: Confidence = "assumed"
    """How well they are known."""

    @property
    @abstractmethod
    def points(self) -> int:
        """Return how many numbers the table holds."""


class Positive(Sourced):
    """A sourced number above zero, and no smaller than makes times without end."""

    rules: ClassVar[Rules] = (
        (lambda value: value > 0, "a number above 0"),
        (lambda value: value >= 1e-30, "1e-30 or more"),
    )


class NonNegative(Sourced):
    """A sourced number of zero or more."""

    rules: ClassVar[Rules] = ((lambda value: value >= 0, "0 or more"),)


class OneOrMore(Sourced):
    """A sourced number of at least one."""

    rules: ClassVar[Rules] = ((lambda value: value >= 1, "1 or more"),)


class Ranged(NonNegative):
    """A sourced number of zero or more that is not known well: it lies between ``low`` and
    ``high``.
    """

    low: float | None = None
    """The least that it may be; by default the number itself."""
    high: float | None = None
    """The most that it may be; by default the number itself."""

    @model_validator(mode="after")
    def _within(self) -> Self:
        if (self.low is not None and self.low > self.value) or (
            self.high is not None and self.high < self.value
        ):
            raise ValueError(
                f"expected low <= value <= high, got {self.low}, {self.value:g}, {self.high}"
            )
        return self


NONE = Ranged(value=0.0, source="by definition: nothing is added", confidence="computed")
ALL = Ranged(value=1.0, source="by definition: nothing changes", confidence="computed")


class Open(Ranged):
    """A ranged number whose ends lie unevenly around it, so that each end is taken as such and not
    as a deviation.
    """


class Fraction(Positive):
    """A sourced share, above zero and at most one."""

    rules: ClassVar[Rules] = (*Positive.rules, (lambda value: value <= 1, "a share of at most 1"))


class Share(NonNegative):
    """A sourced share from none to all."""

    rules: ClassVar[Rules] = (
        *NonNegative.rules,
        (lambda value: value <= 1, "a share of at most 1"),
    )


Member = TypeVar("Member", bound=Frozen)


def members(
    base: type[Any], shipped: Iterable[type[Member]], group: str
) -> dict[str, type[Member]]:
    """Return the classes that may be named where a ``base`` is expected, by their field ``name``:
    the shipped ones, then those that other packages register in ``group``.

    Raises :class:`BadInput` for an entry point that cannot be loaded or is no class of this kind.
    """
    known = list(shipped)
    for point in registered(group).values():
        found = loaded(point)
        if not (isinstance(found, type) and issubclass(found, base)):
            raise broken(point, f"is no class derived from {base.__name__}")
        known.append(found)
    return {member.model_fields["name"].default: member for member in known}


class Named(Frozen):
    """A member of a union that a file may give by its name alone (:func:`by_name_alone`), and that
    is written so where it has no other field, or none that is to be written.
    """

    name: str

    @property
    def plain(self) -> bool:
        """Return whether its name says all."""
        return len(type(self).model_fields) == 1

    @model_serializer(mode="wrap")
    def _written(self, fields_of: SerializerFunctionWrapHandler) -> Any:
        if self.plain:
            return self.name
        written = fields_of(self)
        return {"name": self.name, **written} if written else self.name


def by_name_alone(stated: object) -> object:
    """Return a name as the fields of the member of this name; anything else as it is.

    Raises ValueError for what is neither a name nor a mapping.
    """
    if isinstance(stated, str):
        return {"name": stated}
    if not isinstance(stated, dict | Named):
        raise ValueError(f"expected a name, or a mapping of fields, got {told(stated)}")
    return stated


def otherwise_named(name: str) -> BeforeValidator:
    """Return how fields of a union's member that give no name are read: as those of the member of
    this name.
    """
    return BeforeValidator(
        lambda stated: (
            {"name": name} | stated if isinstance(stated, dict) and "name" not in stated else stated
        )
    )


def provenance(model: BaseModel, path: str = "") -> Iterator[dict[str, object]]:
    """Yield parameter, value, source and confidence of every sourced number in ``model``."""
    if isinstance(model, SourcedTable):
        yield {
            "parameter": f"{path} (points)",
            "value": model.points,
            "source": model.source,
            "confidence": model.confidence,
        }
    width = getattr(model, "width", ())
    if isinstance(width, tuple) and width:  # a measured table has one source for all its points
        source = getattr(model, "width_source", "not stated")
        confidences = {"calibrated-on": "calibrated", "borrowed from": "borrowed"}
        confidence = next(
            (known for start, known in confidences.items() if source.startswith(start)), "assumed"
        )
        yield {
            "parameter": f"{path}.width (points)",
            "value": len(width),
            "source": source,
            "confidence": confidence,
        }
    for name in type(model).model_fields:
        value = getattr(model, name)
        where = f"{path}.{name}" if path else name
        for place, part in _parts(value, where):
            if isinstance(part, Sourced):
                yield {"parameter": place, **part.model_dump()}
            elif isinstance(part, BaseModel):
                yield from provenance(part, place)


def _parts(value: object, where: str) -> Iterator[tuple[str, object]]:
    """Yield what a field holds by its dotted name: of mappings, also one inside the other, every
    entry.
    """
    if not isinstance(value, dict):
        yield where, value
        return
    for key, inner in value.items():
        yield from _parts(inner, f"{where}.{key}")


Part = TypeVar("Part", bound=Frozen)


def nested(value: Any, kind: type[Part]) -> Iterator[Part]:
    """Yield every ``kind`` in ``value``, a model or a tuple or mapping of models; the inside of a
    ``kind`` is not searched.
    """
    if isinstance(value, kind):
        yield value
        return
    inner: Iterable[Any] = ()
    if isinstance(value, tuple):
        inner = value
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, Frozen):
        inner = (getattr(value, name) for name in type(value).model_fields)
    for part in inner:
        yield from nested(part, kind)


def replace_nested(value: Any, kind: type[Part], change: Callable[[Part], Part]) -> Any:
    """Return ``value`` with every ``kind`` in it replaced by what ``change`` returns; itself where
    nothing changes.

    A model around a changed part is made anew, so that no cached property of it is kept.
    """
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        parts = [replace_nested(part, kind, change) for part in value]
        changed = any(new is not old for new, old in zip(parts, value, strict=True))
        return type(value)(parts) if changed else value
    if isinstance(value, dict):
        members = {key: replace_nested(member, kind, change) for key, member in value.items()}
        changed = any(members[key] is not value[key] for key in value)
        return members if changed else value
    if isinstance(value, Frozen):
        before = {name: getattr(value, name) for name in type(value).model_fields}
        fields = {name: replace_nested(field, kind, change) for name, field in before.items()}
        changed = any(fields[name] is not before[name] for name in before)
        return type(value)(**fields) if changed else value
    return value
