"""Sessions as a load: whose turns they are, when they come, what their prompts hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, islice, pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.faults import BadInput
from simulator.core.serving.cache.session_hits import session_hits
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.content import Prefix
from simulator.core.serving.load.sessions import (
    DrawnSessions,
    ExponentialSeconds,
    GeometricTurns,
    LogNormalSeconds,
    SessionFile,
    SystemPrompts,
    UniformTurns,
    within,
)
from simulator.core.serving.load.turns import Clients, Said, Session, SessionTurn, turns_of
from simulator.core.serving.requests import Request, Requests
from simulator.report.run.answer import conditions
from simulator.scenario import Loaded, evaluate, load
from simulator.scenario.stability import load_of
from simulator.studies.batches import batch_sweep

SECOND = [
    "strategy=autoregressive",
    "durations={target_ms: 1000, prefill_ms: 1000}",
    "acceptance={rate: 0.5}",
]
"""A prefill and a token take a second each: alone, a request of n tokens is served in n seconds."""
ALONE = "serving.policy={name: fixed_batch, max_requests: 1}"
TOGETHER = "serving.policy={name: prefill_first, max_requests: 8, batch_tokens: 100000}"


def served(*changes: str) -> list[Request]:
    """The requests of a run, in order of arrival."""
    loaded = load("durations_only", [*SECOND, *changes])
    done: list[Request] = []
    evaluate.simulate(loaded.scenario, loaded.acceptance(), finished=done.append)
    return sorted(done, key=lambda request: request.index)


def times(requests: Sequence[Request]) -> list[tuple[float, float, int, int]]:
    """When requests came and ended, with their tokens of prompt and output."""
    return [
        (request.arrival_s, request.finished_s, request.prompt_tokens, request.output_tokens)
        for request in requests
    ]


def drawn(**fields: Any) -> Requests:
    """A workload of sessions."""
    more = {name: fields.pop(name) for name in list(fields) if name in Requests.model_fields}
    return Requests.model_validate({"sessions": {"turns": 3, "turn_tokens": 10, **fields}, **more})


# ---- a tiny world


def test_a_client_thinks_between_its_turns() -> None:
    """One client, two sessions of two turns: the next one begins as the last turn has ended."""
    sessions = "sessions: {turns: 2, turn_tokens: 5, think_s: 4}"
    requests = served(
        ALONE, f"requests={{{sessions}, count: 4, prompt_tokens: 10, output_tokens: 3}}"
    )
    assert times(requests) == [
        (0.0, 3.0, 10, 3),
        (7.0, 10.0, 18, 3),
        (10.0, 13.0, 10, 3),
        (17.0, 20.0, 18, 3),
    ]


def test_sessions_begin_by_themselves_and_turns_wait_for_answers() -> None:
    """One place, a session every four seconds: the second turn of the first one comes while the
    first turn of the second one is served, and waits for it.
    """
    arrivals = "arrivals: {name: deterministic, rate_per_s: 0.25}"
    sessions = "sessions: {turns: 2, turn_tokens: 5, think_s: 2}"
    requests = served(
        ALONE, f"requests={{{arrivals}, {sessions}, count: 4, prompt_tokens: 10, output_tokens: 3}}"
    )
    assert times(requests) == [
        (4.0, 7.0, 10, 3),
        (8.0, 11.0, 10, 3),
        (9.0, 14.0, 18, 3),
        (13.0, 17.0, 18, 3),
    ]


def test_the_last_session_ends_with_the_last_of_the_requests() -> None:
    workload = drawn(count=7)
    assert [len(turns) for turns in workload.turns(0)] == [3, 3, 1]
    assert workload.drawn_lengths(0).__next__().shape == (2, 7)


def test_a_turn_that_comes_before_one_that_was_awaited_is_not_late() -> None:
    """Two replicas: the alarm for a turn after 100 seconds of thinking is set first, then one that
    comes after 1 second.
    """
    turns = [
        [SessionTurn(0, 10, 2, (Prefix("a"),)), SessionTurn(1, 20, 2, (), wait_s=100.0)],
        [SessionTurn(2, 10, 5, (Prefix("b"),)), SessionTurn(3, 20, 2, (), wait_s=1.0)],
    ]
    clients = Clients(turns, [0.0, 0.0])
    came = list(clients.due(0.0))
    clients.ended(0, 2.0)
    assert clients.next_s == 102.0
    clients.ended(2, 5.0)
    assert [turn.number for _, turn in came] == [0, 2]
    assert clients.next_s == 6.0
    assert [(at_s, turn.number) for at_s, turn in clients.due(200.0)] == [(6.0, 3), (102.0, 1)]
    assert clients.exhausted


@pytest.mark.parametrize("replicas", [1, 2])
def test_nobody_who_finds_an_idle_system_waits(replicas: int) -> None:
    """Think times of very different length, on one replica and behind a router."""
    think = "think_s: {name: lognormal, mean_s: 50, spread: 4}"
    requests = served(
        TOGETHER,
        f"serving.replicas={replicas}",
        f"requests={{sessions: {{turns: 5, turn_tokens: 5, {think}}}, concurrency: 2, count: 20, "
        "output_tokens: 2}",
    )
    for request in requests:
        others = [
            other
            for other in requests
            if other is not request and other.arrival_s <= request.arrival_s < other.finished_s
        ]
        if not others:
            assert request.admitted_s == request.arrival_s


# ---- what is drawn


workloads = st.builds(
    drawn,
    turns=st.one_of(
        st.integers(1, 5),
        st.just({"name": "uniform", "most_turns": 5}),
        st.just({"name": "geometric", "mean_turns": 3, "most_turns": 9}),
    ),
    turn_tokens=st.one_of(
        st.integers(1, 40), st.just({"name": "uniform", "least_tokens": 1, "most_tokens": 90})
    ),
    think_s=st.one_of(st.floats(0, 30), st.just({"name": "exponential", "mean_s": 9.0})),
    tools=st.one_of(st.none(), st.just({"share": 0.6, "tool_s": 0.5, "result_tokens": 7})),
    system_prompts=st.one_of(st.none(), st.just({"count": 3, "tokens": 24, "zipf": 1.0})),
    branch_share=st.sampled_from([0.0, 0.5, 1.0]),
    prompt_tokens=st.integers(1, 60),
    output_tokens=st.one_of(
        st.integers(2, 9), st.just({"name": "uniform", "least_tokens": 2, "most_tokens": 9})
    ),
    count=st.integers(5, 25),
)


@settings(max_examples=40, deadline=None)
@given(workloads, st.integers(0, 9), st.integers(1, 5))
def test_a_turn_comes_its_wait_after_the_one_before_it_has_ended(
    workload: Requests, seed: int, clients: int
) -> None:
    """In a closed loop, and every turn is the one that was drawn, whoever is served beside it."""
    closed = workload.model_copy(update={"concurrency": clients})
    loaded = load("durations_only", [*SECOND, TOGETHER], seed=seed).replace(requests=closed)
    done: list[Request] = []
    evaluate.simulate(loaded.scenario, loaded.acceptance(), finished=done.append)
    done.sort(key=lambda request: request.index)
    assert [request.arrival_s for request in done] == sorted(r.arrival_s for r in done)
    by_number = {request.dealt: request for request in done}
    begins = []
    ends = []
    for turns in closed.turns(seed):
        requests = [by_number[turn.number] for turn in turns]
        for turn, request in zip(turns, requests, strict=True):
            assert request.prompt_tokens == turn.prompt_tokens
            assert request.output_tokens == turn.output_tokens
        for (_, before), (turn, request) in pairwise(zip(turns, requests, strict=True)):
            assert request.arrival_s == before.finished_s + turn.wait_s
        begins.append(requests[0].arrival_s)
        ends.append(requests[-1].finished_s)
    later = sorted(begins)[clients:]
    assert sorted(begins)[:clients] == [0.0] * min(clients, len(begins))
    assert later == sorted(ends)[: len(later)]


@settings(max_examples=40, deadline=None)
@given(workloads, st.integers(0, 9))
def test_what_is_drawn_of_a_turn_depends_on_nothing_else(workload: Requests, seed: int) -> None:
    """Another think time leaves all lengths as they are, more requests those that were there."""
    turns = list(chain.from_iterable(workload.turns(seed)))
    assert isinstance(workload.sessions, DrawnSessions)
    hasty = workload.sessions.model_copy(update={"think_s": 0.25, "tools": None})
    if workload.sessions.tools is None:
        other = workload.model_copy(update={"sessions": hasty})
        assert [turn.tokens for turn in chain.from_iterable(other.turns(seed))] == [
            turn.tokens for turn in turns
        ]
    longer = workload.model_copy(update={"count": workload.count + 9})
    assert list(chain.from_iterable(longer.turns(seed)))[: len(turns)] == turns


@settings(max_examples=60, deadline=None)
@given(workloads, st.integers(0, 9))
def test_names_say_what_prompts_have_in_common(workload: Requests, seed: int) -> None:
    """Every token by itself: its content is who wrote it, and what it goes on from has it, too."""
    assert isinstance(workload.sessions, DrawnSessions)
    systems = workload.sessions.system_prompts
    meaning: dict[tuple[str, int], object] = {}
    for number, session in zip(
        range(len(list(workload.turns(seed)))), workload._sessions(seed), strict=False
    ):
        said: list[list[object]] = []
        for count, turn in enumerate(session.turns):
            if not count:
                content: list[object] = [
                    (session.system, at) for at in range(session.system_tokens)
                ]
            else:
                content = list(said[count - 1 if turn.parent is None else turn.parent])
            content += [(number, count, "in", at) for at in range(turn.new_tokens)]
            said.append(content + [(number, count, "out", at) for at in range(turn.output_tokens)])
        for turn, content in zip(turns_of(session, number, 0), said, strict=True):
            assert turn.tokens == len(content)
            named = positions(turn)
            assert len(named) == turn.tokens
            for place, (name, written) in enumerate(zip(named, content, strict=False)):
                assert meaning.setdefault((name, place), written) == written
    assert systems is None or any(name.startswith("system") for name, _ in meaning)


def positions(turn: SessionTurn) -> list[str]:
    """The name that holds at each place of prompt and output."""
    held: list[str] = []
    for name, end in turn.prefixes:
        held += [str(name)] * (int(min(end, turn.tokens)) - len(held))
    return held


def test_two_turns_that_go_on_from_one_part_ways() -> None:
    """SessionTurn 2 goes back to turn 0, whose output is 4 tokens; turn 3 goes on from turn 2."""
    session = Session([Said(10, 4), Said(5, 4), Said(6, 4, parent=0), Said(1, 2)], "system", 8)
    turns = turns_of(session, 7, 0)
    assert [turn.prompt_tokens for turn in turns] == [18, 27, 28, 33]
    assert [turn.prefixes for turn in turns] == [
        (("system", 8), ("session 7", inf)),
        (("system", 8), ("session 7", inf)),
        (("system", 8), ("session 7", 22), ("session 7, turn 2", inf)),
        (("system", 8), ("session 7", 22), ("session 7, turn 2", inf)),
    ]


def test_a_prompt_that_leaves_thoughts_out_shares_the_prompt_before_it() -> None:
    session = Session([Said(10, 40), Said(6, 4, shared_tokens=10), Said(3, 2, shared_tokens=0)])
    assert [turn.prefixes for turn in turns_of(session, 0, 0)] == [
        (("session 0", inf),),
        (("session 0", 10), ("session 0, turn 1", inf)),
        (("session 0, turn 2", inf),),
    ]


def test_a_session_ends_before_it_passes_the_context() -> None:
    workload = drawn(
        turns=9, turn_tokens=10, context_tokens=100, prompt_tokens=20, output_tokens=5, count=12
    )
    lengths = [[turn.tokens for turn in turns] for turns in workload.turns(3)]
    assert lengths == [[25, 40, 55, 70, 85, 100], [25, 40, 55, 70, 85, 100]]
    assert within(50, 0, [Said(20, 5), Said(10, 5), Said(10, 5)]) == [Said(20, 5), Said(10, 5)]


def test_system_prompts_are_drawn_by_their_weights() -> None:
    """Zipf with exponent 1 over four: 12, 6, 4 and 3 of 25 sessions."""
    workload = drawn(system_prompts={"count": 4, "tokens": 8, "zipf": 1.0}, turns=1, count=20_000)
    met: dict[str, int] = defaultdict(int)
    for (turn,) in workload.turns(1):
        met[str(turn.prefixes[0].name)] += 1
    shares = [met[f"system {place}"] / 20_000 for place in range(4)]
    assert shares == pytest.approx([0.48, 0.24, 0.16, 0.12], abs=0.015)


def test_lengths_of_system_prompts_belong_to_the_prompt() -> None:
    tokens = {"name": "uniform", "least_tokens": 5, "most_tokens": 500}
    workload = drawn(system_prompts={"count": 5, "tokens": tokens}, turns=1, count=100)
    lengths: dict[str, set[float]] = defaultdict(set)
    for (turn,) in workload.turns(1):
        name, end = turn.prefixes[0]
        lengths[str(name)].add(end)
    assert len(lengths) == 5
    assert all(len(ends) == 1 for ends in lengths.values())
    assert len(set.union(*lengths.values())) > 1


def test_means_and_rates_count_turns() -> None:
    """Sessions of three turns, one in ten seconds: 0.3 requests a second."""
    workload = drawn(
        arrivals={"name": "poisson", "rate_per_s": 0.1}, prompt_tokens=20, output_tokens=5, count=30
    )
    assert workload.offered_per_s(0) == pytest.approx(0.3)
    assert workload.totals(0) == (35.0, 5.0, 55)
    assert workload.output_lengths(0) == {5: 30}


def test_tools_answer_in_their_own_time_and_words() -> None:
    """Every later turn carries a result of 7 tokens, half a second behind the call."""
    tools = {"share": 1.0, "tool_s": 0.5, "result_tokens": 7}
    workload = drawn(tools=tools, think_s=60, prompt_tokens=20, output_tokens=5, count=3)
    ((first, *later),) = workload.turns(0)
    assert (first.prompt_tokens, first.wait_s) == (20, 0.0)
    assert [(turn.prompt_tokens, turn.wait_s) for turn in later] == [(32, 0.5), (44, 0.5)]


def test_a_share_of_the_turns_are_calls_of_tools() -> None:
    tools = {"share": 0.3, "tool_s": 0.5}
    workload = drawn(turns=50, tools=tools, think_s=60, count=5_000)
    waits = [turn.wait_s for turns in workload.turns(0) for turn in turns[1:]]
    assert set(waits) == {0.5, 60.0}
    assert waits.count(0.5) / len(waits) == pytest.approx(0.3, abs=0.03)


def test_branches_go_back_to_any_turn_but_the_last_one() -> None:
    workload = drawn(turns=4, branch_share=1.0, count=4_000)
    met: dict[int, list[int | None]] = defaultdict(list)
    for session in islice(workload._sessions(0), 1_000):
        for place, turn in enumerate(session.turns):
            met[place].append(turn.parent)
    assert set(met[0]) == set(met[1]) == {None}
    assert set(met[2]) == {0}
    assert met[3].count(0) / 1_000 == pytest.approx(0.5, abs=0.05)
    assert set(met[3]) == {0, 1}


def test_means_are_those_that_are_stated() -> None:
    random = np.random.default_rng(3)
    turns = GeometricTurns(mean_turns=4, most_turns=10_000).draw(random, 40_000)
    assert turns.mean() == pytest.approx(4, rel=0.03)
    assert turns.min() == 1
    assert GeometricTurns(mean_turns=4, most_turns=6).draw(random, 1_000).max() == 6
    evenly = UniformTurns(least_turns=3, most_turns=5).draw(random, 1_000)
    assert set(evenly.tolist()) == {3, 4, 5}
    seconds = LogNormalSeconds(mean_s=20, spread=0.5).draw(random, 40_000)
    assert seconds.mean() == pytest.approx(20, rel=0.03)
    assert seconds.std() == pytest.approx(10, rel=0.05)
    assert ExponentialSeconds(mean_s=20).draw(random, 40_000).mean() == pytest.approx(20, rel=0.03)


def test_nobody_comes_any_more_once_the_source_is_closed() -> None:
    turns = [[SessionTurn(0, 10, 2, ()), SessionTurn(1, 20, 2, ())], [SessionTurn(2, 10, 2, ())]]
    clients = Clients(turns, clients=1)
    (came,) = clients.due(0.0)
    assert not clients.exhausted
    clients.close()
    assert clients.exhausted
    assert clients.next_s == inf
    clients.ended(came[1].number, 1.0)
    assert list(clients.due(inf)) == []


# ---- files


def written(folder: Path, name: str, text: str) -> SessionFile:
    """A file of sessions."""
    load("durations_only")  # whoever reads a scenario can read files
    path = folder / name
    path.write_text(text)
    return SessionFile(file=str(path))


def test_our_own_table(tmp_path: Path) -> None:
    """Times of later turns: thought over, or stated outright; whole prompts or new text."""
    file = written(
        tmp_path,
        "sessions.csv",
        "session,turn,arrival_s,think_s,prompt_tokens,new_tokens,output_tokens,system_prompt,"
        "system_tokens,parent\n"
        "b,0,7,,,20,5,helper,8,\n"
        "a,1,5,,30,,5,helper,8,\n"
        "a,2,,2.5,,10,5,,,\n"
        "b,1,19,,40,,6,,,\n"
        "a,3,,1,,4,5,,,1\n",
    )
    first, second = file.recorded()
    assert first == Session(
        [
            Said(22, 5, line=3),
            Said(10, 5, 2.5, line=4),
            Said(4, 5, 1.0, parent=0, line=6),
        ],
        "system helper",
        8,
        0.0,
    )
    assert second == Session(
        [Said(20, 5, line=2), Said(7, 6, earliest_s=12.0, line=5)], "system helper", 8, 2.0
    )
    requests = served(
        TOGETHER,
        f"requests={{sessions: {{name: file, file: {file.file}}}, arrivals: {{name: recorded}}}}",
    )
    # the pass that reads the second prompt holds up the first request by its second
    assert times(requests)[:2] == [(0.0, 6.0, 30, 5), (2.0, 7.0, 28, 5)]
    assert times(requests)[2][0] == 8.5
    assert max(request.arrival_s for request in requests if request.output_tokens == 6) == 14.0
    twice = "arrivals: {name: recorded, rate_scale: 2}"
    sooner = served(TOGETHER, f"requests={{sessions: {{name: file, file: {file.file}}}, {twice}}}")
    assert [request.arrival_s for request in sooner][:2] == [0.0, 1.0]
    assert max(request.arrival_s for request in sooner if request.output_tokens == 6) == 13.0


def test_records_of_our_own(tmp_path: Path) -> None:
    lines = [
        {"session": 1, "new_tokens": 9, "output_tokens": 2},
        {"session": 1, "new_tokens": 3, "output_tokens": 2, "think_s": 1.5},
    ]
    file = written(tmp_path, "sessions.jsonl", "\n".join(map(json.dumps, lines)))
    (session,) = file.recorded()
    assert session == Session([Said(9, 2, line=1), Said(3, 2, 1.5, line=2)])
    hasty = file.model_copy(update={"think_s": 0.25})
    assert [turn.wait_s for turn in next(hasty.sessions(0)).turns] == [0.25, 0.25]


def aiperf(session: str, turn: int, start_s: float, end_s: float, prompt: int, output: int) -> Any:
    """A line of ``profile_export.jsonl``."""
    return {
        "metadata": {
            "session_num": 0,
            "conversation_id": session,
            "turn_index": turn,
            "request_start_ns": 1_700_000_000_000_000_000 + round(start_s * 1e9),
            "request_end_ns": 1_700_000_000_000_000_000 + round(end_s * 1e9),
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {
            "input_sequence_length": {"value": prompt, "unit": "tokens"},
            "output_sequence_length": {"value": output, "unit": "tokens"},
        },
        "error": None,
    }


def test_an_export_of_aiperf(tmp_path: Path) -> None:
    """Think times are what passed between end and start; a failed turn is left out."""
    failed = aiperf("x", 2, 9, 10, 99, 9) | {"error": {"message": "timeout"}}
    lines = [
        aiperf("y", 0, 1, 2, 30, 4),
        aiperf("x", 0, 0.5, 1.5, 10, 5),
        aiperf("x", 1, 4, 6, 20, 5),
        failed,
        aiperf("y", 1, 2, 3, 33, 4),
    ]
    file = written(tmp_path, "profile_export.jsonl", "\n".join(map(json.dumps, lines)))
    first, second = file.recorded()
    assert first == Session([Said(10, 5, line=2), Said(5, 5, 2.5, line=3)], begin_s=0.0)
    assert second == Session(
        [Said(30, 4, line=1), Said(3, 4, 0.0, shared_tokens=30, line=5)], begin_s=0.5
    )


def test_a_conversation_that_aiperf_sent_twice_is_two_sessions(tmp_path: Path) -> None:
    lines = [aiperf("x", 0, 0, 1, 10, 5), aiperf("x", 0, 2, 3, 10, 5)]
    for place, line in enumerate(lines):
        line["metadata"]["x_correlation_id"] = f"sent {place}"
    file = written(tmp_path, "profile_export.jsonl", "\n".join(map(json.dumps, lines)))
    assert [len(session.turns) for session in file.recorded()] == [1, 1]


def test_conversations(tmp_path: Path) -> None:
    """Four characters a token; two conversations with one system prompt share it."""
    records = [
        {
            "id": "a",
            "conversations": [
                {"from": "system", "value": "s" * 40},
                {"from": "human", "value": "h" * 41},
                {"from": "gpt", "value": "g" * 8},
                {"from": "human", "value": "h" * 4},
                {"from": "gpt", "value": "g" * 12},
            ],
        },
        {"conversations": [{"from": "gpt", "value": "unasked"}]},
        {
            "conversation": [
                {"role": "system", "content": "s" * 40},
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": "hello back"},
            ]
        },
    ]
    for name, text in {
        "sharegpt.json": json.dumps(records),
        "sharegpt.jsonl": "\n".join(map(json.dumps, records)),
    }.items():
        first, second = written(tmp_path, name, text).recorded()
        lines = (1, 3) if name.endswith("l") else (0, 0)
        assert first == Session(
            [Said(11, 2, line=lines[0]), Said(1, 3, line=lines[0])],
            "system 0",
            10,
            by_characters=True,
        )
        assert second == Session([Said(2, 3, line=lines[1])], "system 0", 10, by_characters=True)


def test_a_file_of_sessions_says_how_many_turns_there_are(tmp_path: Path) -> None:
    file = written(
        tmp_path, "s.csv", "session,new_tokens,output_tokens\na,5,2\na,5,2\nb,5,2\nb,5,2\n"
    )
    stated = f"sessions: {{name: file, file: {file.file}}}"
    assert loaded_with(f"requests={{{stated}}}").scenario.requests.count == 4
    assert loaded_with(f"requests={{{stated}, count: 3}}").scenario.requests.count == 3


def loaded_with(*changes: str) -> Loaded:
    return load("durations_only", [*SECOND, *changes])


# ---- what is said


@pytest.mark.parametrize(
    ("changes", "when"),
    [
        ("concurrency: 1", "turns of sessions, one session after another of one client"),
        ("concurrency: 2", "turns of sessions, one session after another of 2 clients"),
        (
            "arrivals: {name: poisson, rate_per_s: 0.5}",
            "turns of sessions, which begin 0.5 a second (poisson)",
        ),
    ],
)
def test_a_report_says_whose_turns_they_are(changes: str, when: str) -> None:
    """Prompts of 10 and 25 tokens: 17.5 in the mean, 18 as it is told."""
    sessions = "sessions: {turns: 2, turn_tokens: 5}"
    lengths = "prompt_tokens: 10, output_tokens: 10, count: 4"
    loaded = loaded_with(TOGETHER, f"requests={{{sessions}, {lengths}, {changes}}}")
    said = conditions(evaluate.run(loaded))
    assert f"Load: 4 requests, {when}, 18 prompt and 10 output tokens on average" in said


# ---- what is refused


def test_a_turn_beyond_the_context_of_the_model_is_told_at_its_line(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "s.csv",
        "session,new_tokens,output_tokens\na,500,20\na,40000,500\na,10,5\n",
    )
    stated = f"requests={{sessions: {{name: file, file: {file.file}}}, count: 2}}"
    with pytest.raises(BadInput, match=r"s\.csv:3:1: a request of 41,020 tokens is too long"):
        load("eagle3_qwen3_30b_a3b_h200", [stated])
    shorter = f"requests={{sessions: {{name: file, file: {file.file}, context_tokens: 40960}}}}"
    assert load("eagle3_qwen3_30b_a3b_h200", [shorter]).scenario.requests.count == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["requests={sessions: {turns: 3}}"], "requests.sessions.turn_tokens: is required"),
        (
            ["requests={arrivals: {name: recorded}, count: 5}"],
            "arrivals: {name: recorded} is for sessions: {name: file, file: FILE}",
        ),
        (
            ["requests={sessions: {turns: 3, turn_tokens: 5, context_tokens: 99}}"],
            "a first turn may have 640 tokens, prompt and output together; expected as many",
        ),
        (
            [
                "requests={sessions: {turns: {name: uniform, least_turns: 4, most_turns: 3}, "
                "turn_tokens: 5}}"
            ],
            "least_turns 4 is more than most_turns 3",
        ),
    ],
)
def test_fields_that_do_not_go_together_are_refused(changes: list[str], message: str) -> None:
    with pytest.raises(BadInput) as error:
        loaded_with(*changes)
    assert message in str(error.value)


def test_a_file_without_times_says_nothing_of_arrivals(tmp_path: Path) -> None:
    file = written(tmp_path, "s.csv", "session,new_tokens,output_tokens\na,5,2\n")
    with pytest.raises(BadInput, match="does not say when sessions begin"):
        loaded_with(
            TOGETHER,
            f"requests={{sessions: {{name: file, file: {file.file}}}, "
            "arrivals: {name: recorded}}",
        )


def test_sweeps_over_sizes_refuse_sessions() -> None:
    loaded = loaded_with("requests={sessions: {turns: 3, turn_tokens: 5}}")
    with pytest.raises(BadInput, match="clients that never pause"):
        batch_sweep(loaded, [1, 2])


def test_zipf_of_nought_is_even() -> None:
    drawn_of = SystemPrompts(count=4, tokens=5).draw(np.random.default_rng(0), 8_000)
    assert np.bincount(drawn_of) / 8_000 == pytest.approx([0.25] * 4, abs=0.02)


# ---- what a prefix cache has of them

HEAD = (
    "strategy={name: vanilla_sd, gamma: 2, drafter: {name: head, "
    "head: {layers: 1, squares: 4, vocabulary: 32000}}}"
)
KEPT = "serving.memory={prefix_caching: true, block_tokens: 8}"


def hits_of(workload: Requests, seed: int, *changes: str) -> dict[int, int]:
    """Tokens of each turn's prompt that a run did not compute, by number of the turn."""
    some = "sessions: {turns: 1, turn_tokens: 1}, prompt_tokens: 1, output_tokens: 2"
    sessions = f"requests={{{some}}}"
    loaded = load("durations_only", [*SECOND, KEPT, sessions, *changes], seed=seed)
    loaded = loaded.replace(requests=workload)
    log: list[Iteration] = []
    done: list[Request] = []
    outcome, _ = evaluate.simulate(
        loaded.scenario, loaded.acceptance(), log=log.append, finished=done.append
    )
    by_index = {request.index: request for request in done}
    hits = {request.dealt: request.prompt_tokens for request in done}
    for iteration in log:
        if iteration.kind == "prefill":
            for index, rows in zip(iteration.requests, iteration.rows, strict=True):
                hits[by_index[index].dealt] -= rows
    assert outcome.serving.prefix_cache["hit_tokens"] == sum(hits.values())
    return hits


def law_of(workload: Requests, seed: int, dropped: int = 0) -> dict[int, int]:
    """The same by law, in a cache without an end and units of 8."""
    turns = list(chain.from_iterable(workload.turns(seed)))
    return dict(enumerate(session_hits(turns, 8, dropped)))


def test_hits_by_hand() -> None:
    """Units of 8. Turn 0 reads 18 tokens and writes 3 of its 4; turn 1 finds 21, two units; turn 2
    goes back to turn 0, whose last token turn 1 has read: 22, two units again; turn 3 goes on from
    turn 2, 26 + 4 - 1 = 29, three units. Session 1 finds the system prompt alone, one unit of 8.
    """
    session = Session([Said(10, 4), Said(5, 4), Said(4, 4, parent=0), Said(1, 2)], "system", 8)
    turns = [*turns_of(session, 0, 0), *turns_of(session, 1, 4)]
    assert [turn.prompt_tokens for turn in turns[:4]] == [18, 27, 26, 31]
    assert list(session_hits(turns, 8)) == [0, 16, 16, 24, 8, 16, 16, 24]
    assert list(session_hits(turns, 8, 1)) == [0, 8, 8, 16, 0, 8, 8, 16]
    assert list(session_hits(turns, 1)) == [0, 21, 22, 29, 8, 21, 22, 29]


@settings(max_examples=60, deadline=None)
@given(workloads, st.integers(0, 9), st.booleans())
def test_a_cache_without_an_end_hits_what_the_law_says(
    workload: Requests, seed: int, reads_hidden_states: bool
) -> None:
    """One client, one session after the other: every turn exactly."""
    strategy = [HEAD, "durations.draft_step_ms=1"] if reads_hidden_states else []
    alone = workload.model_copy(update={"concurrency": 1})
    assert hits_of(alone, seed, *strategy) == law_of(alone, seed, int(reads_hidden_states))


@settings(max_examples=60, deadline=None)
@given(workloads, st.integers(0, 9), st.integers(2, 6), st.sampled_from([None, 400, 1_000]))
def test_whoever_is_served_beside_it_a_turn_finds_no_more_than_the_law_says(
    workload: Requests, seed: int, clients: int, kv_tokens: int | None
) -> None:
    """Several clients: without an end later turns find exactly what they find alone, and first ones
    their system prompt or nothing; where others evict it, all find as much at most.
    """
    assert isinstance(workload.sessions, DrawnSessions)
    together = workload.model_copy(update={"concurrency": min(clients, workload.count)})
    by_law = law_of(together, seed)
    system = together.sessions and workload.sessions.system_prompts
    system_tokens = 24 if system else 0
    most_tokens = max(turn.tokens for turn in chain.from_iterable(together.turns(seed)))
    changes = [TOGETHER]
    if kv_tokens is not None:
        changes.append(f"serving.memory.kv_tokens={kv_tokens + 8 * most_tokens}")
    hits = hits_of(together, seed, *changes)
    firsts = {turns[0].number for turns in together.turns(seed)}
    for number, tokens in hits.items():
        if number in firsts:
            assert tokens in (0, min(system_tokens, by_law[number] or system_tokens))
        elif kv_tokens is None:
            assert tokens == by_law[number]
        else:
            assert tokens <= by_law[number]


def test_a_run_says_what_agents_find() -> None:
    """Ten turns that add 30 tokens to a prompt of 1,000: nine in ten tokens are there."""
    result = evaluate.run(
        load(
            "durations_only",
            [
                *SECOND,
                KEPT,
                "requests={sessions: {turns: 10, turn_tokens: 30}, prompt_tokens: 1000, "
                "output_tokens: 10, count: 10}",
            ],
        )
    )
    hits = result.simulated.serving.prefix_cache
    assert hits["prompt_tokens"] == sum(1000 + 40 * turn for turn in range(10))
    assert hits["hit_tokens"] == sum((1000 + 40 * turn + 9) // 8 * 8 for turn in range(9))
    assert hits["hit_rate"] > 0.89


def test_the_law_of_the_load_takes_cached_tokens_into_account() -> None:
    """A second for every 100 tokens that are read: with the cache more can be served."""
    workload = (
        "requests={sessions: {turns: 10, turn_tokens: 30}, prompt_tokens: 1000, output_tokens: 10, "
        "count: 10, arrivals: {name: poisson, rate_per_s: 0.01}}"
    )
    prefill = "durations={target_ms: 10, prefill_ms: {base_ms: 10, row_ms: 10}}"
    on = load("durations_only", [SECOND[0], SECOND[2], prefill, TOGETHER, KEPT, workload])
    off = load("durations_only", [SECOND[0], SECOND[2], prefill, TOGETHER, workload])
    kept, anew = (load_of(loaded.scenario, loaded.acceptance()) for loaded in (on, off))
    assert kept
    assert anew
    assert kept.offered_per_s == anew.offered_per_s == pytest.approx(0.1)
    assert kept.most_per_s > 2 * anew.most_per_s


def test_a_router_that_looks_into_caches_keeps_a_session_where_it_was() -> None:
    """Two replicas: every turn goes where the one before it was served."""
    workload = "requests={sessions: {turns: 6, turn_tokens: 30}, concurrency: 3, count: 36}"
    changes = [TOGETHER, KEPT, workload, "serving.replicas=2"]
    hits = []
    for router in ("most_cached", "round_robin"):
        loaded = load("durations_only", [*SECOND, *changes, f"serving.router={router}"])
        outcome, _ = evaluate.simulate(loaded.scenario, loaded.acceptance())
        hits.append(outcome.serving.prefix_cache["hit_tokens"])
    turns = list(chain.from_iterable(loaded.scenario.requests.turns(0)))
    assert hits[0] == sum(session_hits(turns, 8))
    assert hits[1] < hits[0]
