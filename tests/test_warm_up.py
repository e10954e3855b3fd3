"""A warm-up that is left out when a service is observed is left out of all that is compared with
it.

Twenty requests come a second apart, each with 11 tokens, 10 ms apart. The first ten wait 1,000 ms
for their first token, the others 100 ms.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

import simulator
from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.evidence.live.cases import observed_case
from simulator.evidence.live.replayed import replayed
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.services.observation import observation_of
from simulator.inputs.services.observed import Observed
from simulator.inputs.services.prediction import seen_numbers
from simulator.inputs.services.warm import NOT_OF_LATER

COLD = 10
PLAIN = """
about: a pass of 10 ms for each token, and 100 ms for each prompt
strategy: autoregressive
durations: {target_ms: 10, prefill_ms: 100}
acceptance: {always: 0}
requests: {count: 4, prompt_tokens: 10, output_tokens: 11}
"""
LATER = {"ttft_ms": 100.0, "tpot_ms": 10.0, "e2e_ms": 200.0, "output_tokens_per_s": 110 / 9.2}
"""From the arrival at 10 s to the end at 19.2 s."""
ALL = {"ttft_ms": 550.0, "tpot_ms": 10.0, "e2e_ms": 650.0, "output_tokens_per_s": 10.0}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], env={"COLUMNS": "100"})


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """The detailed result of a benchmark."""
    path = tmp_path / "bench.json"
    result = {
        "model_id": "target",
        "backend": "vllm",
        "completed": 20,
        "request_rate": 1.0,
        "duration": 22.0,
        "total_input_tokens": 200,
        "total_output_tokens": 220,
        "start_times": [5.0 + second for second in range(20)],
        "ttfts": [1.0] * COLD + [0.1] * 10,
        "itls": [[0.01] * 10] * 20,
        "input_lens": [10] * 20,
        "output_lens": [11] * 20,
        "errors": [""] * 20,
    }
    path.write_text(json.dumps(result))
    return path


@pytest.fixture
def like(tmp_path: Path) -> Path:
    path = tmp_path / "plain.yaml"
    path.write_text(PLAIN)
    return path


def values(observed: Observed) -> dict[str, float]:
    """The numbers that predictions are compared with."""
    return {key: seen.value for key, seen in seen_numbers(observed).items()}


def test_times_and_rate_are_those_of_later_requests(bench: Path) -> None:
    whole = observation_of([bench])
    later = observation_of([bench], COLD)
    assert values(whole) == pytest.approx(ALL)
    assert values(later) == pytest.approx(LATER)
    assert (whole.skipped, later.skipped) == (None, COLD)
    assert later.load.requests == whole.load.requests == 20
    assert [time.count for time in later.times] == [10, 10, 10]
    assert NOT_OF_LATER in later.not_held
    assert whole.bottleneck.startswith("Warm-up: the first 10 requests waited up to 1,000 ms")
    assert whole.bottleneck.count("observe --skip 10") == 1
    assert "Warm-up" not in later.bottleneck


def test_what_was_left_out_stays_left_out(bench: Path, like: Path, tmp_path: Path) -> None:
    """From observing, by way of fitting and predicting, to verifying."""
    seen = tmp_path / "seen"
    done = run("observe", bench, "--skip", COLD, "--out", seen)
    assert done.exit_code == 0, done.output
    case = observed_case(seen / "observed.yaml", str(like), tmp_path / "case", Catalogue())
    assert case.later_places == list(range(COLD, 20))
    assert case.scenario.requests.warm_up == COLD
    agreements = {each.time: each.measured_ms for each in replayed(case).agreements}
    assert agreements["ttft"] == pytest.approx(100.0)
    out = tmp_path / "out"
    change = "durations.target_ms=5"
    tried = run("what-if", seen, "--like", like, "--try", change, "--out", out)
    assert tried.exit_code == 0, tried.output
    before = simulator.what_if(seen / "observed.yaml", tries=[change], like=like).value.before
    assert {each.number.key: each.measured and each.measured.value for each in before} == (
        pytest.approx(LATER | {"tokens_per_step": None})
    )
    prediction = yaml.safe_load((out / change / "prediction.yaml").read_text())
    assert prediction["ttft_ms"]["before"] == pytest.approx(100.0)
    checked = simulator.verify(out / change, seen).value.pairs[0]
    measured = {number.number.key: number.measured for number in checked.numbers}
    assert measured == pytest.approx({key: LATER[key] for key in measured})


def test_a_raw_file_with_its_warm_up_is_verified_with_the_option(
    bench: Path, like: Path, tmp_path: Path
) -> None:
    """Its first ten requests waited ten times as long, which is no work of the change."""
    out = tmp_path / "out"
    change = "durations.target_ms=5"
    tried = run("what-if", bench, "--like", like, "--try", change, "--out", out)
    assert tried.exit_code == 0, tried.output
    assert "leave out the warm-up (--skip 10), then calibrate" in " ".join(tried.output.split())
    prediction = out / change / "prediction.yaml"
    hint = (
        "the first 10 requests waited for a server that was not warm, which is in what was "
        "measured: --skip 10 leaves that out"
    )
    whole = simulator.verify(prediction, bench).value.pairs[0]
    assert hint in whole.cautions
    assert hint in " ".join(run("verify", prediction, bench).output.split())
    later = simulator.verify(prediction, bench, skipped=10).value.pairs[0]
    assert not [words for words in later.cautions if "warm" in words]
    seen = tmp_path / "seen"
    assert run("observe", bench, "--out", seen).exit_code == 0
    assert hint in simulator.verify(prediction, seen).value.pairs[0].cautions


def test_the_simulation_leaves_out_the_same_requests(bench: Path, like: Path) -> None:
    """Its later requests come a second apart, too, and end at 19.2 s."""
    result = simulator.what_if(bench, tries=["durations.target_ms=5"], like=like, skipped=COLD)
    simulated = {each.number.key: each.simulated for each in result.value.before}
    assert simulated == pytest.approx(LATER | {"tokens_per_step": 1.0})


def test_a_warm_up_may_be_left_out_later(bench: Path, tmp_path: Path) -> None:
    """Of what was observed whole; of what was observed without it nothing comes back."""
    whole = tmp_path / "whole"
    simulator.observe(bench)
    assert run("observe", bench, "--out", whole).exit_code == 0
    assert values(observation_of([whole], COLD)) == pytest.approx(LATER)
    seen = tmp_path / "seen"
    assert run("observe", bench, "--skip", COLD, "--out", seen).exit_code == 0
    assert observation_of([seen], 3) == observation_of([seen])


@pytest.mark.parametrize(
    ("skip", "words"),
    [(20, "holds 20 requests; 20 left out leave none"), (99, "99 left out leave none")],
)
def test_as_many_as_there_are_cannot_be_left_out(bench: Path, skip: int, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        observation_of([bench], skip)


def test_a_file_that_tells_no_requests_apart_has_no_first_ones(bench: Path) -> None:
    result = json.loads(bench.read_text())
    for name in ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors"):
        del result[name]
    bench.write_text(json.dumps(result))
    done = run("observe", bench, "--skip", 3)
    assert done.exit_code == 2
    assert "vllm bench serve --save-detailed" in done.output


def test_a_scenario_has_a_field_for_it(like: Path) -> None:
    done = run("what-if", like, "--skip", 3, "--try", "durations.target_ms=5")
    assert done.exit_code == 2
    assert "requests.warm_up" in done.output
