"""Caveats: what a reader of a run should know of it, such as what the law leaves out and where acceptance comes from."""

from collections.abc import Iterator
from pathlib import Path

from simulator.acceptance.assignment import TraceAssignment
from simulator.acceptance.best_of import BEST_OF
from simulator.acceptance.by_context import Falling
from simulator.acceptance.continuation import continued, half_of_measured
from simulator.acceptance.sources import Acceptance, Replay
from simulator.acceptance.trace import Trace
from simulator.cost.kernels import computes_longer_than_it_reads, lacks_curve
from simulator.cost.placement import Placement
from simulator.scenario import Loaded, Scenario
from simulator.scenario.agreement import claim_of
from simulator.scenario.stability import load_of
from simulator.strategies.common.capabilities import DraftsChain
from simulator.strategies.common.drafters import StreamingDrafter

NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Formats of weights by their names in a recording."""

BESIDE = ", in series with what the strategy states beside it; any other drafter as if it ran only where it is best"
"""What is said of the price of the best of several drafters."""
NAMED = 12
"""Most tasks of which each is told what it replays."""


def cautions(scenario: Scenario) -> Iterator[str]:
    """Yield sentences that stand beside the headline: what was asked is not what was measured, or makes no sense."""
    window, (_, mean_output, most) = scenario.schedule.window, scenario.lengths
    if window >= mean_output:  # if it is shorter, it is shorter than the longest output too
        longest = max(output for _, output in scenario.requests.lengths(scenario.seed)) - 1
        if window > longest:
            yield (
                f"a window of {window:,} draft tokens is longer than any output behind its first token, {longest:,} at most: "
                "what lies beyond the end is drafted and verified for nothing"
            )
    if window and (stated := scenario.acceptance.by_context) and most > stated.ends[0]:
        (first, last), (low, high) = stated.ends, stated.between(most)
        yield (
            f"acceptance falls with the context (measured from {first:,} to {last:,} tokens; {stated.source}, "
            f"{stated.confidence}): behind {most:,} {1.0 + stated.accepted(most):.3g} tokens a step are left of "
            f"{1.0 + stated.accepted(first):.3g} ({low:.3g} to {high:.3g}, 80 %)"
        )


def caveats(loaded: Loaded, acceptance: Acceptance) -> Iterator[str]:
    """Yield sentences for the report: about the load, the law, and the recording that was replayed."""
    if isinstance(acceptance, Falling):
        acceptance = acceptance.verdicts
    if (load := load_of(loaded.scenario, acceptance)) and not load.stable:
        yield load.words
    yield from taken_over(loaded)
    yield from _about_hardware(loaded.scenario)
    yield from _about_law(loaded.scenario)
    yield from _about_curve(loaded.scenario)
    if loaded.trace is not None:
        yield from _about_recording(loaded.scenario, loaded.trace, acceptance)


def taken_over(loaded: Loaded) -> Iterator[str]:
    """Yield from which scenarios values were taken over by ``like``, and which; not those that play no part."""
    document, strategy = loaded.document, loaded.scenario.schedule
    unused = {"about", "name", "method", *["draft"] * (not strategy.needs.draft_model), *["acceptance"] * (not strategy.window)}
    written = {path: place for path, place in document.places.items() if not isinstance(document.get(path), dict | list)}
    fields: dict[str, list[str]] = {}
    for path, (file, _, _) in (document.mentions | written).items():
        inside = any(path[:end] in document.mentions for end in range(1, len(path)))
        if path and path[0] not in unused and not inside and file.endswith(".yaml") and file != document.place(())[0]:
            value = document.get(path)
            named = value.get("name") if isinstance(value, dict) else value
            fields.setdefault(file, []).append(f"{'.'.join(map(str, path))} {'none' if named is None else named}")
    for file, names in fields.items():
        yield f"taken over from {Path(file).stem} (like): {', '.join(names)}"
    if not loaded.scenario.draft and document.get(("draft", "model")):
        origin, draft = Path(document.file(("draft", "model"))).stem, document.get(("draft", "model", "name"))
        yield f"not taken over from {origin} (like): draft.model {draft}, whose vocabulary is not that of the target"


def _about_hardware(scenario: Scenario) -> Iterator[str]:
    for role, place in (("target", scenario.target), ("draft", scenario.draft)):
        if place is None:
            continue
        for mixer, layers in place.model.mixer_layers:
            if mixer.kind != "full" and not (mixer.kind == "latent" and place.device.latent_attention):
                kind = "a recurrence" if mixer.state else f"{mixer.kind} attention"
                yield f"{layers} layers of the {role} have {kind}, timed by other kernels of {place.device.name} (assumed)"
        yield from _outside_its_fit(role, place, scenario)
        if computes_longer_than_it_reads(place):
            product = place.device.matmul_for(place.weights)
            yield (
                f"a {role}'s pass of one row comes out bound by compute on {place.device.name} (it is billed for "
                f"{product.tiled(1):g} rows): check peak_tflops, compute_efficiency and tile_tokens of its products"
            )


def _outside_its_fit(role: str, place: Placement, scenario: Scenario) -> Iterator[str]:
    """Yield where a product is borrowed from another format, or has more rows than were measured."""
    device, last = place.device.name, place.device.matmul_for(place.weights).width[-1:]
    if lacks_curve(place.device, place.weights):
        whose = f"several rows cost what engine {place.engine.name} says" if place.engine.rows else "it takes that of 16 bits"
        yield f"{device} has no curve for products in {place.weights} of the {role}: {whose}"
    if place.model.experts and place.device.experts and place.device.lacks_experts(place.expert_format):
        yield f"{device} has no curve for experts in {place.expert_format} of the {role}: they take that of another format"
    rows = (scenario.schedule.needs.rows or 1 + scenario.schedule.window) * scenario.requests.concurrency
    if role == "target" and last and last[0].tokens < rows and not scenario.requests.arrivals:
        yield f"products of {rows:,} rows are outside what was measured on {device}: {last[0].tokens} rows at most"


def _about_law(scenario: Scenario) -> Iterator[str]:
    claim = claim_of(scenario)
    if not claim.exact:
        yield f"the law is no equality here ({claim})"
    drafter = scenario.schedule.chain_drafter if isinstance(scenario.schedule, DraftsChain) else None
    if isinstance(drafter, StreamingDrafter) and not (drafter.emitted or drafter.per_pass):
        yield f"no recording says what a pass of the draft with {drafter.streams} streams writes: one token a stream is taken"
    requests = scenario.requests
    if scenario.schedule.needs.in_flight > 1:
        yield "steps are in flight together, which a replay does not follow; the simulation stands in its column"
    elif scenario.serving.replicas > 1:
        yield (
            "a replay follows one replica, and there are several: the simulation stands in its column; pictures show the first "
            "replica, busy shares are means over all"
        )
    if requests.traffic and (dropped := requests.traffic.dropped):
        longest = requests.traffic.drop_above_tokens
        yield f"{dropped:,} requests of more than {longest:,} tokens, prompt and output together, are left out of the traffic"
    if requests.arrivals:
        yield "the law is taken at the mean batch that the simulation saw, and with replayed means at every batch it saw"
    if requests.together:
        yield "the law is about steps; what admissions of other requests cost in between is left out of it"
    if scenario.cost.jitters:
        yield "links jitter: drawn for every transfer in the simulation, at its mean in law and replay"
    if scenario.durations and requests.together and not scenario.durations.by_load:
        batch = "" if requests.arrivals else f" of {requests.concurrency}"
        yield f"stated durations are taken for the whole batch{batch}, whatever its size"


def _about_curve(scenario: Scenario) -> Iterator[str]:
    """Yield where a window is wider than those whose mean lengths are known."""
    lengths, window = scenario.acceptance.lengths, scenario.schedule.window
    if lengths and window > len(lengths):
        length, half = continued(lengths, window)[-1], half_of_measured(lengths, window)
        between = f"{length * (1.0 - half):.3g} to {length * (1.0 + half):.3g}"
        known = f"windows of up to {len(lengths)} draft tokens are known"
        yield f"{known}; at {window} the curve is continued: {length:.3g} tokens a step, in four of five drafters {between}"


def _about_recording(scenario: Scenario, trace: Trace, acceptance: Acceptance) -> Iterator[str]:
    """Yield in sentences in what the recording differs from what the scenario asks."""
    if scenario.acceptance.stand_in:
        pair = acceptance.trace.pair if isinstance(acceptance, Replay) else trace.pair
        yield f"acceptance is a stand-in: recorded from {pair}, not from the models of this scenario"
    if isinstance(acceptance, Replay):
        yield from _dealt(scenario, acceptance)
    drafter = scenario.acceptance.drafter
    if drafter != "draft" and scenario.schedule.window:
        draft = scenario.draft if scenario.schedule.needs.draft_model else None
        priced = draft.model.name if draft else "the strategy or the durations state it"
        yield f"acceptance is that of the drafter '{drafter}'; drafting is priced as {priced}{BESIDE * (drafter == BEST_OF)}"
    yield from _outside_recording(scenario, trace)
    if "replay" in trace.header:
        yield f"replay of this trace: {trace.header['replay']}"
    if scenario.exit:
        used = trace.exit_fractions[trace.nearest_exit(scenario.exit.fraction)]
        if abs(used - scenario.exit.fraction) > 1e-9:
            wanted = scenario.exit.fraction
            yield f"the trace has no exit at {wanted:.3f} of the depth; the recorded one at {used:.3f} stands in"


def _outside_recording(scenario: Scenario, trace: Trace) -> Iterator[str]:
    """Yield where context, temperature or number format are not those that were recorded."""
    spec, most = scenario.acceptance, scenario.lengths[2]
    if trace.longest_context and most > trace.longest_context and not (spec.by_context or spec.rescale):
        yield (
            f"acceptance was recorded behind contexts of up to {trace.longest_context:,} tokens, the requests reach {most:,}: "
            "it may fall with the context (acceptance.by_context)"
        )
    if None not in (spec.temperature, trace.temperature) and spec.temperature != trace.temperature:
        yield f"the mean is of temperature {spec.temperature:g}, the bursts were recorded at {trace.temperature:g}"
    recorded = trace.header["models"].get("target", {}).get("dtype")
    if scenario.target and recorded and NAMES.get(recorded) != scenario.target.weights:
        yield f"acceptance was recorded with weights in {recorded}, the target's are in {scenario.target.weights}"


def _dealt(scenario: Scenario, replay: Replay) -> Iterator[str]:
    """Yield in sentences how a recording was re-scaled, and where recordings are used more than once."""
    if mean := scenario.acceptance.rescale:
        before = replay.trace.header["derived_from"]["mean_length_recorded_tokens"]
        was = "by kind of text" if scenario.acceptance.kinds else f"from {before:.3g} recorded"
        asked = f"{mean.words} tokens a step ({mean.source}, {mean.confidence})"
        yield f"acceptance is re-scaled {was} to {asked}; the bursts stay as recorded"
    count, recordings = scenario.requests.count, len(replay.order)
    tasks = scenario.requests.flavours_by_task
    dealer = TraceAssignment(replay, tasks)
    if len(tasks) > NAMED:
        yield f"requests of {len(tasks):,} tasks replay the recordings of theirs, over and over"
    for task, flavours in tasks.items() if len(tasks) <= NAMED else ():
        yield f"requests of task '{task}' replay {len(dealer.places[task])} recordings ({', '.join(flavours)}), over and over"
    if count > recordings and not dealer.places:
        yield f"{count:,} requests replay {recordings:,} recordings, which are dealt out again from the first"
    shortest = min(replay.length(request) for request in range(min(count, recordings)))
    longest = max(output for _, output in scenario.requests.lengths(scenario.seed)) - 1
    if longest > shortest:
        yield f"outputs of up to {longest:,} tokens after the first go round in recordings of {shortest:,} and more positions"
