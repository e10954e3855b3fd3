"""Files of sessions that say something that is not meant, or that is easily overlooked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.core.serving.load.sessions import SessionFile
from simulator.scenario import load
from simulator.scenario.caveats import caveats
from simulator.scenario.explain import explain

CLOSED = "serving.policy={name: prefill_first}"


def read(path: Path) -> SessionFile:
    return SessionFile(file=str(path))


@pytest.mark.parametrize(
    ("head", "row", "message"),
    [
        ("think_time_s", "60", "think_time_s: is no column of sessions; did you mean 'think_s'?"),
        ("think_ms", "60", "think_ms: is no column of sessions; did you mean 'think_s'?"),
        ("system_tokens", "400", "system_tokens: are those of a system prompt without a name"),
        ("prompt_tokens", "500", "new_tokens: expected 380, which prompt_tokens leave behind"),
    ],
)
def test_what_a_column_cannot_mean_is_a_fault(
    tmp_path: Path, head: str, row: str, message: str
) -> None:
    path = tmp_path / "s.csv"
    first = "120" if head == "prompt_tokens" else row
    path.write_text(f"session,new_tokens,output_tokens,{head}\n1,100,20,{first}\n1,50,20,{row}\n")
    if head == "prompt_tokens":
        path.write_text("session,new_tokens,output_tokens,prompt_tokens\n1,,20,100\n1,50,20,500\n")
    with pytest.raises(BadInput) as refused:
        list(read(path).sessions(0))
    assert message in str(refused.value)
    assert f"{path}:" in str(refused.value)


def test_calls_of_tools_and_texts_in_parts_are_counted(tmp_path: Path) -> None:
    """40 characters in two parts, and a call of 4 + 36: ten tokens each."""
    path = tmp_path / "agent.json"
    parts = [
        {"type": "text", "text": "x" * 30},
        {"type": "image_url"},
        {"type": "text", "text": "y" * 10},
    ]
    call = {"function": {"name": "grep", "arguments": "z" * 36}}
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    path.write_text(json.dumps([{"messages": messages}]))
    (session,) = read(path).sessions(0)
    assert [(turn.new_tokens, turn.output_tokens) for turn in session.turns] == [(10, 10)]


def test_sessions_without_times_are_said_to_come_back_to_back(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("session,new_tokens,output_tokens\n1,100,20\n1,50,20\n")
    words = "turns of sessions come as soon as the ones before them have ended"
    for think, said in (("", True), (", think_s: 5", False)):
        sessions = f"requests={{sessions: {{name: file, file: {path}{think}}}}}"
        loaded = load("durations_only", [sessions, CLOSED])
        notes = caveats(loaded, loaded.acceptance())
        assert any(note.startswith(words) for note in notes) is said


def test_clients_without_a_session_are_counted() -> None:
    fields = "{sessions: {turns: 5, turn_tokens: 10}, count: 20, concurrency: 8}"
    loaded = load("durations_only", [f"requests={fields}", CLOSED])
    words = "8 clients, and there are 4 sessions in all: 4 never begin one"
    assert any(note.startswith(words) for note in caveats(loaded, loaded.acceptance()))


def sent(turn: int, start_s: float, prompt: int, worker: str) -> str:
    """A line of AIPerf: turn ``turn`` of the only conversation, answered in a second."""
    metadata = {
        "conversation_id": "talk",
        "turn_index": turn,
        "request_start_ns": round(start_s * 1e9),
        "request_end_ns": round((start_s + 1.0) * 1e9),
        "worker_id": worker,
    }
    metrics = {"input_sequence_length": prompt, "output_sequence_length": 10}
    return json.dumps({"metadata": metadata, "metrics": metrics, "error": None}) + "\n"


@pytest.mark.parametrize("workers", [("", "", ""), ("one", "two", "three")])
def test_a_conversation_that_is_held_three_times_is_three_sessions(
    tmp_path: Path, workers: tuple[str, str, str]
) -> None:
    """By conversation_id alone: begun at 0, 0.5 and 4 s; the second turns at 2, 2.5 and 6 s, the
    third of the first two at 4 and 4.25 s. One goes on as soon as any other could.
    """
    one, two, three = workers
    lines = [
        *(sent(0, 0.0, 100, one), sent(0, 0.5, 101, two), sent(1, 2.0, 150, one)),
        *(sent(1, 2.5, 151, two), sent(0, 4.0, 102, three), sent(2, 4.0, 200, one)),
        *(sent(2, 4.25, 201, two), sent(1, 6.0, 152, three)),
    ]
    path = tmp_path / "profile_export.jsonl"
    path.write_text("".join(lines), "utf-8")
    sessions = list(read(path).sessions(0))
    assert [session.begin_s for session in sessions] == [0.0, 0.5, 4.0]
    waits = [[turn.wait_s for turn in session.turns] for session in sessions]
    assert waits == [[0.0, 1.0, 1.0], [0.0, 1.0, pytest.approx(0.75)], [0.0, 1.0]]
    assert [session.turns[0].new_tokens for session in sessions] == [100, 101, 102]
    assert all(turn.new_tokens == 40 for one in sessions for turn in one.turns[1:])


def test_a_table_with_semicolons_is_told_as_one(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("session;new_tokens;output_tokens\n1;100;20\n")
    with pytest.raises(BadInput, match="expected commas between columns, got ';'") as refused:
        list(read(path).sessions(0))
    assert refused.value.lines[0].startswith(f"{path}:1:8:")
    path.write_text("Session,New_Tokens,Output_Tokens\n1,100,20\n")
    with pytest.raises(BadInput, match="did you mean 'session'") as refused:
        list(read(path).sessions(0))
    assert refused.value.lines[0].startswith(f"{path}:1:1: Session: is no column of sessions")
    path.write_text("session,new_tokens,Output_Tokens\n1,100,20\n")
    with pytest.raises(BadInput, match="did you mean 'output_tokens'") as refused:
        list(read(path).sessions(0))
    assert refused.value.lines[0].startswith(f"{path}:1:20: Output_Tokens: is no column")


def test_tokens_that_are_counted_by_characters_are_said(tmp_path: Path) -> None:
    talk = tmp_path / "talk.json"
    messages = [{"role": "user", "content": "x" * 40}, {"role": "assistant", "content": "y" * 40}]
    talk.write_text(json.dumps([{"messages": messages}]))
    table = tmp_path / "s.csv"
    table.write_text("session,new_tokens,output_tokens\n1,10,10\n")
    for path, said in ((talk, True), (table, False)):
        loaded = load("durations_only", [f"requests={{sessions: {{name: file, file: {path}}}}}"])
        notes = caveats(loaded, loaded.acceptance())
        words = f"tokens of the texts in {path.name} are not known: 4 characters count as one"
        assert any(note.startswith(words) for note in notes) is said


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("turns={}", "needs a field 'name': one of geometric, uniform"),
        ("turns={name: all}", "there is no turns 'all'; expected one of geometric, uniform, or a "),
        ("turns=few", "expected a whole number or {name: ...} of geometric, uniform, got 'few'"),
        ("think_s=long", "expected a number or {name: ...} of exponential, lognormal, got 'long'"),
    ],
)
def test_faults_of_drawn_numbers_name_the_distributions(field: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        load("sessions_chat_eagle3_qwen3_30b_a3b_h200", [f"requests.sessions.{field}"])
    assert message in refused.value.lines[0]


def test_explain_says_what_sessions_are() -> None:
    agents = "requests.sessions"
    loaded = load(
        "sessions_chat_eagle3_qwen3_30b_a3b_h200",
        [
            f"{agents}.turns=4",
            f"{agents}.think_s={{name: exponential, mean_s: 3}}",
            "requests.count=20",
        ],
    )
    words = explain(loaded).topics["sessions"]
    assert words.startswith(
        "5 with 4 turns in the mean; turns 4; new text of later turns uniform ("
    )
    assert "; think times exponential (mean_s 3) s; one system prompt of " in words


def test_refusals_of_sessions_name_a_sweep_that_works(tmp_path: Path) -> None:
    name = "sessions_chat_eagle3_qwen3_30b_a3b_h200"
    refused = CliRunner().invoke(main, ["capacity", name])
    assert refused.exit_code == 2
    axis = "requests.arrivals.rate_per_s=1,2"
    assert f"specsim sweep {name} --axis requests.arrivals.rate_per_s=1,2,4" in refused.output
    store = ["--store", str(tmp_path / "sweep.sqlite")]
    words = ["sweep", name, "--axis", axis, "--set", "requests.count=20", *store]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_closed_loop_says_how_its_engine_batches() -> None:
    closed = ["serving.policy={name: engine}", "requests.concurrency=2"]
    loaded = load("vanilla_qwen3_32b_a100", closed)
    notes = list(caveats(loaded, loaded.acceptance()))
    assert any(note.startswith("batching: unified_budget, at most") for note in notes)
    assert not any(note.startswith("prefix caching") for note in notes)
