"""The bank of acceptance: the pages of ``specsim trace list`` and ``specsim trace advise``."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import yaml

from simulator.core.plain import PlainMapping
from simulator.report.blocks import (
    ALWAYS,
    FIRST,
    Bullets,
    Listing,
    Page,
    Paragraph,
    Remark,
    Section,
    Standing,
    Table,
)
from simulator.report.columns import Cell, Column, table
from simulator.report.wording import plural
from simulator.scenario.bank import COMPARED, Loan

STABILITY = (
    "How far off a borrowed mean may be, by published means that were measured again: 2 % in a "
    "repeat of the same test, 15 % on another mix of tasks, up to 45 % from code to prose, up to a "
    "factor of 2 with another tree, language, context or sampling rule."
)

TOKENS_PER_STEP = f"tokens_per_step_at_{COMPARED}"
"""Key of what all recordings are compared by."""
DRAFTERS = 3
"""Drafters of a trace that a short list names."""


def list_page(recordings: Sequence[PlainMapping], means: int, targets: int) -> Page:
    """Return the page of everything that can be borrowed."""
    columns: list[Column[PlainMapping]] = [
        Column("recording", lambda seen: seen["recording"]),
        Column("T", lambda seen: _or_dash(seen["temperature"])),
        Column("requests", lambda seen: seen["requests"]),
        Column("widest", lambda seen: _or_dash(seen["widest"])),
        Column(f"tokens/step at {COMPARED}", lambda seen: _or_dash(seen[TOKENS_PER_STEP])),
        Column("scenarios", lambda seen: seen["scenarios"]),
    ]
    listed = table("Recordings", recordings, columns)
    published = f"{means} published means of {targets} targets (specsim list acceptance)"
    return Page(
        "Acceptance that can be borrowed",
        answer=f"{plural(len(recordings), 'recording')} to replay, and {published}.",
        opening=[
            listed,
            Bullets([f"Texts: {line}" for line in _grouped(recordings, "texts")]),
            Bullets([f"Models: {line}" for line in _grouped(recordings, "pair")]),
        ],
        standing=Standing(more=list(_by_trace(recordings))),
    )


def _by_trace(recordings: Sequence[PlainMapping]) -> Iterator[Remark]:
    """Yield the drafters of each trace with the tokens of a step, those that keep most first."""
    yield Remark("Numbers", f"Tokens a step with {COMPARED} draft tokens, by drafter.", ALWAYS)
    for trace, seen in _by_key(recordings, _trace_of).items():
        kept = sorted(seen, key=lambda each: -each[TOKENS_PER_STEP])
        drafters = []
        for each in kept[:DRAFTERS]:
            drafters.append(f"{_drafter_of(each)} {each[TOKENS_PER_STEP]:.2f}")
        if kept[DRAFTERS:]:
            drafters.append(f"{len(kept) - DRAFTERS} more")
        yield Remark("Trace", f"{trace}: {', '.join(drafters)}", FIRST, 1)


def _grouped(recordings: Sequence[PlainMapping], what: str) -> Iterator[str]:
    """Yield what recordings have, each time with those that have it, the traces by name."""
    for value, seen in _by_key(recordings, lambda each: each[what]).items():
        names = []
        for trace, of_trace in _by_key(seen, _trace_of).items():
            names.append(f"{trace} ({', '.join(map(_drafter_of, of_trace))})")
        yield f"{value}: {'; '.join(names)}"


def _by_key(
    recordings: Sequence[PlainMapping], key: Callable[[PlainMapping], str]
) -> dict[str, list[PlainMapping]]:
    """Return recordings by a key, in their order."""
    by_key: dict[str, list[PlainMapping]] = {}
    for each in recordings:
        by_key.setdefault(key(each), []).append(each)
    return by_key


def _trace_of(recording: PlainMapping) -> str:
    return str(recording["recording"]).partition(":")[0]


def _drafter_of(recording: PlainMapping) -> str:
    return str(recording["recording"]).partition(":")[2]


def advice_page(
    target: str, recorded: Mapping[str, object] | None, loans: Sequence[Loan], measure: str
) -> Page:
    """Return the page of what is nearest to a pair, how far it is, and how to measure one's own."""
    nearest = loans[0]
    block = {"acceptance": dict(nearest.block)}
    listing = Listing(yaml.safe_dump(block, sort_keys=False, width=100), "yaml")
    sections = [
        Section("The nearest, as a scenario states it", [listing, Paragraph(STABILITY)]),
        Section("Nearest recording", [Paragraph(lends(recorded))]),
        Section("Your own in ten minutes", [Listing(measure, "sh")]),
    ]
    unlike = "; ".join(nearest.unlike) or "nothing that was stated"
    in_a_line = yaml.safe_dump(block, sort_keys=False, width=10_000, default_flow_style=True)
    remarks = [
        Remark("Differs", f"In {unlike}.", FIRST),
        Remark("As typed", in_a_line.strip(), ALWAYS, 2),
        Remark("Recording", lends(recorded), FIRST),
    ]
    doubts = [
        "a mean of another mix of tasks is 15 % off",
        "one of code is up to 45 % off for prose",
    ]
    return Page(
        f"Acceptance for {target}",
        answer=f"Nearest published mean: {nearest.mean.tokens_per_step:g} tokens a step with "
        f"{nearest.mean.method} on {nearest.target} ({nearest.mean.task}).",
        opening=[_published(loans)],
        sections=sections,
        standing=Standing(doubts=doubts, more=remarks),
    )


def _published(loans: Sequence[Loan]) -> Table:
    columns: list[Column[Loan]] = [
        Column("target", lambda loan: loan.target),
        Column("method", lambda loan: loan.mean.method),
        Column("window", lambda loan: _or_dash(loan.mean.window)),
        Column("T", lambda loan: _or_dash(loan.mean.temperature)),
        Column("task", lambda loan: loan.mean.task),
        Column("tokens/step", lambda loan: loan.mean.tokens_per_step),
        Column("differs in", lambda loan: "; ".join(loan.unlike) or "nothing that was stated"),
    ]
    return table("Nearest published means", loans, columns)


def _or_dash(value: Cell) -> Cell:
    if value is None:
        return "-"
    return value


def lends(recorded: Mapping[str, object] | None) -> str:
    """Return in words what the nearest recording lends to a mean."""
    if recorded is None:
        return (
            "No recording is of such a drafter, so the mean is used as an i.i.d. rate: the same "
            "chance at every position."
        )
    pair = f"recorded from {recorded['pair']}, temperature {recorded['temperature']}"
    return f"{recorded['name']} lends its bursts, never its mean; {pair}."
