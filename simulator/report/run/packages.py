"""Sections that other packages add to the page of a run."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

from simulator.core.package_errors import raised_in_package
from simulator.core.plugin_group import SECTIONS, broken, error_in_words, loaded, registered
from simulator.report.blocks import Section
from simulator.scenario.result.run_result import RunResult


def sections(result: RunResult) -> Iterator[Section]:
    """Yield the sections that functions registered in ``SECTIONS`` have for a run, in the order of
    their names; one that returns None has none.

    Raises :class:`BadInput` where a function cannot be loaded, raises itself, or returns anything
    else.
    """
    for point in registered(SECTIONS).values():
        section = _section(point, result)
        if section is not None:
            yield section


def _section(point: EntryPoint, result: RunResult) -> Section | None:
    function = loaded(point)
    try:
        section = function(result)
    except Exception as error:
        own = raised_in_package(error)
        raise own or broken(point, f"raised {error_in_words(error)}") from error
    if section is None or isinstance(section, Section):
        return section
    raise broken(point, f"returned {type(section).__name__}, not a Section or None")
