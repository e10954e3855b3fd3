"""The rules of the house: imports point one way, numbers carry units, new files are picked up,
--help is quick.
"""

from __future__ import annotations

import ast
import json
import re
import resource
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

import simulator.scenario  # the model classes below are found through their base
from simulator.cli.catalogue import KINDS
from simulator.cli.main import main
from simulator.core.quantities import Frozen
from simulator.core.strategies import Strategy, strategies
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.traits import Facts, Needs, Traits
from simulator.inputs.catalogue import FOLDERS, Catalogue, strategy_files
from simulator.inputs.document import parse as document
from simulator.scenario import load
from tests.apart import kept
from tests.parsed import parsed

PACKAGE = Path(simulator.__file__).parent
FLOORS = [
    {"core"},
    {"inputs"},
    {"record", "scenario"},
    {"evidence", "studies"},
    {"report"},
    {"papers"},
    {"api"},
    {"cli"},
]
"""Rooms by floor, from the ground up: a room imports from itself and from floors below, and from no
other room of its floor.
"""
IN_CORE = [
    {"nearness", "numeric", "plain", "processes", "relation", "world"},
    {"faults"},
    {"identifiers", "plugin_group"},
    {"package_errors"},
    {"parallel", "quantities"},
    {"acceptance", "cost"},
    {"strategies"},
    {"serving"},
]
"""The same inside of the core."""
FLOOR_IN_CORE = {room: level for level, rooms in enumerate(IN_CORE) for room in rooms}
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name below ``simulator``; a package's own is the folder's."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def room_of(name: str, within: str = "") -> str:
    """The room of a module, by its dotted name; within the core, that in the core."""
    return name.removeprefix(within).partition(".")[0]


NAMES = {module_name(path): path for path in MODULES}


@cache
def imported(path: Path) -> frozenset[str]:
    """Whole dotted names that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, (
                f"{path}:{node.lineno} imports by dots; write the whole name"
            )
            assert not node.level, f"{path}:{node.lineno} imports by dots; write the whole name"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def imports_of_ours(path: Path) -> set[str]:
    """Names below ``simulator`` of the modules that a module of ours imports."""
    return {name.removeprefix("simulator.") for name in imported(path)} & set(NAMES) - {
        module_name(path)
    }


def test_every_room_has_a_floor() -> None:
    assert {room_of(name) for name in NAMES} - {"__init__", "__main__"} == set(FLOOR)
    inside = {room_of(name, "core.") for name in NAMES if name.startswith("core.")}
    assert inside == set(FLOOR_IN_CORE)


def upward(room: str, floor: dict[str, int], within: str = "") -> set[str]:
    """Imports of a room that run up, or sideways to another room of its floor."""
    wrong = set()
    for name, path in NAMES.items():
        if not name.startswith(within) or room_of(name, within) != room:
            continue
        for used in imports_of_ours(path):
            other = room_of(used, within)
            if used.startswith(within) and other != room and floor[other] >= floor[room]:
                wrong.add(f"{name} -> {used}")
    return wrong


@pytest.mark.parametrize("room", sorted(FLOOR))
def test_imports_run_down(room: str) -> None:
    assert not upward(room, FLOOR)


@pytest.mark.parametrize("room", sorted(FLOOR_IN_CORE))
def test_imports_in_the_core_run_down(room: str) -> None:
    assert not upward(room, FLOOR_IN_CORE, "core.")


def test_papers_are_found_and_never_imported() -> None:
    assert [
        name
        for name, path in NAMES.items()
        if room_of(name) != "papers"
        and any(used.startswith("simulator.papers") for used in imported(path))
    ] == []


def test_no_room_imports_what_only_a_checkout_has() -> None:
    outside = {"benchmarks", "tests", "dev"}
    assert {
        path.name
        for path in MODULES
        if outside & {name.partition(".")[0] for name in imported(path)}
    } == set()


def test_no_import_runs_in_a_circle() -> None:
    """Also not by way of a package, whose ``__init__`` runs before anything in it."""
    graph = {}
    for name, path in NAMES.items():
        used = imports_of_ours(path)
        packages = {
            ".".join(one.split(".")[:depth])
            for one in used
            for depth in range(1, one.count(".") + 1)
        }
        own = {".".join(name.split(".")[:depth]) for depth in range(1, name.count(".") + 1)}
        graph[name] = used | (packages - own - {name})
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_folders_stay_small() -> None:
    """At most six files at the top, and twenty-one modules in a room; pages are one for each thing
    there is.
    """
    assert len(list(PACKAGE.glob("*.py"))) <= 6
    for folder in {path.parent for path in MODULES} - {PACKAGE / "report/pages"}:
        count = len(list(folder.glob("*.py")))
        assert count <= 21, f"{folder.relative_to(PACKAGE)} holds {count} modules"


def test_the_core_sees_no_files_no_tables_no_plots() -> None:
    others = {"yaml", "pandas", "matplotlib", "click", "rich", "jinja2"}
    for path in (PACKAGE / "core").rglob("*.py"):
        assert not others & {name.split(".")[0] for name in imported(path)}, path


def test_the_world_imports_nothing_of_ours() -> None:
    assert not {
        name for name in imported(PACKAGE / "core/world.py") if name.startswith("simulator")
    }


UNITS = (
    "_bits",
    "_gb",
    "_mb",
    "_gb_s",
    "_ghz",
    "_tflops",
    "_ghz",
    "_us",
    "_us_per_logit_row",
    "_us_per_request",
    "_kib",
    "_ms",
    "_s",
    "_bytes",
    "_tokens",
    "_w",
    "_usd_per_hour",
    "_us_per_layer",
    "_us_per_pass",
)
COUNTS_AND_RATIOS = {
    *("batch", "rows", "ranks", "context"),  # of a hull
    "spreads",
    *("groups", "drafters", "verifiers", "fan_out", "miss_of_one", "miss_power"),
    "copied_from_rows",
    "lm_head_rows",
    "state_blocks",
    "balance_abs_threshold",
    "least_chance",
    "ema_alpha",
    *("ranges", "tiers", "captured", "candidates", "ceiling_coeff"),
    *("up_hysteresis", "down_hysteresis", "update_interval", "warmup_batches"),
    *("threshold", "alpha", "single", "accumulated", "passes", "changed"),  # of a rule
    "transition",
    *(
        "hidden_size",
        "intermediate_size",
        "vocab_size",
        "tables",
        "head_dim",
        "embedding_width",
        "kv_latent_width",
    ),
    *(
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "first_dense_layers",
        "learned_positions",
    ),
    *(
        "routed",
        "per_token",
        "shared",
        "parameters",
        "tensor_parallel",
        "count",
        "extra_row",
        "multiprocessors",
        "dot_operations",
        "ratios",
        "operations",
        "low",
        "high",
        "concurrency",
        "seed",
        "streams",
    ),
    *(
        "gamma",
        "kappa",
        "exit_layer",
        "memory_efficiency",
        "compute_efficiency",
        "p_norm",
        "ratio",
        "value",
        "tokens",
    ),
    *(
        "small_operations_ratio",
        "ecc_data_share",
        "pair_traffic_ratio",
        "window_exponent",
        "popularity",
        "many_rows_host_ratio",
        "kv_traffic_ratio",
        "resampled_ratio",
        "rate",
        "recordings",
        "overlap",
        "always",
        "accepted",
        "accepted_share",
        "emitted",
        "slowdown",
    ),
    *(
        "per_pass",
        "per_position",
        "lengths",
        "requests",
        "max_requests",
        "windows",
        "watermark",
        "utilisation",
        "spread",
        "layers",
    ),
    *(
        "width",
        "branching",
        "stages",
        "packing_ratio",
        "squares",
        "vocabulary",
        "temperature",
        "batch_size",
        "start",
    ),
    *(
        "least",
        "most",
        "terms",
        "depth",
        "budget",
        "resampled_budget",
        "threshold",
        "sequences",
        "first_rate",
    ),
    *(
        "p_min",
        "passed",
        "up",
        "down",
        "free",
        "errors",
        "graph_rows",
        "host_ratio",
        "method_host_ratio",
        "step",
        "row",
        "beyond",
        "operations",
        "dot_operations",
        "ratios",
        "growth",
    ),
    *("stream_layers", "kept", "rank", "pruning_rank", "stretch", "window", "many_rows_host_ratio"),
    *(
        "axes",
        "fixed_ratio",
        "burstiness",
        "rate_scale",
        "replicas",
        "warm_up",
        "cool_down",
        "samples",
        "level",
        "year",
    ),
    *(
        "lm_heads",
        "tokens_per_step",
        "tokens_per_step_between",
        "known_positions",
        "speedup",
        "rows",
        "levels",
        "choices",
        "extra_rows",
        "larger_rows",
        "beyond_curve_ratio",
        "ids_per_entry",
        "matched",
        "vocabulary_multiple",
        "expert_groups",
        "server_devices",
        "connections",
        "hidden_layers",
        "fitted_ranks",
    ),
    *(
        "latent_size",
        "mtp_layers",
        "projections",
        "along_cache",
        "projected",
        "products",
        "value_width",
        "output",
        "cached",
    ),
    *(
        "cache_heads",
        "pair_flops",
        "prompt_pair_flops",
        "top_k",
        "index_width",
        "index_heads",
        "state",
        "tail",
        "tile_rows",
    ),
    # turns of sessions, and weights of what they draw
    *("turns", "least_turns", "most_turns", "mean_turns", "branch_share", "share", "zipf"),
    # who goes first, how many may wait, and what routers weigh
    *("priority", "max_waiting", "balance_abs_threshold", "prefix_weight", "queue_weight"),
    *("kv_weight", "weights", "begin_hour"),
    "owned",  # of devices, as their count
    # requests of a replica, or shares, that a number of replicas follows
    *("target", "tolerance"),
    # of an observed service: counts of requests, steps and sessions, means and most of them
    *("failed", "incomplete", "sessions", "most_turns", "most_concurrent", "gap_variation"),
    *("drafts", "steps", "skipped", "cold"),
    "in_flight_mean",
    *("kept_share_by_position", "steps_by_accepted", "tokens_per_draft", "scrapes"),
    *("running_mean", "running_most", "waiting_mean", "waiting_most", "kv_used_share_mean"),
    *("kv_used_share_most", "hit_rate", "preemptions", "engine_passes"),
    # of a predicted number, which carries its unit itself
    *("before", "after", "chance"),
    # of a drawn figure, whose axes are named with their units
    *(
        "values",
        "labels",
        "x",
        "points",
    ),
}


def models(base: type[BaseModel] = Frozen) -> set[type[BaseModel]]:
    return {base}.union(*(models(child) for child in base.__subclasses__()))


def test_every_number_in_a_file_carries_its_unit() -> None:
    for model in (model for model in models() if model.__module__.startswith("simulator.")):
        for name, field in model.model_fields.items():
            numeric = re.search(
                r"\b(int|float|Positive|NonNegative|Ranged|Fraction|Sourced)\b",
                str(field.annotation),
            )
            if numeric and "Literal" not in str(field.annotation):
                assert name in COUNTS_AND_RATIOS or name.endswith(UNITS), f"{model.__name__}.{name}"


# ---- what lies in the folders is what there is


@pytest.mark.parametrize("name", sorted(Catalogue().names("scenario")))
def test_every_shipped_scenario_loads(name: str) -> None:
    scenario = load(name).scenario
    assert scenario.name == name
    assert scenario.about


@pytest.mark.parametrize("kind", ["workload", "plan", "device", "link", "engine", "model"])
def test_every_shipped_file_says_what_it_is(kind: str) -> None:
    for name in Catalogue().names(kind):
        shown = CliRunner().invoke(main, ["show", name, "--json"])
        assert json.loads(shown.stdout)["content"]["about"], name


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "strategy"])
def test_everything_that_is_listed_is_shown(kind: str) -> None:
    for name in Catalogue().names(kind):
        words, data = (CliRunner().invoke(main, ["show", name, *form]) for form in ([], ["--json"]))
        assert name in words.stdout, words.output
        assert json.loads(data.stdout)["name"] == name


def test_a_file_of_your_own_is_found_first(tmp_path: Path) -> None:
    own = tmp_path / FOLDERS["device"][0]
    own.mkdir(parents=True)
    text = (Catalogue().names("device")["a100_80g_sxm"]).read_text()
    (own / "a100_80g_sxm.yaml").write_text(
        text.replace("about:", "about: mine #", 1) if "about: >" not in text else text
    )
    (own / "h999.yaml").write_text(text)
    arguments = [
        "law",
        "mirror_qwen3_32b_a100",
        "--catalogue",
        str(tmp_path),
        "--set",
        "target.device=h999",
        "--json",
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "h999" in Catalogue((tmp_path,)).names("device")
    assert Catalogue((tmp_path,)).names("device")["a100_80g_sxm"].is_relative_to(tmp_path)


def test_every_shipped_strategy_is_one_file_with_a_drawing_and_a_law() -> None:
    shipped = {
        name: strategy
        for name, strategy in strategies().items()
        if strategy.__module__.startswith("simulator.")
    }
    assert set(strategy_files()) == set(shipped)
    for name, strategy in shipped.items():
        docstring = ast.get_docstring(ast.parse(strategy_files()[name].read_text())) or ""
        assert re.search(r"target +\|", docstring)
        assert "T_" in docstring
        assert strategy.traits.equation


# ---- the command line


QUICK = [
    ["--help"],
    ["run", "--help"],
    ["trace", "convert", "--help"],
    ["trace", "record", "--help"],
    ["list"],
]


def cpu_s(script: str, *arguments: str) -> float:
    """Of a process of its own, the best of three."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", script, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=PACKAGE.parent, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.stderr.strip() == ""
        found.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(found)


@pytest.mark.few(2)
@pytest.mark.parametrize("arguments", QUICK, ids=" ".join)
def test_help_and_list_take_little_more_than_the_libraries_they_need_and_load_no_numpy(
    arguments: list[str],
) -> None:
    """One to three times as long as loading click and yaml alone, measured beside it; with all that
    a run needs it would be thirty times.
    """
    heavy = {"numpy", "pandas", "matplotlib", "torch", "scipy", "simpy", "pydantic", "rich"}
    script = (
        "import sys; from simulator.cli.main import main; main(sys.argv[1:], "
        f"standalone_mode=False); sys.exit(','.join(set(sys.modules) & {heavy}))"
    )
    assert cpu_s(script, *arguments) < 6 * cpu_s("import click, yaml")


def test_loading_and_running_a_scenario_imports_neither_tables_nor_pictures() -> None:
    heavy = {"pandas", "scipy.stats", "matplotlib", "rich", "click"}
    script = f"""
import simulator, sys
for call in ("load", "law", "run"):
    getattr(simulator, call)("durations_only")
    print(*sorted(set(sys.modules) & {heavy}), end="")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent, check=True)
    assert done.stdout == ""


def test_list_names_everything_once() -> None:
    data = json.loads(CliRunner().invoke(main, ["list", "--json"]).stdout)
    assert set(data) == set(KINDS)
    assert set(data["strategy"]) == set(strategies())
    assert all(data[kind] for kind in ("scenario", "device", "link", "engine", "model"))


def test_schema_accepts_every_shipped_file_as_it_is_written() -> None:
    """What an editor is told must not redden what specsim itself runs."""
    jsonschema = pytest.importorskip("jsonschema")
    for kind in (
        "scenario",
        "sweep",
        "plan",
        "workload",
        "method",
        "device",
        "link",
        "engine",
        "model",
    ):
        schema = json.loads(CliRunner().invoke(main, ["schema", kind]).stdout)
        checker = jsonschema.Draft202012Validator(schema)
        for name, path in Catalogue().names(kind).items():
            assert not list(checker.iter_errors(document(path.read_text(), name).data)), name
        assert list(checker.iter_errors({"misspelt": 1}))


def test_law_shows_its_durations() -> None:
    data = json.loads(CliRunner().invoke(main, ["law", "durations_only", "--json"]).stdout)
    assert data["kinds"][0]["durations"]["suffix_ms"] == pytest.approx(18.0)
    assert sum(kind["share"] for kind in data["kinds"]) == pytest.approx(1.0)
    shares = [kind["share"] for kind in data["kinds"]]
    assert all(a >= b for a, b in pairwise(shares))


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        (
            ["validate", "--live", "--out", "x"],
            "benchmarks.live validation, with the same --out and --json",
        ),
        (
            ["measure", "decoding", "--gammas", "1,2", "--help"],
            "benchmarks.live decoding, with the same options",
        ),
        (["measure", "budget", "--json"], "benchmarks.live budget, with the same options"),
        (["measure", "machine", "here"], "benchmarks.live machine, with the same options"),
        (["calibrate", "paper", "lyanna"], "benchmarks.papers lyanna"),
    ],
)
def test_what_only_a_checkout_has_says_what_to_type_there(typed: list[str], instead: str) -> None:
    result = CliRunner().invoke(main, typed)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"error: specsim {typed[0]} {typed[1]}: ")
    assert result.stderr.endswith(f"in a checkout of the repository, type python -m {instead}\n")


def test_a_name_that_is_nothing_gets_a_suggestion() -> None:
    result = CliRunner().invoke(main, ["show", "a100"])
    assert result.exit_code == 2
    assert "nothing has this name; did you mean" in result.stderr


REPORTS = PACKAGE.parent / "reports"
BOOKS = sorted(
    str(page.relative_to(REPORTS.parent)) for page in (REPORTS.parent / "docs").rglob("*.md")
)
PAGES = [
    "README.md",
    *BOOKS,
    "reports/README.md",
    *(f"reports/{page.relative_to(REPORTS)}" for page in sorted(REPORTS.glob("*/*.md"))),
]


@pytest.mark.parametrize("page", PAGES)
def test_links_between_our_pages_lead_somewhere(page: str) -> None:
    """But for those to the files of a paper that was taken away."""
    path = PACKAGE.parent / page
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text())
    assert [
        link
        for link in kept(links)
        if not link.endswith("timeline.json") and not (path.parent / link).exists()
    ] == []


def test_what_is_kept_of_reports_is_listed_with_a_command_over_scenarios_that_exist() -> None:
    listed = (REPORTS / "README.md").read_text()
    pictures = [
        path for folder in ("batches", "pipelines") for path in (REPORTS / folder).glob("[!.]*")
    ]
    assert [
        path.name for path in pictures if f"`{path.parent.name}/{path.stem}." not in listed
    ] == []
    commands = re.findall(
        r"specsim (?:run|batches|trees|network|load|compare)((?: [a-z]\w+)+)", listed
    )
    named = {name for names in commands for name in names.split()}
    assert set(kept(named)) <= set(Catalogue().names("scenario"))


def test_a_package_may_register_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Autoregressive):
        name: Literal["mine"] = "mine"

    announced = {"mine": SimpleNamespace(load=lambda: Mine)}
    monkeypatch.setattr("simulator.core.quantities.registered", lambda group: announced)
    assert strategies.__wrapped__()["mine"] is Mine
    assert "mine" not in strategies()


# ---- strategies


def public_members(kind: type) -> set[str]:
    """Public names in the body of a class that are no fields of a model: methods, properties, class
    variables.
    """
    written = {*vars(kind), *vars(kind).get("__annotations__", {})} - {
        *getattr(kind, "model_fields", {})
    }
    return {
        name for name in written if not name.startswith(("_", "model_"))
    }  # pydantic's own begin with model_


def test_the_base_of_strategies_stays_small() -> None:
    assert len(public_members(Strategy)) <= 21, sorted(public_members(Strategy))


@pytest.mark.parametrize("helper", [Traits, Needs, Facts])
def test_what_strategies_supply_stays_small(helper: type) -> None:
    assert 0 < len(public_members(helper) - {"count", "index"}) <= 10


def test_nobody_else_asks_which_strategy_it_is() -> None:
    """No isinstance or type test on a shipped strategy, none on its name, and no probing of its
    attributes.
    """
    names = set(strategies())
    classes = {kind.__name__ for kind in strategies().values()} | {"ChainStrategy"}
    asking = []
    for module, path in NAMES.items():
        if module.startswith(("core.strategies", "papers.")):
            continue
        tree = parsed(path)
        known = classes | _aliases_of(tree, classes)
        asking += [
            f"{module}:{node.lineno}"
            for node in ast.walk(tree)
            if _asks_for_a_strategy(node, known, names)
        ]
    assert asking == []


def _aliases_of(tree: ast.AST, classes: set[str]) -> set[str]:
    """Return the names that a module imports one of the classes under, where they are not the
    class's own.
    """
    imports = [
        alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    return {alias.asname for alias in imports if alias.asname and alias.name in classes}


def _asks_for_a_strategy(node: ast.AST, classes: set[str], names: set[str]) -> bool:
    """Whether an expression tests for one of these classes, compares with one of these names, or
    probes a strategy.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("isinstance", "issubclass"):
            return _mentions(node.args[1], classes)
        if node.func.id in ("hasattr", "getattr") and isinstance(node.args[1], ast.Constant):
            return re.search(r"\b(strategy|schedule)\b", ast.unparse(node.args[0])) is not None
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        named = any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides)
        constants = {
            part.value
            for side in sides
            for part in ast.walk(side)
            if isinstance(part, ast.Constant)
        }
        return bool(named and constants & names) or any(
            isinstance(side, ast.Name) and side.id in classes for side in sides
        )
    return isinstance(node, ast.MatchClass) and _mentions(node.cls, classes)


def _mentions(node: ast.AST, classes: set[str]) -> bool:
    """Whether one of the classes is named, bare or behind a module."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return bool(
        classes
        & (names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)})
    )


@pytest.mark.parametrize(
    "asks",
    [
        "isinstance(strategy, MirrorSD)",
        "isinstance(x, (TreeSD, int))",
        "type(strategy) is SpecPipe",
        "own.strategy.name == 'vanilla_sd'",
        "chosen.name in ('vanilla_sd', 'tree_sd')",
        "hasattr(scenario.schedule, 'fallback')",
        "getattr(strategy, 'width', 0)",
    ],
)
def test_a_question_for_a_strategy_is_seen(asks: str) -> None:
    classes = {kind.__name__ for kind in strategies().values()}
    assert any(
        _asks_for_a_strategy(node, classes, set(strategies())) for node in ast.walk(ast.parse(asks))
    )


def test_a_class_is_seen_behind_another_name() -> None:
    tree = ast.parse(
        "from simulator.core.strategies.tree_sd import TreeSD as Tree, branch as other"
    )
    assert _aliases_of(tree, {"TreeSD"}) == {"Tree"}


# ---- how the code is written


VAGUE = ("one", "found", "held", "told")
MOST_VAGUE = 150


def nodes(*kinds: type[ast.AST]) -> list[tuple[str, Any]]:
    """Return all nodes of these kinds in the package, each with the name of its module."""
    return [
        (name, node)
        for name, path in NAMES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, kinds)
    ]


def test_no_two_classes_have_one_public_name() -> None:
    places: dict[str, list[str]] = {}
    for module, node in nodes(ast.ClassDef):
        if not node.name.startswith("_"):
            places.setdefault(node.name, []).append(f"{module}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, f"{len(twice)} names of several classes: {twice}"


def test_no_file_of_data_is_a_template() -> None:
    """Sentences are functions, which linters, types and tests read."""
    files = sorted(PACKAGE.rglob("*.yaml"))
    assert files
    assert not [file.name for file in files if re.search("{{|{%", file.read_text("utf-8"))]


def test_no_conditional_expression_stands_in_another() -> None:
    nested = [
        f"{module}:{node.lineno}" for module, node in nodes(ast.IfExp) if _holds_another(node)
    ]
    assert not nested, f"{len(nested)} nested conditional expressions: {nested}"


def _holds_another(conditional: ast.IfExp) -> bool:
    return any(
        isinstance(node, ast.IfExp) for node in ast.walk(conditional) if node is not conditional
    )


@pytest.mark.parametrize("word", VAGUE)
def test_names_say_what_a_thing_is(word: str) -> None:
    count = 0
    for _, node in nodes(ast.Name, ast.arg, ast.keyword, ast.Attribute):
        field = {ast.Name: "id", ast.Attribute: "attr"}.get(type(node), "arg")
        count += getattr(node, field) == word
    assert count <= MOST_VAGUE, f"{count} names are '{word}'; at most {MOST_VAGUE} are allowed"


def test_show_says_how_a_file_gets_a_name(tmp_path: Path) -> None:
    card = tmp_path / "my_card.yaml"
    card.write_text("like: h100_sxm\n")
    result = CliRunner().invoke(main, ["show", str(card)])
    assert result.exit_code == 2
    assert "--catalogue mine gives it a name" in result.stderr
