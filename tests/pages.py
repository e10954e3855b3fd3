"""One page of each kind, small, for the tests that take HTML apart and for those that open it in a
browser.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import yaml

import simulator
from benchmarks.live import page as live_page
from simulator.core.parallel import in_turn
from simulator.core.serving.request_times import Times
from simulator.evidence.fits import Paper
from simulator.evidence.law_check import law_gap
from simulator.evidence.published import cells, contradictions, paper_figures
from simulator.evidence.validation import GOAL, shortfalls, validated
from simulator.inputs.catalogue import Catalogue
from simulator.report.blocks import Page
from simulator.report.pages import (
    compare as compare_page,
    law as law_page,
    plan as plan_page,
    sweep as sweep_page,
    validate as validate_page,
)
from simulator.report.run.page import run_page
from simulator.scenario import Scenario, load
from simulator.scenario.decision.by_law import by_law as decided_law
from simulator.scenario.evaluate import run, tuned
from simulator.scenario.result.data import law_details
from simulator.scenario.uncertain.draws import interval
from simulator.scenario.uncertain.intervals import doubt_of
from simulator.studies.compare import Contestant, study as compare
from simulator.studies.plan.study import study as plan_study
from simulator.studies.sweep.executors import crew
from simulator.studies.sweep.store import reading, writing
from simulator.studies.sweep.study import study
from simulator.studies.sweep.sweeping import sweep as evaluate
from simulator.studies.sweep.table import SweepTable, table
from simulator.studies.what_if import of_run, what_if
from simulator.studies.window import window_sweep
from tests.test_plan import small
from tests.toy_paper import TERMS, written

LIVE_COMMAND = "python -m benchmarks.live decoding"
LIVE = Path(__file__).parent / "data/live_short_run.json"
"""What it printed with ``--gammas 2,4 --tokens 24 --requests 2 --rounds 3 --json`` on a busy
machine.
"""
SHORT = {
    "run": ("mirror_qwen3_32b_m2_ultra", ["requests.count=6", "requests.output_tokens=48"]),
    "pipeline": (
        "specpipe_llama_3_1_70b_two_servers",
        ["requests.count=1", "requests.output_tokens=24"],
    ),
}
SWEEP = """
about: How much of a slower draft is hidden
scenario: durations_only
set: {requests.count: 4, requests.output_tokens: 33}
axes:
  strategy.gamma: [1, 3, 8]
  durations.draft_ms: [6, 12, 24, -1]
evaluate: law then simulation
keep: best 50% of tpot_ms
plots:
- {kind: heatmap, x: strategy.gamma, y: durations.draft_ms, value: law_tpot_ms, title: Nobody waits}
"""
"""One of its drafts takes less than no time, which is for the sweep to find out."""
STUDIES = {
    "batches": ("vanilla_llama_2_7b_a100", {"sizes": [1, 2, 4, 8, 16], "simulated": [1, 8]}),
    "methods": ("methods_vicuna_7b_a100", {"only": ["medusa_2", "hydra", "eagle_1", "ngram"]}),
    "load": ("vanilla_llama_2_7b_a100", {"sizes": [1, 2, 4, 8]}),
}
"""Studies of one scenario, with their options."""
LAW = "mirror_qwen3_32b_a100", ["requests.concurrency=4"]
"""Scenario of a page of a law, with more than one kind of step and a price."""


def page(kind: str, folder: Path) -> Page:
    """A page of that kind; files that it is made of go into ``folder``."""
    if kind in STUDIES:
        return studied(kind)
    return OTHERS[kind](folder) if kind in OTHERS else ran(kind)


def studied(kind: str) -> Page:
    """A study of one scenario."""
    name, options = STUDIES[kind]
    return simulator.study(kind, name, overrides={"requests.output_tokens": 48}, **options).page


def ran(kind: str) -> Page:
    """A run, with the results of other windows."""
    name, overrides = SHORT[kind]
    loaded, times = load(name, overrides), Times()
    result = run(loaded, f"specsim run {name}", finished=times.note)
    speedup = interval(result.speedup, doubt_of(tuned(loaded), times.requests))
    return run_page(result, window_sweep(loaded, result), speedup, of_run(loaded, result))


def by_law(_: Path) -> Page:
    """Durations of a step of four requests, with sliders."""
    name, overrides = LAW
    loaded = load(name, overrides)
    decided = decided_law(loaded)
    return law_page.page(
        law_details(loaded, decided),
        decided.decision,
        f"specsim law {name} --set {overrides[0]} --out law.html",
        what_if(loaded),
    )


def planned(folder: Path) -> Page:
    """The small plan of the tests, with two resampled runs."""
    return plan_page.page(plan_study(small(folder), "specsim plan small.yaml", draws=2))


def live(_: Path) -> Page:
    """A run that was kept."""
    return live_page.page(
        json.loads(LIVE.read_text("utf-8")), "a machine", "2026-11-21", LIVE_COMMAND
    )


def tabled(folder: Path) -> Page:
    """The sweep of ``SWEEP``."""
    found, base = swept(folder)
    return sweep_page.page(found, base, "specsim sweep small.yaml")


def compared(_: Path) -> Page:
    """A pair on one machine, of which one has more requests to serve."""
    names, overrides = (
        ("mirror_qwen3_32b_a100", "vanilla_qwen3_32b_a100"),
        ["requests.output_tokens=48"],
    )
    loaded = [
        load(name, [*overrides, f"requests.count={count}"])
        for name, count in zip(names, (4, 5), strict=True)
    ]
    given = [
        Contestant(*one)
        for one in zip("AB", names, (f"specsim run {name}" for name in names), loaded, strict=True)
    ]
    page = compare_page.page(compare(given))
    return replace(page, command="specsim compare mirror_qwen3_32b_a100 vanilla_qwen3_32b_a100")


def swept(folder: Path) -> tuple[SweepTable, Scenario]:
    """Every point of ``SWEEP``, and what it begins from."""
    (folder / "small.yaml").write_text(SWEEP, "utf-8")
    given = study(str(folder / "small.yaml"), Catalogue())
    with writing(folder / "small.sqlite") as store, crew(1) as hired:
        evaluate(given, store, hired)
    with reading(folder / "small.sqlite") as store:
        return table(store), given.base.scenario


def validation(folder: Path) -> Page:
    """Of the toy paper and one law, with the figures and slips of the real papers."""
    (written(folder) / "fitted.yaml").write_text(
        yaml.safe_dump({"command": "by hand", "terms": TERMS})
    )
    found = [validated(Paper.of("round", cells(folder)["round"], folder), in_turn)]
    gaps = [law_gap("vanilla_llama_2_7b_a800")]
    missed = shortfalls(found, GOAL)
    return validate_page.page(
        found, gaps, missed, paper_figures(), contradictions(), "specsim validate round"
    )


OTHERS: dict[str, Callable[[Path], Page]] = {
    "law": by_law,
    "compare": compared,
    "sweep": tabled,
    "plan": planned,
    "validation": validation,
    "live": live,
}
"""Pages that are no runs."""
KINDS = (*SHORT, *OTHERS)
PAGES = (*KINDS, *STUDIES)
