"""Methods as data: every file loads, runs and keeps its law; features, the comparison and its
pictures.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from test_laws import play

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput, Infeasible
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.tree_sd import TreeSD
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.report.blocks import Bullets, Highlight, Table
from simulator.report.pages import crossovers as crossovers_page, methods as methods_page
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.studies.batches import LawAtBatch
from simulator.studies.crossovers import Crossover, CrossoverStudy, by_exact_laws, crossovers
from simulator.studies.method_features import Features, MethodFile, features, read_method
from simulator.studies.methods import (
    ExcludedMethod,
    MethodComparison,
    MethodPoint,
    Origin,
    candidates,
    left_out,
    method_sweep,
)
from tests.layer_times import layer_time
from tests.test_cost import place

SCENARIO = "methods_vicuna_7b_a100"
FILES = Catalogue().names("method")
NAMES = sorted(FILES)
FEATURES = dict(features(Catalogue()))
SEVEN_B = validate(ModelSpec, read(Catalogue().names("model")["vicuna_7b"], "vicuna_7b"))


def method(name: str) -> MethodFile:
    return read_method(FILES[name])


@pytest.mark.parametrize("name", NAMES)
def test_every_method_states_what_it_is(name: str) -> None:
    found = method(name)
    assert found.about
    assert len(found.source) > 10
    if isinstance(found.strategy, TreeSD):
        assert found.strategy.tree.source != "not stated"
        assert found.strategy.host_ms.source != "not stated"
        assert all(pass_.source != "not stated" for pass_ in found.strategy.passes)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if not (method(name).strategy.traits.staged or method(name).strategy.traits.alone)
    ],
)
@pytest.mark.parametrize("accepted", [0, 2])
def test_law_and_simulation_of_every_method_agree(name: str, accepted: int) -> None:
    """Two runs that differ by 60 steady steps, with constant acceptance and stated durations:
    1e-9.
    """
    strategy = method(name).strategy
    if isinstance(strategy, TreeSD):
        strategy = strategy.model_copy(update={"matched": None, "covered": None})
    source = Cycle((accepted,))
    acceptance = strategy.reads(source)
    cost = StatedCost(
        StatedDurations(prefix_ms=6.0, suffix_ms=7.0, draft_ms=3.0, redraft_ms=3.0),
        max(1, strategy.needs.draft_steps),
    )
    law = strategy.law(cost, lambda gamma: acceptance.odds(gamma, None), 2, 100)
    if any(share < 1.0 for share in law.kinds.values()):
        pytest.skip("several kinds of step: in the tests of its strategy")
    window = min(accepted, strategy.window) + 1
    short, long = (
        play(
            strategy,
            acceptance,
            cost,
            Requests(concurrency=2, count=2, output_tokens=1 + window * turns),
        )[0].ledger.tally
        for turns in (20, 80)
    )
    steps = sum(long.steps.values()) - sum(short.steps.values())
    assert (long.step_seconds - short.step_seconds) / steps == pytest.approx(law.step_s, rel=1e-9)
    assert (long.committed - short.committed) / (2 * steps) == pytest.approx(
        law.tokens_per_step, rel=1e-9
    )


@pytest.mark.parametrize(
    "name", [name for name in NAMES if not method(name).strategy.traits.staged]
)
def test_every_method_runs_on_stated_acceptance(name: str) -> None:
    """Also those of which nothing is recorded: the user's own rate is enough."""
    # how sure a draft is, a rate does not say
    single = ["strategy.sequences=1"] if name == "duodecoding" else []
    # a vocabulary of Llama 3 that is cut is longer than that of Vicuna
    large = ["target.model=llama_3_1_8b"] if name == "fr_spec" else []
    stated = [f"strategy={FILES[name]}", "acceptance={rate: 0.7}", "requests.count=2"]
    loaded = load(SCENARIO, [*stated, *single, *large])
    assert loaded.scenario.strategy.name == method(name).strategy.name
    assert simulate(loaded.scenario, loaded.acceptance())[0].tokens_per_step > 1.0


# ---- numbers of the released programs


@pytest.mark.parametrize(
    ("name", "rows", "weights"),
    [
        ("eagle_1", 26, 0.24),
        ("eagle_2", 60, 0.24),
        ("medusa_1", 64, 0.74),
        ("medusa_2", 64, 0.74),
        ("hydra", 64, 1.26),
        ("lookahead", 120, 0.0),
        ("token_recycling", 81, 0.0),
        ("specinfer", 21, 0.0),
        ("pld", 11, 0.0),
        ("sglang_eagle", 8, 0.24),
    ],
)
def test_rows_and_weights_of_the_released_programs(name: str, rows: int, weights: float) -> None:
    """Weights in 1e9 beside Vicuna-7B, as the programs' own documents or their shapes have them."""
    assert FEATURES[name].verified_rows == rows
    assert FEATURES[name].extra_weights / 1e9 == pytest.approx(weights, abs=0.005)


def test_the_head_of_eagle_3_beside_a_target_of_8b() -> None:
    strategy = method("eagle_3").strategy
    eight_b = validate(ModelSpec, read(Catalogue().names("model")["llama_3_1_8b"], "llama_3_1_8b"))
    assert strategy.extra_memory(eight_b).weights / 1e9 == pytest.approx(0.42, abs=0.01)


@pytest.mark.parametrize(
    ("name", "target", "billions"),
    [("dflash", "qwen3_8b", 1.05), ("mtp_layers", "mimo_v2_flash", 0.97)],
)
def test_heads_of_several_layers(name: str, target: str, billions: float) -> None:
    """DFlash: five dense layers of 193 M and five squares of 16.8 M; MTP: three sets of a layer of
    290 M and two squares.
    """
    shapes = validate(ModelSpec, read(Catalogue().names("model")[target], target))
    assert method(name).strategy.extra_memory(shapes).weights / 1e9 == pytest.approx(
        billions, abs=0.01
    )


def test_one_pass_writes_a_block() -> None:
    """DFlash on a device of round numbers: five products over what was accepted, then five layers
    and the LM head, 16 rows.
    """
    strategy = method("dflash").strategy
    assert isinstance(strategy, TreeSD)
    cost, rows = HardwareCost(place()), Rows.decode(16, 84)
    step = strategy.step(Kind("step", 1), 84)
    layer = sum(
        layer_time(place(), rows._replace(kv_tokens=84, attention_pairs=16 * 84), experts=False)
    )
    fused, logits = 20_000e-9 + 16 * 400e-9, (100_000 * 2 + 16 * 1_100 * 2) * 1e-9
    assert strategy.phases(cost, step)["draft"].wall_s == pytest.approx(
        5 * fused + 5 * layer + logits, rel=1e-9
    )
    assert (step.rows.tokens, strategy.window) == (16, 15)


PUBLISHED_FEATURES = {
    "SpecPipe (Ours)": ["specpipe"],
    "SpecInfer [37]": ["specinfer"],
    "EAGLE [30–32]": ["eagle_2", "eagle_3"],
    "Medusa [6]": ["medusa_1"],
    "Lookahead [13]": ["lookahead"],
}
COLUMNS = {
    "draft_compute_adds_no_extra_latency": "adds_no_latency",
    "no_extra_training": "no_training",
    "large_batch_supporting": "large_batch",
    "dynamic_draft": "dynamic_draft",
}


def test_features_are_those_of_table_2() -> None:
    """SpecPipe's Table 2, worked out and not typed; Self-Speculative decoding is no method of
    ours.
    """
    with (shipped() / "scenarios/papers/specpipe/cells.csv").open() as file:
        cells = [cell for cell in csv.DictReader(file) if cell["source"] == "Table 2"]
    compared = 0
    for cell in cells:
        for name in PUBLISHED_FEATURES.get(cell["method"], []):
            assert getattr(FEATURES[name], COLUMNS[cell["quantity"]]) == (
                cell["published"] == "yes"
            ), (name, cell["quantity"])
            compared += 1
    assert compared == 24


# ---- names


def test_a_method_is_named_and_overridden() -> None:
    scenario = load(SCENARIO, ["strategy=eagle_2", "strategy.host_ms=2"]).scenario
    assert scenario.strategy.name == "tree_sd"
    assert scenario.method
    assert scenario.method.name == "eagle_2"
    assert scenario.strategy.host_ms.value == 2.0
    assert load(SCENARIO, ["strategy=vanilla_sd"]).scenario.method is None


def test_a_method_replaces_the_one_it_is_like(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(f"like: {SCENARIO}\nstrategy: medusa_1\n")
    (tmp_path / "second.yaml").write_text("like: ./first.yaml\nstrategy: eagle_1\n")
    (tmp_path / "third.yaml").write_text("like: ./second.yaml\nstrategy: {host_ms: 1}\n")
    (tmp_path / "fourth.yaml").write_text(
        "like: ./second.yaml\nstrategy: {name: vanilla_sd, gamma: 2}\n"
    )
    second, third, fourth = (
        load(str(tmp_path / f"{name}.yaml")).scenario for name in ("second", "third", "fourth")
    )
    assert second.strategy == method("eagle_1").strategy
    assert third.strategy == second.strategy.model_copy(update={"host_ms": third.strategy.host_ms})
    assert third.method == second.method
    assert (fourth.strategy.name, fourth.method) == ("vanilla_sd", None)


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (
            ["strategy=eagle2"],
            "strategy: there is no strategy or method 'eagle2'; did you mean 'eagle_2'",
        ),
        (
            ["strategy=lookahead"],
            "holds no drafting of lookahead, only another's to borrow the bursts of",
        ),
        (
            ["strategy=space"],
            (
                "holds no drafting of space, only another's to borrow the bursts of; set "
                "acceptance.rescale"
            ),
        ),
        (
            ["strategy=eagle_2", "strategy.tree.budget=20"],
            "holds the tree of 59 tokens in 5 levels, 10 choices",
        ),
        (
            ["strategy=medusa_1", "acceptance.drafter=plain"],
            "holds nothing of the drafter 'medusa'",
        ),
        (["strategy=medusa_1", "strategy.passes.0.rows=[0]"], "strategy.passes"),
    ],
)
def test_faults_name_the_place(overrides: list[str], fault: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(SCENARIO, overrides)
    assert fault in str(caught.value)


def test_extra_weights_count_against_the_device() -> None:
    """Llama-3.1-8B (16.1 GB) fits 17 GB; the heads of Medusa (5.4 GB more at this vocabulary) do
    not.
    """
    base = [
        "target.model=llama_3_1_8b",
        "target.device.memory_gb=17.5",
        "requests.output_tokens=64",
        "acceptance={rate: 0.5}",
    ]
    alone = [*base, "serving.memory.utilisation=1.0"]
    assert load(SCENARIO, ["strategy=pld", *alone]).scenario.kv_tokens
    with pytest.raises(Infeasible, match="does not fit"):
        load(SCENARIO, ["strategy=medusa_1", *alone])


# ---- side by side


@pytest.mark.parametrize(
    ("tokens", "speedup", "cost"),
    [(3.52, 3.08, 1.14286), (3.46, 1.42, 2.43662), (3.75, 3.24, 1.15741)],
)
def test_the_relative_cost_of_a_step(tokens: float, speedup: float, cost: float) -> None:
    """SS-11 a to c: tokens per step over speed-up, in autoregressive steps."""
    point = MethodPoint(
        "x", "tree_sd", "published", "", 1, 0.0, 0.0, 1.0, tokens, 10.0 / speedup, 1.0, 10.0, ""
    )
    assert point.relative_step == pytest.approx(cost, rel=5e-6)


def test_the_comparison_keeps_origins_apart() -> None:
    items = list(
        candidates(SCENARIO, ["requests.count=6"], only=["eagle_1", "hydra", "space", "pld"])
    )
    points = method_sweep(items)
    assert {(point.method, point.origin) for point in points} == {
        ("eagle_1", "stand_in"),
        ("pld", "stand_in"),
        ("eagle_1", "published"),
        ("hydra", "published"),
    }
    assert [point.origin for point in points] == ["stand_in"] * 2 + ["published"] * 2
    assert len({point.baseline_tpot_ms for point in points}) == 1
    published = next(
        point for point in points if (point.method, point.origin) == ("eagle_1", "published")
    )
    assert published.acceptance == "3.94 tokens a step, published for vicuna_7b; bursts of eagle"
    assert published.published_speedup == 2.9
    assert [one.method for one in left_out(items)] == ["space"]
    data = MethodComparison(SCENARIO, "", tuple(points), tuple(left_out(items))).as_data()
    assert data["methods"][0]["speedup"] == pytest.approx(
        points[0].baseline_tpot_ms / points[0].tpot_ms
    )


def test_a_method_stops_paying_between_two_batches() -> None:
    """Medusa verifies 64 rows a request; the products step behind 64, 128, 256 and 384 of them."""
    (study,) = crossovers(
        candidates(SCENARIO, ["acceptance={always: 1}"], only=["medusa_1"]), range(1, 9)
    )
    speedups = {point.batch: point.speedup for point in study.points}
    assert study.first is not None
    assert study.tile_edges == (2, 3, 5, 7)
    assert speedups[study.first - 1] >= 1.0 > speedups[study.first]
    assert [point.verify_rows for point in study.points] == [64 * batch for batch in range(1, 9)]


def test_crossovers_leave_out_laws_that_are_bounds() -> None:
    """Target and draft share a lane here: the laws of Mirror-SD and PEARL do not hold, and
    DuoDecoding takes one request.
    """
    methods = ["mirror_sd", "pearl", "duodecoding", "vllm_chain"]
    found = by_exact_laws(candidates(SCENARIO, ["requests.count=2"], only=methods))
    assert [one.method for one in found if one.loaded] == ["vllm_chain"]
    reasons = {one.method: one.reason for one in left_out(found)}
    assert "target and draft share one lane" in reasons["mirror_sd"]
    assert "target and draft share one lane" in reasons["pearl"]
    assert "one request at a time" in reasons["duodecoding"]


def test_crossovers_take_the_replayed_tokens_of_a_step() -> None:
    """One request: the law's step over the tokens of a replay, against the simulation within the
    growth of the context.
    """
    items = list(candidates(SCENARIO, ["requests.count=12"], only=["eagle_2"]))
    (study,), (point,) = crossovers(items, [1]), method_sweep(items)
    assert study.points[0].speedup == pytest.approx(point.speedup, rel=0.02)


def test_the_commands_draw_and_tell(tmp_path: Path) -> None:
    only = [word for name in ("medusa_1", "space") for word in ("--only", name)]
    arguments = [SCENARIO, *only, "--set", "requests.count=2"]
    for command, more in (("methods", []), ("crossovers", ["--sizes", "1-6"])):
        file = tmp_path / f"{command}.svg"
        result = CliRunner().invoke(
            main, [command, *arguments, *more, "--long", "--out", str(file)], catch_exceptions=False
        )
        assert result.exit_code == 0, result.stderr
        told = " ".join(result.stdout.split())
        assert "space is left out: " in told
        words = "".join(ElementTree.parse(file).getroot().itertext())
        for text in (
            "medusa_1",
            "Acceptance recorded from other, small models",
            "Acceptance published or measured",
        ):
            assert text in words, text
            assert text in told, text
        data = json.loads(CliRunner().invoke(main, [command, *arguments, *more, "--json"]).stdout)
        assert data["left_out"][0]["method"] == "space"


def test_list_methods_tells_features() -> None:
    told = CliRunner().invoke(main, ["list", "methods"]).stdout
    assert all(name in told for name in NAMES)
    found = json.loads(CliRunner().invoke(main, ["list", "method", "--json"]).stdout)["method"]
    assert set(found) == set(NAMES)
    assert found["token_recycling"]["acceptance"] == "yours"


def point(method: str, origin: Origin, tpot_ms: float, **facts: Any) -> MethodPoint:
    """A method whose autoregressive decoding takes 20 ms per token."""
    return MethodPoint(
        method=method,
        strategy="x",
        origin=origin,
        acceptance="of a test",
        verified_rows=4,
        extra_weights_gb=0.0,
        draft_ms=1.0,
        step_ms=tpot_ms,
        tokens_per_step=1.0,
        tpot_ms=tpot_ms,
        law_tpot_ms=tpot_ms,
        baseline_tpot_ms=20.0,
        relation=facts.pop("relation", ""),
        **facts,
    )


def compared(*points: MethodPoint) -> MethodComparison:
    """Methods on one scenario, of which one more is left out."""
    return MethodComparison("s", "t on d", points, (ExcludedMethod("left", "it has no law"),))


def test_the_answer_names_the_fastest_of_every_origin() -> None:
    result = compared(
        point("slow", "recorded", 16.0),
        point("quick", "recorded", 10.0),
        point("own", "stand_in", 8.0),
        point("lent", "published", 5.0),
        point("said", "stated", 4.0),
    )
    assert methods_page.headline(result) == (
        "With acceptance as published lent is the fastest: 4.00 times autoregressive decoding; "
        "with acceptance recorded from its models quick is the fastest: 2.00 times autoregressive "
        "decoding; with acceptance of stand-ins own is the fastest: 2.50 times autoregressive "
        "decoding; with acceptance as stated said is the fastest: 5.00 times autoregressive "
        "decoding."
    )
    assert list(methods_page.highlights(result)) == [
        Highlight("1.25 ×", "as fast as autoregressive decoding: slow, of a test"),
        Highlight("5.00 ×", "as fast: said, the last of the list, of a test"),
        Highlight("5", "methods run here, of 6"),
    ]
    assert [words for words, _ in methods_page.by_origin(result.points)] == [
        "Acceptance recorded from the scenario's own models",
        "Acceptance recorded from other, small models",
        "Acceptance published or measured for large models",
        "Acceptance stated by the scenario",
    ]
    assert methods_page.headline(compared()) == "No method runs here."
    assert list(methods_page.highlights(compared())) == [Highlight("0", "methods run here, of 1")]


def test_the_notes_say_what_may_be_compared() -> None:
    def notes(*points: MethodPoint) -> list[str]:
        (bullets,) = methods_page.page(compared(*points)).sections[-1].blocks
        assert isinstance(bullets, Bullets)
        return [str(item) for item in bullets.items]

    simulated = (
        "Times are simulated; law: with marginal acceptance. Draft and rows: of a step in which "
        "all propose"
    )
    left_out = "left is left out: it has no law"
    assert notes(point("a", "stated", 10.0)) == [simulated, left_out]
    assert notes(
        point("b", "published", 10.0, published_speedup=2.5, rests_on="largest uncertainty: x"),
        point("a", "recorded", 10.0, relation="a bound"),
    ) == [
        "The two parts are not comparable: their acceptance is of models of very different size",
        "publ.: the speed-up that the source of the mean reports, on its own hardware and software",
        "b: largest uncertainty: x",
        simulated,
        "a: the law is no equality here (a bound)",
        left_out,
    ]


def test_the_figure_explains_its_marks() -> None:
    def axis(*points: MethodPoint) -> str:
        return str(methods_page.bar_figure(points, "title").axes[0].get_xlabel())

    bare = "speed-up over autoregressive decoding (simulation)"
    assert axis(point("a", "stated", 10.0)) == bare
    assert axis(
        point("a", "stated", 10.0, published_speedup=2.5, relation="drafts on one lane")
    ) == (
        f"{bare}\ndiamond: published speed-up, on its source's own hardware and software\n"
        "* drafts beside the target on a device of its own, which it does not have here"
    )


def crossover(method: str, origin: Origin, first: int | None, for_good: int | None) -> Crossover:
    points = (LawAtBatch(1, 5, 2.0), LawAtBatch(16, 80, 1.0))
    return Crossover(method, origin, "of a test", points, first, for_good, (8,))


def test_crossovers_are_said_in_words() -> None:
    early = crossover("early", "recorded", 4, 8)
    late = crossover("late", "recorded", 9, 9)
    never = crossover("never", "recorded", None, None)
    again = crossover("again", "stated", 2, None)
    assert crossovers_page.headline([never, late, early]) == (
        "By law 1 of 3 methods are faster than plain decoding up to B = 16, never by most; early "
        "is the first to fall behind, at B = 4."
    )
    assert crossovers_page.headline([late, early]) == (
        "By law late stays ahead longest, up to B = 8; early is the first to fall behind, at B = 4."
    )
    assert crossovers_page.headline([never]) == (
        "By law 1 of 1 methods are faster than plain decoding up to B = 16, never by most."
    )
    assert crossovers_page.headline([]) == "No method has a law here."
    assert list(crossovers_page.highlights([never, late, early])) == [
        Highlight("B = 4", "where early falls behind, the first"),
        Highlight("B = 9", "where late falls behind, the last that does"),
        Highlight("1", "of 3 never fall behind"),
    ]
    assert list(crossovers_page.highlights([never])) == [Highlight("1", "of 1 never fall behind")]
    assert list(crossovers_page.sentences([never, late, early, again])) == [
        (
            "Acceptance recorded from the scenario's own models: early falls behind first, from 4 "
            "requests on; late last, from 9 on; never up to 16: never."
        ),
        "Acceptance stated by the scenario: again falls behind first, from 2 requests on.",
    ]
    study = CrossoverStudy("s", "t on d", (never, late, early, again), ())
    page = crossovers_page.page(study)
    assert page.title == "Up to which batch each method is worth using on s: t on d"
    (notes,) = page.sections[-1].blocks
    assert isinstance(notes, Bullets)
    assert list(notes.items) == [
        "By law of the step, with the tokens a step that a replay of one request at a time commits"
    ]
    (picture,) = page.figures
    assert picture.title == "Speed-up of all methods by batch"
    assert {axes.get_xlabel() for axes in picture.drawing.axes} == {
        "",
        "speed-up over autoregressive decoding of the same batch (law)",
        (
            "batch B (requests that decode together)\nblack, and at the right: from here on "
            "autoregressive decoding is faster\norange: up to there, where another tile of rows "
            "begins"
        ),
    }
    tables = [block for block in page.blocks if isinstance(block, Table)]
    assert list(tables[0].head) == [
        "method",
        "rows per request",
        "speed-up at B = 1",
        "slower from B =",
        "for good from B =",
        "where a tile ends",
    ]
    assert [row for shown in tables for row in shown.rows] == [
        ("never", "5", "2.00", "over 16", "over 16", ""),
        ("late", "5", "2.00", "9", "9", "no"),
        ("early", "5", "2.00", "4", "8", "yes"),
        ("again", "5", "2.00", "2", "over 16", ""),
    ]


def test_features_are_said_in_words() -> None:
    alike = {"about": "", "strategy": "x", "large_batch": True, "dynamic_draft": False}
    few = Features(
        adds_no_latency=True,
        no_training=False,
        verified_rows=3,
        extra_weights=9_000_000,
        acceptance="both",
        **alike,
    )
    many = replace(few, extra_weights=1_234_000_000, acceptance="recorded")
    none = replace(few, extra_weights=0, acceptance="published", adds_no_latency=False)
    (shown, legend) = methods_page.features_page({"a": few, "b": many, "c": none}).opening
    assert isinstance(shown, Table)
    assert list(shown.head) == [
        "method",
        "free draft",
        "not trained",
        "large batch",
        "dyn. draft",
        "rows",
        "1e9",
        "from",
    ]
    assert list(shown.rows) == [
        ("a", "yes", "no", "yes", "no", "3", "< 0.01", "both"),
        ("b", "yes", "no", "yes", "no", "3", "1.23", "rec."),
        ("c", "no", "no", "yes", "no", "3", "", "publ."),
    ]
    assert isinstance(legend, Bullets)
    assert list(legend.items) == [
        (
            "Free draft: drafting adds no latency. As in SpecPipe's Table 2, but worked out from "
            "the method's law and file"
        ),
        (
            "Rows: of the target's pass in one step of a request; 1e9: weights in addition to a "
            "target of 7B"
        ),
        (
            "From: acceptance is recorded from small models, published as a mean, both, or only "
            "yours to state"
        ),
    ]


def test_an_unknown_method_is_refused() -> None:
    result = CliRunner().invoke(main, ["methods", SCENARIO, "--only", "medusa"])
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "error: --only medusa: there is no method 'medusa'; did you mean"
    )
