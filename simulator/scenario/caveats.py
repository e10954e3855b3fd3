"""Caveats: what a reader of a run should know of it, such as what the law leaves out and where
acceptance comes from.
"""

from collections.abc import Iterator
from pathlib import Path

from simulator.core.acceptance.assignment import TraceAssignment
from simulator.core.acceptance.by_context import Falling
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.kernels import computes_longer_than_it_reads, lacks_curve
from simulator.core.cost.placement import Placement
from simulator.core.cost.stored.mixes import DYNAMIC
from simulator.core.faults import Path_, Place
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.strategies.common.base import rows_of_a_request
from simulator.core.strategies.common.capabilities import DraftsChain
from simulator.core.strategies.common.drafters import StreamingDrafter
from simulator.inputs.logs import KNOWN
from simulator.scenario import Loaded, Scenario
from simulator.scenario.agreement import claim_of
from simulator.scenario.as_served import said_of_engine
from simulator.scenario.ranks import about_ranks
from simulator.scenario.stability import load_of
from simulator.scenario.uncertain.doubts import (
    about_large_mixtures,
    about_rows,
    about_sharded_steps,
    about_start_ups,
)

NAMED = 12
"""Most tasks of which each is named with what it replays."""
FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Formats of weights, by their names in a recording."""


def cautions(scenario: Scenario) -> Iterator[str]:
    """Yield sentences that stand beside the headline: what was asked is not what was measured, or
    makes no sense.
    """
    yield from _too_long_window(scenario)
    yield from _fallen_acceptance(scenario)
    yield from about_ranks(scenario)
    yield from about_rows(scenario)
    yield from about_sharded_steps(scenario)
    yield from about_start_ups(scenario)
    yield from about_large_mixtures(scenario)
    yield from continued_rates(scenario)
    yield from _assumed_start(scenario)


def _assumed_start(scenario: Scenario) -> Iterator[str]:
    """Yield in how many seconds a replica starts where nobody measured that, and between which
    ones.
    """
    scaling = scenario.serving.scaling
    if scaling is None or not scaling.moves or scaling.start_s is not None:
        return
    boot = scaling.boot_s
    low, high = (boot.value if end is None else end for end in (boot.low, boot.high))
    if low == high or scaling.link is None:
        return
    weights_s = scenario.start_s - boot.value
    yield (
        f"a replica starts in {scenario.start_s:.3g} s, {weights_s:.3g} s of which for "
        f"{scenario.weight_bytes / 1e9:.3g} GB of weights over {scaling.link.name or 'its link'}; "
        f"the rest is {boot.confidence}, {low:g} to {high:g} s; "
        "set serving.scaling.start_s to what yours takes"
    )


def _too_long_window(scenario: Scenario) -> Iterator[str]:
    """Yield that no output is as long as a window of draft tokens."""
    window = scenario.schedule.window
    mean_output = scenario.lengths[1]
    if window < mean_output:  # then it is shorter than the longest output, too
        return
    longest = _longest_output(scenario)
    if window > longest:
        yield (
            f"a window of {window:,} draft tokens is longer than any output behind its first "
            f"token, {longest:,} at most: what lies beyond the end is drafted and verified for "
            "nothing"
        )


def _longest_output(scenario: Scenario) -> int:
    """Return the tokens of the longest output, behind its first."""
    return max(output for _, output in scenario.requests.lengths(scenario.seed)) - 1


def _fallen_acceptance(scenario: Scenario) -> Iterator[str]:
    """Yield how far acceptance falls with the context, beyond the shortest that was measured."""
    stated = scenario.acceptance.by_context
    window = scenario.schedule.window
    most = scenario.lengths[2]
    if stated is None or not window or most <= stated.ends[0]:
        return
    shortest, longest = stated.ends
    low, high = stated.between(most)
    possible = 1.0 + (stated.window or window)
    yield (
        f"acceptance falls with the context (measured from {shortest:,} to {longest:,} tokens; "
        f"{stated.source}, {stated.confidence}): behind {most:,} "
        f"{1.0 + stated.accepted(most):.3g} tokens a step are left of "
        f"{1.0 + stated.accepted(shortest):.3g} ({low:.3g} to {min(high, possible):.3g}, 80 %)"
    )


def continued_rates(scenario: Scenario) -> Iterator[str]:
    """Yield where a window has more draft tokens than those whose rates or mean lengths are
    known.
    """
    spec = scenario.acceptance
    window = scenario.schedule.window
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
    yield from _about_sessions(loaded.scenario)
    yield from _about_hardware(loaded.scenario)
    yield from _about_cut_heads(loaded)
    yield from _about_law(loaded.scenario)
    if loaded.trace is not None:
        yield from _about_recording(loaded.scenario, loaded.trace, acceptance)


def _about_sessions(scenario: Scenario) -> Iterator[str]:
    """Yield that some clients never begin a session, and what a file of sessions does not say."""
    sessions = scenario.requests.sessions
    if sessions is None:
        return
    yield from _about_idle_clients(scenario)
    if isinstance(sessions, SessionFile):
        yield from _about_counted_characters(sessions)
        yield from _about_times_of_turns(scenario, sessions)


def _about_idle_clients(scenario: Scenario) -> Iterator[str]:
    """Yield that a closed loop has fewer sessions than clients."""
    requests = scenario.requests
    if requests.arrivals is not None or requests.concurrency <= 1:
        return
    sessions = sum(1 for _ in requests.counted().turns(scenario.seed))
    idle = requests.concurrency - sessions
    if idle > 0:
        yield (
            f"{requests.concurrency:,} clients, and there are {sessions:,} sessions in all: "
            f"{idle:,} never begin one; set requests.concurrency={max(sessions, 1)}, or more "
            "turns (requests.count)"
        )


def _about_counted_characters(sessions: SessionFile) -> Iterator[str]:
    """Yield that a file has texts, whose tokens are counted by characters."""
    if any(session.by_characters for session in sessions.recorded()):
        yield (
            f"tokens of the texts in {Path(sessions.file).name} are not known: "
            f"{KNOWN['characters_per_token']:g} characters count as one (assumed)"
        )


def _about_times_of_turns(scenario: Scenario, sessions: SessionFile) -> Iterator[str]:
    """Yield that nobody thinks between turns, where a file has no times."""
    if sessions.think_s is not None:
        return
    later = [turn for turns in scenario.requests.turns(scenario.seed) for turn in turns[1:]]
    if later and not any(turn.wait_s or turn.earliest_s for turn in later):
        yield (
            "turns of sessions come as soon as the ones before them have ended, as the file does "
            "not say when; set requests.sessions.think_s"
        )


def taken_over(loaded: Loaded) -> Iterator[str]:
    """Yield from which scenarios values were taken over by ``like``, and which; not those that play
    no part.
    """
    document = loaded.document
    fields: dict[str, list[str]] = {}
    for path, (file, _, _) in _written(loaded):
        if file.endswith(".yaml") and file != document.place(())[0]:
            value = document.get(path)
            named = value.get("name") if isinstance(value, dict) else value
            field = ".".join(map(str, path))
            fields.setdefault(file, []).append(f"{field} {'none' if named is None else named}")
    for file, names in fields.items():
        yield f"taken over from {Path(file).stem} (like): {', '.join(names)}"
    if not loaded.scenario.draft and document.get(("draft", "model")):
        origin = Path(document.file(("draft", "model"))).stem
        draft = document.get(("draft", "model", "name"))
        yield (
            f"not taken over from {origin} (like): draft.model {draft}, whose vocabulary is not "
            "that of the target"
        )


def _written(loaded: Loaded) -> Iterator[tuple[Path_, Place]]:
    """Yield every value that plays a part, with the place where it is written: a file that is named
    as a whole, else each of its values.
    """
    document = loaded.document
    strategy = loaded.scenario.schedule
    unused = {"about", "name", "method"}
    if not strategy.needs.draft_model:
        unused.add("draft")
    if not strategy.window:
        unused.add("acceptance")
    values = {
        path: place
        for path, place in document.places.items()
        if not isinstance(document.get(path), dict | list)
    }
    for path, place in (document.mentions | values).items():
        inside = any(path[:end] in document.mentions for end in range(1, len(path)))
        if path and path[0] not in unused and not inside:
            yield path, place


def _about_hardware(scenario: Scenario) -> Iterator[str]:
    """Yield what a model needs that was not measured on its device: a mixer, a format, as many
    rows.
    """
    yield from _about_vocabularies(scenario)
    for role, place in (("target", scenario.target), ("draft", scenario.draft)):
        if place:
            yield from _about_mixers(role, place)
            yield from _about_formats(role, place)
            if role == "target" and not scenario.requests.arrivals:
                yield from _about_rows_of(place, scenario)
            if computes_longer_than_it_reads(place):
                rows = place.device.matmul_for(place.weights).tiled(1)
                yield (
                    f"a {role}'s pass of one row comes out bound by compute on "
                    f"{place.device.name} (it is billed for {rows:g} rows): check peak_tflops, "
                    "compute_efficiency and tile_tokens of its products"
                )


def _about_vocabularies(scenario: Scenario) -> Iterator[str]:
    """Yield that target and draft have vocabularies of different sizes."""
    if not (scenario.target and scenario.draft and scenario.schedule.needs.draft_model):
        return
    target = scenario.target.model.vocab_size
    draft = scenario.draft.model.vocab_size
    if target != draft:
        yield (
            f"the draft's vocabulary of {draft:,} and the target's of {target:,} are taken as one "
            "tokenizer with different padding"
        )


def _about_mixers(role: str, place: Placement) -> Iterator[str]:
    """Yield mixers that are timed by the kernels of full attention."""
    for mixer, layers in place.model.mixer_layers:
        measured = mixer.kind == "latent" and place.device.latent_attention
        if mixer.kind == "full" or measured:
            continue
        kind = "a recurrence" if mixer.kind == "linear" else f"{mixer.kind} attention"
        yield (
            f"{layers} layers of the {role} have {kind}, timed by other kernels of "
            f"{place.device.name} (assumed)"
        )


def _about_cut_heads(loaded: Loaded) -> Iterator[str]:
    """Yield what acceptance is taken to be where the draft's LM head is cut."""
    scenario = loaded.scenario
    covered = loaded.document.get(("strategy", "covered"))
    if covered and scenario.acceptance.rescale:
        yield (
            "strategy.covered plays no part: the stated mean of tokens is taken as that of the "
            "draft with its cut LM head"
        )
    share = scenario.least_covered
    if scenario.draft and scenario.draft.lm_head_rows and share < 1.0:
        yield (
            f"acceptance is taken as that of the draft with {scenario.draft.lm_head_rows:,} rows "
            f"of its LM head; that of the whole one loses where tokens are not among them, some "
            f"{100 * (1 - share):.0f} %: intervals reach down to that. strategy.covered says which "
            "share of tokens they make up"
        )


def _about_formats(role: str, place: Placement) -> Iterator[str]:
    """Yield formats of weights for which the device has no curve, and those that are not the
    file's.
    """
    own = place.model.weight_format
    if place.model.stored and own and place.weights != own:
        yield (
            f"{place.model.name} is stored in {own}, and priced as if in {place.weights}: "
            f"{role}.weights={own} takes the bits of its file"
        )
    if place.weights in DYNAMIC and not place.model.stored:
        yield (
            f"{place.weights} of the {role} differs from model to model: it counts as "
            f"{DYNAMIC[place.weights]}, up to 6 % smaller; a .gguf file says its own bits"
        )
    device = place.device
    engine = place.engine
    if lacks_curve(device, place.weights):
        stand_in = "it takes that of 16 bits"
        if engine.rows:
            stand_in = f"several rows cost what engine {engine.name} says"
        yield (
            f"{device.name} has no curve for products in {place.weights} of the {role}: {stand_in}"
        )
    if place.model.experts and device.experts and device.lacks_experts(place.expert_format):
        yield (
            f"{device.name} has no curve for experts in {place.expert_format} of the {role}: they "
            "take that of another format"
        )


def _about_rows_of(target: Placement, scenario: Scenario) -> Iterator[str]:
    """Yield that a pass of the target has more rows than were measured on its device."""
    schedule = scenario.schedule
    rows = rows_of_a_request(schedule) * scenario.requests.concurrency
    product = target.device.matmul_for(target.weights)
    measured = product.width[-1].tokens if product.width else 0
    if measured and measured < rows:
        yield (
            f"products of {rows:,} rows are outside what was measured on {target.device.name}: "
            f"{measured} rows at most"
        )


def _about_pools(scenario: Scenario) -> Iterator[str]:
    """Yield what laws leave out where prefill and decode are apart, and what nobody measured of a
    draft that knows nothing of the prompt.
    """
    yield (
        "prefill and decode are apart, which a replay does not follow: the simulation stands in "
        "its column; laws are of a replica that decodes, pictures show the first replica of each "
        "pool, busy shares are means over a pool"
    )
    handover = scenario.serving.handover
    window = scenario.schedule.window
    if handover and window and handover.draft_state == "absent":
        yield (
            f"the draft knows nothing of the prompt where requests decode: {window} tokens are "
            "written in plain steps, and from then on it is taken to keep what it would behind "
            "the whole prompt, which nobody measured; the truth lies between plain decoding and "
            "serving.handover.draft_state=transferred"
        )


def _about_law(scenario: Scenario) -> Iterator[str]:
    """Yield what the law leaves out, and what stands in for what."""
    schedule = scenario.schedule
    claim = claim_of(scenario)
    if not claim.exact:
        yield f"the law is no equality here ({claim})"
    yield from _about_streams(scenario)
    if schedule.needs.in_flight > 1:
        yield (
            "steps are in flight together, which a replay does not follow; the simulation stands "
            "in its column"
        )
    elif scenario.serving.pools:
        yield from _about_pools(scenario)
    elif scenario.serving.copies > 1:
        yield (
            "a replay follows one replica, and there are several: the simulation stands in its "
            "column; pictures show the first replica, busy shares are means over all"
        )
    if scenario.serving.scaling and scenario.serving.scaling.moves:
        yield (
            "the law is that of a replica, however many there are; loads are held to the most "
            "replicas that there may be"
        )
    yield from _about_requests(scenario)
    if scenario.cost.jitters:
        yield (
            "links jitter: drawn for every transfer in the simulation, at its mean in law and "
            "replay"
        )


def _about_requests(scenario: Scenario) -> Iterator[str]:
    """Yield what the law leaves out of requests that come together or differ."""
    requests = scenario.requests
    if requests.traffic and requests.traffic.dropped:
        yield (
            f"{requests.traffic.dropped:,} requests of more than "
            f"{requests.traffic.drop_above_tokens:,} tokens, prompt and output together, are left "
            "out of the traffic"
        )
    if requests.varies:
        yield (
            "the law is taken at the mean batch that the simulation saw, and with replayed means "
            "at every batch it saw"
        )
    if requests.together:
        yield (
            "the law is about steps; what admissions of other requests cost in between is left out "
            "of it"
        )
    if scenario.durations and requests.together and not scenario.durations.by_load:
        batch = "" if requests.arrivals else f" of {requests.concurrency}"
        yield f"stated durations are taken for the whole batch{batch}, whatever its size"


def _about_streams(scenario: Scenario) -> Iterator[str]:
    """Yield that nobody recorded how many tokens a pass of several streams writes."""
    schedule = scenario.schedule
    drafter = schedule.chain_drafter if isinstance(schedule, DraftsChain) else None
    if not isinstance(drafter, StreamingDrafter) or drafter.emitted or drafter.per_pass:
        return
    if drafter.streams:
        yield (
            f"no recording says what a pass of the draft with {drafter.streams} streams writes: "
            "one token a stream is taken"
        )


def _about_recording(scenario: Scenario, trace: Trace, acceptance: Acceptance) -> Iterator[str]:
    """Yield in sentences in what the recording differs from what the scenario asks."""
    if scenario.acceptance.stand_in:
        pair = acceptance.trace.pair if isinstance(acceptance, Replay) else trace.pair
        yield (
            f"acceptance is a stand-in: recorded from {pair}, not from the models of this scenario"
        )
    if isinstance(acceptance, Replay):
        yield from _dealt(scenario, acceptance)
    yield from _about_drafter(scenario)
    yield from _recorded_otherwise(scenario, trace)
    if "replay" in trace.header:
        yield f"replay of this trace: {trace.header['replay']}"
    if scenario.exit:
        wanted = scenario.exit.fraction
        used = trace.exit_fractions[trace.nearest_exit(wanted)]
        if abs(used - wanted) > 1e-9:
            yield (
                f"the trace has no exit at {wanted:.3f} of the depth; the recorded one at "
                f"{used:.3f} stands in"
            )


def _about_drafter(scenario: Scenario) -> Iterator[str]:
    """Yield how drafting is priced where another drafter than the draft model was recorded."""
    spec = scenario.acceptance
    if spec.drafter == "draft" or not scenario.schedule.window:
        return
    priced = "the strategy or the durations state it"
    if scenario.draft and scenario.schedule.needs.draft_model:
        priced = scenario.draft.model.name
    if spec.best_of:
        priced += (
            ", in series with what the strategy states beside it; any other drafter as if it ran "
            "only where it is best"
        )
    yield f"acceptance is that of the drafter '{spec.drafter}'; drafting is priced as {priced}"


def _recorded_otherwise(scenario: Scenario, trace: Trace) -> Iterator[str]:
    """Yield contexts, temperature and weights that are not those of the recording."""
    spec = scenario.acceptance
    most = scenario.lengths[2]
    longest = trace.longest_context
    if longest and most > longest and not (spec.by_context or spec.rescale):
        yield (
            f"acceptance was recorded behind contexts of up to {longest:,} tokens, the requests "
            f"reach {most:,}: it may fall with the context (acceptance.by_context)"
        )
    asked = spec.temperature
    drawn = trace.temperature
    if asked is not None and drawn is not None and asked != drawn:
        yield f"the mean is of temperature {asked:g}, the bursts were recorded at {drawn:g}"
    recorded = trace.header["models"].get("target", {}).get("dtype")
    if scenario.target and recorded and FORMATS.get(recorded) != scenario.target.weights:
        yield (
            f"acceptance was recorded with weights in {recorded}, the target's are in "
            f"{scenario.target.weights}"
        )


def _dealt(scenario: Scenario, replay: Replay) -> Iterator[str]:
    """Yield in sentences how a recording was re-scaled, and where recordings are used more than
    once.
    """
    yield from _rescaled(scenario, replay)
    count = scenario.requests.count
    recordings = len(replay.order)
    tasks = scenario.requests.flavours_by_task
    by_task = TraceAssignment(replay, tasks).places
    if len(tasks) > NAMED:
        yield f"requests of {len(tasks):,} tasks replay the recordings of theirs, over and over"
    else:
        for task, flavours in tasks.items():
            yield (
                f"requests of task '{task}' replay {len(by_task[task])} recordings "
                f"({', '.join(flavours)}), over and over"
            )
    if count > recordings and not by_task:
        yield (
            f"{count:,} requests replay {recordings:,} recordings, which are dealt out again from "
            "the first"
        )
    shortest = min(replay.length(request) for request in range(min(count, recordings)))
    longest = _longest_output(scenario)
    if longest > shortest:
        yield (
            f"outputs of up to {longest:,} tokens after the first go round in recordings of "
            f"{shortest:,} and more positions"
        )


def _rescaled(scenario: Scenario, replay: Replay) -> Iterator[str]:
    """Yield to which mean a recording was re-scaled, and where that mean is from."""
    mean = scenario.acceptance.rescale
    if mean is None:
        return
    how = "by kind of text"
    if not scenario.acceptance.kinds:
        before = replay.trace.header["derived_from"]["mean_length_recorded_tokens"]
        how = f"from {before:.3g} recorded"
    moving = f" with windows that move ({mean.adaptive['name']})" if mean.adaptive else ""
    yield (
        f"acceptance is re-scaled {how} to {mean.words} tokens a step{moving} ({mean.source}, "
        f"{mean.confidence}); the bursts stay as recorded"
    )
