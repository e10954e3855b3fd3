"""For which acceptance released arms come out in their order, by law: a fixed block of seven ahead
of plain decoding and behind it, adaptive verification behind the fixed block.

    python -m benchmarks.adaptive_arms ../shared/data/engine_runs/adaptive_verification.csv

The rows are of DeepSeek-V4 with DSpark on AMD's cards, without acceptance, version or number of
cards, and neither the model nor its drafter is in the catalogue. A stand-in shows what of the order
follows from acceptance alone: DeepSeek-V3 on eight MI355X under vLLM, whose kernels are borrowed,
and a block of one pass. No level is claimed.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

from simulator.report.markdown import table
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import law, plain_tpot_s, tuned

BLOCK = 7
BATCHES = (4, 32, 256)
LAYERS = (1, 3, 8)
"""Layers of the block drafter, of which nobody has read how many it has."""
RATES = (0.3, 0.5, 0.6, 0.65, 0.68, 0.71, 0.74, 0.9)
"""Chances of each position, given those before."""
PLACED = (
    "target.machine=mi355x",
    "target.device=mi355x",
    "target.engine=vllm",
    "serving.policy={name: unified_budget, max_requests: 512, budget_tokens: 16384}",
)


class Ratios(NamedTuple):
    """Tokens per second of two arms over those of a third."""

    fixed: float
    """The fixed block over plain decoding."""
    adaptive: float
    """Adaptive verification over the fixed block, costs measured of the batch."""
    as_vllm: float
    """The same, costs measured of each request, as vLLM's dummy runs have them."""


def loaded(requests: int, rate: float, layers: int, strategy: str) -> Loaded:
    """Return the stand-in with so many clients, prompts and outputs as long as those of the
    rows.
    """
    ones = [1] * BLOCK
    drafts = (
        f"strategy={{{strategy}, tree: {{branching: {ones}}}, passes: [{{rows: [{BLOCK + 1}], "
        f"head: {{layers: {layers}, squares: 5, mixture: true}}}}], host_ms: 0}}"
    )
    asked = (
        f"requests={{count: {requests}, concurrency: {requests}, prompt_tokens: 220, "
        "output_tokens: 512}"
    )
    acceptance = f"acceptance={{rate: {rate}}}"
    return load("mtp_3_deepseek_v3_8xh200", [*PLACED, drafts, asked, acceptance])


def ratios(requests: int, rate: float, layers: int) -> Ratios:
    """Return the arms of one batch at a chance of each position."""
    fixed = loaded(requests, rate, layers, "name: tree_sd")
    fixed_s = float(law(fixed.scenario, fixed.acceptance()).tpot_s)
    found = []
    for measured in ("batch", "request"):
        name = f"name: adaptive_verification, measured_of: {measured}"
        adaptive = tuned(loaded(requests, rate, layers, name))
        found.append(fixed_s / float(law(adaptive.scenario, adaptive.acceptance()).tpot_s))
    return Ratios(plain_tpot_s(fixed.scenario) / fixed_s, *found)


def tokens_of(rate: float) -> float:
    """Return the tokens of a step, the target's own among them."""
    return sum(rate**place for place in range(BLOCK + 1))


@cache
def crossings(layers: int) -> dict[int, float]:
    """Return the tokens of a step from which the fixed block is ahead of plain decoding, by
    batch.
    """
    found = {}
    for requests in BATCHES:
        fixed = loaded(requests, 0.5, layers, "name: tree_sd")
        step_s = float(law(fixed.scenario, fixed.acceptance()).step_s)
        found[requests] = step_s / plain_tpot_s(fixed.scenario)
    return found


def in_order(rate: float, layers: int) -> bool:
    """Return whether all arms are in the order of the rows, costs measured as vLLM does: the fixed
    block ahead of none at 4 and 32 clients and behind it at 256, adaptive behind fixed at 32.
    """
    tokens = tokens_of(rate)
    ahead = crossings(layers)
    if not max(ahead[4], ahead[32]) < tokens < ahead[256]:
        return False
    return ratios(32, rate, layers).as_vllm < 1.0


def released(path: Path) -> Mapping[tuple[str, int], float]:
    """Return the tokens per second of the released rows, by arm and clients."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["arm"], int(row["concurrency"])): float(row["tokens_per_s"])
            for row in csv.DictReader(file)
        }


@click.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(path: Path) -> None:
    """Print for which acceptance the order of the rows at PATH comes out."""
    rows = released(path)
    click.echo(
        "From how many tokens a step on the fixed block is ahead of plain decoding, by law:\n"
    )
    by_layers = {layers: crossings(layers) for layers in LAYERS}
    lines: list[list[object]] = []
    for requests in BATCHES:
        measured = rows[f"fixed {BLOCK}", requests] / rows["none", requests]
        from_ = [f"{by_layers[layers][requests]:.2f}" for layers in LAYERS]
        lines.append([requests, f"{measured:.2f}", *from_])
    layers_of = [f"drafter of {layers} layer{'s' * (layers > 1)}" for layers in LAYERS]
    click.echo(table(["clients", "released, fixed over none", *layers_of], lines))
    measured = rows[f"adaptive up to {BLOCK}", 32] / rows[f"fixed {BLOCK}", 32]
    click.echo(f"\nAdaptive over fixed, by law (released at 32 clients: {measured:.3f}):\n")
    lines = []
    for rate in RATES:
        cells = [f"{tokens_of(rate):.2f}"]
        for requests in BATCHES:
            _, adaptive, as_vllm = ratios(requests, rate, LAYERS[1])
            cells.append(f"{adaptive:.3f} / {as_vllm:.3f}")
        lines.append(list(cells))
    heads = [f"{requests} clients" for requests in BATCHES]
    click.echo(table(["tokens a step of whole blocks", *heads], lines))
    click.echo("\nCosts measured of the batch / of each request.")
    for layers in LAYERS:
        held = [f"{tokens_of(rate):.2f}" for rate in RATES if in_order(rate, layers)]
        click.echo(f"All of the order at {', '.join(held) or 'none'} of these (layers: {layers}).")


if __name__ == "__main__":
    main()
