"""Find and read the trace that a scenario replays, and check that it can answer what the scenario
asks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from simulator.core.acceptance.lossy.scores import chain_of, scored_depth, scores_of, under
from simulator.core.acceptance.sequences import RecordedSequences
from simulator.core.acceptance.sources import Replay, best_of
from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.acceptance.tokenizers import share_tokenizer
from simulator.core.acceptance.trace import Trace
from simulator.core.faults import BadInput, Fault, Path_, did_you_mean
from simulator.core.strategies.common.capabilities import DraftsChain, NamesRecording
from simulator.core.strategies.common.traits import Facts
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import Document, read
from simulator.inputs.traces.file import read_once
from simulator.scenario.fields import Scenario
from simulator.scenario.stated.means import moving_rule, range_window


def borrowed(
    scenario: Scenario, document: Document, catalogue: Catalogue
) -> tuple[Scenario, Document]:
    """Return a scenario whose acceptance is a mean measured elsewhere with the recording that lends
    it its bursts.

    That is the recording with the nearest temperature that holds the drafter asked for, or the one
    that the method's file calls nearest. The window is written into the document: a sweep changes
    the strategy's, never what was measured. A strategy of which nothing was recorded, or whose
    reading cannot be re-scaled, takes the i.i.d. rate.
    """
    scenario, document = _contexts_at_their_window(scenario, document)
    spec = scenario.acceptance
    window = spec.window or scenario.schedule.window
    mean = spec.mean_at(window)
    if mean is None or spec.trace:
        return _range_at_its_window(scenario, document)
    if not window:  # nothing is drafted, so nothing is kept
        return scenario.replace(acceptance=AcceptanceSpec(always=0)), document
    if spec.window is None and spec.adaptive is None and spec.tokens_per_step is not None:
        spec, document = _with_rule(scenario, spec, document)
    document = _with_window(document, window)
    if mean in (1.0, window + 1.0):  # nothing or everything is kept, whatever the bursts
        return scenario.replace(acceptance=_at_rate(float(mean != 1.0), spec, window)), document
    drafter = spec.drafter
    if "drafter" not in spec.model_fields_set and isinstance(scenario.schedule, DraftsChain):
        drafter = _nearest_drafter(scenario, document, catalogue)
    nearest = nearest_recording(catalogue, drafter, spec.temperature or 0.0)
    if nearest is None:
        message = f"no recording holds a drafter '{drafter}'"
        raise document.refusal(("acceptance", "drafter"), message)
    name, trace = nearest
    if _lends(trace, drafter, scenario):
        return scenario.replace(acceptance=spec.lent(mean, window, name, drafter)), document
    if isinstance(mean, dict):
        message = (
            "nothing is recorded that lends this strategy the bursts of each kind of text; state "
            "one mean"
        )
        raise document.refusal(("acceptance", "tokens_per_step"), message)
    rate = _rate(scenario, mean, window, document)
    return scenario.replace(acceptance=_at_rate(rate, spec, window)), document


def _at_rate(rate: float, spec: AcceptanceSpec, window: int) -> AcceptanceSpec:
    """Return acceptance at an i.i.d. rate, with what is known of the mean that it stands for."""
    stated = AcceptanceSpec(
        rate=rate,
        source=spec.source,
        confidence=spec.confidence,
        by_context=spec.by_context,
        rule=spec.rule,
    )
    if not spec.tokens_per_step_between:
        return stated
    between = {"tokens_per_step_between": spec.tokens_per_step_between, "window": window}
    return stated.model_copy(update=between)


def _lends(trace: Trace, drafter: str, scenario: Scenario) -> bool:
    """Return whether a recording of a drafter lends the strategy its bursts."""
    drafted = trace.drafted_by(drafter, scenario.seed)
    if any(scenario.schedule.findings(Facts(trace=drafted))):
        return False
    return isinstance(scenario.schedule.reads(Replay(drafted)), Replay | RecordedSequences)


def _range_at_its_window(scenario: Scenario, document: Document) -> tuple[Scenario, Document]:
    """Return the scenario with the window written down for which a range of means is stated."""
    spec = scenario.acceptance
    if (
        not spec.tokens_per_step_between
        or spec.window
        or spec.rescale
        or not scenario.schedule.window
    ):
        return scenario, document
    window = range_window(scenario)
    with_window = spec.model_copy(update={"window": window})
    return scenario.replace(acceptance=with_window), _with_window(document, window)


def _with_rule(
    scenario: Scenario, spec: AcceptanceSpec, document: Document
) -> tuple[AcceptanceSpec, Document]:
    """Return acceptance and document with the rule written down by which windows moved where the
    mean was measured.
    """
    rule = moving_rule(scenario)
    if rule is None:
        return spec, document
    path = ("acceptance", "adaptive")
    document = document.branched([path])
    document.put(path, rule, document.place(path[:-1]))
    return spec.model_copy(update={"adaptive": rule}), document


def _contexts_at_their_window(scenario: Scenario, document: Document) -> tuple[Scenario, Document]:
    """Return the scenario with the window written down with which lengths behind contexts were
    measured.
    """
    stated = scenario.acceptance.by_context
    window = scenario.schedule.window
    if stated is None or stated.window or not window:
        return scenario, document
    with_window = {"by_context": stated.model_copy(update={"window": window})}
    acceptance = scenario.acceptance.model_copy(update=with_window)
    path = ("acceptance", "by_context", "window")
    return scenario.replace(acceptance=acceptance), _with_window(document, window, path)


def _with_window(
    document: Document, window: int, path: Path_ = ("acceptance", "window")
) -> Document:
    """Return the document with the window at which acceptance was measured: a sweep changes the
    strategy's alone.
    """
    document = document.branched([path])
    document.put(path, window, document.place(path[:-1]))
    return document


def nearest_recording(
    catalogue: Catalogue, drafter: str, temperature: float
) -> tuple[str, Trace] | None:
    """Return the recording of a drafter at the nearest temperature, and its name; None where none
    is recorded.
    """
    nearest = None
    least = inf
    for name, path in catalogue.names("trace").items():
        trace = read_once(path)
        if trace.temperature is None or drafter not in trace.drafters:
            continue
        distance = abs(trace.temperature - temperature)
        if distance < least:
            nearest = (name, trace)
            least = distance
    return nearest


def _rate(scenario: Scenario, mean: float, window: int, document: Document) -> float:
    """Return the i.i.d. rate at which the strategy commits ``mean`` tokens a step; raises where
    none does.
    """
    from scipy.optimize import brentq

    def surplus(rate: float) -> float:
        stated = AcceptanceSpec(rate=rate).verdicts(None, scenario.seed)
        odds = scenario.schedule.reads(stated).odds(window, scenario.exit)
        return float(odds.committed()) - mean

    low = surplus(0.0)
    high = surplus(1.0)
    if not low < 0.0 < high:
        between = f"it lies between {low + mean:g} and {high + mean:g}"
        message = f"a mean of {mean:g} tokens a step cannot be: {between}"
        raise document.refusal(("acceptance",), message)
    return float(brentq(surplus, 0.0, 1.0, xtol=1e-12))


def _nearest_drafter(scenario: Scenario, document: Document, catalogue: Catalogue) -> str:
    """Return the drafter that the method of the mean, or of the scenario, calls nearest; raises for
    an unknown method.
    """
    name = scenario.acceptance.method
    if name is None:
        if scenario.method:
            return scenario.method.nearest
        return "draft"
    path = catalogue.path("method", name, document, ("acceptance", "method"))
    return str(read(path, shown(path)).data.get("nearest", "draft"))


def read_trace(scenario: Scenario, document: Document, catalogue: Catalogue) -> Trace | None:
    """Return the trace that acceptance names, as its drafter sees it; None where it names none.

    Raises :class:`BadInput` where it cannot be read, or cannot answer what the scenario asks.
    """
    spec = scenario.acceptance
    if spec.trace is None:
        return None
    path = _trace_path(scenario, document, catalogue)
    try:
        trace = read_once(path)
    except BadInput as error:
        faults = []
        for fault in error.faults:
            message = fault.message
            if fault.field != "trace":
                message = f"{fault.field}: {message}"
            faults.append(document.fault(("acceptance", "trace"), f"{shown(path)} {message}"))
        raise BadInput(faults) from error
    _check_vocabulary(trace, scenario, document, catalogue)
    field = "drafter"
    names: Sequence[str] = (spec.drafter,)
    if spec.best_of:
        field = "best_of"
        names = spec.best_of
    for name in names:
        if name not in trace.drafters:
            message = f"the trace has no drafter '{name}'{did_you_mean(name, trace.drafters)}"
            raise document.refusal(("acceptance", field), message)
    if spec.best_of:
        drafted = best_of(trace, spec.best_of, scenario.seed)
    elif spec.rule is not None and spec.rule.passes is None and spec.rescale is None:
        drafted = _under_rule(trace, scenario, document)
    else:
        drafted = trace.drafted_by(spec.drafter, scenario.seed)
    return fitting(drafted, scenario, document, catalogue)


def _under_rule(trace: Trace, scenario: Scenario, document: Document) -> Trace:
    """Return the trace as a rule keeps its drafts: chains by start, trees as their strategy asks.

    Raises :class:`BadInput` for a recording that does not say what the target thinks of drafts.
    """
    spec = scenario.acceptance
    if spec.rule is None:
        return trace
    strategy = scenario.strategy
    if isinstance(strategy, NamesRecording) and strategy.recorded_drafter:
        return replace(trace, rule=spec.rule)
    depth = scored_depth(trace, spec.drafter)
    scores = scores_of(trace, spec.drafter, chain_of(depth)) if depth else None
    if scores is None:
        message = (
            f"{spec.trace} does not say what the target thinks of the drafts of '{spec.drafter}', "
            "which the rule asks: set acceptance.trace=small_family_scored, whose drafters are "
            "draft and eagle, or acceptance.rule.passes to the share of rejected tokens that the "
            "rule keeps"
        )
        raise document.refusal(("acceptance", "rule"), message)
    return under(trace, spec.rule.kept(scores, scenario.seed))


def fitting(trace: Trace, scenario: Scenario, document: Document, catalogue: Catalogue) -> Trace:
    """Return the trace if it can answer what the scenario asks; else raise :class:`BadInput`."""
    _check_vocabulary(trace, scenario, document, catalogue)
    spec = scenario.acceptance
    requests = scenario.requests
    kinds = spec.kinds
    if kinds and spec.flavours and set(kinds) != set(spec.flavours):
        message = f"expected the kinds that have means: {', '.join(kinds)}"
        raise document.refusal(("acceptance", "flavours"), message)
    dealt = spec.flavours or kinds or trace.flavours
    replayed: set[int] = set()
    for name in dealt:
        replayed.update(trace.named(name))

    def check(place: Path_, flavours: Sequence[str], known: Callable[[str], object]) -> None:
        """Raise for a flavour that is not known, or where none of them is replayed."""
        for flavour in flavours:
            if not known(flavour):
                close = did_you_mean(flavour, trace.flavours)
                raise document.refusal(place, f"the trace has no flavour '{flavour}'{close}")
        if flavours and not any(replayed.intersection(trace.named(name)) for name in flavours):
            message = f"none of these is among the flavours of acceptance, {', '.join(dealt)}"
            raise document.refusal(place, message)

    check(("acceptance", "flavours"), spec.flavours, trace.named)
    means: Path_ = ("acceptance", "rescale", "tokens_per_step")
    if document.get(("acceptance", "tokens_per_step")):
        means = ("acceptance", "tokens_per_step")
    check(means, kinds, trace.flavours.__contains__)
    tasks = "task_flavours"
    if requests.recordings:
        tasks = "recordings"
    for task, flavours in requests.flavours_by_task.items():
        check(("requests", tasks, task), flavours, trace.named)
    check_answers(
        trace, scenario, document, lambda: shown(_trace_path(scenario, document, catalogue))
    )
    return trace


def check_answers(
    trace: Trace,
    scenario: Scenario,
    document: Document,
    file: Callable[[], str] = lambda: "the trace",
) -> None:
    """Raise :class:`BadInput` where the strategy, as it is set for the batch, asks what the trace
    cannot answer.
    """
    if faults := list(_beyond_trace(scenario, trace, document, file)):
        raise BadInput(faults)


def drawn(scenario: Scenario, trace: Trace | None) -> bool:
    """Return whether the seed decides what the trace's drafter proposes."""
    return trace is not None and trace.temperature != 0 and scenario.acceptance.drafter != "draft"


def _check_vocabulary(
    trace: Trace, scenario: Scenario, document: Document, catalogue: Catalogue
) -> None:
    """Raise :class:`BadInput` for a trace of models with another vocabulary, unless it is a
    stand-in.
    """
    size = trace.vocabulary
    if scenario.target:
        size = scenario.target.model.vocab_size
    if not share_tokenizer(size, trace.vocabulary) and not scenario.acceptance.stand_in:
        file = shown(_trace_path(scenario, document, catalogue))
        recorded = "an unknown vocabulary"
        if trace.vocabulary:
            recorded = f"a vocabulary of {trace.vocabulary:,}"
        message = (
            f"{file} was recorded with {recorded}, the target has {size:,}; record one from your "
            "models, or set acceptance.stand_in=true to borrow its shape"
        )
        if trace.vocabulary is None:
            message += "; a log of these models says so where it is converted with --target"
        raise document.refusal(("acceptance", "trace"), message)


def _beyond_trace(
    scenario: Scenario, trace: Trace, document: Document, file: Callable[[], str]
) -> Iterator[Fault]:
    """Yield what the strategy asks for and the recording cannot answer."""
    strategy = scenario.strategy
    if scenario.exit and not trace.exit_fractions:
        message = (
            f"{strategy.name} needs early exits, and {file()} was recorded without; record it with "
            "--exits, or choose another"
        )
        yield document.fault(("acceptance", "trace"), message)
    if (
        isinstance(strategy, NamesRecording)
        and strategy.borrows_recording
        and not scenario.acceptance.rescale
    ):
        name = strategy.name
        if scenario.method:
            name = scenario.method.name
        message = (
            f"{file()} holds no drafting of {name}, only another's to borrow the bursts of; set "
            "acceptance.rescale.tokens_per_step, or state a rate; if it is a log of "
            f"{name}, set strategy.borrowed=false"
        )
        yield document.fault(("acceptance", "trace"), message)
    for field, message in scenario.schedule.findings(Facts(trace=trace)):
        recording = file()
        drafter = scenario.acceptance.drafter
        if drafter != "draft":
            recording = f"drafter '{drafter}' of {recording}"
        yield document.fault(("strategy", field), f"{recording} {message}")


def _trace_path(scenario: Scenario, document: Document, catalogue: Catalogue) -> Path:
    name = scenario.acceptance.trace or ""
    return catalogue.path("trace", name, document, ("acceptance", "trace"))
