"""Find and read the trace that a scenario replays, and check that it can answer what the scenario
asks.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from simulator.acceptance.header import share_tokenizer
from simulator.acceptance.sequences import RecordedSequences
from simulator.acceptance.sources import Replay, best_of
from simulator.acceptance.spec import AcceptanceSpec
from simulator.acceptance.trace import Trace, read_once
from simulator.files.schema import BadInput, Document, Fault, Path_, did_you_mean, read
from simulator.files.sentences import Sentences
from simulator.names import Catalogue, shown
from simulator.scenario.fields import Scenario
from simulator.scenario.stated.means import moving_rule, range_window
from simulator.strategies.common.capabilities import DraftsChain, NamesRecording
from simulator.strategies.common.traits import Facts

say = Sentences(Path(__file__).with_name("faults.yaml"))


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
    known: dict[str, Any] = {
        "source": spec.source,
        "confidence": spec.confidence,
        "by_context": spec.by_context,
    }
    if spec.tokens_per_step_between:
        known |= {"tokens_per_step_between": spec.tokens_per_step_between, "window": window}
    if mean in (1.0, window + 1.0):  # nothing or everything is kept, whatever the bursts
        return scenario.replace(
            acceptance=AcceptanceSpec(rate=float(mean > 1.0), **known)
        ), document
    drafter = spec.drafter
    if "drafter" not in spec.model_fields_set and isinstance(scenario.schedule, DraftsChain):
        drafter = _nearest_drafter(scenario, document, catalogue)
    nearest = nearest_recording(catalogue, drafter, spec.temperature or 0.0)
    if nearest is None:
        raise document.refusal(
            ("acceptance", "drafter"), f"no recording holds a drafter '{drafter}'"
        )
    name, trace = nearest
    drafted = trace.drafted_by(drafter, scenario.seed)
    unrecorded = any(scenario.schedule.findings(Facts(trace=drafted)))
    if not unrecorded and isinstance(
        scenario.schedule.reads(Replay(drafted)), Replay | RecordedSequences
    ):
        return scenario.replace(acceptance=spec.lent(mean, window, name, drafter)), document
    if isinstance(mean, dict):
        raise document.refusal(("acceptance", "tokens_per_step"), say("not_lent"))
    return scenario.replace(
        acceptance=AcceptanceSpec(rate=_rate(scenario, mean, window, document), **known)
    ), document


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
    stated, window = scenario.acceptance.by_context, scenario.schedule.window
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
    traces = {name: read_once(path) for name, path in catalogue.names("trace").items()}
    distances = {
        name: abs(trace.temperature - temperature)
        for name, trace in traces.items()
        if trace.temperature is not None and drafter in trace.drafters
    }
    if not distances:
        return None
    name = min(distances, key=distances.__getitem__)
    return name, traces[name]


def _rate(scenario: Scenario, mean: float, window: int, document: Document) -> float:
    """Return the i.i.d. rate at which the strategy commits ``mean`` tokens a step; raises where
    none does.
    """
    from scipy.optimize import brentq

    def surplus(rate: float) -> float:
        stated = AcceptanceSpec(rate=rate).verdicts(None, scenario.seed)
        return float(scenario.schedule.reads(stated).odds(window, scenario.exit).committed()) - mean

    low, high = surplus(0.0), surplus(1.0)
    if not low < 0.0 < high:
        raise document.refusal(
            ("acceptance",), say("no_such_mean", mean=mean, low=low + mean, high=high + mean)
        )
    return float(brentq(surplus, 0.0, 1.0, xtol=1e-12))


def _nearest_drafter(scenario: Scenario, document: Document, catalogue: Catalogue) -> str:
    """Return the drafter that the method of the mean, or of the scenario, calls nearest; raises for
    an unknown method.
    """
    name = scenario.acceptance.method
    if name is None:
        return scenario.method.nearest if scenario.method else "draft"
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
        messages = (
            f"{'' if fault.field == 'trace' else f'{fault.field}: '}{fault.message}"
            for fault in error.faults
        )
        faults = [
            document.fault(("acceptance", "trace"), f"{shown(path)} {message}")
            for message in messages
        ]
        raise BadInput(faults) from error
    _check_vocabulary(trace, scenario, document, catalogue)
    for name in spec.best_of or (spec.drafter,):
        if name not in trace.drafters:
            message = f"the trace has no drafter '{name}'{did_you_mean(name, trace.drafters)}"
            raise document.refusal(
                ("acceptance", "best_of" if spec.best_of else "drafter"), message
            )
    drafted = (
        best_of(trace, spec.best_of, scenario.seed)
        if spec.best_of
        else trace.drafted_by(spec.drafter, scenario.seed)
    )
    return fitting(drafted, scenario, document, catalogue)


def fitting(trace: Trace, scenario: Scenario, document: Document, catalogue: Catalogue) -> Trace:
    """Return the trace if it can answer what the scenario asks; else raise :class:`BadInput`."""
    spec = scenario.acceptance
    _check_vocabulary(trace, scenario, document, catalogue)
    field: Path_ = (
        ("requests", "recordings")
        if scenario.requests.recordings
        else ("requests", "task_flavours")
    )
    kinds, stated = spec.kinds, document.get(("acceptance", "tokens_per_step"))
    means: Path_ = ("acceptance", *(() if stated else ("rescale",)), "tokens_per_step")
    if kinds and spec.flavours and set(kinds) != set(spec.flavours):
        raise document.refusal(
            ("acceptance", "flavours"), f"expected the kinds that have means: {', '.join(kinds)}"
        )
    dealt, tasks = spec.flavours or kinds or trace.flavours, scenario.requests.flavours_by_task
    held = {request for name in dealt for request in trace.named(name)}
    asked: dict[Path_, Sequence[str]] = {("acceptance", "flavours"): spec.flavours}
    asked |= {means: kinds} | {(*field, task): names for task, names in tasks.items()}
    for place, flavours in asked.items():
        known = set(trace.flavours).__contains__ if place == means else trace.named
        if unknown := [flavour for flavour in flavours if not known(flavour)]:
            raise document.refusal(
                place,
                "the trace has no flavour "
                f"'{unknown[0]}'{did_you_mean(unknown[0], trace.flavours)}",
            )
        if flavours and not any(held.intersection(trace.named(name)) for name in flavours):
            raise document.refusal(
                place, f"none of these is among the flavours of acceptance, {', '.join(dealt)}"
            )
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
    size = scenario.target.model.vocab_size if scenario.target else trace.vocabulary
    if not share_tokenizer(size, trace.vocabulary) and not scenario.acceptance.stand_in:
        file = shown(_trace_path(scenario, document, catalogue))
        message = say("other_vocabulary", file=file, recorded=trace.vocabulary, size=size)
        raise document.refusal(("acceptance", "trace"), message)


def _beyond_trace(
    scenario: Scenario, trace: Trace, document: Document, file: Callable[[], str]
) -> Iterator[Fault]:
    """Yield what the strategy asks for and the recording cannot answer."""
    strategy = scenario.strategy
    if scenario.exit and not trace.exit_fractions:
        yield document.fault(
            ("acceptance", "trace"), say("no_exits", strategy=strategy, file=file())
        )
    if (
        isinstance(strategy, NamesRecording)
        and strategy.borrows_recording
        and not scenario.acceptance.rescale
    ):
        name = scenario.method.name if scenario.method else strategy.name
        yield document.fault(("acceptance", "trace"), say("borrows", file=file(), name=name))
    for field, message in scenario.schedule.findings(Facts(trace=trace)):
        drafter = scenario.acceptance.drafter
        recording = f"drafter '{drafter}' of {file()}" if drafter != "draft" else file()
        yield document.fault(("strategy", field), f"{recording} {message}")


def _trace_path(scenario: Scenario, document: Document, catalogue: Catalogue) -> Path:
    return catalogue.path(
        "trace", scenario.acceptance.trace or "", document, ("acceptance", "trace")
    )
