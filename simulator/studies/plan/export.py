"""Write the answer of a plan for the programs that serve it.

* ``scenario.yaml``: the whole scenario with its replicas, to be run again by ``specsim run``; with
  ``traffic.csv`` beside it where requests were read from a file.
* ``vllm.sh``, ``sglang.sh``, ``llama_cpp.sh``: a command for each replica, plain decoding too.
  Templates, names of options and the documentation that they are from are in ``exports.yaml``.
* ``schedule.csv``: draft tokens by batch and context that give the most by law; 0 where speculation
  has to be off.
* ``specpipe.yaml``: width, branching and layers of the stages.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment

from simulator.acceptance.sources import odds_of
from simulator.cost.placement import Placement
from simulator.files.shell import Comment, named_file, quoted
from simulator.files.writing import csv_text, json_text
from simulator.scenario import Loaded, Scenario, resolved
from simulator.scenario.run import plain, tuned
from simulator.serving.policies import ChunkedPrefill, Policy, PrefillFirst, UnifiedBudget
from simulator.strategies.common.adaptive import (
    FixedWindow,
    GoodputWindow,
    WindowTable,
    stated_windows,
)
from simulator.strategies.common.capabilities import DraftsChain
from simulator.strategies.common.studied import LevelTree
from simulator.studies.plan.search import Finding, examine, replicated

ENGINES: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("exports.yaml").read_text("utf-8")
)
SHELL = Environment(finalize=quoted)  # noqa: S701
SHELL.filters |= {
    "comment": Comment,
    "gguf": lambda name: named_file(f"{str(name).rpartition('/')[2]}.gguf"),
}
TRAFFIC = ("arrival_s", "prompt_tokens", "output_tokens", "task", "hash_ids")
CONTEXTS = (1024, 4096, 16_384, 65_536, 131_072)
"""Cached tokens for which draft lengths are given, beside the mean of the plan."""
CONTEXT_STEP = 1024
"""A server's longest context is the plan's longest request, rounded up to a multiple of so many
tokens.
"""


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
    return WindowSchedule(windows, examine(scheduled, finding.replicas, to_the_end=True))


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
    finding: Finding, windows: WindowSchedule | None, lengths: DraftLengths, head: str = ""
) -> dict[str, str]:
    """Return text by file name; which of the files there are depends on the strategy and the
    engine.

    ``head`` is the checkpoint of a draft head.
    """
    return dict(
        _files(
            replicated(finding.candidate.loaded, finding.replicas).scenario, windows, lengths, head
        )
    )


def _files(
    scenario: Scenario, windows: WindowSchedule | None, lengths: DraftLengths, head: str
) -> Iterator[tuple[str, str]]:
    strategy = scenario.strategy
    yield "scenario.yaml", yaml.safe_dump(_runnable(scenario), sort_keys=False, width=120)
    if scenario.requests.traffic:
        lines = (
            [repr(line.arrival_s), *line[2:5], " ".join(map(str, line.hashes))]
            for line in scenario.requests.lines()
        )
        columns = slice(None if scenario.serving.memory.prefix_caching else -1)
        yield "traffic.csv", csv_text(TRAFFIC[columns], (line[columns] for line in lines))
    if lengths:
        sizes = sorted({batch for table in lengths.values() for batch in table})
        rows = [[batch, *(table.get(batch, "") for table in lengths.values())] for batch in sizes]
        yield (
            "schedule.csv",
            csv_text(["requests", *(f"context_{context}_tokens" for context in lengths)], rows),
        )
    if isinstance(strategy, LevelTree) and scenario.target and scenario.target.pipeline:
        layers = [stage.layers for stage in scenario.target.pipeline.stages]
        settings = {
            "width": strategy.beam.width,
            "branching": strategy.beam.branching,
            "stage_layers": layers,
        }
        yield "specpipe.yaml", yaml.safe_dump(settings, sort_keys=False)
    elif scenario.target:
        engine = scenario.target.engine.name
        for entry in (entry for name, entry in ENGINES.items() if engine.startswith(name)):
            fields = command_fields(scenario, entry, windows, head)
            if fields is not None:
                yield entry["file"], SHELL.from_string(entry["template"]).render(fields) + "\n"


def _runnable(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as a file may state it: without what the file's name and the strategy
    decide.
    """
    fields = resolved(scenario)
    fields.pop("name")
    if scenario.requests.traffic:
        for field in ("count", "prompt_tokens", "output_tokens"):
            fields["requests"].pop(field, None)
        fields["requests"]["arrivals"] = {"name": "file", "format": "csv", "file": "traffic.csv"}
    return fields


def command_fields(
    scenario: Scenario, entry: Mapping[str, Any], windows: WindowSchedule | None, head: str
) -> dict[str, Any] | None:
    """Return what the template of an engine is filled with; None for a way to draft that it has no
    options for.
    """
    target, strategy = scenario.target, scenario.schedule
    kind = kind_of(scenario, entry["methods"])
    if target is None or kind is None:
        return None
    drafted = scenario.draft if kind == "draft_model" else None
    ranges = (
        windows.ranges(scenario.batch) if windows is not None and windows.finding.kept else None
    )
    fields = {
        "scenario": scenario,
        "target": target,
        "strategy": strategy,
        "tree": strategy.model_dump(mode="json").get("tree") or {},
        "source": entry["source"],
        "model": checkpoint(target),
        "draft": checkpoint(drafted) if drafted else head,
        "draft_ranks": drafted.tensor_parallel if drafted else None,
        "context": -(-(scenario.lengths[2] + strategy.window) // CONTEXT_STEP) * CONTEXT_STEP,
        "form": entry["formats"].get(target.weights),
        "cache": entry["cache"].get(target.kv_cache),
        "method": entry["methods"].get(kind, ""),
        "tokens": max((most for _, _, most in ranges or ()), default=0) or strategy.window,
        "ranges": ranges,
        "chunk": chunk_of(scenario.serving.policy),
        "mixed": isinstance(scenario.serving.policy, ChunkedPrefill | UnifiedBudget),
        "keeps": scenario.serving.memory.prefix_caching,
    }
    config = {name: fields[field] for name, field in entry.get("config", {}).items()}
    stated = {name: value for name, value in config.items() if value not in ("", None)}
    return fields | {"config": json_text(stated, indent=None)}


def chunk_of(policy: Policy) -> int | None:
    """Return the tokens of a pass of a policy that cuts prompts to them; None where prompts are
    whole.
    """
    if isinstance(policy, ChunkedPrefill):
        return policy.chunk_tokens
    if isinstance(policy, UnifiedBudget):
        return policy.budget_tokens
    return (
        policy.batch_tokens if isinstance(policy, PrefillFirst) and policy.splits_prompts else None
    )


def kind_of(scenario: Scenario, known: Iterable[str]) -> str | None:
    """Return how drafts come about, of the ``known`` ways; empty where there are none, None where
    it is another way.
    """
    strategy = scenario.schedule
    if not strategy.window:
        return ""
    if isinstance(strategy, DraftsChain) and strategy.serial and scenario.draft:
        return "draft_model"
    return next((kind for kind in known if kind in scenario.method_name), None)


def checkpoint(place: Placement) -> str:
    """Return the id of a model on Hugging Face, or its name where none is known; never a word that
    looks like an option.
    """
    return next(iter(place.model.huggingface), named_file(place.model.name))
