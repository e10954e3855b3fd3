"""``specsim verify``: what was predicted beside what was measured, by hand-made pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

import simulator
from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.evidence.verified import VerifiedNumber, VerifiedPredictions, verified
from simulator.inputs.services.observation import observation_of
from simulator.inputs.services.observed import Observed
from simulator.inputs.services.prediction import (
    SERVICE_NUMBERS,
    Bounds,
    PredictedNumber,
    ServicePrediction,
    prediction_text,
    read_prediction,
)
from simulator.report.services.pictures import verified_figure

LIVE = Path(__file__).parent / "data" / "live_services"
BENCH = LIVE / "vllm_bench.json"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, arguments)], env={"COLUMNS": "120"})


def predicted(after: float, before: float | None = 10.0, spread: float = 1.0) -> PredictedNumber:
    return PredictedNumber(
        before=before,
        after=after,
        within_80=Bounds(low=after - spread, high=after + spread),
        within_90=Bounds(low=after - 2 * spread, high=after + 2 * spread),
    )


def prediction(**numbers: Any) -> ServicePrediction:
    return ServicePrediction(tried="gamma=4", scenario="mine", **numbers)


def test_another_window_than_predicted_is_not_what_came_of_the_change() -> None:
    seen = observed(acceptance={"file": "a", "window": 3})
    (said,) = verified(prediction(window=2), seen).cautions
    assert said.startswith("steps of 3 draft tokens were measured, of 2 predicted")
    assert verified(prediction(window=3), seen).cautions == []
    assert verified(prediction(), seen).cautions == []


def observed(**fields: Any) -> Observed:
    return Observed(bottleneck="Unknown.", **fields)


def tpot(mean_ms: float, side: str = "client", definition: str = "of a request") -> dict[str, Any]:
    return {
        "quantity": "tpot",
        "seen_by": side,
        "file": "a",
        "definition": definition,
        "mean_ms": mean_ms,
    }


@pytest.mark.parametrize(
    ("measured", "in_80", "in_90", "sign"),
    [
        (8.0, True, True, True),
        (8.9, True, True, True),
        (9.5, False, True, True),
        (10.5, False, False, False),
        (10.0, False, True, None),  # as before: neither up nor down
        (5.0, False, False, True),
    ],
)
def test_a_number_lies_inside_its_interval_and_moves_as_predicted(
    measured: float, in_80: bool, in_90: bool, sign: bool | None
) -> None:
    """Predicted from 10 to 8, 7 to 9 with 80 % and 6 to 10 with 90 %."""
    number = VerifiedNumber(SERVICE_NUMBERS[1], predicted(8.0), measured)
    assert (number.in_80, number.in_90, number.sign_right) == (in_80, in_90, sign)
    assert number.error == pytest.approx(8.0 / measured - 1.0)


def test_no_sign_is_claimed_where_the_interval_holds_what_was_before() -> None:
    assert VerifiedNumber(SERVICE_NUMBERS[1], predicted(9.5), 8.0).sign_right is None
    assert VerifiedNumber(SERVICE_NUMBERS[1], predicted(8.0, None), 8.0).sign_right is None


@given(st.floats(0.1, 100.0), st.floats(0.1, 100.0))
def test_a_sign_is_that_of_both_changes(after: float, measured: float) -> None:
    """Without an interval any change claims one."""
    number = VerifiedNumber(SERVICE_NUMBERS[0], PredictedNumber(before=10.0, after=after), measured)
    if after == 10.0 or abs(measured - 10.0) <= 1e-3:
        assert number.sign_right is None
    else:
        assert number.sign_right is ((after > 10.0) == (measured > 10.0))
    assert number.in_80 is None


def test_a_pair_says_what_was_measured_and_what_was_not() -> None:
    made = prediction(tpot_ms=predicted(8.0), ttft_ms=predicted(100.0))
    pair = verified(made, observed(times=[tpot(10.0)]))
    assert [(each.number.key, each.measured) for each in pair.numbers] == [("tpot_ms", 10.0)]
    assert [number.key for number in pair.not_measured] == ["ttft_ms"]
    assert list(pair.cautions) == []


def test_a_time_is_compared_with_that_of_the_same_side_and_definition() -> None:
    """Clients come first where nothing was said of a side."""
    of_server = predicted(8.0).model_copy(update={"seen_by": "server", "definition": "decoding"})
    times = [tpot(7.0), tpot(8.0, "server", "a pass"), tpot(9.0, "server", "decoding")]
    after = observed(times=times)
    assert verified(prediction(tpot_ms=of_server), after).numbers[0].measured == 9.0
    assert verified(prediction(tpot_ms=predicted(8.0)), after).numbers[0].measured == 7.0
    only_other = verified(prediction(tpot_ms=of_server), observed(times=times[:2]))
    assert list(only_other.cautions) == ["TPOT (ms): decoding before, a pass after"]
    assert verified(prediction(tpot_ms=of_server), observed(times=times[:1])).not_measured


def test_another_service_or_another_load_is_said() -> None:
    before = {"requests": 10, "prompt_tokens": 1000, "output_tokens": 500, "most_concurrent": 4}
    after = {"requests": 20, "prompt_tokens": 2100, "output_tokens": 2000, "most_concurrent": 8}
    made = prediction(engine="vLLM", model="a", load=before)
    pair = verified(made, observed(engine="SGLang", model="a", load=after))
    assert list(pair.cautions) == [
        "another engine: predicted of vLLM, measured of SGLang",
        "another load: 50 output tokens a request before, 100 after",
        "another load: 4 requests at a time, at most, before, 8 after",
    ]


def test_the_ledger_adds_pairs_up() -> None:
    """Two right and one wrong: errors of +25 %, -20 % and 0, two of three inside of 80 %."""
    pairs = [
        verified(prediction(tpot_ms=predicted(value, 12.0)), observed(times=[tpot(measured)]))
        for value, measured in ((10.0, 8.0), (8.0, 10.0), (10.0, 10.0))
    ]
    first, last = VerifiedPredictions(pairs).ledger()
    assert (first.key, first.pairs, first.with_interval) == ("tpot_ms", 3, 3)
    assert first.mean_error == pytest.approx(0.15)
    assert first.bias == pytest.approx(0.05 / 3)
    assert (first.inside_80, first.inside_90) == (1, 3)
    assert (first.signs, first.signs_right) == (3, 3)
    assert last[2:] == first[2:]


def test_a_prediction_is_written_and_read_back(tmp_path: Path) -> None:
    made = prediction(tpot_ms=predicted(8.0), verdict="helps", chance=0.9)
    (tmp_path / "prediction.yaml").write_text(prediction_text(made))
    assert read_prediction(tmp_path) == made
    assert read_prediction(tmp_path / "prediction.yaml") == made


def test_a_change_that_was_not_made_is_said() -> None:
    """Plain decoding was predicted, and 1.38 tokens a step were kept after it."""
    acceptance = {"file": "a", "drafts": 117, "tokens_per_step": 1.38}
    made = prediction(tokens_per_step=predicted(1.0, 2.0))
    (said,) = verified(made, observed(acceptance=acceptance)).cautions
    assert said.startswith("the service still drafts: 1.38 tokens a step")
    other = prediction(tokens_per_step=predicted(1.5, 2.0))
    assert not verified(other, observed(acceptance=acceptance)).cautions


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A prediction for the service of the kept files: TPOT from 10 to 8 ms, measured 7.6 ms."""
    made = prediction(tpot_ms=predicted(8.0), hit_rate=predicted(0.5, 0.4, 0.05))
    path = tmp_path / "prediction.yaml"
    path.write_text(prediction_text(made))
    return path


def test_the_command_prints_the_answer_first(written: Path, tmp_path: Path) -> None:
    result = run(written, BENCH, "--out", tmp_path / "page.md")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "gamma=4: predicted and measured"
    answer = "Inside of 90 % intervals 1 of 1 numbers; mean error 5.3 %; signs right 1 of 1."
    assert " ".join(result.stdout.split()).startswith(f"{lines[0]} Answer {answer} Interval ")
    assert len(lines) <= 10
    assert "hit rate" in result.stdout  # is in none of the files
    assert "| TPOT (ms) | 10.0 | 8.00 |" in (tmp_path / "page.md").read_text()


def test_pairs_make_a_ledger(written: Path, tmp_path: Path) -> None:
    files = [LIVE / f"vllm_bench_metrics_{end}.txt" for end in ("before", "after")]
    seen = tmp_path / "seen"
    done = CliRunner().invoke(main, ["observe", str(BENCH), *map(str, files), "--out", str(seen)])
    assert done.exit_code == 0, done.output
    result = run("--pair", written, seen, "--pair", written.parent, BENCH, "--json")
    data = json.loads(result.stdout)
    assert [len(pair["numbers"]) for pair in data["pairs"]] == [2, 1]
    assert [(row["key"], row["pairs"]) for row in data["ledger"]] == [
        ("tpot_ms", 2),
        ("hit_rate", 1),
        ("all", 3),
    ]
    assert (
        "2 predictions; inside of 90 % intervals 2 of 3 numbers"
        in run("--pair", written, seen, written, BENCH).stdout
    )
    page = tmp_path / "ledger"
    assert run("--pair", written, seen, "--pair", written, BENCH, "--out", page).exit_code == 0
    assert {path.name for path in page.iterdir()} == {
        "verified.md",
        "verified.html",
        "verified.svg",
        "verified.data.csv",
    }


def test_python_says_the_same(written: Path) -> None:
    result = simulator.verify(written, BENCH)
    assert result.to_frame().loc[0, "number"] == "tpot_ms"
    assert result.to_dict() == json.loads(run(written, BENCH, "--json").stdout)
    assert simulator.verify(pairs=[(written, BENCH)]).to_dict() == result.to_dict()
    assert simulator.observe(BENCH).load.requests == 12
    with pytest.raises(ValueError, match="expected a prediction"):
        simulator.verify()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "specsim verify prediction.yaml after.json"),
        (["prediction.yaml"], "expected files of the service after the change"),
        ([BENCH, BENCH], "is no prediction; expected a prediction.yaml of specsim what-if"),
        (["tried", BENCH], "holds predictions; name one: tried/plain"),
        (["prediction.yaml", "none.json"], "none.json: cannot be read: No such file"),
        (["prediction.yaml", "seen/observed.yaml", BENCH], "name it alone"),
    ],
)
def test_what_cannot_be_verified_is_said(
    arguments: list[object],
    words: str,
    written: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(written.parent)
    Path("seen").mkdir()
    Path("seen/observed.yaml").write_text("observed: 1\nbottleneck: none\n")
    Path("tried/plain").mkdir(parents=True)
    Path("tried/plain/prediction.yaml").write_text(written.read_text())
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_a_number_of_no_order_is_refused_with_its_place(tmp_path: Path) -> None:
    data = yaml.safe_load(prediction_text(prediction(tpot_ms=predicted(8.0))))
    data["tpot_ms"]["within_80"] = {"low": 9.0, "high": 7.0}
    path = tmp_path / "prediction.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(BadInput, match=r"tpot_ms.within_80: expected low no larger than high"):
        read_prediction(path)


def test_several_runs_are_no_observation(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(BENCH.read_text())
    with pytest.raises(BadInput, match=r"holds 2 runs \(a.json, b.json, ...\)"):
        observation_of([tmp_path])


def test_the_picture_shows_what_was_measured_relative_to_the_prediction() -> None:
    """Predicted 8 within 7 to 9, before 10, after 9: 0 %, 25 % and 12.5 %."""
    pair = verified(prediction(tpot_ms=predicted(8.0)), observed(times=(tpot(9.0),)))
    (axes,) = verified_figure(VerifiedPredictions([pair])).axes
    drawn = {str(line.get_label()): list(line.get_xdata()) for line in axes.get_lines()}
    assert drawn["TPOT (ms), predicted"] == [0.0]
    assert drawn["TPOT (ms), predicted, 80 % interval"] == pytest.approx([-12.5, 12.5])
    assert drawn["TPOT (ms), predicted, 90 % interval"] == pytest.approx([-25.0, 25.0])
    assert drawn["TPOT (ms), measured before"] == pytest.approx([25.0])
    assert drawn["TPOT (ms), measured after"] == pytest.approx([12.5])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["TPOT (ms)"]
