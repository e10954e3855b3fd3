"""What a run measures: whatever warm-up and cool-down leave, a number is measured or is said to be
missing.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner, Result
from hypothesis import example, given, settings, strategies as st

from simulator.cli.main import main
from simulator.scenario import load
from simulator.scenario.evaluate import simulate

EIGHT = (
    "requests={concurrency: 8, count: 8, prompt_tokens: 16, output_tokens: 5, warm_up: 3, "
    "cool_down: 3}"
)
"""Requests 4 and 5 count, from 0 s to 0 s."""
GENEROUS = "slo={ttft_ms: {p50: 100000}}"
STRATEGIES = (
    "autoregressive",
    "{name: vanilla_sd, gamma: 2}",
    "{name: vanilla_sd, gamma: 2, drafts_first: true}",
    "{name: tree_sd, tree: {branching: [2, 2]}, passes: [{rows: [1, 2]}]}",
)


def ran(*changes: str, out: Path, more: tuple[str, ...] = ()) -> Result:
    words = [word for change in changes for word in ("--set", change)]
    return CliRunner().invoke(main, ["run", "durations_only", *words, "--out", str(out), *more])


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no number")


def test_a_stretch_without_length_measures_no_rate_and_says_so(tmp_path: Path) -> None:
    loaded = load("durations_only", [EIGHT, GENEROUS])
    counted = simulate(loaded.scenario, loaded.acceptance())[0].serving.counted
    assert (counted.requests, counted.good, counted.seconds) == (2, 2, 0.0)
    assert (counted.goodput_requests_per_s, counted.goodput_tokens_per_s) == (None, None)
    result = ran(EIGHT, GENEROUS, out=tmp_path / "one", more=("--json",))
    assert result.exit_code == 0, result.output
    serving = json.loads(result.stdout)["simulated"]["serving"]
    assert serving["counted"]["goodput_requests_per_s"] is None
    assert set(serving["tbt_ms"].values()) == {None}, "no gap between tokens is measured in no time"
    assert serving["e2e_ms"]["mean"] > 0.0
    assert ran(EIGHT, GENEROUS, out=tmp_path / "two").exit_code == 0
    text = (tmp_path / "two" / "report.md").read_text()
    assert "Goodput: not measured, of the 100.0 % of requests" in text
    assert "in which no rate and no time between tokens is measured" in text


def test_a_limit_on_what_nobody_has_is_refused_with_a_remedy(tmp_path: Path) -> None:
    result = ran(EIGHT, "slo={tbt_ms: {p99: 10}}", out=tmp_path / "one")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "slo.tbt_ms: nothing of what counts (requests 4 to 5 of 8" in result.stderr
    assert result.stderr.rstrip().endswith("set requests.warm_up=0 and requests.cool_down=0")
    assert not (tmp_path / "one").exists()
    whole = ran(
        EIGHT,
        "slo={tbt_ms: {p99: 10}}",
        "requests.warm_up=0",
        "requests.cool_down=0",
        out=tmp_path / "one",
    )
    assert whole.exit_code == 0


def test_who_counts_has_a_token_to_time(tmp_path: Path) -> None:
    """Only the first request decodes, and it does not count."""
    (tmp_path / "t.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        + "".join(
            f"2024-05-10 00:00:0{second}.0,16,{tokens}\n" for second, tokens in enumerate((9, 1, 1))
        )
    )
    file = (
        f"requests={{arrivals: {{name: file, format: azure, file: {tmp_path / 't.csv'}}}, "
        f"warm_up: 1}}"
    )
    policy = "serving.policy={name: prefill_first, max_requests: 4}"
    result = ran(file, policy, out=tmp_path / "one")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no request that counts (requests 2 to 3 of 3" in result.stderr
    assert result.stderr.rstrip().endswith("set requests.warm_up=0")
    answered = ran(file, policy, "requests.warm_up=0", out=tmp_path / "one", more=("--json",))
    span = json.loads(answered.stdout, parse_constant=refused)["speedup_interval"]
    assert span["low"] <= span["high"], "who took no time says nothing of how times vary"


@settings(max_examples=20)
@given(
    count=st.integers(1, 9),
    concurrency=st.integers(1, 9),
    warm_up=st.integers(0, 8),
    cool_down=st.integers(0, 8),
    output=st.integers(2, 7),
    strategy=st.sampled_from(STRATEGIES),
    slo=st.sampled_from(
        [GENEROUS, "slo={tpot_ms: {p50: 1}, e2e_ms: {p99: 1}}", "slo={tbt_ms: {p90: 100000}}"]
    ),
    rate_per_s=st.sampled_from([None, 1e-2, 1e5]),
)
@example(
    count=8,
    concurrency=8,
    warm_up=3,
    cool_down=3,
    output=5,
    strategy=STRATEGIES[0],
    slo=GENEROUS,
    rate_per_s=None,
)
@example(
    count=8,
    concurrency=1,
    warm_up=3,
    cool_down=3,
    output=5,
    strategy=STRATEGIES[1],
    slo=GENEROUS,
    rate_per_s=1e5,
)
def test_every_warm_up_and_cool_down_is_answered_or_refused_in_words(
    count: int,
    concurrency: int,
    warm_up: int,
    cool_down: int,
    output: int,
    strategy: str,
    slo: str,
    rate_per_s: float | None,
) -> None:
    """Reports are written as well: no division by what was not measured, no NaN, no infinity."""
    load = (
        f"concurrency: {concurrency}"
        if rate_per_s is None
        else f"arrivals: {{name: poisson, rate_per_s: {rate_per_s}}}"
    )
    sizes = (
        f"prompt_tokens: 16, output_tokens: {output}, warm_up: {warm_up}, cool_down: {cool_down}"
    )
    changes = [f"strategy={strategy}", f"requests={{count: {count}, {load}, {sizes}}}", slo]
    changes += ["serving.policy={name: prefill_first, max_requests: 4}"] if rate_per_s else []
    with TemporaryDirectory() as folder:
        result = ran(*changes, out=Path(folder) / "a", more=("--json",))
        assert result.exit_code in (0, 2, 3), result.output
        if result.exit_code:
            assert (result.stdout, bool(result.stderr)) == ("", True)
            return
        json.loads(result.stdout, parse_constant=refused)
        assert ran(*changes, out=Path(folder) / "b").exit_code == 0
        assert (Path(folder) / "b" / "report.html").exists()
