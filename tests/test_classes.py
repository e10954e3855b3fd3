"""Classes of service: who goes first, who makes way, who is turned away, and the books by class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.fields import AdmissionControl, Serving
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    Queues,
    UnifiedBudget,
)
from simulator.core.serving.requests import Arrivals, Request, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.service import Service, ServiceRun
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.scenario import evaluate, load
from simulator.scenario.outcome import ClassOutcome

SECOND = StatedCost(StatedDurations(target_ms=1000, prefill_ms=1000))


def served(
    requests: list[Request], policy: Policy, most_waiting: int | None = None, **memory: int
) -> tuple[list[tuple[int, float, float, int]], list[int]]:
    """Serve requests, every pass in a second; return who ended, in order of ending (index,
    admitted, finished, preemptions), and who was turned away, in that order.
    """
    done: list[Request] = []
    scheduler = Scheduler(
        Autoregressive(),
        Cycle((0,)),
        None,
        Arrivals(requests),
        SECOND,
        policy,
        Blocks(**memory),
        finished=done.append,
    )
    scheduler.most_waiting = most_waiting
    scheduler.replay()
    scheduler.check()
    ends = [(one.index, one.admitted_s, one.finished_s, one.preemptions) for one in done]
    refused = sorted((one for one in requests if one.refused), key=lambda one: one.finished_s)
    return ends, [one.index for one in refused]


def request(index: int, at_s: float, priority: int, prompt: int = 8, output: int = 3) -> Request:
    return Request(index, at_s, prompt, output, priority=priority)


# ---- who goes first


def test_lower_priorities_enter_first_and_equals_as_they_came() -> None:
    """One place: request 0 has it until 3 s; then 3 and 4 of priority -1, 2 of 0, 1 of 5."""
    requests = [request(0, 0, 5), request(1, 0.1, 5), request(2, 0.2, 0)]
    requests += [request(3, 0.3, -1), request(4, 0.4, -1)]
    ends, _ = served(requests, FixedBatch(max_requests=1))
    assert ends == [(0, 0, 3, 0), (3, 3, 6, 0), (4, 6, 9, 0), (2, 9, 12, 0), (1, 12, 15, 0)]


def test_the_highest_priority_that_runs_makes_way() -> None:
    """Room for eight tokens in blocks of one: both of two prompts of three enter, and grow until
    one has to go. Alone it is the one admitted last; with priorities the one with the higher.
    """
    pool = {"block_tokens": 1, "total": 8}
    for policy in (
        PrefillFirst(max_requests=2, watermark=0),
        ChunkedPrefill(max_requests=2, watermark=0),
        UnifiedBudget(max_requests=2),
    ):
        alike, _ = served([request(0, 0, 0, 3, 4), request(1, 0, 0, 3, 4)], policy, **pool)
        assert [(index, preemptions) for index, *_, preemptions in alike] == [(0, 0), (1, 1)]
        ranked, _ = served([request(0, 0, 0, 3, 4), request(1, 0.5, -1, 3, 4)], policy, **pool)
        assert [(index, preemptions) for index, *_, preemptions in ranked] == [(1, 0), (0, 1)]


def test_whoever_lost_its_memory_waits_before_its_equals_and_behind_lower_ones() -> None:
    queues = Queues(Blocks(), Autoregressive())
    for index, priority in enumerate((1, 1, 0, 2)):
        queues.join(request(index, 0.0, priority))
    back = request(9, 0.0, 1)
    queues.running.append(back)
    queues.preempt(back)
    assert [one.index for one in queues.waiting] == [2, 9, 0, 1, 3]


# ---- who is turned away


def test_two_may_wait() -> None:
    """Request 0 runs; 1 and 2 wait; 3 is turned away, and 4 comes when there is room again."""
    requests = [request(index, 0.1 * index, 0) for index in range(4)] + [request(4, 3.5, 0)]
    ends, refused = served(requests, FixedBatch(max_requests=1), most_waiting=2)
    assert ends == [(0, 0, 3, 0), (1, 3, 6, 0), (2, 6, 9, 0), (4, 9, 12, 0)]
    assert refused == [3]


def test_with_priorities_the_last_one_in_the_queue_is_turned_away() -> None:
    """Request 3 goes before 2, which is turned away as it comes; 4 is so itself."""
    requests = [request(0, 0, 1), request(1, 0.1, 1), request(2, 0.2, 1)]
    requests += [request(3, 0.3, 0), request(4, 0.4, 2)]
    ends, refused = served(requests, FixedBatch(max_requests=1), most_waiting=2)
    assert [index for index, *_ in ends] == [0, 3, 1]
    assert refused == [2, 4]


# ---- the books by class

SHARES = (
    "{interactive: {share: 0.75, priority: 0, slo: {ttft_ms: {p90: 60}}}, "
    "batch: {share: 0.25, priority: 1}}"
)


def run(*changes: str) -> Any:
    """A busy replica of stated durations."""
    loaded = load(
        "durations_only",
        [
            "strategy=autoregressive",
            "durations={target_ms: 10, prefill_ms: 20}",
            "serving={policy: {name: prefill_first, max_requests: 2}}",
            "requests={arrivals: {name: poisson, rate_per_s: 8}, count: 200, prompt_tokens: 64, "
            "output_tokens: 20}",
            *changes,
        ],
    )
    return evaluate.simulate(loaded.scenario, loaded.acceptance())[0]


def by_name(outcome: Any) -> dict[str, ClassOutcome]:
    return {one.name: one for one in outcome.serving.classes}


def test_priorities_wait_less_and_all_is_counted() -> None:
    outcome = run(f"requests.classes={SHARES}")
    first, last = (by_name(outcome)[name] for name in ("interactive", "batch"))
    assert (first.arrived, last.arrived) == (144, 56)  # three quarters and one, drawn
    assert first.finished + last.finished == outcome.serving.requests == 200
    assert first.ttft.mean < last.ttft.mean / 2
    assert first.good == first.slo[0].attainment * first.arrived
    assert last.good == last.finished
    assert outcome.serving.refused is None
    alike = run("requests.classes={one: {share: 0.75}, other: {share: 0.25}}")
    plain = run()
    assert alike.serving.ttft.mean == plain.serving.ttft.mean
    assert plain.serving.classes == ()


def test_the_page_and_json_tell_classes(tmp_path: Path) -> None:
    arguments = ["run", "durations_only"]
    changes = [
        "strategy=autoregressive",
        "durations={target_ms: 10, prefill_ms: 20}",
        "serving={policy: {name: prefill_first, max_requests: 2}, admission: {max_waiting: 3}}",
        "requests={arrivals: {name: poisson, rate_per_s: 20}, count: 100, prompt_tokens: 64, "
        f"output_tokens: 20, classes: {SHARES}}}",
    ]
    for change in changes:
        arguments += ["--set", change]
    data = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    serving = data["simulated"]["serving"]
    classes = serving["classes"]
    assert sum(one["arrived"] for one in classes.values()) == 100
    assert sum(one["refused"] for one in classes.values()) == serving["refused"] > 0
    assert classes["interactive"]["slo"][0]["metric"] == "ttft"
    shown = CliRunner().invoke(main, [*arguments, "--long"]).stdout
    assert "interactive" in shown
    assert "Stopped early" not in shown
    assert f"Refused: {serving['refused']} of 100 requests" in shown
    assert "TTFT p90" in shown


def test_tasks_of_a_traffic_file(tmp_path: Path) -> None:
    rows = ["arrival_s,prompt_tokens,output_tokens,task"]
    rows += [f"{index / 10},64,20,{'chat' if index % 3 else 'report'}" for index in range(30)]
    (tmp_path / "traffic.csv").write_text("\n".join(rows) + "\n")
    file = f"{{name: file, format: csv, file: {tmp_path / 'traffic.csv'}}}"
    classes = "{fast: {tasks: [chat]}, slow: {tasks: [report], priority: 1}}"
    outcome = run(f"requests={{arrivals: {file}, classes: {classes}}}")
    assert [(one.name, one.arrived) for one in outcome.serving.classes] == [
        ("fast", 20),
        ("slow", 10),
    ]
    with pytest.raises(BadInput, match="task 'report' is in none of the classes"):
        run(f"requests={{arrivals: {file}, classes: {{fast: {{tasks: [chat]}}}}}}")


def test_explain_names_the_classes() -> None:
    arguments = ["explain", "durations_only", "--set", f"requests.classes={SHARES}"]
    shown = " ".join(CliRunner().invoke(main, arguments).stdout.split())
    assert "classes interactive (0.75 of all, priority 0), batch (0.25 of all, priority 1)" in shown


def test_all_turns_of_a_session_are_of_one_class() -> None:
    requests = Requests.model_validate(
        {
            "concurrency": 20,
            "count": 80,
            "sessions": {"turns": 4, "turn_tokens": 10},
            "classes": {"one": {"share": 0.5}, "other": {"share": 0.5}},
        }
    )
    source = requests.source_of(3)
    classes: dict[int | None, set[str]] = {}
    now = 0.0
    while not source.exhausted:
        for one in list(source.due(now)):
            classes.setdefault(one.session, set()).add(one.service_class)
            one.finished_s = now
            source.ended(one)
        now += 1.0
    assert len(classes) == 20
    assert all(len(names) == 1 for names in classes.values())
    assert set.union(*classes.values()) == {"one", "other"}


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(
        st.tuples(st.floats(0.0, 2.0), st.integers(1, 30), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=25,
    ),
    policy=st.sampled_from(
        [
            FixedBatch(max_requests=2),
            PrefillFirst(max_requests=3, batch_tokens=64, watermark=0),
            ChunkedPrefill(max_requests=3, chunk_tokens=16, watermark=0),
            UnifiedBudget(max_requests=3, budget_tokens=16),
        ]
    ),
    most=st.one_of(st.none(), st.integers(1, 4)),
    replicas=st.integers(1, 3),
)
def test_whoever_came_has_finished_or_was_turned_away(
    lengths: list[tuple[float, int, int, bool]],
    policy: Policy,
    most: int | None,
    replicas: int,
) -> None:
    """By class, under every policy, in a cache of ten blocks of four tokens, so that requests make
    way; the books of replicas balance, or the run says so.
    """
    run = Chance(lengths).served(policy, most, replicas)
    counts = run.collector.classes
    assert sum(count.arrived for count in counts.values()) == len(lengths)
    for count in counts.values():
        assert count.arrived == count.finished + count.refused + count.cancelled
        assert count.cancelled == 0
        assert most is not None or not count.refused
    assert run.tally.refused == sum(count.refused for count in counts.values())
    assert run.tally.finished == sum(count.finished for count in counts.values())


class Chance(Requests):
    """Requests of stated times, lengths and classes."""

    lengths_of: tuple[tuple[float, int, int, bool], ...] = ()

    def __init__(self, lengths: list[tuple[float, int, int, bool]]) -> None:
        classes = {"first": {"share": 0.5}, "second": {"share": 0.5, "priority": 3}}
        super().__init__(count=max(1, len(lengths)), classes=classes, lengths_of=tuple(lengths))

    def source_of(self, seed: int, deal: Any = None) -> Any:
        """The requests, in order of arrival."""
        requests = []
        now = 0.0
        for index, (gap_s, prompt, output, urgent) in enumerate(self.lengths_of):
            now += gap_s
            one = Request(index, now, prompt, output)
            one.service_class = "first" if urgent else "second"
            one.priority = 0 if urgent else 3
            requests.append(one)
        return Arrivals(requests)

    def served(self, policy: Policy, most: int | None, replicas: int) -> ServiceRun:
        """Serve them, every pass in a second."""
        admission = None if most is None else AdmissionControl(max_waiting=most)
        serving = Serving(
            policy=policy, replicas=replicas, memory={"block_tokens": 4}, admission=admission
        )
        service = Service(Autoregressive(), Cycle((0,)), SECOND, self, serving, kv_tokens=40)
        return service.run()


# ---- what is refused

ARRIVALS = "arrivals: {name: poisson, rate_per_s: 8}, count: 20"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (["requests.classes={a: {share: 0.5}, b: {share: 0.4}}"], "add up to 1, got 0.9"),
        (["requests.classes={a: {share: 0.5}, b: {}}"], "expected a share"),
        (["requests.classes={a: {tasks: [chat]}}"], "tasks are those of a traffic file"),
        (["requests.classes={a: {share: 1, slo: {tbt_ms: {p99: 9}}}}"], "state tpot_ms"),
        (["requests.classes={}"], "requests.classes"),
        (["serving.admission={max_waiting: 0}"], "max_waiting"),
        (
            ["serving.admission={max_waiting: 2}", "requests={concurrency: 2, count: 9}"],
            r"serving\.admission: is for requests that come by themselves",
        ),
    ],
)
def test_what_is_wrong_is_said(changes: list[str], fault: str) -> None:
    with pytest.raises(BadInput, match=fault):
        run(*changes)
