"""Files of sessions that say something that is not meant, or that is easily overlooked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.core.faults import BadInput
from simulator.core.serving.load.sessions import SessionFile
from simulator.scenario import load
from simulator.scenario.caveats import caveats

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
