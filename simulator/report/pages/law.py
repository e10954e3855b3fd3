"""The page of ``specsim law``: time per token by the closed form, step kinds, named durations in
ms.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.files.shell import typed
from simulator.report.blocks import Bullets, Page, Paragraph, Table
from simulator.report.pages.what_if import blocks
from simulator.report.wording import Wording, number, share
from simulator.studies.what_if import WhatIf

say = Wording("law")
KINDS_SHOWN = 4
"""Step kinds that a terminal shows, the most frequent ones."""


def page(details: Mapping[str, Any], command: str = "", law: WhatIf | None = None) -> Page:
    """Return the page of :func:`~simulator.scenario.run.law_details`: the answer, sliders over
    ``law``, parts of a step.
    """
    kinds = details["kinds"]
    cautions = [f"{caution[0].upper()}{caution[1:]}." for caution in details["cautions"]]
    sentences = list(say.all("sentences", shown=KINDS_SHOWN, **details))
    head = ("ms", *(f"{_kind(kind)}\n{share(kind['share'])}" for kind in kinds))
    shown = tuple(range(min(len(head), KINDS_SHOWN + 1)))
    parts = Table(head, list(_rows(kinds)), "Durations by step kind", terminal_columns=shown)
    return Page(
        title=details["scenario"],
        answer=say("answer", **details),
        opening=[
            *map(Paragraph, cautions),
            *(blocks(law) if law else ()),
            parts,
            Bullets(sentences),
        ],
        highlights=say.highlights(**details),
        command=command or typed("specsim", "law", names=[details["scenario"]]),
    )


def _rows(kinds: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each named duration, for the step, and for each term that is derived from
    them, by step kind.
    """
    for name in dict.fromkeys(name for kind in kinds for name in kind["durations"]):
        durations = [kind["durations"].get(name) for kind in kinds]
        yield (
            name.removesuffix("_ms"),
            *("" if value is None else number(value) for value in durations),
        )
    yield ("step", *(number(kind["step_ms"]) for kind in kinds))
    for name in kinds[0]["derived"]:
        yield (
            name.removesuffix("_ms").replace("_", " "),
            *(number(kind["derived"].get(name, 0.0)) for kind in kinds),
        )


def _kind(kind: Mapping[str, Any]) -> str:
    """Return the name of a step kind, with how many requests of the step have no window."""
    missing = kind["redrafts"] or (kind["bare"] if kind["verifying"] else 0)
    return f"{kind['name']} of {missing}" if missing else str(kind["name"])
