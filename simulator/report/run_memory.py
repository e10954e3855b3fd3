"""Memory of each stage of a pipeline (SP-10): as it is, and by the formula that SpecPipe prints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from simulator.cost.partition import GIB
from simulator.report.run_summary import number
from simulator.scenario import Scenario
from simulator.scenario.outcome import stage_memories

HEAD = ("stages", "weights", "table", "KV", "tree", "runtime", "GiB", "printed")


def stage_rows(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """Yield rows under ``HEAD`` in GiB, a row for each run of equal stages; none without a pipeline of a dense model.

    ``printed`` is the total with ``4 d^2 + 3 d f`` weights a layer, as if there were no grouped heads.
    """
    numbered = enumerate(stage_memories(scenario), start=1)
    for (layers, true, printed), run in groupby(numbered, key=itemgetter(1)):
        places = [place for place, _ in run]
        name = str(places[0]) if len(places) == 1 else f"{places[0]}-{places[-1]}"
        parts = (number(size / GIB, 3) for size in true)
        yield (f"{name} ({layers} layers)", *parts, number(true.gib), number(printed.gib))


def caption(scenario: Scenario) -> str:
    """Return what the columns of the table mean."""
    stated = scenario.serving.memory.kv_tokens is not None
    room = f"{scenario.kv_tokens or 0:,} tokens ({'stated' if stated else 'what the weights leave on the fullest device'})"
    return (
        f"Memory of each stage in GiB. Table: embedding or LM head. KV: room for {room}. Printed: in total with 4 d² + 3 d f "
        "weights a layer, as SpecPipe counts them (SP-10)."
    )
