"""What was observed of drafts, as the strategy and the acceptance of a scenario.

Steps of each request are replayed where they are known and every step drafted; else kept shares by
position hold; else the mean; else what the scenario that is named says. A service that drafted
nothing is one of plain decoding.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.acceptance.trace import Trace
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.inputs.document import Document
from simulator.inputs.services.measured import RequestSteps
from simulator.inputs.services.observed import Observed, ObservedAcceptance
from simulator.inputs.traces.converters import TO_TRACE
from simulator.inputs.writing import json_text

PLAIN = Autoregressive.model_fields["name"].default
EVERY_STEP = 0.97
"""Share of decode steps that drafted from which on they are taken as all: the last one before a
limit drafts nothing."""
Origin = Literal["observed", "like", "assumed"]


class ObservedDrafts(NamedTuple):
    """Fields of a scenario that say what is drafted and what is kept."""

    fields: PlainData
    facts: Sequence[tuple[str, str, Origin]]
    trace: Trace | None = None
    """Recorded steps, where they are replayed."""
    steps: Sequence[RequestSteps] = ()
    """The same, one for each recording of the trace, in its order."""


def drafts_of(
    observed: Observed, steps: Sequence[RequestSteps], base: Document, like: str
) -> ObservedDrafts:
    """Return what was observed of drafts, over the scenario ``base``, which is called ``like``.

    Raises :class:`BadInput` where drafts were observed of which the scenario knows no method, or
    whose window its method cannot have.
    """
    name = base.get(("strategy", "name"))
    accepted = observed.acceptance
    if accepted is None and (name == PLAIN or _drafted_nothing(observed)):
        return _plain(base)
    if accepted is None:
        words = "as no file counts drafts"
        return ObservedDrafts({}, [("acceptance", words, "like"), ("window", words, "like")])
    if name == PLAIN:
        message = (
            f"drafts were observed, and scenario {like} is one of plain decoding; name with --like "
            "one whose method drafts as the service does"
        )
        raise BadInput.at(like, message, "strategy")
    facts: list[tuple[str, str, Origin]] = [
        ("method", str(base.get(("method", "name")) or name), "like")
    ]
    fields: PlainData = {}
    strategy = base.data["strategy"]
    changed = dict(window_fields(strategy, accepted.window, like))
    if accepted.window:
        facts.append(("window", f"{accepted.window} draft tokens", "observed"))
    else:
        facts.append(("window", "as no file states it", "like"))
    every = _share_of_steps(accepted)
    if strategy.get("matched") is not None and every is not None:
        changed["matched"] = {
            "value": round(every, 6),
            "source": f"observed: {accepted.file}",
            "confidence": "measured",
        }
        facts.append(("steps that found a draft", f"{every:.0%}", "observed"))
    if changed:
        fields["strategy"] = changed
    if steps and accepted.replayable and (every is None or every >= EVERY_STEP):
        return _replayed(fields, facts, steps, accepted, base)
    return _at_observed_rates(fields, facts, accepted, base)


def _at_observed_rates(
    fields: PlainData,
    facts: list[tuple[str, str, Origin]],
    accepted: ObservedAcceptance,
    base: Document,
) -> ObservedDrafts:
    """Return drafts that are kept as often as was observed; where no file says how often, as the
    scenario has it.
    """
    acceptance = dict(_kept(accepted))
    if not acceptance:
        facts.append(("acceptance", "as no file says how many draft tokens were kept", "like"))
        return ObservedDrafts(fields, facts)
    fields["acceptance"] = replacing(AcceptanceSpec, base.data.get("acceptance"), acceptance)
    facts.append(("acceptance", _in_words(acceptance), "observed"))
    return ObservedDrafts(fields, facts)


def _plain(base: Document) -> ObservedDrafts:
    """Return plain decoding of the target of a scenario."""
    fields: PlainData = {}
    if base.get(("strategy", "name")) != PLAIN:
        fields["strategy"] = {"name": PLAIN}
        nothing: PlainData = {"always": 0}
        fields["acceptance"] = replacing(AcceptanceSpec, base.data.get("acceptance"), nothing)
        for role in ("draft", "channel", "shared_memory"):
            if base.data.get(role) is not None:
                fields[role] = None
    return ObservedDrafts(fields, [("method", "plain decoding: nothing was drafted", "observed")])


def _drafted_nothing(observed: Observed) -> bool:
    """Return whether files that would count drafts count none."""
    counting = ("nothing was drafted", "no draft is counted", "counts no drafts")
    return any(part.what.endswith(counting) for part in observed.not_held)


def _share_of_steps(accepted: ObservedAcceptance) -> float | None:
    """Return the share of decode steps that drafted; None where either is not counted."""
    if not accepted.drafts or not accepted.steps:
        return None
    return min(1.0, accepted.drafts / accepted.steps)


def window_fields(
    strategy: PlainData, window: int | None, like: str
) -> Iterator[tuple[str, object]]:
    """Yield the fields of a strategy that drafts so many tokens; raises :class:`BadInput` where it
    cannot.
    """
    if not window:
        return
    tree = strategy.get("tree")
    if not isinstance(tree, dict):
        if strategy.get("gamma") != window:
            yield "gamma", window
        return
    branching = tree.get("branching") or ()
    levels = len(branching)
    if not levels or any(children != 1 for children in branching):
        message = (
            f"windows of {window} were observed, and its method drafts trees; name with --like a "
            "scenario whose method drafts a chain, as servers do"
        )
        raise BadInput.at(like, message, "strategy.tree")
    if levels == window:
        return
    yield "tree", {**tree, "branching": [1] * window}
    passes = strategy.get("passes") or []
    if len(passes) > 1:
        message = (
            f"windows of {window} were observed, and each of its {levels} drafted tokens has a "
            f"head of its own; name with --like a scenario that drafts {window}"
        )
        raise BadInput.at(like, message, "strategy.passes")
    for entry in passes:
        first, *_ = entry["rows"]
        rows = [window + 1 if first == levels + 1 else first, *[1] * (window - 1)]
        yield "passes", [{**entry, "rows": rows}]


def _kept(accepted: ObservedAcceptance) -> Iterator[tuple[str, object]]:
    """Yield the fields of acceptance by what is known: shares by position, else the mean."""
    source = ("source", f"observed: {accepted.file}")
    shares = accepted.kept_share_by_position
    mean = accepted.tokens_per_draft or accepted.tokens_per_step
    if shares:
        rates = []
        before = 1.0
        for share in shares:
            rates.append(round(min(1.0, share / before), 6) if before else 0.0)
            before = share
        yield "per_position", rates
    elif mean is not None and mean > 1.0:
        yield "tokens_per_step", mean
        if accepted.window:
            yield "window", accepted.window
    elif mean is not None:
        yield "always", 0
    if shares or mean is not None:
        yield source
        yield "confidence", "measured"


def _in_words(acceptance: PlainData) -> str:
    """Return acceptance in words."""
    if "per_position" in acceptance:
        rates = " ".join(f"{rate:.2f}" for rate in acceptance["per_position"])
        return f"by position, each where those before it were kept: {rates}"
    if "tokens_per_step" in acceptance:
        return f"{acceptance['tokens_per_step']:.3g} tokens a step"
    return "nothing was kept"


def _replayed(
    fields: PlainData,
    facts: list[tuple[str, str, Origin]],
    steps: Sequence[RequestSteps],
    accepted: ObservedAcceptance,
    base: Document,
) -> ObservedDrafts:
    """Return acceptance that is replayed step by step."""
    lines = [json_text({"accepted": each.accepted}, indent=None) for each in steps]
    widest = max(max(each.drafted) for each in steps)
    trace = TO_TRACE["steps"](lines, max(widest, accepted.window or 1))
    size = base.get(("target", "model", "vocab_size"))
    trace = replace(trace, header={**trace.header, "vocabulary": size})
    acceptance = {"trace": "", "stand_in": False}
    fields["acceptance"] = replacing(AcceptanceSpec, base.data.get("acceptance"), acceptance)
    count = sum(len(each.accepted) for each in steps)
    facts.append(("acceptance", f"step by step, {count:,} steps that drafted", "observed"))
    return ObservedDrafts(fields, facts, trace, steps)


def replacing(model: type[BaseModel], before: object, fields: PlainData) -> PlainData:
    """Return fields that stand in the place of what a file states of ``model``: whatever it states
    besides is stated as by default.
    """
    stated = dict(fields)
    if not isinstance(before, Mapping):
        return stated
    for name in before:
        known = model.model_fields.get(name)
        if name in stated or known is None:
            continue
        default = known.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            default = default.model_dump(mode="json")
        if default is not PydanticUndefined:
            stated[name] = list(default) if isinstance(default, tuple) else default
    return stated
