"""The bank of acceptance: what is recorded, what is published, and which of it is nearest to a pair
of one's own.

A recording of other models lends its bursts, never its mean. A published mean is borrowed from the
target nearest in name, then the same draft, method, temperature and window.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.plain import PlainData
from simulator.core.quantities import Frozen
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import read, readable
from simulator.inputs.schema import validate
from simulator.inputs.traces.file import read_once
from simulator.scenario.recording import nearest_recording

COMPARED = 3
"""Window, in draft tokens, at which recordings are listed."""


class LentMean(Frozen):
    """A mean was published for a pair of models, a method and a text; names and conventions are the
    source's.
    """

    method: str
    """Method, by the name of its file where there is one."""
    draft: str
    """Draft model or head, or what the source says of it."""
    window: int | None = Field(default=None, ge=1, le=1_000)
    """Draft tokens in a row; null: not stated, as of most trees."""
    temperature: float | None = Field(default=None, ge=0.0)
    """Temperature; null: not stated."""
    task: str
    """Text on which it was measured."""
    setting: str = ""
    """Number format, shape of what is verified, engine, as far as stated."""
    tokens_per_step: float | None = Field(default=None, gt=1.0)
    """Mean tokens per step, correction or bonus included; null where what was printed has no
    settled meaning.
    """
    published: str
    """The number as it was printed, and what it counts."""
    source: str
    """Where it was printed, and the licence of that."""
    evidence: Literal["primary", "copy", "secondary"]
    """Whether the source itself was read, another print of it, or only a third party's digest."""
    notes: str = ""
    """What else there is to know."""


class LentMeans(Frozen):
    """Published means of one target: what a planner starts from when nothing was measured."""

    name: str
    """Name of the file."""
    about: str
    """How many there are, and of which methods."""
    target: str
    """Name of the target, an id of Hugging Face where one is known."""
    means: tuple[LentMean, ...] = Field(min_length=1)
    """The means, in the order of their sources."""


class Loan(NamedTuple):
    """A loan is a mean of a target, in what it is ``unlike`` the pair asked about, and the
    ``block`` that borrows it.
    """

    target: str
    mean: LentMean
    unlike: tuple[str, ...]
    block: Mapping[str, object]


def recordings(catalogue: Catalogue) -> Iterator[PlainData]:
    """Yield the numbers of every drafter of every trace, and how many scenarios of the catalogue
    replay it.
    """
    scenarios = (
        catalogue.scenario(name).data.get("acceptance") or {}
        for name in catalogue.names("scenario")
    )
    borrowed = Counter((spec.get("trace"), spec.get("drafter", "draft")) for spec in scenarios)
    for name, path in catalogue.names("trace").items():
        trace = read_once(path)
        for drafter in trace.drafters:
            seen = trace.drafted_by(drafter)
            mean = WindowReplay.of(Replay(seen)).mean(min(COMPARED, seen.window or COMPARED))
            yield {
                "recording": f"{name}:{drafter}",
                "temperature": trace.temperature,
                "requests": len(trace.flavour),
                "widest": seen.window,
                f"tokens_per_step_at_{COMPARED}": round(1.0 + mean, 2),
                "scenarios": borrowed[name, drafter],
                "pair": seen.pair,
                "texts": ", ".join(trace.flavours),
            }


def lender(catalogue: Catalogue, method: str, temperature: float) -> dict[str, object] | None:
    """Return name, models and temperature of the recording that lends its bursts to a mean of a
    method; None without any.
    """
    path = catalogue.names("method").get(method)
    if path:
        drafter = str(read(path, shown(path)).data.get("nearest", "draft"))
    else:
        drafter = "draft"
    recording = nearest_recording(catalogue, drafter, temperature)
    if recording is None:
        return None
    name, trace = recording
    return {
        "name": f"{name}:{drafter}",
        "pair": trace.drafted_by(drafter).pair,
        "temperature": trace.temperature,
    }


def published(catalogue: Catalogue) -> Iterator[tuple[str, LentMean]]:
    """Yield the target and every published mean; raises :class:`BadInput` for a faulty file."""
    for path in catalogue.names("acceptance").values():
        with readable(shown(path)):
            facts = path.stat()
        means = _means_of(path, (facts.st_mtime_ns, facts.st_size))
        for mean in means.means:
            yield ((means.target, mean))


@lru_cache(maxsize=256)
def _means_of(path: Path, _: tuple[int, int]) -> LentMeans:
    """Return the means of a file, read once as long as the file stays as it is."""
    document = read(path, shown(path))
    document.data.setdefault("name", path.stem)
    return validate(LentMeans, document)


def nearest(
    catalogue: Catalogue, target: str, wanted: Mapping[str, object], most: int = 5
) -> list[Loan]:
    """Return the published means nearest to a target and to ``wanted``: draft, method, temperature,
    window.
    """
    ranked = []
    methods = catalogue.names("method")
    for name, mean in published(catalogue):
        likeness = _alike(target, name)
        unlike = [] if likeness == 1.0 else [f"target {name}"]
        for field, value in wanted.items():
            has = getattr(mean, field)
            if value not in (None, has) and _alike(str(value), str(has)) < 1.0:
                unlike.append(f"{field} {'not stated' if has is None else has}")
        if mean.tokens_per_step is not None:
            loan = Loan(name, mean, tuple(unlike), _block(name, mean, mean.method in methods))
            ranked.append((-likeness, len(unlike), mean.evidence != "primary", loan))
    return [loan for *_, loan in sorted(ranked, key=lambda rank: rank[:-1])[:most]]


def _block(target: str, mean: LentMean, known_method: bool) -> dict[str, object]:
    """Return the acceptance block of a scenario that borrows a mean."""
    stated = {
        "tokens_per_step": mean.tokens_per_step,
        "window": mean.window,
        "method": mean.method if known_method else None,
    }
    stated |= {"temperature": mean.temperature or None, "confidence": "published"}
    stated |= {"source": f"{target}, {mean.method}, {mean.task}: {mean.source}"}
    return {field: value for field, value in stated.items() if value is not None}


def _alike(name: str, other: str) -> float:
    """Return how alike two names of models are, from 0 to 1; the part before a slash and
    punctuation do not count.
    """
    plain = []
    for words in (name, other):
        plain.append("".join(filter(str.isalnum, words.rpartition("/")[2].lower())))
    return SequenceMatcher(a=plain[0], b=plain[1]).ratio()
