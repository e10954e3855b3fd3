"""Every kind of page, found: for each function of the package that makes a ``Page`` one of its
pages, made by a short command.

A function without one is told by name; its command belongs into ``COMMANDS``.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import simulator
from simulator.cli.main import main
from simulator.evidence.calibrate import measurements
from simulator.report.blocks import Page
from simulator.report.pages import claims as claims_page
from tests.live_files import write_service
from tests.pages import PAGES, page
from tests.parsed import parsed
from tests.test_calibrate import layers, roofline
from tests.test_calibrate_service import DRAFTING, EFFICIENCIES, ENGINE, device, scenario
from tests.test_claims_page import BOUND_AT_ENDS, REFUTED
from tests.test_engines import SET, table as runs_table
from tests.test_ledger import CHAIN, HEAD, table as ledger_table
from tests.test_plan_fleets import compared

PACKAGE = Path(simulator.__file__).parent
BENCH = Path(__file__).parent / "data/live_services/vllm_bench.json"
FEW = ("--set", "requests.count=1", "--set", "requests.output_tokens=16")
PIPELINE = "specpipe_llama_3_1_70b_two_servers"
COMMANDS = (
    "list method",
    "list device --like rtx_4070",
    "trace list",
    "trace advise --target Qwen3-8B",
    "trace info six_flavours_greedy:plain",
    "trace compare six_flavours_greedy:plain six_flavours_greedy:plain",
    "trace iid six_flavours_greedy:plain",
    "explain durations_only",
    "figure mirror_sd",
    "validate --law vanilla_sd",
    "validate mirror_sd --cell mirror_sd_table1:6",
    "validate --table {folder}/rows.csv",
    "calibrate device {folder}/times.csv --like a100_80g_sxm",
    "calibrate score a100_80g_sxm {folder}/times.csv",
    "calibrate engine {folder}/runs.csv --like hf_eager --scenario methods_vicuna_7b_a100 "
    "--free speculation.tree.fixed_us",
    "calibrate service {folder}/seen/observed.yaml --like {folder}/like.yaml",
    "calibrate replay {folder}/seen/observed.yaml --like {folder}/like.yaml",
    "crossovers methods_vicuna_7b_a100 --only medusa_2 --only eagle_1 --sizes 1,2,4",
    "methods mirror_qwen3_32b_a100 --parallel --sizes 1,4 --only mirror_sd --only pearl",
    "streams streaming_vicuna_7b_a100 {few}",
    "budget duodecoding_llama_2_7b_a800 {few} --budgets 1,2,4 --simulate 1,4",
    f"network {PIPELINE} {{few}}",
    f"trees {PIPELINE} {{few}}",
    "drafts vanilla_qwen3_32b_a100 --set strategy.drafter.name=autoregressive "
    "--set draft.model=qwen3_0_6b --set target.tensor_parallel=4 --model qwen3_1_7b",
    "capacity traffic_vanilla_llama_3_1_8b_4xa100 --set requests.count=40 --search 20 --workers 1",
    "what-if {bench} --like vanilla_llama_2_7b_a100 --try gamma=2 --try plain --out {folder}/out",
    "verify {folder}/out/gamma=2 {bench}",
    "observe {folder}/runs",
)
"""Commands whose pages are no kind of :mod:`tests.pages`."""


def makers() -> list[str]:
    """Every function of the package that makes a page, as module:function."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef) and _makes(node):
                found.append(f"{module}:{node.name}")
    return found


def _makes(function: ast.FunctionDef) -> bool:
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == "Page" for called in calls)


def every_page(folder: Path) -> dict[str, Page]:
    """The first page of each maker, with its pictures, by the maker's name."""
    made: dict[str, Page] = {}
    initial = Page.__init__

    def noted(self: Page, *values: Any, **named: Any) -> None:
        initial(self, *values, **named)
        caller = sys._getframe(1)
        made.setdefault(f"{caller.f_globals['__name__']}:{caller.f_code.co_name}", self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Page, "__init__", noted)
        patched.chdir(folder)
        for kind in PAGES:
            page(kind, folder)
        claims_page.page([REFUTED, BOUND_AT_ENDS], "specsim validate --claims")
        claims_page.refuted_page([REFUTED, BOUND_AT_ENDS], "specsim claims --refuted")
        compared(folder, "a100_80g_sxm:2", "l4:1", slo="ttft_ms p95 < 1000, tpot_ms p95 < 20")
        _world(folder)
        for command in COMMANDS:
            words = command.replace("{few}", " ".join(FEW)).split()
            typed = [word.format(folder=folder, bench=BENCH) for word in words]
            done = CliRunner().invoke(main, typed + (SET if "engine" in words else []))
            assert done.exit_code in (0, 3), (command, done.output)
    return made


def _world(folder: Path) -> None:
    """Write the files that commands read."""
    times = layers(roofline((5.0, 0.8, 0.7, 2.0))).assign(source="a test")
    measurements.write(times, folder / "times.csv")
    ledger_table(folder, HEAD, CHAIN)
    runs_table(folder, [{"strategy": "eagle_1", "tokens_per_step": 3.5, "step_ms": 20.0}])
    for name, content in {"like_engine": ENGINE, "like_device": device(EFFICIENCIES)}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    (folder / "runs").mkdir()
    for name in ("run=0.json", "run=1.json"):
        (folder / "runs" / name).write_bytes(BENCH.read_bytes())
    like = scenario(folder, "like", DRAFTING, 4, "like")
    files = write_service(folder / "service", simulator.scenario.load(str(like)))
    done = CliRunner().invoke(main, ["observe", *map(str, files), "--out", str(folder / "seen")])
    assert done.exit_code == 0, done.output
