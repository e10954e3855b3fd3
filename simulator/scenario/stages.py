"""Memory of the stages of a scenario's pipeline (SpecPipe, SP-10)."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.cost.partition import StageMemory, stage_memory
from simulator.scenario import Scenario
from simulator.strategies.common.studied import LevelTree


def stage_memories(scenario: Scenario) -> Iterator[tuple[int, StageMemory, StageMemory]]:
    """Return the layers of each stage and the bytes it holds, as it is and by the formula that SpecPipe prints (SP-10).

    None without a pipeline of a dense model on one device a stage.
    """
    target = scenario.target
    if target is None or target.pipeline is None or target.model.experts or target.tensor_parallel > 1:
        return
    model, pipeline = target.model, target.pipeline
    for first, last in pipeline.bounds:
        true, printed = (
            stage_memory(
                model,
                last - first,
                scenario.kv_tokens or 0,
                ends=(first == 0) + (last == model.num_hidden_layers),
                formula=formula,
                weights=target.weights,
                width=scenario.schedule.beam.width if isinstance(scenario.schedule, LevelTree) else 0,
                stages=scenario.stages,
                runtime_bytes=pipeline.runtime_gb.value * 1e9,
            )
            for formula in ("grouped", "printed")
        )
        yield last - first, true, printed
