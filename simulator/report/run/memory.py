"""Memory of the stages of a pipeline."""

from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from simulator.core.cost.partition import GIB, StageMemory
from simulator.report.blocks import Block, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.wording import number
from simulator.scenario import Scenario
from simulator.scenario.outcome import stage_memories


class EqualStages(NamedTuple):
    """Neighbouring stages that need the same memory."""

    places: str
    """Numbers of the first and the last of them."""
    layers: int
    memory: StageMemory
    printed_gib: float
    """The total with ``4 d^2 + 3 d f`` weights a layer, as if there were no grouped heads."""


def section(scenario: Scenario) -> Section:
    """Return the table of memory by stage; empty without a pipeline of a dense model."""
    blocks: list[Block] = []
    by_stage = stages(scenario)
    if by_stage:
        blocks = [by_stage, Paragraph(stage_caption(scenario))]
    return Section("Memory of the stages", blocks)


def stages(scenario: Scenario) -> Table | None:
    """Return the table of memory in GiB with a row for each run of equal stages; None without a
    pipeline of a dense model.
    """
    rows = []
    numbered = enumerate(stage_memories(scenario), start=1)
    for (layers, memory, printed), alike in groupby(numbered, key=itemgetter(1)):
        places = [place for place, _ in alike]
        if len(places) == 1:
            span = str(places[0])
        else:
            span = f"{places[0]}-{places[-1]}"
        rows.append(EqualStages(span, layers, memory, printed.gib))
    if not rows:
        return None
    columns: list[Column[EqualStages]] = [
        Column("stages", lambda row: f"{row.places} ({row.layers} layers)"),
        Column("weights", lambda row: number(row.memory.weights / GIB, 3)),
        Column("table", lambda row: number(row.memory.table / GIB, 3)),
        Column("KV", lambda row: number(row.memory.kv / GIB, 3)),
        Column("tree", lambda row: number(row.memory.tree / GIB, 3)),
        Column("runtime", lambda row: number(row.memory.runtime / GIB, 3)),
        Column("GiB", lambda row: number(row.memory.gib)),
        Column("printed", lambda row: number(row.printed_gib)),
    ]
    return table("Memory of the stages", rows, columns)


def stage_caption(scenario: Scenario) -> str:
    """Return what the columns of the table mean."""
    if scenario.serving.memory.kv_tokens is not None:
        room = "stated"
    else:
        room = "what the weights leave on the fullest device"
    return (
        "Memory of each stage in GiB. Table: embedding or LM head. KV: room for "
        f"{scenario.kv_tokens or 0:,} tokens ({room}). Printed: in total with 4 d² + 3 d f weights "
        "a layer, as SpecPipe counts them (SP-10)."
    )
