"""An observed service as a scenario: its load and acceptance, on the machine of a scenario that is
named.

What was observed goes before; ``like`` supplies what no file of a service holds: models, devices,
how they are connected, engine and method. :func:`scenario_of` writes both down as one file of a
few lines, ``like: NAME`` and what was observed laid over it, with the tables that it reads beside
it. Whoever wants to change something loads that file (:func:`load_observed`) and takes
:func:`simulator.scenario.loading.variant`, or writes further fields into it (``changes``).

What a load becomes, by what is known of it:

* sessions with turns: a file of sessions, begun when they were;
* each request: a log, as they arrived; with ``clients`` (by default, where a load generator had a
  limit and was given no rate) a closed loop of so many, in the order of the log;
* rates and mean lengths: a Poisson process of as many requests; clients where a limit is known.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.core.serving.policies import FixedBatch, PrefillFirst
from simulator.core.serving.requests import Requests
from simulator.inputs import writing
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.services.measured import RequestSteps, ServedRequest
from simulator.inputs.services.observation import read_later
from simulator.inputs.services.observation_files import OBSERVED
from simulator.inputs.services.observed import Observed
from simulator.inputs.services.tables import read_requests, read_steps
from simulator.inputs.traces.file import packed
from simulator.inputs.writing import csv_text
from simulator.scenario.live.accepted import ObservedDrafts, drafts_of, replacing
from simulator.scenario.loading import Loaded, load

SCENARIO = "scenario.yaml"
REQUESTS = "requests.csv"
SESSIONS = "sessions.csv"
TRACE = "steps.npz"
HITS = 0.01
"""Share of prompt tokens found in a cache from which on requests begin alike."""
LoadForm = Literal["as it was", "arrivals"]
"""Whether a limited load is one of clients, or requests come when they came."""


class ScenarioFact(NamedTuple):
    """Something that an observed scenario states, and where it comes from."""

    what: str
    value: str
    of: Literal["observed", "like", "assumed"]
    """Observed; as the scenario that was named has it; or neither."""


@dataclass(frozen=True)
class ObservedScenario:
    """A scenario that stands for an observed service, with all files that it needs.

    Nothing is on disk until it is written (:func:`write`, or ``files`` by a writer of many).
    """

    observed: Observed
    requests: Sequence[ServedRequest]
    """Those that are in the scenario's load, in its order; empty where each is not known."""
    rows: Sequence[int]
    """Row of each of them in the table of requests, from 1."""
    files: Mapping[str, str | bytes]
    """Content by name: :data:`SCENARIO`, and what it reads beside it."""
    facts: Sequence[ScenarioFact]
    """What it states, and where that comes from, for printing."""
    turns: Sequence[tuple[int, int]] = ()
    """Session and turn of each request, from 0, where the load is one of sessions or clients."""


@dataclass
class _Draft:
    """A scenario that is being put together."""

    data: PlainData = field(default_factory=dict)
    files: dict[str, str | bytes] = field(default_factory=dict)
    facts: list[ScenarioFact] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)

    def observed(self, what: str, value: str) -> None:
        """Note what was observed."""
        self.facts.append(ScenarioFact(what, value, "observed"))

    def like(self, what: str, value: str) -> None:
        """Note what is as in the scenario that was named."""
        self.facts.append(ScenarioFact(what, value, "like"))

    def assumed(self, what: str, value: str) -> None:
        """Note what nobody says."""
        self.facts.append(ScenarioFact(what, value, "assumed"))


def load_observed(
    path: Path,
    like: str,
    folder: Path,
    catalogue: Catalogue | None = None,
    form: LoadForm = "as it was",
    skipped: int = 0,
) -> tuple[ObservedScenario, Loaded]:
    """Return the scenario of an ``observed.yaml``, without the times of its first requests,
    ``skipped`` of them, and the same one loaded, with its files written into ``folder``, which has
    to stay as long as it runs.

    Raises :class:`BadInput` with file, line and column, :class:`Infeasible` as a scenario does.
    """
    catalogue = catalogue or Catalogue()
    observed = read_later(path, skipped)
    made = scenario_of(observed, path.parent, like, catalogue, form, folder)
    return made, load(str(write(made, folder)), catalogue=catalogue)


def write(made: ObservedScenario, folder: Path) -> Path:
    """Write a scenario and its files into a folder, which is made; return its path."""
    writing.write_all({folder / name: content for name, content in made.files.items()})
    return folder / SCENARIO


def scenario_of(
    observed: Observed,
    folder: Path,
    like: str,
    catalogue: Catalogue,
    form: LoadForm = "as it was",
    out: Path | None = None,
    changes: PlainData | None = None,
    outside_ms: float | None = None,
) -> ObservedScenario:
    """Return the scenario of an observation whose tables lie in ``folder``.

    ``like`` is the name or the path of a scenario; ``out`` the folder that it will be written into,
    from which a path is then told; ``changes`` are further fields, as a file states them, which go
    before all others (``{"target": {"device": "./device.yaml"}}``). Clients pause for
    ``outside_ms`` between requests, by default that of the engine. Raises :class:`BadInput` with
    file, line and column where a table is broken, where no load is known, and where drafts were
    observed that the scenario does not draft.
    """
    base = catalogue.scenario(like)
    draft = _Draft()
    requests = read_requests(observed, folder)
    whole = _whole(requests)
    drafts = drafts_of(observed, read_steps(observed, folder), base, like)
    draft.data["like"] = _named(like, out)
    words = f"{observed.model or 'a model'} on {observed.engine or 'an engine'}"
    draft.data["about"] = f"As observed: {words}, {observed.bottleneck}"
    _add_drafts(draft, drafts)
    if outside_ms is None:
        outside_ms = _outside_ms(base)
    _add_load(draft, observed, whole, drafts, base, form, outside_ms)
    _add_warm_up(draft, observed)
    _add_serving(draft, observed, whole, base)
    _say_rest(draft, observed, base, like)
    _add_skipped(draft, len(requests) - len(whole))
    for name, value in (changes or {}).items():
        stated = draft.data.get(name)
        if isinstance(stated, dict) and isinstance(value, dict):
            draft.data[name] = {**stated, **value}
        else:
            draft.data[name] = value
    draft.files[SCENARIO] = yaml.safe_dump(
        draft.data, sort_keys=False, width=100, allow_unicode=True
    )
    return ObservedScenario(
        observed=observed,
        requests=[requests[row - 1] for row in draft.rows],
        rows=draft.rows,
        files=draft.files,
        facts=draft.facts,
        turns=draft.turns,
    )


class _Row(NamedTuple):
    """A request with its row in the table, from 1."""

    number: int
    request: ServedRequest
    prompt: int
    output: int


def _whole(requests: Sequence[ServedRequest]) -> list[_Row]:
    """Return the requests whose lengths are known."""
    rows = []
    for number, request in enumerate(requests, 1):
        if request.prompt_tokens and request.output_tokens:
            rows.append(_Row(number, request, request.prompt_tokens, request.output_tokens))
    return rows


def _named(like: str, out: Path | None) -> str:
    """Return how a file in ``out`` names a scenario: a path as it is seen from there."""
    if "/" not in like and not like.endswith(".yaml"):
        return like
    path = Path(like).resolve()
    if out is None:
        return str(path)
    return os.path.join(".", os.path.relpath(path, out.resolve()))


# ---- acceptance


def _add_drafts(draft: _Draft, drafts: ObservedDrafts) -> None:
    """Add method, window and acceptance."""
    draft.data |= drafts.fields
    for what, value, of in drafts.facts:
        draft.facts.append(ScenarioFact(what, value, of))
    if drafts.trace is not None:
        draft.files[TRACE] = packed(drafts.trace)
        draft.data["acceptance"] = {**draft.data["acceptance"], "trace": f"./{TRACE}"}


# ---- load


def _add_load(
    draft: _Draft,
    observed: Observed,
    rows: Sequence[_Row],
    drafts: ObservedDrafts,
    base: Document,
    form: LoadForm,
    outside_ms: float,
) -> None:
    """Add the load, each request where it is known, else sums."""
    load = observed.load
    clients = None
    if form == "as it was" and load.asked_rate_per_s is None:
        clients = load.most_concurrent
    timed = bool(rows) and all(row.request.arrival_s is not None for row in rows)
    turned = (load.most_turns or 1) > 1 and all(row.request.session for row in rows)
    if not rows:
        _add_sums(draft, observed, base, clients)
    elif turned and timed:
        _add_sessions(draft, rows, form, drafts.steps)
    elif clients or _shared_tokens(observed, rows):
        _add_single_turns(draft, observed, rows, clients, timed, drafts.steps)
        if clients:
            sessions = draft.data["requests"]["sessions"]
            sessions["between_s"] = round(outside_ms / 1e3, 9)
    else:
        _add_log(draft, observed, rows, timed, drafts.steps)


def _add_warm_up(draft: _Draft, observed: Observed) -> None:
    """Let the requests whose times are left out not count in the simulation, either."""
    early = sum(row <= (observed.skipped or 0) for row in draft.rows)
    if early:
        draft.data["requests"]["warm_up"] = early
        draft.observed("warm-up", f"the first {early:,}, which do not count")


def _add_log(
    draft: _Draft,
    observed: Observed,
    rows: Sequence[_Row],
    timed: bool,
    steps: Sequence[RequestSteps],
) -> None:
    """Add a log of requests, each with the recording of its own steps where these are known."""
    if timed:
        rows = sorted(rows, key=lambda row: row.request.arrival_s or 0.0)
    recordings = _recordings(draft, rows, steps).get("recordings")
    cells = []
    for place, row in enumerate(rows):
        task = recordings[place] if recordings else ""
        arrival_s = row.request.arrival_s if timed else ""
        cells.append([arrival_s, row.prompt, row.output, task])
    columns = ["arrival_s", "prompt_tokens", "output_tokens", "task"]
    draft.files[REQUESTS] = csv_text(columns, cells)
    arrivals: PlainData = {"name": "file", "format": "csv", "file": REQUESTS}
    draft.data["requests"] = {"arrivals": arrivals}
    if timed:
        draft.observed("load", f"{len(rows):,} requests, as they arrived")
    else:
        rate_per_s = _rate_per_s(observed)
        draft.files[REQUESTS] = csv_text(columns[1:], [row[1:] for row in cells])
        arrivals |= {"format": "log", "rate_per_s": rate_per_s}
        draft.observed("load", f"{len(rows):,} requests, {rate_per_s:.3g} a second")
        draft.assumed("arrivals", "of a Poisson process, as no file says when requests came")
    if recordings:
        draft.data["requests"]["task_flavours"] = "by_name"
    draft.rows = [row.number for row in rows]


def _recordings(draft: _Draft, rows: Sequence[_Row], steps: Sequence[RequestSteps]) -> PlainData:
    """Return the recording that each request replays, that of its own steps, as a field of
    requests; nothing where it is not known of all that decode.
    """
    if not steps:
        return {}
    places = {each.request: place for place, each in enumerate(steps, 1)}
    if not all(row.number in places for row in rows if row.output > 1):
        draft.assumed("steps of a request", "those of any request, as no file says whose they are")
        return {}
    draft.observed("steps of a request", "those that it had itself")
    return {"recordings": [f"all/{places.get(row.number, 1)}" for row in rows]}


def _add_sessions(
    draft: _Draft, rows: Sequence[_Row], form: LoadForm, steps: Sequence[RequestSteps]
) -> None:
    """Add a file of sessions that begin when they began, whose turns come as long behind an answer
    as they did, or when they came.
    """
    cells = []
    begun: dict[str, float] = {}
    for row in rows:
        at_s = row.request.arrival_s or 0.0
        begun[row.request.session] = min(at_s, begun.get(row.request.session, at_s))
    order = sorted(begun, key=lambda session: begun[session])
    listed = sorted(rows, key=lambda row: (order.index(row.request.session), row.request.turn or 0))
    ended: dict[str, float] = {}
    turns: dict[str, int] = {}
    for row in listed:
        session = row.request.session
        at_s = row.request.arrival_s or 0.0
        think_s = round(max(0.0, at_s - ended.get(session, at_s)), 6)
        pause: tuple[object, object] = (at_s, "")
        if turns.get(session) and form == "as it was":
            pause = ("", think_s)
        ended[session] = at_s + (row.request.e2e_ms or 0.0) / 1e3
        turn = turns.get(session, 0)
        turns[session] = turn + 1
        draft.turns.append((order.index(session), turn))
        draft.rows.append(row.number)
        cells.append([session, turn, *pause, row.prompt, row.output])
    columns = ("session", "turn", "arrival_s", "think_s", "prompt_tokens", "output_tokens")
    draft.files[SESSIONS] = csv_text(columns, cells)
    draft.data["requests"] = {
        "sessions": {"name": "file", "file": SESSIONS},
        "arrivals": {"name": "recorded"},
        **_recordings(draft, listed, steps),
    }
    words = f"{len(order):,} sessions of {len(rows):,} turns, as they began and paused"
    draft.observed("load", words)


def _add_single_turns(
    draft: _Draft,
    observed: Observed,
    rows: Sequence[_Row],
    clients: int | None,
    timed: bool,
    steps: Sequence[RequestSteps],
) -> None:
    """Add a file of sessions of one turn each: a closed loop of clients that take them in order, or
    requests that begin alike as they arrived.
    """
    shared = _shared_tokens(observed, rows)
    if timed:
        rows = sorted(rows, key=lambda row: row.request.arrival_s or 0.0)
    cells = []
    for place, row in enumerate(rows):
        beginning = shared if row.prompt > shared else 0
        cell: list[object] = [place, row.prompt, row.output]
        cell += ["observed", beginning] if beginning else ["", ""]
        if clients is None:
            cell.append(row.request.arrival_s if timed else 0.0)
        cells.append(cell)
        draft.turns.append((place, 0))
        draft.rows.append(row.number)
    columns = ["session", "prompt_tokens", "output_tokens", "system_prompt", "system_tokens"]
    requests: PlainData = {"sessions": {"name": "file", "file": SESSIONS}}
    if clients is None:
        columns.append("arrival_s")
        requests["arrivals"] = {"name": "recorded"}
        draft.observed("load", f"{len(rows):,} requests, as they arrived")
    else:
        requests["concurrency"] = min(clients, len(rows))
        draft.observed("load", f"{len(rows):,} requests of at most {clients:,} at a time")
    if shared:
        draft.observed("shared beginning", f"{shared:,} tokens of a prompt, by what caches found")
    draft.files[SESSIONS] = csv_text(columns, cells)
    draft.data["requests"] = requests | _recordings(draft, rows, steps)


def _add_sums(draft: _Draft, observed: Observed, base: Document, clients: int | None) -> None:
    """Add requests of mean lengths, as many a second as were observed; raises :class:`BadInput`
    where neither is known.
    """
    load = observed.load
    if not load.requests or not load.prompt_tokens or not load.output_tokens:
        if observed.passes_file:
            draft.like("load", "as no file knows more of it than passes")
            return
        message = (
            "holds no load: neither requests, nor how many there were and their tokens; observe "
            "two scrapes of /metrics with requests between them, or the result of a benchmark"
        )
        raise BadInput.at(OBSERVED, message, "load")
    count = load.requests
    requests: PlainData = {
        "count": count,
        "prompt_tokens": max(1, round(load.prompt_tokens / count)),
        "output_tokens": max(2, round(load.output_tokens / count)),
    }
    if clients is None:
        rate_per_s = _rate_per_s(observed)
        requests["arrivals"] = {"name": "poisson", "rate_per_s": rate_per_s}
        words = f"{rate_per_s:.3g} requests a second"
        draft.assumed("arrivals", "of a Poisson process, as no file says when requests came")
    else:
        requests["concurrency"] = min(clients, count)
        words = f"{count:,} requests of at most {clients:,} at a time"
    draft.assumed("lengths", "all requests as long as their mean, as no file has each of them")
    draft.observed("load", words)
    draft.data["requests"] = replacing(Requests, base.data.get("requests"), requests)


def _outside_ms(base: Document) -> float:
    """Return the time outside of its engine that a scenario states, in ms; 0 without any."""
    stated = base.get(("target", "engine", "outside_ms")) or 0.0
    return float(stated["value"] if isinstance(stated, dict) else stated)


def _rate_per_s(observed: Observed) -> float:
    """Return how many requests come in a second; raises :class:`BadInput` where that is not
    known.
    """
    load = observed.load
    for rate_per_s in (load.arrival_rate_per_s, load.ended_rate_per_s, load.asked_rate_per_s):
        if rate_per_s:
            return rate_per_s
    message = (
        "holds no rate of requests, and scrapes in files do not say how far apart they are; "
        "observe the server's URL, or name the result of a benchmark beside them"
    )
    raise BadInput.at(OBSERVED, message, "load.arrival_rate_per_s")


def _shared_tokens(observed: Observed, rows: Sequence[_Row]) -> int:
    """Return the tokens with which prompts begin alike, in whole blocks, so that as many are found
    in a cache as were; 0 where few are, or nobody says.
    """
    hit_tokens = observed.state.hit_tokens
    asked = observed.state.queried_tokens
    if not hit_tokens or not asked:
        hit_tokens = observed.load.cached_tokens
        asked = observed.load.prompt_tokens
    if not hit_tokens or not asked or hit_tokens < HITS * asked or len(rows) < 2:
        return 0
    block = observed.state.kv_block_tokens or 16
    mean = hit_tokens / asked * sum(row.prompt for row in rows) / (len(rows) - 1)
    return int(mean // block) * block


# ---- serving


def _add_serving(draft: _Draft, observed: Observed, rows: Sequence[_Row], base: Document) -> None:
    """Add batching as the engine does it, and the cache as it was observed."""
    state = observed.state
    memory: PlainData = {}
    if state.kv_capacity_tokens:
        memory["kv_tokens"] = state.kv_capacity_tokens
        draft.observed("KV cache", f"room for {state.kv_capacity_tokens:,} tokens")
    else:
        draft.like("KV cache", "what the weights leave on the device")
    if state.kv_block_tokens:
        memory["block_tokens"] = state.kv_block_tokens
    named = "sessions" in draft.data.get("requests", {})
    has_beginnings = bool(_shared_tokens(observed, rows)) or (observed.load.most_turns or 1) > 1
    memory["prefix_caching"] = named and has_beginnings
    if memory["prefix_caching"]:
        draft.observed("prefix cache", "on, as tokens were found in it or turns follow each other")
    elif state.hit_rate is not None:
        draft.observed("prefix cache", "off, as next to nothing was found in it")
    else:
        draft.assumed("prefix cache", "off, as no file says what prompts have in common")
    serving: PlainData = {"memory": memory}
    policy = base.get(("serving", "policy")) or {}
    places = policy.get("max_requests")
    if policy and (policy.get("name") != FixedBatch().name or places):
        draft.like("batching", str(policy.get("name")))
    elif base.get(("target", "engine")) is not None:
        serving["policy"] = {"name": "engine"}
        draft.like("batching", "as a server of its engine does by itself")
    else:
        serving["policy"] = {"name": PrefillFirst().name}
        draft.assumed("batching", "prompts first, as nothing is known of the server")
    draft.data["serving"] = serving


def _say_rest(draft: _Draft, observed: Observed, base: Document, like: str) -> None:
    """Note what no file of a service holds."""
    target = base.get(("target",)) or {}
    for what in ("model", "device", "engine"):
        part = target.get(what)
        if isinstance(part, dict):
            draft.like(what, str(part.get("name", "")))
    ranks = target.get("tensor_parallel", 1)
    words = f"{ranks} devices share the target" if ranks != 1 else "one device"
    draft.like("number of devices", f"{words}; no file of a service says it")
    draft.like("options of the engine", f"as in {like}; no file of a service says them")


def _add_skipped(draft: _Draft, skipped: int) -> None:
    """Note requests that are left out."""
    if skipped:
        plural = "" if skipped == 1 else "s"
        words = f"{skipped:,} request{plural} without a number of prompt or output tokens"
        draft.assumed("left out", words)
