"""``specsim what-if``: a tiny service of round numbers, and changes whose effect is known by hand.

A pass takes 10 ms and a draft token 1 ms; two are drafted, and both are kept: 12 ms for 3 tokens.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from numpy.typing import NDArray

import simulator
from simulator.api.services import tried_service
from simulator.cli.main import main
from simulator.core.acceptance.retrieval import rate_of
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.services.observed import Observed, ObservedAcceptance
from simulator.inputs.services.prediction import read_prediction
from simulator.report.services.pictures import VERDICTS, tried_figure
from simulator.report.services.tried import cautions_of
from simulator.scenario import load, resolved
from simulator.studies.service.changes import SETTINGS, changes_of, tokens_at
from simulator.studies.service.simulated import simulated_service
from simulator.studies.service.tried import TriedChange, WhatIfService, study

LIVE = Path(__file__).parent / "data" / "live_services"
NGRAM = "ngram_qwen3_30b_a3b_h200"
TINY = """
about: two tokens are drafted in 1 ms each, and both are kept
strategy: {name: vanilla_sd, gamma: 2}
durations: {target_ms: 10, draft_step_ms: 1}
acceptance: {always: 2}
requests: {count: 4, prompt_tokens: 10, output_tokens: 31}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["what-if", *map(str, arguments)], env={"COLUMNS": "120"})


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def tried(source: object, *texts: str, like: str | None = None) -> WhatIfService:
    _, result = tried_service([str(source)], texts, like, Catalogue())
    return result


def ratio(change: TriedChange, key: str) -> float:
    gain = change.gain(key)
    assert gain is not None
    assert gain.ratio is not None
    return gain.ratio


@pytest.mark.parametrize(
    ("text", "tpot_ms", "tokens", "verdict"),
    [
        ("plain", 10.0, 1.0, "hurts"),
        ("gamma=1", 5.5, 2.0, "hurts"),
        ("gamma=3", 13.0 / 3.0, 3.0, "hurts"),  # the third is never kept
        ("durations.target_ms=4", 2.0, 3.0, "helps"),
        ("gamma=4 acceptance.always=4", 2.8, 5.0, "helps"),
        ("requests.count=3", 4.0, 3.0, "may hurt"),  # nothing changes
    ],
)
def test_a_change_does_what_it_does_by_hand(
    tiny: Path, text: str, tpot_ms: float, tokens: float, verdict: str
) -> None:
    """Nothing is in doubt, so that the interval is the number itself."""
    (change,) = tried(tiny, text).tries
    assert ratio(change, "tpot_ms") == pytest.approx(tpot_ms / 4.0)
    assert ratio(change, "e2e_ms") == pytest.approx(tpot_ms / 4.0)
    assert ratio(change, "output_tokens_per_s") == pytest.approx(4.0 / tpot_ms, rel=1e-2)
    assert ratio(change, "tokens_per_step") == pytest.approx(tokens / 3.0)
    assert change.verdict == verdict
    gain = change.gain("tpot_ms")
    assert gain is not None
    assert gain.drawn is not None
    assert gain.drawn.interval() == pytest.approx((tpot_ms / 4.0, tpot_ms / 4.0))
    assert gain.predicted.after == pytest.approx(tpot_ms, rel=1e-5)


def test_no_draw_has_a_step_without_the_token_of_the_target(tmp_path: Path) -> None:
    """Acceptance that is lent to a look-up reaches from nearly nothing to twice as much; draws are
    about the steps that ran, no matter what the law makes of recorded runs.
    """
    path = tmp_path / "plain.yaml"
    path.write_text(
        "strategy: autoregressive\n"
        "target: {model: llama_68m, device: xeon_16_cores, engine: vllm, weights: bf16}\n"
        "requests: {count: 8, prompt_tokens: 16, output_tokens: 64}\n"
    )
    for change in tried(path, "ngram", "ngram gamma=2").tries:
        gain = change.gain("tokens_per_step")
        assert gain is not None
        assert gain.drawn is not None
        assert float(gain.drawn.changes.min()) >= -np.log(gain.drawn.value) - 1e-12
        low, high = gain.drawn.interval(0.9)
        assert 1.0 <= low < 1.1
        assert high > gain.drawn.value * 1.1, "the upper end of the lent range is drawn, too"
        within = gain.predicted.within_90
        assert within is not None
        assert within.low >= 1.0


@pytest.mark.parametrize(("measured", "expected"), [(1.2, 1.1), (2.0, 1.5), (1.0, 2.0)])
def test_what_is_kept_of_drafts_goes_with_a_change(
    tiny: Path, measured: float, expected: float
) -> None:
    """A step is simulated with 3 tokens before and 2 after: of the kept ones half are left. Where
    none was kept, it is as simulated.
    """
    acceptance = ObservedAcceptance(file="counters", tokens_per_step=measured)
    seen = Observed(bottleneck="nothing", acceptance=acceptance)
    loaded = load(str(tiny))
    changes, _ = changes_of(loaded, ["gamma=1"], Catalogue())
    (change,) = study(loaded, changes, [], seen, "tiny").tries
    gain = change.gain("tokens_per_step")
    assert gain is not None
    assert gain.predicted.after == pytest.approx(expected)


def test_each_value_is_tried_by_itself_and_words_together_at_once(tiny: Path) -> None:
    result = tried(tiny, "gamma=1,3", "gamma=1,3 durations.target_ms=4,6", "gamma=1")
    assert [each.change.typed for each in result.tries] == [
        "gamma=1",
        "gamma=3",
        "gamma=1 durations.target_ms=4",
        "gamma=1 durations.target_ms=6",
        "gamma=3 durations.target_ms=4",
        "gamma=3 durations.target_ms=6",
    ]
    assert {setting.field for setting in result.tries[2].changed} == {
        "strategy.gamma",
        "durations.target_ms",
    }


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["gama=2"], "--try 'gama=2': there is no setting 'gama'; did you mean 'gamma'?"),
        (["eagle3"], "there is no method 'eagle3'; did you mean 'eagle_3'?"),
        (["gamma"], "a setting has a value, as in gamma=4"),
        (["gamma="], "states no value of gamma; expected gamma=VALUE"),
        (["gamma=0"], "expected a whole number of draft tokens from 1 on"),
        (
            ["plain gamma=2"],
            "--try plain, or name a method that drafts, as in --try 'ngram gamma=2'",
        ),
        (["off draft=qwen3_0_6b tp=2"], "as in --try 'draft_model draft=qwen3_0_6b tp=2'"),
        (
            ["eagle_3 plain"],
            "names 2 methods, of which a service has one; write --try eagle_3 --try",
        ),
        (["window=2"], "there is no setting 'window'; expected one of gamma, tensor_parallel"),
        (["strategy.gama=2"], "--try 'strategy.gama=2': strategy.gama: unknown field"),
        ([" "], "expected a method or a setting, as in --try gamma=2,4"),
        (["gamma=" + ",".join(map(str, range(1, 30)))], "asks for 29 changes; expected at most 24"),
        (["max_num_batched_tokens=8"], "policy fixed_batch has no limit of tokens in a pass"),
        (["draft=qwen3_0_6b"], "--try 'draft_model draft=qwen3_0_6b'"),
        (["ngram"], "needs models and a device"),
    ],
)
def test_what_is_no_change_is_said(tiny: Path, texts: list[str], words: str) -> None:
    result = run(tiny, *(word for text in texts for word in ("--try", text)))
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr, result.stderr


def test_what_cannot_be_tried_stands_beside_what_can(tiny: Path) -> None:
    result = run(tiny, "--try", "gamma=1", "--try", "eagle_3")
    assert result.exit_code == 0, result.output
    assert "eagle_3: left out, needs models and a device" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([LIVE / "vllm_bench.json"], "is a file of a service; name with --like"),
        (["seen"], "was observed of a service; name with --like"),
        (["seen/observed.yaml"], "was observed of a service; name with --like"),
        (["durations_only", "durations_only"], "expected one scenario"),
        (["durations_onli"], "did you mean 'durations_only'"),
        (["tiny.yaml", "--like", "durations_only"], "tiny.yaml: is no file that is known"),
    ],
)
def test_what_is_no_service_is_said(
    tiny: Path, arguments: list[object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    Path("seen").mkdir()
    Path("seen/observed.yaml").write_text("observed: 1\nbottleneck: none\n")
    result = run(*arguments, "--try", "gamma=2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr, result.stderr


# ---- a service that was observed


@pytest.fixture(scope="module")
def service() -> WhatIfService:
    files = [LIVE / "vllm_bench.json"]
    files += [LIVE / f"vllm_bench_metrics_{end}.txt" for end in ("before", "after")]
    texts = ["plain", "eagle_3", "ngram gamma=2", "tensor_parallel=2", "prefix_caching=on"]
    _, result = tried_service(list(map(str, files)), texts, NGRAM, Catalogue())
    return result


def test_a_prediction_is_the_measured_number_times_its_change(service: WhatIfService) -> None:
    before = {each.number.key: each for each in service.before}
    assert before["tpot_ms"].measured is not None
    assert before["tpot_ms"].measured.value == pytest.approx(7.6, abs=0.01)
    assert before["hit_rate"].simulated is None
    for change in service.tries:
        gain = change.gain("tpot_ms")
        assert gain is not None
        assert gain.ratio is not None
        expected = before["tpot_ms"].measured.value * gain.ratio
        assert gain.predicted.after == pytest.approx(expected, rel=1e-5)
        assert gain.predicted.seen_by == "client"
        assert gain.predicted.within_80 is not None
        assert gain.predicted.within_90 is not None
        assert gain.predicted.within_90.low <= gain.predicted.within_80.low
        assert gain.predicted.within_80.high <= gain.predicted.within_90.high


def test_without_drafts_a_step_has_one_token(service: WhatIfService) -> None:
    gain = service.tries[0].gain("tokens_per_step")
    assert gain is not None
    assert gain.predicted.after == 1.0


def test_a_method_that_nobody_measured_here_has_a_range(service: WhatIfService) -> None:
    eagle = service.tries[1]
    assert eagle.change.another_method
    assert any("published" in words for words in eagle.change.said)
    gain = eagle.gain("tokens_per_step")
    assert gain is not None
    assert gain.drawn is not None
    low, high = gain.drawn.interval()
    assert low < 0.85 * high
    assert eagle.command is not None
    assert '"method": "eagle3"' in eagle.command


def test_the_method_of_the_service_keeps_its_acceptance(service: WhatIfService) -> None:
    change = service.tries[2]
    assert not change.change.another_method
    assert [setting.field for setting in change.changed] == ["strategy.tree.branching"]
    assert '"num_speculative_tokens": 2' in (change.command or "")


def test_more_devices_bring_more_room_for_caches(service: WhatIfService) -> None:
    change = service.tries[3]
    fields = {setting.field: setting.after for setting in change.changed}
    assert fields["target.tensor_parallel"] == "2"
    assert fields["target.link"] == "nvlink_h100"
    assert int(fields["serving.memory.kv_tokens"]) > 2 * 262_144
    assert [untried.typed for untried in service.untried] == ["prefix_caching=on"]


def test_what_is_common_is_drawn_once() -> None:
    """A service beside itself is the same in every draw; another method has of its own what a fit
    left, which widens the gain, and no more.
    """
    loaded = load(NGRAM, ["requests.count=4", "requests.output_tokens=16"])
    one = simulated_service(loaded)
    again = simulated_service(loaded)
    for key, changes in one.changes.items():
        assert np.array_equal(changes, again.changes[key])
    other = simulated_service(loaded, "other")
    gain = float(np.std(other.changes["ttft_ms"] - one.changes["ttft_ms"]))
    assert 0.0 < gain < float(np.std(one.changes["ttft_ms"])) * 2.0**0.5


def test_windows_that_the_fit_has_not_seen_are_drawn_apart() -> None:
    """What a fit left cancels between two windows which it saw, and between two which it did not
    see; not between one and the other.
    """
    common = ["requests.count=4", "requests.output_tokens=16"]
    common += ["target.engine.hull.rows=[3, 4]", "target.engine.fit.errors={held out: 0.5}"]

    def step(drafts: int) -> NDArray[np.float64]:
        loaded = load(NGRAM, [*common, f"strategy.tree.branching={[1] * drafts}"])
        return simulated_service(loaded).changes["tpot_ms"]

    seen, beside, unseen, farther = (step(gamma) for gamma in (2, 3, 6, 7))
    assert np.std(beside - seen) < 0.05
    assert np.std(farther - unseen) < 0.2
    assert np.std(unseen - seen) > 0.5


@pytest.mark.parametrize(
    ("rows", "text", "said"),
    [
        ("[4, 4]", "no_speculation", True),
        ("[4, 4]", "num_draft_tokens=2", True),
        ("[4, 4]", "max_num_seqs=4", False),
        ("[1, 4]", "no_speculation", False),
    ],
)
def test_a_fit_to_one_window_warns_of_others(rows: str, text: str, said: bool) -> None:
    common = ["requests.count=4", "requests.output_tokens=16", "strategy.tree.branching=[1, 1, 1]"]
    fit = "target.engine.fit={source: mine, rows: 8, free: 2, errors: {held out: 0.1}}"
    loaded = load(NGRAM, [*common, f"target.engine.hull.rows={rows}", fit])
    cautions = " ".join(
        cautions_of(study(loaded, changes_of(loaded, [text], Catalogue())[0], [], None, "mine"))
    )
    assert ("The fit saw 3 draft tokens alone" in cautions) == said


def test_a_fit_to_one_window_does_not_know_what_a_row_takes() -> None:
    """A step of four rows is known; that of one row may be a quarter of it or all of it, so that
    80 % of the draws lie within a factor of four to both sides.
    """
    common = ["requests.count=4", "requests.output_tokens=16"]
    one = [*common, "target.engine.hull.rows=[4, 4]"]
    several = [*common, "target.engine.hull.rows=[1, 4]"]

    def gain(fitted_to: list[str]) -> NDArray[np.float64]:
        drafted = load(NGRAM, [*fitted_to, "strategy.tree.branching=[1, 1, 1]"])
        plain = load(NGRAM, [*fitted_to, "strategy={name: autoregressive}"])
        before = simulated_service(drafted).changes["tpot_ms"]
        return simulated_service(plain).changes["tpot_ms"] - before

    spread = np.std(gain(one)) ** 2 - np.std(gain(several)) ** 2
    assert spread**0.5 == pytest.approx(np.log(4.0) / 1.2816, rel=0.1)


def test_a_borrowed_acceptance_is_drawn_apart() -> None:
    loaded = load(NGRAM, ["requests.count=4", "requests.output_tokens=16"])
    one = simulated_service(loaded).changes["tokens_per_step"]
    same = simulated_service(loaded).changes["tokens_per_step"]
    apart = simulated_service(loaded, "other").changes["tokens_per_step"]
    assert np.array_equal(one, same)
    assert abs(np.corrcoef(one, apart)[0, 1]) < 0.1


def test_files_of_a_change_are_what_was_tried(tmp_path: Path) -> None:
    """The scenario of each change is the one that was simulated; its prediction is read back."""
    out = tmp_path / "out"
    texts = ["plain", "eagle_3 gamma=2", "ngram gamma=2", "tensor_parallel=2", "draft_model"]
    result = simulator.what_if(LIVE / "vllm_bench.json", tries=texts, like=NGRAM)
    result.save(out)
    assert {path.name for path in out.iterdir()} == {
        "what_if.md",
        "what_if.html",
        "what_if.svg",
        "what_if.data.csv",
        "before",
        "plain",
        "eagle_3_gamma=2",
        "ngram_gamma=2",
        "tensor_parallel=2",
        "draft_model",
    }
    for change in result.value.tries:
        folder = out / change.change.typed.replace(" ", "_")
        again = resolved(load(str(folder / "scenario.yaml")).scenario)
        first = resolved(change.change.loaded.scenario)
        for fields in (again, first):
            for name in ("name", "about", "requests"):
                fields.pop(name)
        assert again == first, change.change.typed
        prediction = read_prediction(folder)
        assert prediction.verdict == change.verdict
        assert prediction.load.requests == 12
        assert (folder / "vllm.sh").read_text().count("vllm serve") == 1
    before = yaml.safe_load((out / "before/scenario.yaml").read_text())
    assert before["like"] == NGRAM


@pytest.mark.full
def test_a_prediction_of_no_change_is_verified_by_the_same_files(tmp_path: Path) -> None:
    """From observing to verifying: the service as it was lies inside of every interval."""
    done = run(LIVE / "vllm_bench.json", "--like", NGRAM, "--try", "ngram", "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(
        main, ["verify", str(tmp_path / "o/ngram"), str(LIVE / "vllm_bench.json"), "--json"]
    )
    numbers = json.loads(checked.stdout)["pairs"][0]["numbers"]
    assert len(numbers) == 5
    for number in numbers:
        assert number["error"] == pytest.approx(0.0, abs=1e-5)
        assert number["in_80"]
        assert number["sign_right"] is None


def test_python_and_the_command_say_the_same(tiny: Path) -> None:
    result = simulator.what_if(tiny, tries=["gamma=1,3"])
    assert result.to_dict() == json.loads(run(tiny, "--try", "gamma=1,3", "--json").stdout)
    assert set(result.to_frame()["tried"]) == {"gamma=1", "gamma=3"}


def test_every_word_of_an_engine_has_its_setting() -> None:
    assert {"num_speculative_tokens", "max_num_seqs", "tp", "mem_fraction_static"} <= set(SETTINGS)
    loaded = load(NGRAM)
    texts = {
        "--max-num-seqs=8": "serving.policy.max_requests",
        "max_running_requests=8": "serving.policy.max_requests",
        "num_speculative_tokens=2": "strategy.tree",
        "gpu_memory_utilization=0.8": "serving.memory.utilisation",
        "kv_cache_dtype=fp8": "target.kv_cache",
        "quantization=fp8": "target.weights",
        "concurrency=4": "requests.concurrency",
        "device=h100_sxm": "target.device",
    }
    for text, field in texts.items():
        (change,), untried = changes_of(loaded, [text], Catalogue())
        assert (change.fields[0], untried) == (field, []), text


def test_a_lent_mean_is_moved_to_another_window() -> None:
    """Each token is kept with one chance: 1 + 1/2 + 1/4 + 1/8 = 1.875 tokens."""
    assert tokens_at(0.5, 3) == 1.875
    assert rate_of(0.875, 3) == pytest.approx(0.5)
    assert rate_of(8.0, 3) == pytest.approx(1.0)
    (change,), _ = changes_of(load(NGRAM), ["eagle_3 gamma=2"], Catalogue())
    spec = change.loaded.scenario.acceptance
    assert spec.rate == pytest.approx(rate_of(1.18, 3), abs=1e-6)
    assert spec.tokens_per_step_between is not None
    low, high = spec.tokens_per_step_between
    assert low < tokens_at(spec.rate, 2) < high < 3.0


def test_acceptance_may_be_typed_with_a_method() -> None:
    (change,), _ = changes_of(load(NGRAM), ["eagle_3 acceptance.rate=0.6"], Catalogue())
    assert change.loaded.scenario.acceptance.rate == 0.6
    assert "acceptance as typed, of which no range is known" in change.said


def test_faults_stand_at_what_was_typed() -> None:
    with pytest.raises(BadInput, match=r"--try 'device=h999': target.device: there is no device"):
        changes_of(load(NGRAM), ["device=h999"], Catalogue())


def test_the_picture_has_a_row_for_every_change_with_its_interval(tiny: Path) -> None:
    """A change of which nothing is in doubt has an interval as wide as its number."""
    result = tried(tiny, "durations.target_ms=4", "plain")
    drawing = tried_figure(result)
    panels = [axes for axes in drawing.axes if axes.get_visible()]
    assert [axes.get_title("left").partition(":")[0] for axes in panels] == [
        "E2E (ms)",
        "TTFT (ms)",
        "TPOT (ms)",
        "output tokens/s",
    ]
    rows = [text.get_text() for text in panels[2].get_yticklabels()]
    assert rows == ["as it is", "durations.target_ms=4", "plain"]
    drawn = {str(line.get_label()): line for line in panels[2].get_lines()}
    assert list(drawn["as it is, simulated"].get_xdata()) == pytest.approx([4.0])
    assert list(drawn["durations.target_ms=4"].get_xdata()) == pytest.approx([2.0])
    assert list(drawn["plain"].get_ydata()) == [2]
    assert list(drawn["plain, 80 % interval"].get_xdata()) == pytest.approx([10.0, 10.0], rel=1e-4)
    assert drawn["plain"].get_color() == VERDICTS["hurts"].colour
