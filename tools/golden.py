#!/usr/bin/env python3
"""Numbers of every shipped scenario and of every study, as JSON: whatever is built anew has to come
to the same ones.

``tests/golden`` holds them: a folder for each section, a file for each case, which is called like
the scenario or study. ``python3 tools/golden.py`` writes them after a change that is meant.
``--small`` prints the section ``settings`` alone, which is quick: nothing of it is drawn, and
nothing is calibrated.

Few names of the code are used, so that the code can be moved about: ``load``, ``run`` and
``summary``, and the command line for the rest. ``window_sweep`` is the one exception, as no command
gives its points as numbers. Scenarios keep their own lengths of prompts and outputs and run
``REQUESTS`` requests; studies, sweeps and plans run fewer. Nothing is rounded.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import lru_cache
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from click.testing import CliRunner

from simulator.cli.main import main
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import load
from simulator.scenario.evaluate import run
from simulator.scenario.result.data import result_data
from simulator.studies.window import window_sweep

Found = dict[str, Any]
FOLDER = Path(__file__).parent.parent / "tests/golden"

REQUESTS = 20
SPANS = 10
"""The first so many of a scenario are kept."""

LAW = ("step_ms", "tokens_per_step", "tpot_ms")
SCALED = ("replica_s", "mean_replicas", "idle_s", "scaling.starting_s", "scaling.changes")
OUTCOME = ("step_ms", "steps", "tokens", "tokens_per_step", "tpot_ms", "ttft_ms")

TRACE = "acceptance={trace: six_flavours_greedy, rate: null, overlap: 1.0}"
WHOLE = "durations={target_ms: 36, draft_ms: 12, prefill_ms: 20}"
SETTINGS = {
    "mirror_sd": [],
    "vanilla_sd": ["strategy={name: vanilla_sd, gamma: 5}", WHOLE],
    "autoregressive": ["strategy={name: autoregressive}", WHOLE],
    "three_at_a_time": ["strategy={name: vanilla_sd, gamma: 5}", WHOLE, "requests.concurrency=3"],
}
"""Overrides of ``durations_only`` by name."""

SWEEPS = {
    "law": (
        "durations_only --axis strategy.gamma=1,3 --axis acceptance.rate=0.5,0.8 --set "
        "requests.count=10 --evaluate law"
    ),
    "simulation": "vanilla_qwen3_32b_a100 --axis strategy.gamma=3,7 --axis requests.concurrency=1,4"
    " --set requests.count=8 --evaluate simulation",
    "replay": (
        "duodecoding_llama_2_7b_a800 --axis strategy.gamma=8,24 --set requests.count=4 "
        "--evaluate replay"
    ),
    "shipped": (
        "mirror_window_exit_latency --axis strategy.gamma=3,7 --axis channel.latency_us=1,1000 "
        "--set requests.count=3"
    ),
    "shipped_by_law": "batch_context_method --axis requests.concurrency=1,32 --axis "
    "requests.prompt_tokens=128,1024"
    " --set requests.count=32 --evaluate law",
}
"""Words of ``specsim sweep`` by name; every point is kept."""

PLANS = {
    "chat_llama_70b": "chat_llama_70b --draws 2 --set scenario.requests.count=8",
    "chat_qwen3_32b": "chat_qwen3_32b --draws 2 --set scenario.requests.count=20",
}
"""Words of ``specsim plan`` by name."""

FLEET = (
    "cost_usd_per_hour",
    "cost_usd_per_million_tokens",
    "kept",
    "mean_batch",
    "replicas",
    "tokens_per_s",
    "tpot_ms",
)
"""What is kept of every fleet that a plan looked at."""


class Study(NamedTuple):
    """A command, and where in its JSON the points stand and their numbers; both are paths like
    ``studies.0.points``.
    """

    words: str
    points: tuple[str, ...]
    numbers: tuple[str, ...]


STUDIES = {
    "batches": Study(
        "batches mirror_qwen3_32b_m2_ultra --sizes 1,8 --simulate 1,8 --set requests.count=8",
        ("batches.0", "batches.1"),
        (
            "batch",
            "verify_rows",
            "verify_ms",
            "draft_ms",
            "exposed_draft_ms",
            "law_tpot_ms",
            "vanilla_tpot_ms",
            "speedup",
            "simulated_speedup",
            "simulated_tokens_per_s",
            "simulated_vanilla_tokens_per_s",
        ),
    ),
    "budget": Study(
        "budget duodecoding_llama_2_7b_a800 --budgets 8,24 --simulate 8,24 --set requests.count=4",
        ("studies.0.points.0", "studies.0.points.1", "studies.0.sequences.1"),
        (
            "gamma",
            "sequences",
            "draft_ms",
            "target_ms",
            "step_ms",
            "verified.law",
            "verified.replay",
            "verified.simulation",
            "emitted.law",
            "emitted.simulation",
        ),
    ),
    "capacity": Study(
        "capacity traffic_vanilla_llama_3_1_8b_4xa100 traffic_mirror_llama_3_1_8b_4xa100 "
        "--search 100 --workers 1"
        " --set requests.count=100 --set requests.arrivals.rate_per_s=1",
        ("capacities.0", "capacities.1"),
        (
            "carried_per_s",
            "refused_per_s",
            "headroom",
            "replicas",
            "offered.drift",
            "offered.mean_in_system",
            "offered.stable",
            "offered.tokens_per_s",
            "offered.tpot_p50_ms",
            "offered.ttft_p99_ms",
        ),
    ),
    "compare": Study(
        "compare vanilla_qwen3_32b_a100 mirror_qwen3_32b_a100 --set requests.count=8 --set "
        "B:strategy.gamma=5",
        ("scenarios.A", "scenarios.B"),
        (
            "tpot_ms",
            "law_tpot_ms",
            "baseline_tpot_ms",
            "speedup",
            "speedup_interval.low",
            "speedup_interval.high",
            "step_ms",
            "tokens_per_step",
            "tokens_per_s",
            "ttft_ms",
            "tbt_p99_ms",
            "most_j_per_token",
            "memory_gb",
        ),
    ),
    "crossovers": Study(
        "crossovers methods_vicuna_7b_a100 --only eagle_1 --only medusa_1 --sizes 1-24,64",
        ("crossovers.0", "crossovers.1"),
        (
            "first",
            "for_good",
            "tile_edges",
            "points.0.speedup",
            "points.23.speedup",
            "points.24.verify_rows",
        ),
    ),
    "drafts": Study(
        "drafts vanilla_qwen3_32b_a100 --model qwen3_1_7b --model qwen3_4b",
        ("points.0", "points.1"),
        (
            "billions",
            "draft_ms",
            "needed",
            "pays",
            "speedups.0",
            "speedups.34",
            "windows.0",
            "windows.34",
        ),
    ),
    "load": Study(
        "load vanilla_qwen3_32b_a100 mirror_qwen3_32b_a100 --sizes 1,4 --set requests.count=8",
        ("vanilla_qwen3_32b_a100.1", "mirror_qwen3_32b_a100.1"),
        ("clients", "tokens_per_s", "tpot_ms", "tbt_p50_ms", "tbt_p99_ms", "preemptions"),
    ),
    "methods": Study(
        "methods methods_vicuna_7b_a100 --only eagle_1 --only medusa_1 --set requests.count=8",
        ("methods.0", "methods.1", "methods.2"),
        (
            "verified_rows",
            "extra_weights_gb",
            "draft_ms",
            "step_ms",
            "tokens_per_step",
            "tpot_ms",
            "law_tpot_ms",
            "baseline_tpot_ms",
            "speedup",
            "relative_step",
        ),
    ),
    "network": Study(
        "network specpipe_llama_3_1_70b_two_servers --set requests.count=2",
        ("rows.0", "rows.3"),
        ("tpot_ms", "added_ms", "plain_ms", "added_share", "speedup"),
    ),
    "streams": Study(
        "streams streaming_vicuna_7b_a100 --set requests.count=2",
        ("whole.2", "pruned.2"),
        (
            "branching",
            "nodes",
            "kept",
            "tokens_per_step",
            "step_ms",
            "tpot_ms",
            "speedup",
            "step_cost",
        ),
    ),
    "trees": Study(
        "trees specpipe_llama_3_1_70b_8xl40 --set requests.count=1",
        ("studies.0.trees.0", "studies.0.trees.6"),
        (
            "width",
            "branching",
            "hit",
            "tpot_ms",
            "error_ms",
            "printed_ms",
            "step_ms",
            "steps",
            "behind_ms",
            "behind_error_ms",
        ),
    ),
}
"""By name of the command."""

WINDOWS = {"windows": "mirror_qwen3_32b_m2_ultra", "windows_vanilla": "vanilla_qwen3_32b_a100"}
"""Scenarios whose window sweep, which ``specsim run`` draws into its report, is kept."""


def told(words: str, *others: str) -> Found:
    """What a command says with ``--json``."""
    done = CliRunner().invoke(main, [*words.split(), *others, "--json"], catch_exceptions=False)
    if done.exit_code:
        raise RuntimeError(f"specsim {words}: exit code {done.exit_code}\n{done.output}")
    found: Found = json.loads(done.stdout)
    return found


def at(data: Any, path: str) -> Any:
    """What stands at a path like ``studies.0.points``."""
    for step in path.split("."):
        data = data[int(step)] if isinstance(data, list) else data[step]
    return data


def picked(data: Any, paths: tuple[str, ...]) -> Found:
    """What stands at every path."""
    return {path: at(data, path) for path in paths}


def setting(name: str) -> Found:
    """Law and simulation of a setting of ``durations_only``."""
    found = result_data(run(load("durations_only", [*SETTINGS[name], TRACE, "requests.count=12"])))
    simulated = picked(
        found["simulated"], ("steps", "tokens", "tokens_per_step", "tpot_ms", "ttft_ms")
    )
    return {"law_tpot_ms": found["law"]["tpot_ms"], **simulated}


def scenario(name: str) -> Found:
    """Laws, replay and simulation of a shipped scenario, how busy its lanes were, and what they did
    first.
    """
    together = Catalogue().scenario(name).data.get("requests", {}).get("concurrency", 1)
    result = run(load(name, [f"requests.count={max(REQUESTS, together)}"]))
    found = result_data(result)
    scaled = {}
    if "scaling" in found["simulated"]:
        scaled = {"scaled": picked(found["simulated"], SCALED)}
    return {
        **scaled,
        **{law: picked(found[law], LAW) for law in ("law", "law_replayed")},
        **{outcome: picked(found[outcome], OUTCOME) for outcome in ("replay", "simulated")},
        **picked(found, ("speedup", "speedup_with_prompts", "baseline.tpot_ms")),
        "busy": {lane: share["busy_fraction"] for lane, share in found["lanes"].items()},
        "spans": [
            [span.lane, span.start_s, span.end_s, span.label] for span in result.spans[:SPANS]
        ],
    }


def sweep(name: str) -> Found:
    """Every point of a sweep, as the table that it exports has it, by number."""
    with TemporaryDirectory() as folder:
        table = Path(folder, "table.csv")
        told(
            f"sweep {SWEEPS[name]} --workers 1",
            "--store",
            f"{folder}/points.sqlite",
            "--export",
            str(table),
        )
        rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    return {
        row["point"]: {key: number(text) for key, text in row.items() if key != "point"}
        for row in rows
    }


def number(text: str) -> float | str:
    """A cell of a table: a number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def fleet(found: Found | None) -> list[Any]:
    """The numbers of a fleet in a plan; none of none."""
    return [found[key] for key in FLEET] if found else []


def plan(name: str) -> Found:
    """The answer of a plan with its doubts, and a row for every size of a fleet that it
    simulated.
    """
    found = told(f"plan {PLANS[name]}")
    return {
        "answer": picked(found["answer"], FLEET),
        **picked(found, ("capacity_ratio", "longer", "chance", "break_even")),
        "families": [
            [family["capacity_ratio"], *fleet(family["cheapest"])] for family in found["families"]
        ],
        "sensitivity": [fleet(one["answer"]) for one in found["sensitivity"]],
        "sizes": [fleet(size) for size in found["sizes"]],
        "laws": [[law["batch"], law["tpot_ms"], law["tokens_per_s"]] for law in found["laws"]],
        "searched": len(found["searched"]),
    }


def study(name: str) -> Found:
    """Some points of a study."""
    if name in WINDOWS:
        return windows(WINDOWS[name])
    words, points, numbers = STUDIES[name]
    found = told(words)
    return {point: picked(at(found, point), numbers) for point in points}


def windows(name: str) -> Found:
    """Of the window sweep in the report of a run: which windows it has, and three of them: the
    ends, and the one that was run.
    """
    loaded = load(name, ["requests.count=4"])
    points = window_sweep(loaded, run(loaded))
    told = {points[0].gamma, points[-1].gamma, loaded.scenario.schedule.window}
    shown = {f"gamma {point.gamma}": asdict(point) for point in points if point.gamma in told}
    by_law = [[point.law_step_ms, point.law_tpot_ms] for point in points]
    return {"shown": [point.gamma for point in points], "laws": by_law, **shown}


@lru_cache(maxsize=1)
def scenarios() -> tuple[str, ...]:
    """Every shipped scenario."""
    return tuple(told("list scenario")["scenario"])


SECTIONS: dict[str, Callable[[str], Found]] = {
    "settings": setting,
    "scenarios": scenario,
    "sweeps": sweep,
    "plans": plan,
    "studies": study,
}
"""How the numbers of a case are found, by section."""


def names(section: str) -> tuple[str, ...]:
    """The cases of a section."""
    if section == "scenarios":
        return scenarios()
    cases = {"settings": SETTINGS, "sweeps": SWEEPS, "plans": PLANS, "studies": STUDIES | WINDOWS}
    return tuple(cases[section])


def golden(*sections: str) -> dict[str, dict[str, Found]]:
    """The numbers of these sections, or of all, by case."""
    return {
        section: {name: SECTIONS[section](name) for name in names(section)}
        for section in sections or SECTIONS
    }


def kept() -> dict[str, dict[str, Found]]:
    """The numbers that are kept, by section and case."""
    found: dict[str, dict[str, Found]] = {}
    for path in sorted(FOLDER.glob("*/*.json")):
        found.setdefault(path.parent.name, {})[path.stem] = json.loads(path.read_text("utf-8"))
    return found


def keep(numbers: dict[str, dict[str, Found]]) -> None:
    """Write the numbers, and take away what is kept of cases that are no more."""
    for path in FOLDER.glob("*/*.json"):
        if path.stem not in numbers.get(path.parent.name, {}):
            path.unlink()
    for section, cases in numbers.items():
        (FOLDER / section).mkdir(parents=True, exist_ok=True)
        for name, found in cases.items():
            (FOLDER / section / f"{name}.json").write_text(dumped(found) + "\n", "utf-8")


def differences(kept: Any, got: Any, path: str, relative: float = 0.0) -> Iterator[str]:
    """Yield a line for everything that is not equal, numbers up to a relative difference."""
    if isinstance(kept, dict) and isinstance(got, dict):
        for key in sorted(kept.keys() | got.keys()):
            yield from differences(
                kept.get(key, "nothing"), got.get(key, "nothing"), f"{path}.{key}", relative
            )
    elif isinstance(kept, list) and isinstance(got, list) and len(kept) == len(got):
        for place, (before, after) in enumerate(zip(kept, got, strict=True)):
            yield from differences(before, after, f"{path}.{place}", relative)
    elif (
        isinstance(kept, float) and isinstance(got, float) and isclose(kept, got, rel_tol=relative)
    ):
        return
    elif kept != got:
        yield f"{path}: {kept!r} -> {got!r}"


def dumped(value: Any, margin: str = "") -> str:
    """JSON with a line for every number, or for a list of plain things."""
    inner = margin + " "
    if isinstance(value, dict):
        lines = [
            f"{inner}{json.dumps(key)}: {dumped(each, inner)}"
            for key, each in sorted(value.items())
        ]
        return "\n".join(["{", ",\n".join(lines), margin + "}"])
    if isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        lines = [inner + dumped(each, inner) for each in value]
        return "\n".join(["[", ",\n".join(lines), margin + "]"])
    return json.dumps(value, allow_nan=False)


if __name__ == "__main__":
    if "--small" in sys.argv[1:]:
        print(dumped(golden("settings")))
    else:
        keep(golden())
