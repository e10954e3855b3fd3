"""Whether an installation is whole: versions against their bounds, extras and what each is for, the
catalogue, the shipped recordings, what can be written, and a run whose answer is known.

Nothing but the standard library is imported before a check asks for it, so that a package that is
missing is told and not tripped over.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal, NamedTuple
from zipfile import BadZipFile, ZipFile

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "specdecode-sim"
EXTRAS: Mapping[str, str] = {
    "parquet": "logs and tables in Parquet",
    "record": "recording acceptance with torch and transformers",
    "dask": "sweeps on a Dask cluster",
    "test": "the tests",
    "browser": "tests of pages in a browser",
    "site": "the documentation as a site",
    "lab": "the notebooks in JupyterLab",
    "fuzz": "inputs drawn at random, for developers",
    "mutate": "mutation tests, for developers",
}
"""What each extra is for."""
STEP_MS = 40.0
TOKENS = 4
"""A step of the run that is known: three draft tokens in 10 ms and a pass of 30 ms, all of them
kept, bring four tokens.
"""
TOLERANCE = 1e-9
"""Relative difference from 40 ms over four tokens that is left to rounding."""

State = Literal["ok", "missing", "optional"]


class Check(NamedTuple):
    """Says how one thing of an installation is."""

    what: str
    state: State
    """``missing`` where something that is needed is not there; ``optional`` where nothing needs
    it.
    """
    words: str
    remedy: str = ""
    """What to type; empty where there is nothing to do."""


def examine() -> list[Check]:
    """Return how everything is that an installation needs, and what it could have."""
    checks = []
    for name, check in CHECKS.items():
        try:
            checks += list(check())
        except Exception as error:  # whatever is wrong is what is looked for
            words = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            checks.append(Check(name, "missing", words.rstrip(": "), _reinstall()))
    return checks


def is_whole(checks: list[Check]) -> bool:
    """Return whether nothing that is needed is missing."""
    return all(check.state != "missing" for check in checks)


def requirements(extra: str = "") -> "list[Requirement]":
    """Return the packages that are needed, or those that an extra adds; raises
    :class:`PackageNotFoundError` where this is not installed.
    """
    from packaging.requirements import Requirement

    stated = [Requirement(text) for text in requires(DISTRIBUTION) or ()]
    needed = [one for one in stated if _holds(one)]
    if not extra:
        return needed
    return [one for one in stated if one not in needed and _holds(one, extra)]


def _holds(requirement: "Requirement", extra: str = "") -> bool:
    """Return whether a package is asked for here, and with an extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def installed(requirement: "Requirement") -> str:
    """Return the version that is installed of a package; empty for none."""
    try:
        return version(requirement.name)
    except PackageNotFoundError:
        return ""


def unmet(required: "Iterable[Requirement]") -> "list[Requirement]":
    """Return the packages that are not installed, or not in a version that is allowed."""
    lacking = []
    for requirement in required:
        there = installed(requirement)
        if not there or not requirement.specifier.contains(there, prereleases=True):
            lacking.append(requirement)
    return lacking


def _from_checkout() -> bool:
    """Return whether the package is that of a checkout of the repository."""
    return (Path(__file__).parent.parent.parent / "pyproject.toml").is_file()


def _pip(extra: str = "") -> str:
    """Return the command that installs this, with an extra."""
    ending = f"[{extra}]" if extra else ""
    if _from_checkout():
        return f"pip install -e '.{ending}'"
    return f"pip install '{DISTRIBUTION}{ending}'"


def _reinstall() -> str:
    if _from_checkout():
        return _pip()
    return f"pip install --force-reinstall {DISTRIBUTION}"


def _python() -> Iterator[Check]:
    from packaging.specifiers import SpecifierSet

    running = ".".join(map(str, sys.version_info[:3]))
    allowed = str(metadata(DISTRIBUTION)["Requires-Python"])
    words = f"{running}; {allowed} is needed"
    if SpecifierSet(allowed).contains(running):
        yield Check("Python", "ok", words)
    else:
        yield Check("Python", "missing", words, f"install Python {allowed}, then {_pip()}")


def _packages() -> Iterator[Check]:
    required = requirements()
    lacking = unmet(required)
    if not lacking:
        listed = ", ".join(f"{package.name} {installed(package)}" for package in required)
        yield Check("packages", "ok", listed)
    for package in lacking:
        there = installed(package) or "not installed"
        yield Check(package.name, "missing", f"{there}; {package} is needed", _pip())


def _extras() -> Iterator[Check]:
    for extra, purpose in EXTRAS.items():
        lacking = unmet(requirements(extra))
        if lacking:
            names = ", ".join(package.name for package in lacking)
            yield Check(f"[{extra}]", "optional", f"{purpose}: lacks {names}", _pip(extra))
        else:
            yield Check(f"[{extra}]", "ok", purpose)


def _catalogue() -> Iterator[Check]:
    from simulator.inputs.catalogue import FOLDERS, Catalogue, shipped
    from simulator.inputs.document import read

    catalogue = Catalogue()
    count = 0
    for kind in FOLDERS:
        files = catalogue.names(kind)
        if not files:
            words = f"{shipped()} has no file of kind {kind}"
            yield Check("catalogue", "missing", words, _reinstall())
            return
        for path in files.values():
            if path.suffix == ".yaml":
                read(path, path.name)
            count += 1
    yield Check("catalogue", "ok", f"{count:,} files in {shipped()} can be read")


def _recordings() -> Iterator[Check]:
    """Yield whether every array of the shipped recordings has its checksum (CRC-32 of ZIP)."""
    from simulator.inputs.catalogue import Catalogue

    files = Catalogue().names("trace")
    broken = []
    for name, path in files.items():
        try:
            with ZipFile(path) as archive:
                if archive.testzip() is not None:
                    broken.append(name)
        except (BadZipFile, OSError):
            broken.append(name)
    if broken:
        words = f"{', '.join(broken)}: not as shipped"
        yield Check("recordings", "missing", words, _reinstall())
    else:
        yield Check("recordings", "ok", f"{len(files)} shipped traces have their checksums")


def _pictures() -> Iterator[Check]:
    """Yield whether pictures have their font, and their library a folder that it can write to."""
    import matplotlib
    from matplotlib.font_manager import FontProperties, findfont

    folder = matplotlib.get_cachedir()
    try:
        findfont(FontProperties(family="DejaVu Sans"), fallback_to_default=False)
    except ValueError:
        words = "matplotlib has no DejaVu Sans; pictures have another font"
        yield Check("font", "optional", words, "pip install --force-reinstall matplotlib")
    else:
        yield Check("font", "ok", "DejaVu Sans for pictures; no command needs a browser")
    if _writable(folder):
        yield Check("cache", "ok", f"{folder} can be written to")
    else:
        words = f"{folder} cannot be written to: every picture looks for fonts anew"
        yield Check("cache", "optional", words, 'export MPLCONFIGDIR="$(mktemp -d)"')


def _reports() -> Iterator[Check]:
    here = os.getcwd()
    if _writable(here):
        yield Check("reports", "ok", f"{here} can be written to")
    else:
        words = f"{here} cannot be written to, where reports go"
        yield Check("reports", "optional", words, "specsim run NAME --out FOLDER")


def _writable(folder: str | os.PathLike[str]) -> bool:
    """Return whether a file can be made in a folder."""
    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _known_run() -> Iterator[Check]:
    """Yield whether a run of three draft tokens a step, all of them kept, takes as long as it
    does.
    """
    from simulator.scenario import load
    from simulator.scenario.evaluate import run

    changes = (
        "strategy={name: vanilla_sd, gamma: 3}",
        "durations={target_ms: 30, draft_ms: 10}",
        "acceptance={always: 3}",
        f"requests={{prompt_tokens: 8, output_tokens: {10 * TOKENS + 1}, count: 2}}",
    )
    ran = run(load("durations_only", changes))
    tpot_ms = 1e3 * ran.simulated.tpot_s
    known_ms = STEP_MS / TOKENS
    words = f"{tpot_ms:.6g} ms per token, {known_ms:g} by hand"
    close = abs(tpot_ms / known_ms - 1.0) <= TOLERANCE
    if close:
        yield Check("a run", "ok", words)
    else:
        yield Check("a run", "missing", words, _reinstall())


CHECKS: Mapping[str, Callable[[], Iterator[Check]]] = {
    "Python": _python,
    "packages": _packages,
    "catalogue": _catalogue,
    "recordings": _recordings,
    "a run": _known_run,
    "pictures": _pictures,
    "reports": _reports,
    "extras": _extras,
}
"""Everything that is looked at, in the order in which it is told."""
