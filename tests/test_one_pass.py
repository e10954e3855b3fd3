"""Plain decoding is simulated once: it is its own baseline, and its replay books what the law
says.
"""

from dataclasses import replace

import pytest

from simulator.core.serving.service import Service, ServiceRun
from simulator.scenario import load
from simulator.scenario.evaluate import NO_DRAFTS, plain, replay, run, simulate
from simulator.scenario.outcome import Outcome, outcome_data

CLOSED = ["requests.count=12", "requests.concurrency=3", "requests.output_tokens=40"]
ARRIVALS = "requests.arrivals={name: poisson, rate_per_s: 4}"
BASE = [
    "strategy=autoregressive",
    "durations={target_ms: {base_ms: 28.3, row_ms: 0.41, cached_token_ms: 0.013}, prefill_ms: 7.7}",
]
SERVED = {
    "closed loop": CLOSED,
    "one at a time": [
        "requests.count=4",
        "requests.output_tokens={name: uniform, least_tokens: 3, most_tokens: 50}",
    ],
    "chunks of prompts": [
        "serving.policy={name: chunked_prefill, chunk_tokens: 64, max_requests: 4}",
        ARRIVALS,
        "requests.count=25",
        "requests.prompt_tokens={name: uniform, least_tokens: 3, most_tokens: 300}",
    ],
    "a small cache": [
        "serving.policy={name: unified_budget, max_requests: 8}",
        "serving.memory={kv_tokens: 800, block_tokens: 16}",
        ARRIVALS,
        "requests.count=25",
    ],
    "a limit": [*CLOSED, "slo={tpot_ms: {p50: 30}}"],
}


def numbers(outcome: Outcome) -> object:
    """Everything that an outcome says, beside its lanes."""
    told = vars(outcome) | {"busy_s": None, "serving": None}
    return told, outcome_data(replace(outcome, busy_s={}))


@pytest.mark.parametrize("served", SERVED.values(), ids=SERVED)
def test_the_replay_of_one_pass_steps_is_their_simulation(served: list[str]) -> None:
    """A run that was not walked again has the numbers of the walk, to the last bit."""
    result = run(load("durations_only", [*BASE, *served]))
    again = replay(result.scenario, NO_DRAFTS)
    assert result.replay is not result.simulated
    assert result.replay.busy_s == again.busy_s == {}
    assert numbers(result.replay) == numbers(again)


@pytest.mark.parametrize("served", SERVED.values(), ids=SERVED)
def test_plain_decoding_is_its_own_baseline(served: list[str]) -> None:
    """A baseline that was not simulated again has the numbers of the simulation, lanes included."""
    result = run(load("durations_only", [*BASE, *served]))
    again, _ = simulate(plain(result.scenario), NO_DRAFTS)
    assert result.baseline is result.simulated
    assert numbers(result.baseline) == numbers(again)
    assert result.baseline.busy_s == again.busy_s


@pytest.mark.parametrize(
    ("strategy", "turns"), [("autoregressive", 1), ("{name: mirror_sd, gamma: 7}", 2)]
)
def test_nothing_is_simulated_twice(
    strategy: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain decoding takes one run, any other strategy one more for its baseline."""
    begun = []
    ran = Service.run

    def counted(service: Service, *rest: object) -> ServiceRun:
        begun.append(service)
        return ran(service, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Service, "run", counted)
    run(load("durations_only", [*CLOSED, f"strategy={strategy}"]))
    assert len(begun) == turns
