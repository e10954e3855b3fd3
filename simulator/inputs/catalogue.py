"""A catalogue finds files by name: ``device: a100_80g_sxm`` is
``hardware_profiles/devices/a100_80g_sxm.yaml``.

A name with a slash is a path relative to the file that mentions it. The user's own folders have the
layout of the shipped one and are searched first. This module loads neither numpy nor pydantic, so
that ``specsim list`` is quick.
"""

import os
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shlex import quote

from simulator.core.cost.borrowing import lend
from simulator.core.faults import BadInput, Path_, did_you_mean
from simulator.core.nearness import nearest_name
from simulator.inputs import reading
from simulator.inputs.ages import of_version
from simulator.inputs.document import Document, head, read
from simulator.inputs.loader import packaged
from simulator.inputs.plugins import packages_found, plugin_strategies

STATED = packaged(Path(__file__).with_suffix(".yaml"))
FOLDERS: dict[str, tuple[str, str]] = {
    kind: (folder, ending) for kind, (folder, ending) in STATED["folders"].items()
}
"""Folder and file ending, by kind of file."""
REFERENCES: dict[str, str] = STATED["references"]
"""Kind of the file that replaces the text of a scenario's field, by field."""
OF_MODELS = (".json", ".gguf")
"""Endings of files that describe a model in another form: a config.json, a GGUF file."""
MOST_REFERENCES = 100
"""Most names of files in a scenario; ten times as many as any shipped one."""
LONGEST_CHAIN = 32
"""Most files that start from one another by ``like``."""
PROFILES = ("device", "link", "engine")
"""Kinds of file whose numbers are borrowed where one starts from another by ``like``."""
OF_GENERATION = ("about", "maker", "architecture")
"""Fields of a generation's file that say which it is; its devices share all others."""


def shipped() -> Path:
    """Return the folder that holds ``hardware_profiles`` and ``scenarios``: a checkout, or inside
    the wheel.
    """
    package = Path(__file__).parent.parent
    inside = package / "_shipped"
    if inside.is_dir():
        return inside
    return package.parent


def is_shipped(file: str) -> bool:
    """Return whether a file, as a place names it, is one of the shipped ones."""
    return any(
        Path(file).resolve().is_relative_to(shipped() / folder) for folder, _ in FOLDERS.values()
    )


@dataclass(frozen=True)
class Catalogue:
    """A catalogue looks names up in folders; the first folder that has a name wins."""

    folders: tuple[Path, ...] = ()
    """The user's own folders, which are searched before the shipped one."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """Return all folders: the user's own, then the shipped one."""
        return (*self.folders, shipped())

    def names(self, kind: str) -> dict[str, Path]:
        """Return the file of every name of a kind, sorted by name."""
        folder, ending = FOLDERS[kind]
        files: dict[str, Path] = {}
        for root in self.roots:
            for path in (root / folder).glob(f"*{ending}"):
                files.setdefault(path.stem, path)
        return dict(sorted(files.items()))

    def abouts(self, kind: str) -> dict[str, str]:
        """Return a line about every file of a kind, or about every strategy, by name; devices by
        maker and year.
        """
        if kind == "strategy":
            abouts = {name: _summary(path) for name, path in strategy_files().items()}
            for name, place in plugin_strategies().items():
                abouts[name] = f"of another package: {place}"
            return abouts
        names = self.names(kind)
        abouts = {}
        if kind == "trace":
            for name, path in names.items():
                size = f"{path.stat().st_size / 1e6:.1f} MB"
                abouts[name] = f"{size}; specsim trace info {quote(name)}"
            return abouts
        heads = {name: head(path, shown(path)) for name, path in names.items()}

        def maker_and_year(name: str) -> tuple[str, str]:
            return heads[name].get("maker", "").lower(), heads[name].get("year", "")

        for name in sorted(heads, key=maker_and_year):
            year = heads[name].get("year", "")
            abouts[name] = f"{year} {heads[name]['about']}".strip()
        return abouts

    def path(self, kind: str, name: str, document: Document, where: Path_) -> Path:
        """Return the file of a name that ``document`` mentions at ``where``; raises
        :class:`BadInput` where there is none.
        """
        _, ending = FOLDERS[kind]
        if "/" in name or name.endswith((ending, *OF_MODELS)):
            return _relative_file(name, document, where)
        names = self.names(kind)
        if kind == "engine" and name not in names:
            name = of_version(name, names) or name
        if name not in names:
            meant = did_you_mean(name, names)
            own = _own(kind, name, names)
            raise document.refusal(where, f"there is no {kind} '{name}'{meant}{own}")
        return names[name]

    def find_traffic(self, document: Document) -> None:
        """Replace the name of a traffic file, or of a file of sessions, by its path; the file is in
        the folder of the file that names it.
        """
        for kind in ("arrivals", "sessions"):
            load = document.get(("requests", kind))
            if isinstance(load, dict) and isinstance(load.get("file"), str):
                where = ("requests", kind, "file")
                load["file"] = shown(_relative_file(load["file"], document, where))

    def scenario(self, name: str) -> Document:
        """Return a scenario by name or path, with the content of all files that it refers to.

        ``like: OTHER`` starts from another scenario and lays the fields of this one over it.
        """
        return self._scenario(self.file("scenario", name), ())

    def scenario_of(self, name: str, document: Document, where: Path_) -> Document:
        """Return, with the content of all files that it refers to, a scenario that ``document``
        mentions at ``where``.
        """
        return self._scenario(self.path("scenario", name, document, where), ())

    def plan(self, name: str) -> Document:
        """Return a plan by name or path, as it is written."""
        path = self.file("plan", name)
        document = read(path, shown(path))
        document.data["name"] = name_of(path)
        return document

    def file(self, kind: str, name: str) -> Path:
        """Return the file of a path or of a name of this kind; raises :class:`BadInput` for an
        unknown name.
        """
        if "/" in name or name.endswith(".yaml"):
            return Path(name)
        names = self.names(kind)
        if name not in names:
            meant = self.elsewhere(name) or did_you_mean(name, names)
            raise BadInput.at(name, f"there is no {kind} of this name{meant}")
        return names[name]

    def elsewhere(self, name: str) -> str:
        """Return a hint on what else has this name: a file without its ending, or a file of another
        kind; empty without any.
        """
        if Path(f"{name}.yaml").is_file():
            return f"; did you mean the file ./{name}.yaml?"
        for kind in FOLDERS:
            if name in self.names(kind):
                return f"; it is the name of a {kind}"
        return ""

    def _scenario(self, path: Path, seen: tuple[Path, ...]) -> Document:
        """Return a scenario, expanded; ``seen`` are the scenarios that start from it."""
        document = read(path, shown(path))
        self._find_strategy(document)
        if origin := self._origin("scenario", document, (*seen, path)):
            base = self._scenario(origin, (*seen, path))
            self.lay_over(base, document)
            document = base
        document.data["name"] = name_of(path)
        self.expand(document)
        return document

    def content(self, kind: str, path: Path, seen: tuple[Path, ...] = ()) -> Document:
        """Return the content of a file that is no scenario; ``seen`` are the files that start from
        it.

        ``like: OTHER`` in a profile starts from another one: whatever it does not state itself is
        borrowed, and says so. A device takes what its generation has before it borrows.
        """
        document = _file(path)
        origin = None
        if kind in PROFILES:
            origin = self._origin(kind, document, (*seen, path))
        if kind == "device":
            document = self._of_generation(document)
        if origin is None:
            return document
        base = self.content(kind, origin, (*seen, path))
        lend(base.data, document.data, origin.stem)
        _without_rows_of(document, base)
        base.merge(document)
        return base

    def _of_generation(self, device: Document) -> Document:
        """Return a device with what all devices of its ``architecture`` share, if there is a file
        of that generation.
        """
        name = re.sub(r"[^a-z0-9]+", "_", str(device.data.get("architecture", "")).lower())
        file = self.names("generation").get(name)
        if file is None:
            return device
        shared = _file(file)
        for field in OF_GENERATION:
            shared.data.pop(field, None)
        _without_rows_of(device, shared)
        shared.merge(device)
        shared.places[()] = device.place(())
        return shared

    def _origin(self, kind: str, document: Document, seen: tuple[Path, ...]) -> Path | None:
        """Take ``like`` out of a document and return the file that it names; raise
        :class:`BadInput` where that goes round.
        """
        like = document.data.pop("like", None)
        if like is None:
            return None
        origin = self.path(kind, str(like), document, ("like",))
        if len(seen) > LONGEST_CHAIN:
            most = f"at most {LONGEST_CHAIN} {kind}s may start from one another"
            raise document.refusal(("like",), f"{shown(origin)} is too far; {most}")
        if os.path.realpath(origin) in map(os.path.realpath, seen):
            raise document.refusal(("like",), f"comes back to {shown(origin)}")
        return origin

    def lay_over(self, base: Document, document: Document) -> None:
        """Lay the fields of a scenario's document over those of ``base``; names of files are left
        to be expanded.
        """
        self._find_strategy(document)
        if "method" in document.data:
            base.data.pop("strategy", None)
        loads = [document.get(("requests", kind, "name")) for kind in ("arrivals", "sessions")]
        if "file" in loads:
            base.data.pop("requests", None)  # the file states count and lengths
        if document.get(("strategy", "name")):
            base.data.pop("method", None)
        if _another_acceptance(document, base):
            del base.data["acceptance"]
        base.merge(document)
        # what is missing, and what does not fit, is told of the file that was asked for
        base.places[()] = document.place(())

    def _find_strategy(self, document: Document) -> None:
        """Replace ``strategy: NAME`` by a strategy with its defaults, or by that of a method, with
        the method's facts.
        """
        name = document.data.get("strategy")
        if not isinstance(name, str):
            return
        document.data.pop("method", None)
        if name in strategy_names():
            document.data["strategy"] = {"name": name}
            return
        where = ("strategy",)
        mention = document.place(("strategy",))
        possible = [*self.names("method"), *strategy_names()]
        if "/" not in name and name not in self.names("method"):
            message = (
                f"there is no strategy or method '{name}'{did_you_mean(name, possible)}; "
                f"{packages_found()}"
            )
            raise document.refusal(where, message)
        path = self.path("method", name, document, where)
        facts = _file(path)
        strategy = facts.data.pop("strategy", {})
        inner = {}
        for place in [*facts.places]:
            if place[:1] == where:
                inner[place[1:]] = facts.places.pop(place)
        document.graft(where, Document(strategy, inner))
        facts.data.setdefault("name", name_of(path))
        document.graft(("method",), facts)
        document.mentions |= {where: mention, ("method",): mention}

    def expand(self, document: Document, within: Iterable[Path_] = ((),)) -> None:
        """Replace the names of files in a document by their content; ``within`` says where there
        may be any.
        """
        self._find_strategy(document)
        texts: list[tuple[Path_, str]] = []
        for written in within:
            path = document.resolved(written)
            texts += _texts(document.get(path), path)
        references = {}
        tables = {}
        for where, name in texts:
            field = where[-1]
            if field in REFERENCES:
                references[where] = REFERENCES[str(field)]
            if len(where) > 2 and where[0] == "durations" and field == "file":
                tables[where] = name
        if len(references) > MOST_REFERENCES:
            *_, last = references
            what = f"is one of {len(references):,} names of files; at most {MOST_REFERENCES}"
            raise document.refusal(last, what)
        for where, kind in references.items():
            name = document.get(where)
            file = self.path(kind, name, document, where)
            if kind == "model" and (file.is_dir() or file.suffix in OF_MODELS):
                from simulator.inputs.models.huggingface import read_config

                model = read_config(file).model_dump(exclude_none=True)
                content = Document(model, {(): (shown(file), 0, 0)})
            else:
                content = self.content(kind, file)
            content.data.setdefault("name", name_of(file))
            mention = document.place(where)
            document.graft(where, content)
            document.mentions[where] = mention
        for where, name in tables.items():
            from simulator.inputs.durations import read_table

            file = _relative_file(name, document, where)
            try:
                table = read_table(file)
            except (OSError, UnicodeDecodeError) as error:
                raise document.refusal(where, f"{shown(file)} {reading.reason(error)}") from error
            document.graft(where[:-1], Document(table, {(): (shown(file), 0, 0)}))


def _another_acceptance(document: Document, base: Document) -> bool:
    """Return whether a scenario states another source of acceptance than the one it is like, whose
    whole mapping it then replaces.
    """
    stated, before = document.get(("acceptance",)), base.get(("acceptance",))
    if not (isinstance(stated, dict) and isinstance(before, dict)):
        return False
    from simulator.core.acceptance.spec import replaces_source  # needs numpy, and most files do not

    return replaces_source(stated, before)


def _without_rows_of(device: Document, base: Document) -> None:
    """Take from a base what rows take in kernels and formats of which a device states that itself:
    two measurements make no table.
    """
    theirs = base.data.get("rows")
    ours = device.data.get("rows")
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return
    for engine, formats in ours.items():
        for name in formats if isinstance(formats, dict) else ():
            of_engine = theirs.get(engine)
            if isinstance(of_engine, dict):
                of_engine.pop(name, None)


def _own(kind: str, name: str, names: Iterable[str]) -> str:
    """Return how to state hardware of one's own, where no name is near; empty for other kinds of
    file.
    """
    if kind not in PROFILES or nearest_name(name, names):
        return ""
    return (
        f"; specsim list shows them all, and one of your own is a file, as ./my_{kind}.yaml, "
        "with like: NAME of the nearest"
    )


def _file(path: Path) -> Document:
    """Return a file's document, from a cache as long as the file stays as it is; the caller may
    change the copy.
    """
    if not path.is_file():
        return read(path, shown(path))
    facts = path.stat()
    reading.note(facts)
    kept = _kept(path, shown(path), (facts.st_mtime_ns, facts.st_size))
    return deepcopy(kept)


@lru_cache(maxsize=256)
def _kept(path: Path, name: str, _: tuple[int, int]) -> Document:
    return read(path, name)


def name_of(path: Path) -> str:
    """Return the name of a file without its ending, as text also where the locale cannot show
    it.
    """
    return path.stem.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _relative_file(name: str, document: Document, where: Path_) -> Path:
    """Return the file of a path relative to the file that mentions it; raises :class:`BadInput`
    where there is none.
    """
    mentioned_in, _, _ = document.place(where)
    file = Path(mentioned_in)
    path = Path(name)
    if file.is_file():
        path = file.parent / name
    try:
        path.stat()
    except FileNotFoundError as error:
        raise document.refusal(where, f"there is no file {shown(path)}") from error
    except (OSError, ValueError) as error:  # a ValueError for a name with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise document.refusal(where, f"cannot be read: {reason}") from error
    return path


def _texts(data: object, path: Path_ = ()) -> Iterator[tuple[Path_, str]]:
    """Yield path and value of every text in ``data``."""
    if isinstance(data, str):
        yield path, data
        return
    entries: Iterable[tuple[str | int, object]] = ()
    if isinstance(data, dict):
        entries = data.items()
    elif isinstance(data, list):
        entries = enumerate(data)
    for key, value in entries:
        if isinstance(value, str | dict | list):  # most are numbers
            yield from _texts(value, (*path, key))


def strategy_files() -> dict[str, Path]:
    """Return the file of every shipped strategy, by name: a module called like it, or
    ``strategy`` in a paper's folder; further ones of a paper are called after the folder.
    """
    package = Path(__file__).parent.parent
    files = {path.stem: path for path in (package / "core/strategies").glob("[!_]*.py")}
    for path in (package / "papers").glob("*/strategy.py"):
        paper = path.parent
        files[paper.name] = path
        files |= {further.stem: further for further in paper.glob(paper.name + "_*.py")}
    return dict(sorted(files.items()))


def _summary(path: Path) -> str:
    """Return the first paragraph of a module's docstring as one line."""
    paragraph, _, _ = path.read_text("utf-8").partition("\n\n")
    return " ".join(paragraph.strip('r"\n').split())


def strategy_names() -> list[str]:
    """Return the names of all strategies: the shipped ones in order, then those of other
    packages.
    """
    return [*strategy_files(), *plugin_strategies()]


def shown(path: Path) -> str:
    """Return a path as a person would write it from the current folder."""
    relative = os.path.relpath(path)
    if relative.startswith(".."):
        return os.path.abspath(path)
    return relative
