"""Sweeps: axes, keys, stores and tables in tiny worlds; what workers do stands in
test_sweep_workers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict, Field

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.core.quantities import Frozen
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import Loaded, evaluate, load
from simulator.studies.sweep import key as keys, point
from simulator.studies.sweep.axes import assigned, axis, design
from simulator.studies.sweep.key import code_version, fields_of, key_of
from simulator.studies.sweep.metrics import METRICS
from simulator.studies.sweep.store import Store, reading, writing
from simulator.studies.sweep.study import kept, study
from simulator.studies.sweep.table import table
from tests.kept import forget

HERE = ("here", 0, 0)
WORLD = """
strategy: {name: vanilla_sd, gamma: 3}
durations: {target_ms: 10, draft_step_ms: 1}
acceptance: {always: 3}
requests: {count: 2, prompt_tokens: 8, output_tokens: 61}
"""
"""3 drafted tokens of 1 ms and a pass of 10 ms bring 4 tokens: 3.25 ms each; 60 of them after the
first.
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(WORLD)
    return path


def specsim(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def swept(*arguments: object) -> str:
    """The exported table of a sweep in this process, over the world of :func:`world`."""
    done = specsim("sweep", "tiny.yaml", "--workers", 1, "--export", "table.csv", *arguments)
    assert done.exit_code == 0, done.output
    return Path("table.csv").read_text()


# ---- axes


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,x", [1, 2, "x"]),
        ("1:4:4", [1, 2, 3, 4]),
        ("1:2:3", [1.0, 1.5, 2.0]),
        ("0.1:0.3:3", [0.1, 0.2, 0.3]),
        ("log:1:1000:4", [1, 10, 100, 1000]),
        ("log:1:2:3", [1.0, 1.41421356237, 2.0]),
        ("true,null,[1]", [True, None, "[1]"]),
        ("llama_3.1:8b,other", ["llama_3.1:8b", "other"]),
    ],
)
def test_values_of_an_axis(text: str, values: list[object]) -> None:
    key, stated = assigned(f"field={text}")
    assert list(axis(key, stated, HERE).labels) == values


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_product_visits_every_combination_once_the_last_axis_fastest(lengths: list[int]) -> None:
    axes = [axis(f"f{number}", list(range(length)), HERE) for number, length in enumerate(lengths)]
    found = design(axes, "product", 0, 0, HERE)
    assert [one.labels for one in found] == list(product(*map(range, lengths)))
    assert len(found) == len(list(found))


@given(st.integers(1, 20), st.integers(0, 5))
def test_a_latin_hypercube_has_one_point_in_every_slice_of_every_axis(
    samples: int, seed: int
) -> None:
    axes = [
        axis("even", "0.0:1.0:2", HERE),
        axis("ratios", "log:1.0:16.0:2", HERE),
        axis("word", ["a", "b"], HERE),
    ]
    points = [one.labels for one in design(axes, "latin_hypercube", samples, seed, HERE)]
    slices = sorted(int(even * samples) for even, _, _ in points)
    assert slices == list(range(samples))
    assert all(1.0 <= ratio <= 16.0 for _, ratio, _ in points)
    assert points == [one.labels for one in design(axes, "latin_hypercube", samples, seed, HERE)]


def test_whole_ends_of_a_latin_hypercube_give_whole_numbers() -> None:
    found = design([axis("gamma", "1:9:2", HERE)], "latin_hypercube", 12, 0, HERE)
    assert {type(one.labels[0]) for one in found} == {int}
    assert {one.labels[0] for one in found} <= set(range(1, 10))


def test_labelled_values_set_several_fields() -> None:
    cores: list[object] = [
        {"label": 8, "set": {"a.b": 1, "a.c": 2}},
        {"label": 16, "set": {"a.b": 3, "a.c": 4}},
    ]
    found = design([axis("cores", cores, HERE)], "product", 0, 0, HERE)
    assert [(one.labels, one.settings) for one in found] == [
        ((8,), {"a.b": 1, "a.c": 2}),
        ((16,), {"a.b": 3, "a.c": 4}),
    ]


# ---- what a point comes to


def test_the_whole_table_of_a_tiny_sweep(world: Path) -> None:
    found = swept(
        "--axis",
        "strategy.gamma=1,3",
        "--axis",
        "durations.target_ms=10,20",
        "--evaluate",
        "replay",
    )
    columns = [f"replay_{name}" for name in METRICS]
    assert found.splitlines()[0].split(",") == [
        "point",
        "strategy.gamma",
        "durations.target_ms",
        *columns,
        "fault",
    ]
    rows = [line.split(",") for line in found.splitlines()[1:]]
    told = [
        (
            int(row[0]),
            int(row[1]),
            int(row[2]),
            *(round(float(row[place]), 9) for place in (3, 5, 6, 7)),
        )
        for row in rows
    ]
    assert told == [
        (0, 1, 10, 5.5, round(10 / 5.5, 9), 2.0, 11.0),
        (1, 1, 20, 10.5, round(20 / 10.5, 9), 2.0, 21.0),
        (2, 3, 10, 3.25, round(10 / 3.25, 9), 4.0, 13.0),
        (3, 3, 20, 5.75, round(20 / 5.75, 9), 4.0, 23.0),
    ]


@pytest.mark.parametrize("evaluator", ["law", "replay", "simulation"])
def test_evaluators_agree_where_acceptance_is_certain(world: Path, evaluator: str) -> None:
    table = swept(
        "--axis", "strategy.gamma=1:3:3", "--evaluate", evaluator, "--store", f"{evaluator}.sqlite"
    )
    assert [float(line.split(",")[2]) for line in table.splitlines()[1:]] == pytest.approx(
        [5.5, 4.0, 3.25], rel=1e-9
    )


def test_a_speedup_is_that_of_a_run_whatever_its_neighbours_were(world: Path) -> None:
    """Baselines are shared between points; each must still be its own."""
    swept(
        "--axis",
        "durations.target_ms=10,30",
        "--axis",
        "requests.concurrency=1,2",
        "--axis",
        "strategy.gamma=1,3",
    )
    with reading(Path("reports/sweeps/tiny.sqlite")) as store:
        frame = table(store).frame
    for _, row in frame.iterrows():
        fields = ("durations.target_ms", "requests.concurrency", "strategy.gamma")
        loaded = load("tiny.yaml" if world else "", [f"{key}={row[key]}" for key in fields])
        simulated = evaluate.simulate(loaded.scenario, loaded.acceptance())[0]
        assert row["simulation_tpot_ms"] == simulated.tpot_s * 1e3
        baseline = evaluate.simulate(evaluate.plain(loaded.scenario), evaluate.NO_DRAFTS)[0]
        assert row["simulation_speedup"] == baseline.tpot_s / simulated.tpot_s


HARDWARE = [
    (
        "vanilla_qwen3_32b_a100",
        ["strategy.gamma=2,5", "draft.device.memory_bandwidth_gb_s=900,1800"],
    ),
    ("mirror_qwen3_32b_a100", ["strategy.gamma=2,4", "channel.latency_us=1,40", "seed=0,1"]),
    ("mtp_qwen3_5_27b_h100", ["requests.concurrency=1,3", "target.device.peak_tflops=300,900"]),
    (
        "vanilla_qwen3_32b_a100",
        ["strategy=autoregressive,vanilla_sd", "target.tensor_parallel=4,8"],
    ),
]


@pytest.mark.few(4)
@pytest.mark.parametrize("evaluator", ["simulation", "replay", "law"])
@pytest.mark.parametrize(("name", "axes"), HARDWARE)
def test_a_point_on_hardware_is_what_it_is_alone(
    name: str, axes: list[str], evaluator: Literal["simulation", "replay", "law"]
) -> None:
    """Points share passes, step times, acceptance and baselines; alone, each starts with nothing
    remembered.
    """
    short = ["requests={count: 6, concurrency: 2, prompt_tokens: 100, output_tokens: 40}"]
    found = study(name, Catalogue(), short, axes, evaluate=evaluator)
    points = list(found.design)
    rows = point.evaluate_all(found.job(evaluator), code_version(), points).results
    assert not [row.fault for row in rows if row.fault]
    for row, one in zip(rows, points, strict=True):
        forget()
        settings = [f"{key}={value}" for key, value in one.settings.items()]
        loaded = evaluate.tuned(load(name, [*short, *settings]))
        assert row.metrics == alone(loaded, evaluator)
    assert len({row.metrics["tpot_ms"] for row in rows}) >= len(rows) / 2


def alone(loaded: Loaded, evaluator: str) -> dict[str, float | None]:
    """The metrics of a scenario that shares nothing with others."""
    scenario = loaded.scenario
    if evaluator == "law":
        law = evaluate.law(scenario, loaded.acceptance())
        plain_law = evaluate.baseline(scenario)
        return {
            "tpot_ms": law.tpot_s * 1e3,
            "tokens_per_s": scenario.batch / law.tpot_s,
            "speedup": plain_law.tpot_s / law.tpot_s,
            "tokens_per_step": law.tokens_per_step,
            "step_ms": law.step_s * 1e3,
        }
    plain = evaluate.plain(scenario)
    if evaluator == "replay":
        outcome = evaluate.replay(scenario, loaded.acceptance())
        return point._metrics(scenario, outcome, evaluate.replay(plain, evaluate.NO_DRAFTS))
    outcome, _ = evaluate.simulate(scenario, loaded.acceptance())
    return point._metrics(scenario, outcome, evaluate.simulate(plain, evaluate.NO_DRAFTS)[0])


def test_the_order_of_axes_does_not_decide_which_field_lies_in_which(world: Path) -> None:
    arguments = [
        "--axis",
        "strategy.gamma=2",
        "--axis",
        "strategy=vanilla_sd,autoregressive",
        "--evaluate",
        "law",
    ]
    first, second = swept(*arguments).splitlines()[1:]
    assert first.startswith("0,2,vanilla_sd,4.0,")
    # autoregressive decoding has none: a fault of this point alone
    assert "strategy.gamma: unknown field" in second


# ---- keys


def key(*overrides: str, name: str = "mirror_qwen3_32b_m2_ultra", evaluator: str = "law") -> bytes:
    return key_of(fields_of(load(name, overrides), Catalogue()), evaluator)


@pytest.mark.parametrize(
    "overrides",
    [
        ["strategy.gamma=7"],  # what the file says anyway
        ["requests.concurrency=1"],  # what nobody says, the default
        ["channel.latency_us=1"],  # a number whose source is now the command line
        ["about=other words"],
        ["target.device=m2_ultra_gpu"],
    ],
)
def test_equal_scenarios_have_equal_keys(overrides: list[str]) -> None:
    assert load("mirror_qwen3_32b_m2_ultra").scenario.channel.latency_us.value == 1
    assert key(*overrides) == key()


@pytest.mark.parametrize(
    "overrides",
    [
        ["strategy.gamma=6"],
        ["seed=1"],
        ["requests.count=119"],
        ["channel.latency_us=2"],
        ["target.engine=ideal"],
    ],
)
def test_different_scenarios_have_different_keys(overrides: list[str]) -> None:
    assert key(*overrides) != key()
    assert key(*overrides) != key(*overrides, evaluator="simulation")


class Loose(BaseModel):
    """A model of another package whose text leaves a field out."""

    model_config = ConfigDict(extra="allow")
    seen: int = 1
    hidden: int = Field(default=1, repr=False)


class Holder(Frozen):
    """A model of another package with a field of any kind."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    held: set[str] | Loose | np.ndarray


LONG = np.arange(5_000)


@pytest.mark.parametrize(
    ("held", "equal", "other"),
    [
        ({"a", "b", "c"}, {"c", "b", "a"}, {"a", "b"}),
        (Loose(hidden=2), Loose(hidden=2), Loose(hidden=3)),
        (Loose(beside=2), Loose(beside=2), Loose(beside=3)),  # type: ignore[call-arg]
        (LONG, LONG.copy(), np.where(LONG == 2_500, 0, LONG)),
    ],
)
def test_a_key_knows_every_field_of_a_model_of_another_package(
    held: Any, equal: Any, other: Any
) -> None:
    found = [keys._bare(Holder(held=one)) for one in (held, equal, other)]
    assert found[0] == found[1] != found[2]


def test_a_key_knows_what_the_trace_holds(tmp_path: Path) -> None:
    traces = tmp_path / "scenarios/traces"
    traces.mkdir(parents=True)
    shelves, found = Catalogue((tmp_path,)), []
    for name in ("six_flavours_greedy", "six_flavours_warm"):
        (traces / "mine.npz").write_bytes(Catalogue().names("trace")[name].read_bytes())
        loaded = load("vanilla_llama_2_7b_a100", ["acceptance.trace=mine"], shelves)
        found.append(key_of(fields_of(loaded, shelves), "law"))
    assert found[0] != found[1]


AXES = [
    ["durations.target_ms=5:25:5", "durations.draft_step_ms=0.5,1", "strategy.gamma=1:3:3"],
    [
        "durations.target_ms=5,-1,25",
        "requests.concurrency=1,2",
        "requests.count=2,4",
        "strategy.gamma=0,2",
    ],
    ["strategy=autoregressive,vanilla_sd", "durations.target_ms=5,fast", "seed=0,1"],
]


@pytest.mark.parametrize("axes", AXES)
def test_laws_evaluated_together_are_those_evaluated_alone(world: Path, axes: list[str]) -> None:
    found = study("tiny.yaml", Catalogue(), axes=axes, evaluate="law")
    job, points = found.job("law"), list(found.design)
    together = point.evaluate_all(job, code_version(), points).results
    assert together == [point.row_at(job, one) for one in points]
    for row, one in zip(together, points, strict=True):
        if row.fault is None:
            loaded, fields = job.base.point(one.settings)
            assert row.key == key_of(fields, "law")
            law, plain = (
                evaluate.law(loaded.scenario, loaded.acceptance()),
                evaluate.baseline(loaded.scenario),
            )
            told = (
                law.tpot_s * 1e3,
                plain.tpot_s / law.tpot_s,
                law.tokens_per_step,
                law.step_s * 1e3,
            )
            names = ("tpot_ms", "speedup", "tokens_per_step", "step_ms")
            assert [row.metrics[name] for name in names] == pytest.approx(told, rel=1e-14)
    assert any(row.fault is None for row in together)


def test_a_key_knows_the_code_of_strategies_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        """Stands for a strategy of another package."""

    own = keys.code_version.__wrapped__()
    monkeypatch.setattr(keys, "strategies", lambda: {"foreign": Foreign})
    assert keys.code_version.__wrapped__() != own


# ---- stores


def counted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Settings of every point that is evaluated from now on."""
    seen: list[dict[str, Any]] = []
    real = point.row_at

    def evaluate(job: point.SweepJob, one: point.Point) -> point.Row:
        seen.append(one.settings)
        return real(job, one)

    monkeypatch.setattr(point, "row_at", evaluate)
    return seen


def test_resuming_evaluates_nothing_twice(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = swept("--axis", "strategy.gamma=1:4:4", "--store", "whole.sqlite")
    seen = counted(monkeypatch)
    swept("--axis", "strategy.gamma=1,3", "--store", "parts.sqlite")
    assert len(seen) == 2
    assert swept("--axis", "strategy.gamma=1:4:4", "--store", "parts.sqlite", "--resume") == whole
    assert [one["strategy.gamma"] for one in seen] == [1, 3, 2, 4]
    assert swept("--axis", "strategy.gamma=1:4:4", "--store", "parts.sqlite", "--resume") == whole
    assert len(seen) == 4
    again = swept(
        "--axis",
        "durations.draft_step_ms=1.0",
        "--set",
        "strategy.gamma=2",
        "--store",
        "parts.sqlite",
        "--resume",
    )
    assert len(seen) == 4  # the same scenario in other words
    assert again.splitlines()[1].split(",")[2:] == whole.splitlines()[2].split(",")[2:]


def test_a_changed_scenario_is_evaluated_anew(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept("--axis", "strategy.gamma=1,2")
    world.write_text(WORLD.replace("target_ms: 10", "target_ms: 100"))
    seen = counted(monkeypatch)
    rows = swept("--axis", "strategy.gamma=1,2", "--resume").splitlines()[1:]
    assert [float(row.split(",")[2]) for row in rows] == pytest.approx([50.5, 34.0])
    assert len(seen) == 2


def test_a_store_is_not_overwritten_unasked(world: Path) -> None:
    swept("--axis", "strategy.gamma=1,2")
    again = specsim("sweep", "tiny.yaml", "--axis", "strategy.gamma=1,2", "--workers", 1)
    assert again.exit_code == 2
    assert "--resume goes on with it" in again.stderr


def test_points_that_fail_are_named_and_stop_no_others(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = point.EVALUATORS["simulation"]

    def fragile(loaded: Any, fields: Any) -> dict[str, float]:
        if loaded.scenario.durations.target_ms == 13:
            raise ZeroDivisionError("thirteen")
        return real(loaded, fields)

    monkeypatch.setitem(point.EVALUATORS, "simulation", fragile)
    text = swept("--axis", "durations.target_ms=10,-1,13,fast,20")
    rows = {line.split(",")[0]: line for line in text.splitlines()[1:]}
    assert len(rows) == 5
    assert "bad input: durations.target_ms" in rows["1"]
    assert "crashed: ZeroDivisionError: thirteen (" in rows["2"]
    assert "bad input: durations.target_ms" in rows["3"]
    assert [round(float(rows[number].split(",")[2]), 9) for number in ("0", "4")] == [3.25, 5.75]
    told = specsim(
        "sweep",
        "tiny.yaml",
        "--axis",
        "durations.target_ms=10,-1,13,fast,20",
        "--workers",
        1,
        "--resume",
        "--long",
    )
    assert "5 of 5 points, 3 of them faulty" in told.stdout
    assert "durations.target_ms=13: crashed: ZeroDivisionError" in told.stderr


def test_a_sweep_of_faults_alone_fails(world: Path) -> None:
    for form in ([], ["--json", "--resume"]):
        done = specsim(
            "sweep", "tiny.yaml", "--axis", "strategy.gamma=a:b:c,0", "--workers", 1, *form
        )
        assert (done.exit_code, done.stdout) == (2, "")
        assert [line[: line.index(": bad input")] for line in done.stderr.splitlines()] == [
            "error: strategy.gamma=a:b:c",
            "error: strategy.gamma=0",
        ]


def test_many_points_that_are_all_wrong_are_counted(world: Path) -> None:
    done = specsim(
        "sweep", "tiny.yaml", "--axis", "strategy.gamma=-60:-1:60", "--workers", 1, "--json"
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[20:] == ["error: ... and 40 more"]


def test_points_of_which_some_are_wrong_stay_in_the_json(world: Path) -> None:
    done = specsim("sweep", "tiny.yaml", "--axis", "strategy.gamma=1,0", "--workers", 1, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert list(json.loads(done.stdout)["faults"]) == ["1"]


def test_a_model_that_does_not_fit_is_infeasible(world: Path) -> None:
    room = ["--set", "serving.memory.kv_tokens=1000"]
    axis_ = ["--axis", "requests.prompt_tokens=128,4000"]
    done = specsim(
        "sweep", "vanilla_llama_2_7b_a100", *axis_, *room, "--evaluate", "law", "--workers", 1
    )
    assert done.exit_code == 0
    assert "requests.prompt_tokens=4000: infeasible: " in done.stderr


def test_status_says_how_far_a_store_has_come(world: Path) -> None:
    swept("--axis", "strategy.gamma=1,2,-1")
    data = json.loads(specsim("sweep", "tiny", "--status", "--json").stdout)
    assert data["evaluators"] == {"simulation": {"points": 3, "done": 3, "faults": 1}}
    assert data["same_code"] is True
    with writing(Path("reports/sweeps/tiny.sqlite")) as store:
        store._database.execute("DELETE FROM points WHERE number = 1")
    assert "2 of 3 points, 1 of them faulty" in specsim("sweep", "tiny", "--status").stdout


def test_a_second_process_waits_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    entered, path = threading.Event(), tmp_path / "one.sqlite"

    def second() -> None:
        with writing(path, told.append):
            entered.set()

    with writing(path):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert not entered.wait(0.2)
    waiting.join(10)
    assert entered.is_set()
    assert told == [f"another process sweeps into {path}; waiting for it"]


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, whatever it is\n" * 100)
    with pytest.raises(BadInput, match="is no store of a sweep"):
        Store(path)
    assert specsim("plot", tmp_path / "none.sqlite", "--out", tmp_path).exit_code == 2


# ---- law, then simulation


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ("best 50% of tpot_ms", {1, 3}),
        ("best 10 % of tpot_ms", {1}),
        ("best 50% of speedup", {0, 4}),
        ("tpot_ms <= 2.5", {1, 3}),
        ("tpot_ms >= 2.5", {0, 4}),
    ],
)
def test_what_a_law_leaves_to_be_confirmed(rule: str, numbers: set[int]) -> None:
    assert kept(rule, [(0, 3.0), (1, 1.0), (2, None), (3, 2.0), (4, 3.0)]) == numbers


def test_a_simulation_confirms_what_the_law_left(world: Path) -> None:
    text = swept(
        "--axis",
        "strategy.gamma=1:4:4",
        "--evaluate",
        "law then simulation",
        "--keep",
        "best 50% of speedup",
    )
    header, *rows = (line.split(",") for line in text.splitlines())
    simulated = header.index("simulation_tpot_ms")
    assert [bool(row[simulated]) for row in rows] == [False, False, True, True]
    assert float(rows[2][simulated]) == pytest.approx(float(rows[2][header.index("law_tpot_ms")]))


# ---- what is refused, and how


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--axis", "strategy.gama=1,2"], "did you mean 'gamma'"),
        (["--axis", "gamma=1,2"], "error: tiny: axes: gamma: unknown field"),
        (["--axis", "strategi.gamma=1,2"], "did you mean 'strategy'"),
        (
            ["--zip", "--axis", "strategy.gamma=1,2", "--axis", "seed=1,2,3"],
            "values: strategy.gamma 2, seed 3",
        ),
        (
            ["--axis", "strategy.gamma=1:2"],
            "expected low:high:count or log:low:high:count, got '1:2'",
        ),
        (["--axis", "strategy.gamma=5:1:3"], "expected low below high"),
        (["--axis", "seed=log:0:10:3"], "need a low end above 0"),
        (["--axis", "strategy.gamma=1,1"], "has the same value twice"),
        (
            ["--axis", "acceptance.rate=0.1:0.9:9999", "--axis", "durations.target_ms=1:9:10004"],
            "points are more than 100,000,000",
        ),
        (["--axis", "strategy.gamma"], "expected key=a,b,c"),
        ([], "needs at least one axis"),
        (
            [
                "--axis",
                "seed=1",
                "--evaluate",
                "law then simulation",
                "--keep",
                "best 10% of tpotms",
            ],
            "did you mean 'tpot_ms'",
        ),
        (["--axis", "seed=1", "--keep", "good ones"], "expected 'best 10% of tpot_ms'"),
        (["--axis", "seed=1", "--set", "strategy.gama=1"], "did you mean 'gamma'"),
        (["--axis", "seed=1", "--export", "table.xls"], "ends in .csv or .parquet"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused_in_one_line(
    world: Path, arguments: list[str], message: str
) -> None:
    done = specsim("sweep", "tiny.yaml", "--workers", 1, *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("axes", "free"),
    [
        (["strategy.gamma=1,3"], True),
        (["strategy.gamma=1,3", "durations.draft_ms=1,3"], False),
        (["durations.draft_ms=1,3"], False),
    ],
)
def test_windows_that_cost_nothing_more_are_pointed_out(
    world: Path, axes: list[str], free: bool
) -> None:
    """One stated time for any window makes the longest one the best, which says nothing about
    windows.
    """
    Path("tiny.yaml").write_text(WORLD.replace("draft_step_ms: 1", "draft_ms: 3"))
    chosen = [word for axis in axes for word in ("--axis", axis)]
    options = ("--evaluate", "law", "--workers", 1, *chosen)
    done = specsim("sweep", "tiny.yaml", "--report", "page", *options).output
    told = json.loads(specsim("sweep", "tiny.yaml", "--resume", "--json", *options).stdout)[
        "cautions"
    ]
    words = "longer windows cost nothing here"
    assert [words in text for text in (done, str(told), Path("page/tiny.md").read_text())] == [
        free
    ] * 3


def test_a_sweep_over_borrowed_acceptance_says_so(world: Path) -> None:
    done = specsim(
        "sweep",
        "vanilla_llama_2_7b_a100",
        "--axis",
        "strategy.gamma=1,2",
        "--evaluate",
        "law",
        "--workers",
        1,
    )
    told = " ".join(done.output.split())
    assert "Uncertain acceptance is a stand-in, recorded from other models" in told


def test_a_sweep_file_says_where_it_is_wrong(world: Path) -> None:
    Path("bad.yaml").write_text(
        "scenario: ./tiny.yaml\naxes:\n  strategy.gamma: 3:1:2\nevaluate: laws\nmetrics: [tpot]\n"
    )
    found = specsim("sweep", "./bad.yaml").stderr
    assert (
        "bad.yaml:4:1: evaluate: expected 'law', 'replay', 'simulation' or 'law then "
        "simulation', got 'laws'"
    ) in found
    assert "bad.yaml:5:1: metrics: there is no metric 'tpot'; did you mean 'tpot_ms'?" in found
    Path("bad.yaml").write_text("scenario: ./tiny.yaml\naxes:\n  strategy.gamma: 3:1:2\n")
    assert (
        "bad.yaml:3:3: strategy.gamma: expected low below high"
        in specsim("sweep", "./bad.yaml").stderr
    )


def test_names_of_neither_kind_get_a_suggestion() -> None:
    done = specsim("sweep", "specpipe_tree")
    assert done.exit_code == 2
    assert (
        "there is no sweep and no scenario of this name; did you mean 'specpipe_trees'?"
        in done.stderr
    )


# ---- what is shipped, and its pictures


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted(Catalogue().names("sweep")))
def test_every_shipped_sweep_has_points_that_run_and_plots_over_its_columns(name: str) -> None:
    points = study(name, Catalogue())
    assert points.file.about
    job = points.job("law")
    rows = [
        point.row_at(job, points.design.point(number)) for number in (0, len(points.design) - 1)
    ]
    assert [row.fault for row in rows if row.fault and not row.fault.startswith("infeasible")] == []
    columns = {axis.key for axis in points.design.axes} | set(points.file.metrics)
    for plot in points.file.plots:
        assert {
            name for name in (plot.x, plot.y, plot.value, plot.hue, plot.facet) if name
        } <= columns


KINDS: list[Sequence[str]] = [
    ("--kind", "line", "--x", "gamma", "--y", "speedup", "--hue", "target_ms"),
    ("--kind", "line", "--x", "gamma", "--y", "tpot_ms", "--facet", "draft_step_ms"),
    (
        "--kind",
        "heatmap",
        "--x",
        "gamma",
        "--y",
        "target_ms",
        "--value",
        "speedup",
        "--facet",
        "draft_step_ms",
    ),
    ("--kind", "contour", "--x", "gamma", "--y", "target_ms", "--value", "speedup"),
    (
        "--kind",
        "contour",
        "--x",
        "gamma",
        "--y",
        "target_ms",
        "--value",
        "speedup",
        "--hue",
        "draft_step_ms",
    ),
    ("--kind", "pareto", "--x", "step_ms", "--y", "tpot_ms", "--hue", "gamma"),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    (folder / "tiny.yaml").write_text(WORLD)
    axes = [
        "strategy.gamma=1:4:4",
        "durations.target_ms=log:1:100:3",
        "durations.draft_step_ms=1,10",
    ]
    arguments = [word for axis in axes for word in ("--axis", axis)]
    done = specsim(
        "sweep",
        folder / "tiny.yaml",
        "--workers",
        1,
        "--evaluate",
        "law",
        "--store",
        folder / "store",
        *arguments,
    )
    assert done.exit_code == 0, done.output
    return folder / "store"


@pytest.mark.few(2)
@pytest.mark.parametrize("options", KINDS, ids=lambda options: "-".join(options[1::2]))
def test_a_picture_has_the_same_bytes_again(
    stored: Path, tmp_path: Path, options: Sequence[str]
) -> None:
    pictures = []
    for name in ("one.svg", "two.svg"):
        done = specsim("plot", stored, *options, "--out", tmp_path / name)
        assert done.exit_code == 0, done.output
        pictures.append((tmp_path / name).read_text())
    assert pictures[0] == pictures[1]
    if options[1] != "pareto":
        assert "window γ (draft tokens)" in pictures[0]
    if options[1] in ("heatmap", "contour") and "--hue" not in options:
        assert "speed-up = 1" in pictures[0]


def test_a_picture_says_which_axis_was_left_at_its_best(stored: Path, tmp_path: Path) -> None:
    specsim("plot", stored, *KINDS[3], "--out", tmp_path / "one.svg")
    assert "best over durations draft step (ms)" in (tmp_path / "one.svg").read_text()


def test_a_picture_is_svg_and_one_that_nobody_named_is_asked_for(
    stored: Path, tmp_path: Path
) -> None:
    for options, message in (
        (
            (*KINDS[0], "--out", tmp_path / "one.bmp"),
            "one.bmp: expected a name that ends in .svg, .pdf, .png",
        ),
        (
            ("--out", tmp_path / "pictures"),
            "store: names no plots of its own; choose --kind, --x and --y",
        ),
    ):
        done = specsim("plot", stored, *options)
        assert done.exit_code == 2
        assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kind", "line", "--x", "gama", "--y", "speedup"), "did you mean"),
        (("--kind", "heatmap", "--x", "gamma", "--y", "target_ms"), "a heatmap needs value"),
        (("--kind", "line", "--x", "gamma"), "a line needs y"),
        (
            ("--kind", "contour", "--y", "target_ms", "--value", "speedup"),
            "x: is required and missing",
        ),
    ],
)
def test_a_picture_of_nothing_is_refused(
    stored: Path, tmp_path: Path, options: Sequence[str], message: str
) -> None:
    done = specsim("plot", stored, *options, "--out", tmp_path / "none.svg")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "none.svg").exists()


def test_the_table_as_parquet_holds_the_same(stored: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    from simulator.studies.sweep.table import export

    with reading(stored) as store:
        found = table(store)
    export(found, tmp_path / "table.parquet")
    assert pandas.read_parquet(tmp_path / "table.parquet").equals(found.frame)


def test_axes_of_words_and_numbers_can_be_exported(world: Path) -> None:
    pytest.importorskip("pyarrow")
    arguments = [
        "--axis",
        "requests.prompt_tokens=8,{name: uniform, most_tokens: 9}",
        "--evaluate",
        "law",
        "--workers",
        1,
    ]
    done = specsim("sweep", "tiny.yaml", *arguments, "--export", "table.parquet")
    assert done.exit_code == 0, done.output
