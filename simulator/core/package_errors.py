"""Exceptions in the code of other packages, told to who wrote it; ours keep their traceback."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, NamedTuple

from simulator.core.faults import BadInput
from simulator.core.plugin_group import (
    POLICIES,
    ROUTERS,
    SECTIONS,
    STRATEGIES,
    broken,
    error_in_words,
    registered,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

WHOLE_TRACEBACK = "SPECSIM_TRACEBACK"
"""Environment variable that, set to anything, lets errors of other packages' code end a command in
their whole traceback.
"""
OURS = "simulator"
LAW_CHECK = "simulator.evidence.law_check"
"""What tries a strategy on its own example."""


def raised_in_package(error: BaseException) -> BadInput | None:
    """Return what to say of an exception that a registered package's code raised: package, entry
    point, method, file and line; None for any other, and where the whole traceback is asked for.

    An exception is the package's where no code of ours lies further inside: what it called of other
    libraries is its own doing.
    """
    if os.environ.get(WHOLE_TRACEBACK):
        return None
    places = list(_places(error))
    if not places or places[-1].of is None:
        return None
    last, point = places[-1], places[-1].of
    alone = ""
    if point.group == STRATEGIES and LAW_CHECK not in {place.module for place in places}:
        alone = f"specsim validate --law {point.name} tries it by itself; "
    return broken(
        point,
        f"raised {error_in_words(_raised_first(error))} in {last.method} at {last.where}; {alone}"
        f"{WHOLE_TRACEBACK}=1 shows the whole traceback",
    )


def package_beside(error: BaseException) -> str | None:
    """Return what a registered package had to do with an exception of ours: its call that led
    there, or an object of it that we were at work for; None where there is nothing of a package.
    """
    places = list(_places(error))
    callers = [(place, place.of) for place in places if place.of]
    if callers and places[-1].of is None:
        place, point = callers[-1]
        return f"{point.group}: {point.name}: {place.method} called this at {place.where}"
    served = [place.serves for place in places if place.serves]
    if served and not callers:
        own = served[-1]
        return (
            f"{own.group}: {own.name} ({own.value}) was at work here: what one of its "
            "methods returned may be of another kind than is expected"
        )
    return None


class _Place(NamedTuple):
    """A place in a traceback, in code of ours or of a registered package."""

    module: str
    method: str
    where: str
    """File and line."""
    of: EntryPoint | None
    """The entry point of the package whose code it is; None for ours."""
    serves: EntryPoint | None
    """The entry point whose object the method belongs to."""


def _places(error: BaseException) -> Iterator[_Place]:
    """Yield the places of a traceback that are ours or a registered package's, from the outermost
    to the innermost; those of the exception that the event engine raised again come behind.
    """
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        code = frame.f_code
        module = str(frame.f_globals.get("__name__", ""))
        method_of = type(frame.f_locals.get("self"))
        classes = {code.co_qualname.partition(".")[0], method_of.__name__}
        of = _entry_point(module, classes)
        if of or module.partition(".")[0] == OURS:
            where = f"{code.co_filename}:{step.tb_lineno}"
            serves = _entry_point(method_of.__module__, classes)
            yield _Place(module, code.co_qualname, where, of, serves)
        step = step.tb_next
    first = _raised_first(error)
    if first is not error:
        yield from _places(first)


def _raised_first(error: BaseException) -> BaseException:
    """Return the exception that the event engine raised again as a copy of it; else the same."""
    first = error.__cause__
    if first is not None and type(first) is type(error) and first.args == error.args:
        return first
    return error


def _entry_point(module: str, classes: Container[str]) -> EntryPoint | None:
    """Return the entry point of the package that a module is in, if it has one: the one that names
    one of the classes before others.
    """
    package = module.partition(".")[0]
    points = []
    for group in (STRATEGIES, POLICIES, ROUTERS, SECTIONS):
        points += [
            point for point in registered(group).values() if point.module.split(".")[0] == package
        ]
    named = (point for point in points if point.attr in classes)
    return next(named, points[0] if points else None)
