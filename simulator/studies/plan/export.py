"""Write the answer of a plan for the programs that serve it.

* ``scenario.yaml``: the whole scenario with its replicas, to be run again by ``specsim run``; with
  ``traffic.csv`` or ``sessions.csv`` beside it where requests were read from a file.
* ``vllm.sh``, ``sglang.sh``, ``llama_cpp.sh``, ``tensorrt_llm.sh`` with ``tensorrt_llm.yaml``: a
  command for each replica, plain decoding too (:mod:`simulator.studies.plan.commands.engines`).
* ``vllm_prefill.sh``, ``vllm_decode.sh``, ``vllm_router.sh``, those of SGLang, and ``dynamo.yaml``
  where prefill and decode are apart (:mod:`simulator.studies.plan.commands.apart`).
* ``schedule.csv``: draft tokens by batch and context that give the most by law; 0 where speculation
  has to be off.
* ``specpipe.yaml``: width, branching and layers of the stages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import yaml

from simulator.core.acceptance.sources import odds_of
from simulator.core.plain import PlainData
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.strategies.adaptive_verification import of_chain
from simulator.core.strategies.common.adaptive import (
    FixedWindow,
    GoodputWindow,
    WindowTable,
    stated_windows,
)
from simulator.core.strategies.common.capabilities import DraftsChain, beam_of
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.writing import csv_text
from simulator.scenario import Loaded, Scenario, resolved
from simulator.scenario.evaluate import plain, tuned
from simulator.studies.plan.commands.apart import scripts_apart
from simulator.studies.plan.commands.engines import ENGINES, program_name
from simulator.studies.plan.search import Finding, examine, replicated

TRAFFIC = ("arrival_s", "prompt_tokens", "output_tokens", "task", "hash_ids")
SESSIONS = (
    "session",
    "turn",
    "new_tokens",
    "prompt_tokens",
    "output_tokens",
    "arrival_s",
    "think_s",
    "parent",
    "system_prompt",
    "system_tokens",
)
CONTEXTS = (1024, 4096, 16_384, 65_536, 131_072)
"""Cached tokens for which draft lengths are given, beside the mean of the plan."""

ADAPTIVE = "adaptive_verification"
"""The rule's name among those of an engine."""

DraftLengths = dict[int, dict[int, int]]
"""Draft tokens by cached tokens of a request, then by requests that decode together; 0: without
speculation.
"""


@dataclass(frozen=True)
class WindowSchedule:
    """Holds draft tokens by batch size, and the answer run with them."""

    windows: dict[int, int]
    """Draft tokens by the first batch size that they hold for."""
    finding: Finding

    def ranges(self, places: int) -> list[list[int]]:
        """Return [first size, last size, tokens] of each range, without gaps up to ``places``."""
        starts = sorted({1, *self.windows})
        ends = [*(start - 1 for start in starts[1:]), places]
        return [
            [first, last, self.windows[first]]
            for first, last in zip(starts, ends, strict=True)
            if first <= last
        ]


def schedule(finding: Finding) -> WindowSchedule | None:
    """Return the window with the most tokens a second by law for every batch, at most the answer's.

    None without a fixed window to replace. The answer is run with it: a schedule is worth having
    only where the SLO is still met.
    """
    loaded = finding.candidate.loaded
    strategy = loaded.scenario.strategy
    if not isinstance(strategy, DraftsChain) or not isinstance(strategy.chain_rule, FixedWindow):
        return None
    found = tuned(loaded.replace(strategy=strategy.with_rule(GoodputWindow()))).scenario.strategy
    windows = stated_windows(found.chain_rule) if isinstance(found, DraftsChain) else {}
    table = WindowTable(windows=windows)
    scheduled = finding.candidate.changed(
        lambda loaded: loaded.replace(strategy=strategy.with_rule(table))
    )
    if set(windows.values()) == {strategy.window} and finding.outcome:
        return WindowSchedule(windows, replace(finding, candidate=scheduled))  # the same steps
    return WindowSchedule(windows, examine(scheduled, finding.replicas, "end"))


def adaptive(finding: Finding) -> Finding | None:
    """Return the answer run with adaptive verification of the same drafts; None where its engine
    has no such rule, or it does not draft chains with heads.
    """
    scenario = finding.candidate.loaded.scenario
    strategy = scenario.strategy
    target = scenario.target
    if target is None or target.pipeline or finding.candidate.split:
        return None
    rule = of_chain(strategy)
    if ADAPTIVE not in target.engine.windows.offered or rule is None:
        return None
    verified = finding.candidate.changed(lambda loaded: loaded.replace(strategy=rule))
    return examine(verified, finding.replicas, "end")


def is_better(adaptive: Finding, finding: Finding) -> bool:
    """Return whether an answer with adaptive verification meets the SLO with more to spare."""
    return adaptive.kept and adaptive.tightest.strain < finding.tightest.strain


class ServedAnswer(NamedTuple):
    """Holds how an answer is served: what was looked at for that, and the files."""

    schedule: WindowSchedule | None
    adaptive: Finding | None
    """The answer with adaptive verification; None where its engine or its drafts have none."""
    lengths: DraftLengths
    files: dict[str, str]
    """Text by file name."""


def served_answer(chosen: Finding, head: str, catalogue: Catalogue) -> ServedAnswer:
    """Return how a fleet is served, with adaptive verification where that has more to spare;
    ``head`` as for :func:`exports`.
    """
    table = schedule(chosen)
    verified = adaptive(chosen)
    lengths = draft_lengths(chosen.candidate.loaded)
    served = verified if verified and is_better(verified, chosen) else chosen
    files = exports(served, table, lengths, head, catalogue)
    return ServedAnswer(table, verified, lengths, files)


def draft_lengths(loaded: Loaded) -> DraftLengths:
    """Return the draft tokens that give the most by law, for batches of 1, 2, 4, ... and contexts
    of ``CONTEXTS``.

    Chains may draft fewer than the answer, other drafts all of their levels or none. A context goes
    as far as the model's and the batch as the cache has room. What a pass is padded to, as graphs
    are captured, counts; to switch costs nothing here. Empty for plain decoding.
    """
    loaded = tuned(loaded)
    scenario, strategy = loaded.scenario, loaded.scenario.schedule
    if not strategy.window:
        return {}
    options = {0: Loaded(plain(scenario), None, loaded.document), strategy.window: loaded}
    if isinstance(strategy, DraftsChain) and isinstance(strategy.chain_rule, FixedWindow):
        options |= {tokens: loaded.change(gamma=tokens) for tokens in range(1, strategy.window)}
    longest = scenario.target.model.context_tokens if scenario.target else None
    contexts = sorted(
        {
            scenario.mean_context,
            *(size for size in CONTEXTS if size <= (longest or scenario.lengths[2])),
        }
    )
    batches = [1 << power for power in range(scenario.batch.bit_length())]
    room = scenario.kv_tokens
    return {
        context: {
            batch: _best(options, batch, context)
            for batch in batches
            if room is None or batch * context <= room
        }
        for context in contexts
    }


def _best(options: Mapping[int, Loaded], batch: int, context: int) -> int:
    def tpot_s(tokens: int) -> float:
        scenario, acceptance = options[tokens].scenario, options[tokens].acceptance()
        odds = odds_of(acceptance, scenario.exit)
        return float(scenario.law_at(odds, batch, context).tpot_s)

    return min(sorted(options), key=tpot_s)


def exports(
    finding: Finding,
    windows: WindowSchedule | None,
    lengths: DraftLengths,
    head: str = "",
    catalogue: Catalogue | None = None,
) -> dict[str, str]:
    """Return text by file name; which of the files there are depends on the strategy and the
    engine.

    ``head`` is the checkpoint of a draft head; where none is stated, the means of ``catalogue`` may
    name one.
    """
    scenario = replicated(finding.candidate.loaded, finding.replicas).scenario
    stated = yaml.safe_dump(_runnable(scenario), sort_keys=False, width=120)
    files = {"scenario.yaml": f"# the plan's figures: specsim run scenario.yaml\n{stated}"}
    if scenario.requests.traffic:
        files["traffic.csv"] = _traffic(scenario)
    if isinstance(scenario.requests.sessions, SessionFile):
        files["sessions.csv"] = _sessions(scenario, scenario.requests.sessions)
    if lengths:
        files["schedule.csv"] = _schedule(lengths)
    stages = _stages(scenario)
    if stages:
        files["specpipe.yaml"] = stages
    else:
        files |= _scripts(scenario, windows, head, catalogue)
    return files


def _traffic(scenario: Scenario) -> str:
    """Return the requests, with hashes of their prompts where prefixes are cached."""
    columns = slice(None if scenario.serving.memory.prefix_caching else -1)
    lines = []
    for line in scenario.requests.lines():
        cells = [repr(line.arrival_s), *line[2:5], " ".join(map(str, line.hashes))]
        lines.append(cells[columns])
    return csv_text(TRAFFIC[columns], lines)


def _sessions(scenario: Scenario, file: SessionFile) -> str:
    """Return the turns of sessions that were read, a line each; ``new_tokens`` where all that was
    said stands before them, else the whole prompt.
    """
    rows: list[list[object]] = []
    for number, session in enumerate(file.sessions(scenario.seed)):
        begin_s = session.begin_s
        for place, said in enumerate(session.turns):
            arrival_s = begin_s
            if place:
                arrival_s = (begin_s or 0.0) + said.earliest_s if said.earliest_s else None
            new = said.new_tokens
            if place and said.shared_tokens is not None:
                lengths = ["", said.shared_tokens + new]
            else:
                lengths = [new, ""]
            system: list[object] = ["", ""]
            if session.system:
                system = [session.system.removeprefix("system "), session.system_tokens]
            rows.append(
                [
                    number,
                    place,
                    *lengths,
                    said.output_tokens,
                    "" if arrival_s is None else repr(arrival_s),
                    repr(said.wait_s),
                    "" if said.parent is None else said.parent,
                    *system,
                ]
            )
    return csv_text(SESSIONS, rows)


def _schedule(lengths: DraftLengths) -> str:
    """Return draft tokens by batch, a column for each context; empty where the cache has no
    room.
    """
    sizes = sorted({batch for table in lengths.values() for batch in table})
    rows = [[batch, *(table.get(batch, "") for table in lengths.values())] for batch in sizes]
    return csv_text(["requests", *(f"context_{context}_tokens" for context in lengths)], rows)


def _stages(scenario: Scenario) -> str:
    """Return width, branching and layers of the stages of a pipeline that verifies a tree; empty
    for another strategy.
    """
    beam = beam_of(scenario.strategy)
    target = scenario.target
    if beam is None or target is None or target.pipeline is None:
        return ""
    settings = {
        "width": beam.width,
        "branching": beam.branching,
        "stage_layers": [stage.layers for stage in target.pipeline.stages],
    }
    said = "# for SpecPipe's own program: the tree, and the layers of each stage\n"
    return said + yaml.safe_dump(settings, sort_keys=False)


def _scripts(
    scenario: Scenario, windows: WindowSchedule | None, head: str, catalogue: Catalogue | None
) -> dict[str, str]:
    """Return the files of the program that serves on the engine of the target, by name."""
    ranges = None
    if windows is not None and windows.finding.kept:
        ranges = windows.ranges(scenario.batch)
    name = program_name(scenario)
    if name is None:
        return {}
    if scenario.serving.pools:
        return scripts_apart(name, scenario, ranges, head, catalogue)
    return ENGINES[name].files(scenario, ranges, head, catalogue)


def _runnable(scenario: Scenario) -> PlainData:
    """Return a scenario as a file may state it: without what the file's name and the strategy
    decide.
    """
    fields = resolved(scenario)
    fields.pop("name")
    if scenario.requests.traffic:
        for field in ("count", "prompt_tokens", "output_tokens"):
            fields["requests"].pop(field, None)
        fields["requests"]["arrivals"] = {"name": "file", "format": "csv", "file": "traffic.csv"}
    if isinstance(scenario.requests.sessions, SessionFile):
        for field in ("prompt_tokens", "output_tokens"):
            fields["requests"].pop(field, None)
        fields["requests"]["sessions"] = {"name": "file", "file": "sessions.csv"}
    return fields
