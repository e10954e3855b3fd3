"""Write the answer of a plan for the programs that serve it.

* ``scenario.yaml``: the whole scenario with its replicas, to be run again by ``specsim run``.
* ``vllm.sh`` (a draft model in vLLM): ``--speculative-config`` with ``num_speculative_tokens_per_batch_size``, entries of
  first size, last size and tokens (vLLM 0.25, features/speculative_decoding/dynamic_speculative_decoding).
* ``llama_cpp.sh`` (a draft model in llama.cpp): the draft length; ``--spec-draft-n-max`` was ``--draft-max`` before,
  ``--spec-draft-n-min`` ``--draft-min``. A window is fixed here, so drafting never stops early (``--spec-draft-p-min 0``).
* ``specpipe.yaml``: width, branching and layers of the stages.
"""

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
from simulator.studies.plan.search import Finding, examine, replicated


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
        return [[first, last, self.windows[first]] for first, last in zip(starts, ends, strict=True) if first <= last]


def schedule(finding: Finding) -> WindowSchedule | None:
    """Return the window with the most tokens a second by law for every batch, at most the answer's.

    None without a fixed window to replace. The answer is run with it: a schedule is worth having only where the SLO is
    still met.
    """
    loaded = finding.candidate.loaded
    strategy = loaded.scenario.strategy
    if not isinstance(strategy, DraftsChain) or not isinstance(strategy.chain_rule, FixedWindow):
        return None
    found = tuned(loaded.replace(strategy=strategy.with_rule(GoodputWindow()))).scenario.strategy
    windows = stated_windows(found.chain_rule) if isinstance(found, DraftsChain) else {}
    table = WindowTable(windows=windows)
    scheduled = finding.candidate.changed(lambda loaded: loaded.replace(strategy=strategy.with_rule(table)))
    return WindowSchedule(windows, examine(scheduled, finding.replicas, to_the_end=True))


def exports(finding: Finding, windows: WindowSchedule | None) -> dict[str, str]:
    """Return text by file name; which of the files there are depends on the strategy and the engine."""
    return dict(_files(replicated(finding.candidate.loaded, finding.replicas), windows))


def _files(loaded: Loaded, windows: WindowSchedule | None) -> Iterator[tuple[str, str]]:
    scenario, strategy = loaded.scenario, loaded.scenario.strategy
    yield "scenario.yaml", yaml.safe_dump(_runnable(scenario), sort_keys=False, width=120)
    if isinstance(strategy, DraftsChain) and strategy.serial and scenario.draft and scenario.target:
        if "llama" in scenario.target.engine.name:
            yield "llama_cpp.sh", _llama_cpp(scenario, strategy)
        else:
            yield "vllm.sh", _vllm(scenario, strategy, windows)
    if isinstance(strategy, LevelTree) and scenario.target and scenario.target.pipeline:
        layers = [stage.layers for stage in scenario.target.pipeline.stages]
        settings = {"width": strategy.beam.width, "branching": strategy.beam.branching, "stage_layers": layers}
        yield "specpipe.yaml", yaml.safe_dump(settings, sort_keys=False)


def _runnable(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as a file may state it: without what the file's name and the strategy decide."""
    fields = resolved(scenario)
    fields.pop("name")
    if scenario.requests.traffic:
        for field in ("count", "prompt_tokens", "output_tokens"):
            fields["requests"].pop(field, None)
    return fields


def _vllm(scenario: Scenario, strategy: Strategy, windows: WindowSchedule | None) -> str:
    target, draft, places = scenario.target, scenario.draft, scenario.batch
    ranges = [[1, places, strategy.window]]
    if windows is not None and windows.finding.kept:
        ranges = windows.ranges(places)
    config = {
        "method": "draft_model",
        "model": draft.model.name if draft else "",
        "draft_tensor_parallel_size": draft.tensor_parallel if draft else 1,
        "num_speculative_tokens": max(tokens for _, _, tokens in ranges) or strategy.window,
        "num_speculative_tokens_per_batch_size": ranges,
    }
    name, ranks = (target.model.name, target.tensor_parallel) if target else ("", 1)
    replicas = scenario.serving.replicas
    return (
        f"# {'1 replica' if replicas == 1 else f'each of {replicas} replicas'}; models by their names here\n"
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
