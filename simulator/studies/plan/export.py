"""The answer of a plan in the words of the programs that serve it.

* ``scenario.yaml``: the whole scenario with its replicas, to be run again by ``specsim run``.
* ``vllm.sh`` (a draft model in vLLM): ``--speculative-config`` with ``num_speculative_tokens_per_batch_size``, entries of
  first size, last size and tokens (vLLM 0.25, features/speculative_decoding/dynamic_speculative_decoding).
* ``llama_cpp.sh`` (a draft model in llama.cpp): the draft length; ``--spec-draft-n-max`` was ``--draft-max`` before,
  ``--spec-draft-n-min`` ``--draft-min``. A window is fixed here, so drafting never stops early (``--spec-draft-p-min 0``).
* ``specpipe.yaml``: width, branching and layers of the stages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from simulator.scenario import Loaded, Scenario, resolved
from simulator.scenario.run import tuned
from simulator.strategies.common.adaptive import FixedWindow, GoodputWindow, WindowTable, stated_windows
from simulator.strategies.common.base import Strategy
from simulator.strategies.common.capabilities import DraftsChain
from simulator.strategies.common.studied import LevelTree
from simulator.studies.plan.search import Finding, examine, replicated, with_loaded


@dataclass(frozen=True)
class WindowSchedule:
    """Draft tokens by batch size, and the answer run with them."""

    windows: dict[int, int]
    """From each size on."""
    finding: Finding

    def ranges(self, places: int) -> list[list[int]]:
        """First size, last size, tokens; without gaps up to ``places``."""
        starts = sorted({1, *self.windows})
        ends = [*(start - 1 for start in starts[1:]), places]
        return [[first, last, self.windows[first]] for first, last in zip(starts, ends, strict=True) if first <= last]


def schedule(finding: Finding) -> WindowSchedule | None:
    """The window of most tokens a second by law for every batch, at most the answer's; None without a fixed window to replace.

    The answer is run with it: a schedule is worth having only where the SLO is still kept.
    """
    loaded = finding.candidate.loaded
    strategy = loaded.scenario.strategy
    if not isinstance(strategy, DraftsChain) or not isinstance(strategy.chain_rule, FixedWindow):
        return None
    found = tuned(loaded.replace(strategy=strategy.with_rule(GoodputWindow()))).scenario.strategy
    windows = stated_windows(found.chain_rule) if isinstance(found, DraftsChain) else {}
    table = WindowTable(windows=windows)
    other = with_loaded(finding.candidate, loaded.replace(strategy=strategy.with_rule(table)))
    return WindowSchedule(windows, examine(other, finding.replicas, to_the_end=True))


def exports(finding: Finding, found: WindowSchedule | None) -> dict[str, str]:
    """Text by file name; which of the files there are depends on the strategy and the engine."""
    return dict(_files(replicated(finding.candidate.loaded, finding.replicas), found))


def _files(loaded: Loaded, found: WindowSchedule | None) -> Iterator[tuple[str, str]]:
    scenario, strategy = loaded.scenario, loaded.scenario.strategy
    yield "scenario.yaml", yaml.safe_dump(_runnable(scenario), sort_keys=False, width=120)
    if isinstance(strategy, DraftsChain) and strategy.serial and scenario.draft and scenario.target:
        if "llama" in scenario.target.engine.name:
            yield "llama_cpp.sh", _llama_cpp(scenario, strategy)
        else:
            yield "vllm.sh", _vllm(scenario, strategy, found)
    if isinstance(strategy, LevelTree) and scenario.target and scenario.target.pipeline:
        layers = [stage.layers for stage in scenario.target.pipeline.stages]
        held = {"width": strategy.beam.width, "branching": strategy.beam.branching, "stage_layers": layers}
        yield "specpipe.yaml", yaml.safe_dump(held, sort_keys=False)


def _runnable(scenario: Scenario) -> dict[str, Any]:
    """A scenario as a file may say it: what is worked out from the file's name and the strategy is left out."""
    held = resolved(scenario)
    held.pop("name")
    if scenario.requests.traffic:
        for field in ("count", "prompt_tokens", "output_tokens"):
            held["requests"].pop(field, None)
    return held


def _vllm(scenario: Scenario, strategy: Strategy, found: WindowSchedule | None) -> str:
    target, draft, places = scenario.target, scenario.draft, scenario.batch
    better = found is not None and found.finding.kept
    ranges = found.ranges(places) if found and better else [[1, places, strategy.window]]
    config = {
        "method": "draft_model",
        "model": draft.model.name if draft else "",
        "draft_tensor_parallel_size": draft.tensor_parallel if draft else 1,
        "num_speculative_tokens": max(tokens for _, _, tokens in ranges) or strategy.window,
        "num_speculative_tokens_per_batch_size": ranges,
    }
    name, ranks = (target.model.name, target.tensor_parallel) if target else ("", 1)
    return (
        f"# each of {scenario.serving.replicas} replicas; models by their names here\n"
        f"vllm serve {name} --tensor-parallel-size {ranks} --max-num-seqs {places} \\\n"
        f"    --speculative-config '{json.dumps(config)}'\n"
    )


def _llama_cpp(scenario: Scenario, strategy: Strategy) -> str:
    target, draft = scenario.target, scenario.draft
    names = [place.model.name if place else "" for place in (target, draft)]
    words = f"-m {names[0]}.gguf -md {names[1]}.gguf -np {scenario.batch}"
    older = "    # before the options were renamed"
    return (
        f"llama-server {words} --spec-draft-n-max {strategy.window} --spec-draft-n-min 0 --spec-draft-p-min 0\n"
        f"llama-server {words} --draft-max {strategy.window} --draft-min 0 --draft-p-min 0{older}\n"
    )
