"""Find and read the trace that a scenario replays, and check that it can answer what the scenario asks."""

from collections.abc import Callable, Iterator
from pathlib import Path

from simulator.acceptance.trace import Trace, read_once
from simulator.files.schema import BadInput, Document, Fault, Path_, did_you_mean
from simulator.names import Catalogue, shown
from simulator.scenario.fields import Scenario
from simulator.strategies.common.capabilities import NamesRecording
from simulator.strategies.common.traits import Facts


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
        messages = (f"{'' if fault.field == 'trace' else f'{fault.field}: '}{fault.message}" for fault in error.faults)
        faults = [document.fault(("acceptance", "trace"), f"{shown(path)} {message}") for message in messages]
        raise BadInput(faults) from error
    _check_vocabulary(trace, scenario, document, catalogue)
    if spec.drafter not in trace.drafters:
        message = f"the trace has no drafter '{spec.drafter}'{did_you_mean(spec.drafter, trace.drafters)}"
        raise BadInput([document.fault(("acceptance", "drafter"), message)])
    return fitting(trace.drafted_by(spec.drafter, scenario.seed), scenario, document, catalogue)


def fitting(trace: Trace, scenario: Scenario, document: Document, catalogue: Catalogue) -> Trace:
    """Return the trace if it can answer what the scenario asks; else raise :class:`BadInput`."""
    spec = scenario.acceptance
    _check_vocabulary(trace, scenario, document, catalogue)
    asked: dict[Path_, tuple[str, ...]] = {("acceptance", "flavours"): spec.flavours}
    dealt = spec.flavours or trace.flavours
    for task, flavours in scenario.requests.task_flavours.items():
        asked["requests", "task_flavours", task] = flavours
        if not set(flavours) & set(dealt) and set(flavours) <= set(trace.flavours):
            message = f"none of these is among the flavours of acceptance, {', '.join(dealt)}"
            raise BadInput([document.fault(("requests", "task_flavours", task), message)])
    for place, flavours in asked.items():
        if unknown := [flavour for flavour in flavours if flavour not in trace.flavours]:
            message = f"the trace has no flavour '{unknown[0]}'{did_you_mean(unknown[0], trace.flavours)}"
            raise BadInput([document.fault(place, message)])
    faults = list(_beyond_trace(scenario, trace, document, lambda: shown(_trace_path(scenario, document, catalogue))))
    if faults:
        raise BadInput(faults)
    return trace


def drawn(scenario: Scenario, trace: Trace | None) -> bool:
    """Return whether the seed decides what the trace's drafter proposes."""
    return trace is not None and trace.temperature != 0 and scenario.acceptance.drafter != "draft"


def _check_vocabulary(trace: Trace, scenario: Scenario, document: Document, catalogue: Catalogue) -> None:
    """Raise :class:`BadInput` for a trace of models with another vocabulary, unless it is a stand-in."""
    size = scenario.target.model.vocab_size if scenario.target else trace.vocabulary
    if size != trace.vocabulary and not scenario.acceptance.stand_in:
        recorded = f"a vocabulary of {trace.vocabulary:,}" if trace.vocabulary else "an unknown vocabulary"
        message = (
            f"{shown(_trace_path(scenario, document, catalogue))} was recorded with {recorded}, the target has {size:,}; "
            "record one from your models, or set acceptance.stand_in=true to borrow its shape"
        )
        raise BadInput([document.fault(("acceptance", "trace"), message)])


def _beyond_trace(scenario: Scenario, trace: Trace, document: Document, file: Callable[[], str]) -> Iterator[Fault]:
    """Yield what the strategy asks for and the recording cannot answer."""
    strategy = scenario.strategy
    if scenario.exit and not trace.exit_fractions:
        message = (
            f"{strategy.name} needs early exits, and {file()} was recorded without; record it with --exits, or choose another"
        )
        yield document.fault(("acceptance", "trace"), message)
    if isinstance(strategy, NamesRecording) and strategy.borrows_recording and not scenario.acceptance.rescale:
        name = scenario.method.name if scenario.method else strategy.name
        message = f"{file()} holds no drafting of {name}, only another's to borrow the bursts of; "
        yield document.fault(("acceptance", "trace"), message + "set acceptance.rescale.tokens_per_step, or state a rate")
    for field, message in scenario.schedule.findings(Facts(trace=trace)):
        drafter = scenario.acceptance.drafter
        recording = f"drafter '{drafter}' of {file()}" if drafter != "draft" else file()
        yield document.fault(("strategy", field), f"{recording} {message}")


def _trace_path(scenario: Scenario, document: Document, catalogue: Catalogue) -> Path:
    return catalogue.path("trace", scenario.acceptance.trace or "", document, ("acceptance", "trace"))
