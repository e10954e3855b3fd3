"""Caveats: what a reader of a run should know of it, such as what the law leaves out and where
acceptance comes from.
"""

from collections.abc import Iterator
from pathlib import Path

from simulator.acceptance.assignment import TraceAssignment
from simulator.acceptance.by_context import Falling
from simulator.acceptance.sources import Acceptance, Replay
from simulator.acceptance.trace import Trace
from simulator.cost.kernels import computes_longer_than_it_reads, lacks_curve
from simulator.files.sentences import Sentences
from simulator.scenario import Loaded, Scenario
from simulator.scenario.agreement import claim_of
from simulator.scenario.as_served import said_of_engine
from simulator.scenario.doubts import about_rows, about_sharded_drafts
from simulator.scenario.ranks import about_ranks
from simulator.scenario.stability import load_of
from simulator.strategies.common.capabilities import DraftsChain
from simulator.strategies.common.drafters import StreamingDrafter

say = Sentences(Path(__file__).with_suffix(".yaml"))
NAMED = 12
"""Most tasks of which each is told what it replays."""


def cautions(scenario: Scenario) -> Iterator[str]:
    """Yield sentences that stand beside the headline: what was asked is not what was measured, or
    makes no sense.
    """
    window, (_, mean_output, most) = scenario.schedule.window, scenario.lengths
    longest = window
    if window >= mean_output:  # if it is shorter, it is shorter than the longest output too
        longest = max(output for _, output in scenario.requests.lengths(scenario.seed)) - 1
    stated = scenario.acceptance.by_context if window else None
    yield from say.all("cautions", window=window, longest=longest, stated=stated, most=most)
    yield from about_ranks(scenario)
    yield from about_rows(scenario)
    yield from about_sharded_drafts(scenario)
    yield from continued_rates(scenario)


def continued_rates(scenario: Scenario) -> Iterator[str]:
    """Yield where a window has more draft tokens than those whose rates or mean lengths are
    known.
    """
    spec, window = scenario.acceptance, scenario.schedule.window
    further = spec.continuation(window) if window else None
    if further is None:
        return
    if spec.lengths:
        known = (
            f"windows of up to {further.known:,} draft tokens are known; at {window:,} the "
            "curve is continued"
        )
    elif spec.known_positions and len(spec.per_position or ()) >= window:
        known = (
            f"rates of the first {further.known:,} draft tokens are known; up to {window:,} "
            "they are continued"
        )
    else:
        known = (
            f"rates of the first {further.known:,} draft tokens are known; up to {window:,} the "
            "last is repeated"
        )
    yield (
        f"{known}: {further.length:.3g} tokens a step, in four of five drafters "
        f"{further.low:.3g} to {further.high:.3g}"
    )


def caveats(loaded: Loaded, acceptance: Acceptance) -> Iterator[str]:
    """Yield sentences for the report: about the load, the law, and the recording that was
    replayed.
    """
    if isinstance(acceptance, Falling):
        acceptance = acceptance.verdicts
    if (load := load_of(loaded.scenario, acceptance)) and not load.stable:
        yield load.words
    yield from taken_over(loaded)
    yield from said_of_engine(loaded.scenario, loaded.document)
    yield from _about_hardware(loaded.scenario)
    yield from _about_law(loaded.scenario)
    if loaded.trace is not None:
        yield from _about_recording(loaded.scenario, loaded.trace, acceptance)


def taken_over(loaded: Loaded) -> Iterator[str]:
    """Yield from which scenarios values were taken over by ``like``, and which; not those that play
    no part.
    """
    document, strategy = loaded.document, loaded.scenario.schedule
    unused = {
        "about",
        "name",
        "method",
        *["draft"] * (not strategy.needs.draft_model),
        *["acceptance"] * (not strategy.window),
    }
    written = {
        path: place
        for path, place in document.places.items()
        if not isinstance(document.get(path), dict | list)
    }
    fields: dict[str, list[str]] = {}
    for path, (file, _, _) in (document.mentions | written).items():
        inside = any(path[:end] in document.mentions for end in range(1, len(path)))
        if (
            path
            and path[0] not in unused
            and not inside
            and file.endswith(".yaml")
            and file != document.place(())[0]
        ):
            value = document.get(path)
            named = value.get("name") if isinstance(value, dict) else value
            fields.setdefault(file, []).append(
                f"{'.'.join(map(str, path))} {'none' if named is None else named}"
            )
    for file, names in fields.items():
        yield f"taken over from {Path(file).stem} (like): {', '.join(names)}"
    if not loaded.scenario.draft and document.get(("draft", "model")):
        origin, draft = (
            Path(document.file(("draft", "model"))).stem,
            document.get(("draft", "model", "name")),
        )
        yield (
            f"not taken over from {origin} (like): draft.model {draft}, whose vocabulary is not "
            "that of the target"
        )


def _about_hardware(scenario: Scenario) -> Iterator[str]:
    """Yield what a model needs that was not measured on its device: a mixer, a format, as many
    rows.
    """
    rows = (
        scenario.schedule.needs.rows or 1 + scenario.schedule.window
    ) * scenario.requests.concurrency
    if scenario.target and scenario.draft and scenario.schedule.needs.draft_model:
        sizes = {
            role: place.model.vocab_size
            for role, place in (("target", scenario.target), ("draft", scenario.draft))
        }
        yield from say.all("vocabularies", **sizes)
    for role, place in (("target", scenario.target), ("draft", scenario.draft)):
        if place:
            for mixer, layers in place.model.mixer_layers:
                yield from say.all("mixer", role=role, place=place, mixer=mixer, layers=layers)
            product = place.device.matmul_for(place.weights)
            yield from say.all(
                "hardware",
                role=role,
                place=place,
                lacks_curve=lacks_curve(place.device, place.weights),
                computes=computes_longer_than_it_reads(place),
                product=product,
                measured=product.width[-1].tokens if product.width else 0,
                rows=rows,
                arrivals=scenario.requests.arrivals,
            )


def _about_law(scenario: Scenario) -> Iterator[str]:
    """Yield what the law leaves out, and what stands in for what."""
    requests, schedule = scenario.requests, scenario.schedule
    drafter = schedule.chain_drafter if isinstance(schedule, DraftsChain) else None
    streams = (
        drafter.streams
        if isinstance(drafter, StreamingDrafter) and not (drafter.emitted or drafter.per_pass)
        else 0
    )
    facts = {
        "claim": claim_of(scenario),
        "dropped": requests.traffic.dropped if requests.traffic else 0,
    }
    yield from say.all("law", scenario=scenario, requests=requests, streams=streams, **facts)


def _about_recording(scenario: Scenario, trace: Trace, acceptance: Acceptance) -> Iterator[str]:
    """Yield in sentences in what the recording differs from what the scenario asks."""
    if scenario.acceptance.stand_in:
        yield say(
            "stand_in", pair=acceptance.trace.pair if isinstance(acceptance, Replay) else trace.pair
        )
    if isinstance(acceptance, Replay):
        yield from _dealt(scenario, acceptance)
    yield from say.all(
        "recording",
        scenario=scenario,
        spec=scenario.acceptance,
        draft=scenario.draft if scenario.schedule.needs.draft_model else None,
        trace=trace,
        most=scenario.lengths[2],
        recorded=trace.header["models"].get("target", {}).get("dtype"),
        formats=say.said["formats"],
    )
    if "replay" in trace.header:
        yield f"replay of this trace: {trace.header['replay']}"
    if scenario.exit:
        wanted, used = (
            scenario.exit.fraction,
            trace.exit_fractions[trace.nearest_exit(scenario.exit.fraction)],
        )
        if abs(used - wanted) > 1e-9:
            yield say("exit", wanted=wanted, used=used)


def _dealt(scenario: Scenario, replay: Replay) -> Iterator[str]:
    """Yield in sentences how a recording was re-scaled, and where recordings are used more than
    once.
    """
    if mean := scenario.acceptance.rescale:
        before = replay.trace.header["derived_from"]["mean_length_recorded_tokens"]
        yield say("rescaled", scenario=scenario, mean=mean, before=before)
    count, recordings = scenario.requests.count, len(replay.order)
    tasks = scenario.requests.flavours_by_task
    by_task = TraceAssignment(replay, tasks).places
    if len(tasks) > NAMED:
        yield say("tasks", tasks=len(tasks))
    for task, flavours in tasks.items() if len(tasks) <= NAMED else ():
        yield say("task", task=task, recordings=len(by_task[task]), flavours=flavours)
    shortest = min(replay.length(request) for request in range(min(count, recordings)))
    longest = max(output for _, output in scenario.requests.lengths(scenario.seed)) - 1
    lengths = {"shortest": shortest, "longest": longest}
    yield from say.all("dealt", count=count, recordings=recordings, by_task=by_task, **lengths)
