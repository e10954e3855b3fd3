"""Messages speak of what a person wrote: no type of a library shows in one."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import simulator
from simulator.cli.main import main
from simulator.core.faults import BadInput
from tests.parsed import parsed

FOREIGN = re.compile(r"\bnp\.|numpy|dtype|Timestamp\(|<NA>|\bNone\b")
ROWS = ("expected a whole number", "expected a time")
CODE = Path(simulator.__file__).parent


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json"])
@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("arrival_ns", -1),
        ("arrival_ns", 10**40),
        ("timestamp", -1.5),
        ("timestamp", True),
        ("prompt_tokens", 1.5),
        ("prompt_tokens", -1),
        ("output_tokens", 10**30),
        ("output_tokens", "many"),
        ("created", "yesterday"),
    ],
)
def test_a_wrong_cell_of_a_log_is_told_as_it_was_written(
    ending: str, column: str, cell: object, tmp_path: Path
) -> None:
    sound = {"arrival_ns": 0, "prompt_tokens": 10, "output_tokens": 5}
    if column not in sound:
        sound = {column: 0, "prompt_tokens": 10, "output_tokens": 5}
    rows = [sound, sound | {column: cell}]
    lines = [",".join(sound), *(",".join(map(str, row.values())) for row in rows)]
    texts = {
        "csv": "\n".join(lines),
        "jsonl": "\n".join(map(json.dumps, rows)),
        "json": json.dumps(rows),
    }
    (tmp_path / f"log.{ending}").write_text(texts[ending])
    words = [
        "plan",
        "--model",
        "Qwen/Qwen3-8B",
        "--device",
        "h100_sxm",
        "--ttft-p95",
        "1s",
        "--draws",
        "1",
    ]
    done = CliRunner().invoke(main, [*words, "--traffic", str(tmp_path / f"log.{ending}")])
    assert done.exit_code == 2, done.output
    assert column in done.stderr
    assert not FOREIGN.search(done.stderr), done.stderr


@pytest.mark.parametrize(
    "value",
    [np.int64(-3), np.float64(-0.5), np.array([1, -2]), [np.int64(-3)], np.bool_(True), None],
)
@pytest.mark.parametrize(
    "field", ["strategy.gamma", "requests.count", "durations.draft_ms", "acceptance.rate"]
)
def test_numbers_of_numpy_are_told_as_numbers(field: str, value: object) -> None:
    try:
        simulator.law("durations_only", {field: value})
    except BadInput as error:
        assert not FOREIGN.search(str(error)), error


@pytest.mark.parametrize("value", [np.int64(3), np.float64(3.0), np.uint8(3)])
def test_numbers_of_numpy_are_taken_as_numbers(value: object) -> None:
    taken = simulator.law("durations_only", {"strategy.gamma": value}).to_dict()
    assert taken == simulator.law("durations_only", {"strategy.gamma": 3}).to_dict()


def test_no_message_shows_a_value_as_python_writes_it() -> None:
    for file in sorted(CODE.rglob("*.py")):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FormattedValue):
                assert node.conversion != ord("r"), (
                    f"{file}:{node.lineno}: tell a value with told()"
                )


# ---- times in every unit that is promised

NOW = 1759813207532900363
AT = {
    "arrival_ns": 1,
    "arrival_time_ns": 1,
    "timestamp": 1,
    "startTimeUnixNano": 1,
    "arrival_us": 10**3,
    "arrival_ms": 10**6,
}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "tsv"])
@pytest.mark.parametrize("column", [*AT, "arrival_s", "created"])
def test_times_since_1970_are_read_in_every_unit(ending: str, column: str, tmp_path: Path) -> None:
    from simulator.inputs.logs import read_log

    unit = AT.get(column, 10**9)
    rows = [
        {column: (NOW + late) // unit, "prompt_tokens": 10, "output_tokens": 5}
        for late in (0, 2 * 10**9, 5 * 10**9)
    ]
    separator = "\t" if ending == "tsv" else ","
    lines = [separator.join(rows[0]), *(separator.join(map(str, row.values())) for row in rows)]
    table = "\n".join(lines)
    texts = {
        "csv": table,
        "tsv": table,
        "jsonl": "\n".join(map(json.dumps, rows)),
        "json": json.dumps(rows),
    }
    (tmp_path / f"log.{ending}").write_text(texts[ending])
    assert [at for _, at, *_ in read_log(str(tmp_path / f"log.{ending}"), {}).requests] == [
        0.0,
        2.0,
        5.0,
    ]


@pytest.mark.parametrize("name", ["splitwise_sim.csv", "llm_serving_sim.jsonl"])
def test_logs_of_other_simulators_are_read(name: str) -> None:
    from simulator.inputs.logs import read_log

    log = read_log(str(Path(__file__).with_name("data") / "logs" / name), {})
    assert [(prompt, output) for *_, prompt, output, _ in log.requests] == [(500, 100)] * 20
    assert [at for _, at, *_ in log.requests] == pytest.approx([0.3 * place for place in range(20)])
