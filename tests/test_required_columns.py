"""Every table that a command reads, with no more than its required columns: it is taken, or the
answer names what is missing.

Which columns are required is read from where they are declared, so that a new column, kind of file
or format is tried too.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.evidence.calibrate.importers import IMPORTERS
from simulator.evidence.calibrate.measurements import COLUMNS, OPERATIONS
from simulator.evidence.calibrate.runs import MEASURED
from simulator.inputs.logs import KNOWN, TRAFFIC
from simulator.inputs.traces.converters import TO_TRACE
from simulator.inputs.traces.header import ARRAYS, Header

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
SIZES = (1, 2, 8, 64)


def answered(*words: object, folder: Path | None = None) -> Result:
    """A command that ends with an answer or a line about what it was given: never a traceback,
    never what is no JSON.
    """
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code in (0, 2, 3), done.output
    assert done.exit_code == 0 or done.stderr.startswith("error: "), done.stderr
    if done.exit_code == 0 and "--json" in words:
        json.loads(done.stdout, parse_constant=pytest.fail)
    return done


# ---- measured operation times


def required(operation: str) -> list[str]:
    return [
        name
        for name, column in COLUMNS.items()
        if "empty" not in column or operation in column.get("needed_by", ())
    ]


def measured(operation: str, columns: list[str], path: Path) -> Path:
    """A table of an operation over four sizes with these columns alone."""
    lines = [",".join(columns)]
    for size in SIZES:
        row = {
            "operation": operation,
            "size_bytes": 1e7 * size,
            "time_us": 20.0 * size,
            "tokens": size,
            "flops": 1e9 * size,
        }
        row |= {"ranks": 4, "experts": size, "pairs": 2 * size, "width": 4096}
        lines.append(",".join(str(row[column]) for column in columns))
    path.write_text("\n".join([*lines, ""]))
    return path


@pytest.mark.few(4)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "command",
    [
        ("device", "--like", "a100_80g_sxm", "--quick"),
        ("device", "--like", "m2_ultra_gpu", "--quick"),
        ("link", "--like", "nvlink_h100"),
        ("passes", "--like", "m2_ultra_gpu"),
        ("score", "a100_80g_sxm"),
        ("score", "nvlink_h100"),
    ],
    ids=" ".join,
)
def test_measured_times_with_only_the_columns_that_are_required(
    operation: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    verb, *options = command
    table = measured(operation, required(operation), tmp_path / "times.csv")
    words = [*options, table] if verb == "score" else [table, *options]
    done = answered("calibrate", verb, *words, "--json")
    assert done.exit_code == 0 or "missing" not in done.stderr, (
        "every column that is asked for is declared as required"
    )
    answered("calibrate", verb, *words)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_required_column_that_is_left_out_is_named(operation: str, tmp_path: Path) -> None:
    for column in required(operation)[1:]:
        rest = [name for name in required(operation) if name != column]
        done = answered(
            "calibrate",
            "device",
            measured(operation, rest, tmp_path / "t.csv"),
            "--like",
            "a100_80g_sxm",
        )
        assert done.exit_code == 2
        assert re.search(rf"t\.csv:1:1: {column}: is required .*missing", done.stderr), done.stderr


def test_the_help_names_every_column_without_a_default() -> None:
    said = " ".join(answered("calibrate", "--help").stdout.split())
    for name in [
        name
        for name, column in COLUMNS.items()
        if "empty" not in column or len(column.get("needed_by", ())) > 1
    ]:
        assert re.search(rf"must be there.*\b{name}\b|\b{name}\b[^.]* must be there", said), name


@pytest.mark.parametrize("cell", ["1" * 40, "1e400", "1e-320", "nan", "-1"])
@pytest.mark.parametrize("column", ["flops", "size_bytes", "time_us", "tokens"])
def test_a_number_beyond_all_measure_is_refused_where_it_stands(
    column: str, cell: str, tmp_path: Path
) -> None:
    columns = required("matmul")
    table = measured("matmul", columns, tmp_path / "times.csv")
    header, first, *rest = table.read_text().splitlines()
    cells = first.split(",")
    cells[columns.index(column)] = cell
    table.write_text("\n".join([header, ",".join(cells), *rest, ""]))
    for words in (("device", table, "--like", "a100_80g_sxm"), ("score", "a100_80g_sxm", table)):
        done = answered("calibrate", *words, "--json")
        assert done.exit_code == 2
        assert f"times.csv:2:1: {column}: expected " in done.stderr
        assert done.stdout == ""


# ---- other people's tables

KINDS = [(form, place) for form, known in IMPORTERS.items() for place in range(len(known["kinds"]))]
WORDS = {
    "framework": "VLLM",
    "distribution": "balanced",
    "version": "1.0.0",
    "kernel_source": "k",
    "device": "NVIDIA H100",
    "quant_signature": "none",
    "load_distribution": "balanced",
    "n_embd": "1024",
    "attention_backend": "FLASHINFER",
}


@pytest.mark.few(3)
@pytest.mark.parametrize(("form", "place"), KINDS)
def test_a_file_of_others_with_only_its_required_columns(
    form: str, place: int, tmp_path: Path
) -> None:
    kind = IMPORTERS[form]["kinds"][place]
    needed = {kind["known_by"]: "1"} | {
        theirs.split("|")[0]: "8" for theirs in kind["columns"] if theirs[-1] != "?"
    }
    needed |= {theirs: WORDS[theirs] for theirs in WORDS.keys() & needed.keys()}
    for theirs, ours in kind["columns"].items():
        first = theirs.split("|")[0]
        if first in needed and ours in kind.get("words", {}):
            needed[first] = next(iter(kind["words"][ours]))
    times = [
        column for columns in kind["times"].values() for column in columns if column[-1] != "?"
    ]
    rows = [needed]
    if "long" in kind:
        rows = [{kind["long"]: name, **needed, "time": "5"} for name in dict.fromkeys(times)]
    else:
        needed |= dict.fromkeys(times, "5")
    folder = tmp_path / "bf16" / "tp2"
    folder.mkdir(parents=True)
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (folder / "theirs.csv").write_text("\n".join([*lines, ""]))
    options = ["--model", "llama_3_1_8b"] if kind.get("model") else []
    words = [
        "calibrate",
        "import",
        folder / "theirs.csv",
        "--from",
        form,
        "--source",
        "s",
        "--out",
        tmp_path / "t.csv",
    ]
    done = answered(*words, *options, "--json")
    optional = {
        column[:-1] for columns in kind["times"].values() for column in columns if column[-1] == "?"
    }
    while done.exit_code:  # times that may be missing one by one, but not all of them
        name = re.search(r"theirs\.csv:1:1: (\S+): is required", done.stderr)
        assert name, done.stderr
        assert name[1] in optional - {*lines[0].split(",")}
        lines = [f"{lines[0]},{name[1]}", *(f"{line},5" for line in lines[1:])]
        (folder / "theirs.csv").write_text("\n".join([*lines, ""]))
        done = answered(*words, *options, "--json")
    assert done.exit_code == 0, done.stderr
    for verb in (("device", "--like", "h100_sxm", "--quick"), ("link", "--like", "nvlink_h100")):
        answered("calibrate", verb[0], tmp_path / "t.csv", *verb[1:], "--json")


@pytest.mark.parametrize("quantity", MEASURED)
def test_a_table_of_runs_needs_one_measured_value(quantity: str, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(f"{quantity}\n20\n")
    words = [
        "calibrate",
        "engine",
        tmp_path / "runs.csv",
        "--like",
        "vllm",
        "--scenario",
        "vanilla_qwen3_32b_a100",
    ]
    done = answered(*words, "--free", "draft.pass_us", "--json")
    named = "draft.pass_us", "tokens_per_step: is missing"
    assert done.exit_code == 0 or any(word in done.stderr for word in named), done.stderr


# ---- traffic and logs

QUESTION = (
    "--model",
    "Qwen/Qwen3-8B",
    "--device",
    "h100_sxm",
    "--ttft-p95",
    "1s",
    "--tpot-p95",
    "40ms",
    "--draws",
    "1",
)


@pytest.mark.full
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json"])
@pytest.mark.parametrize("place", [0, -1])
def test_a_log_needs_a_prompt_and_an_output(ending: str, place: int, tmp_path: Path) -> None:
    names = [KNOWN[role][place] for role in ("prompt", "output")]
    rows = [dict(zip(names, (500, 40), strict=True))] * 3
    separator = {"csv": ",", "tsv": "\t"}.get(ending)
    lines = [json.dumps(row) for row in rows]
    if separator:
        lines = [separator.join(names), *(separator.join(map(str, row.values())) for row in rows)]
    text = json.dumps(rows) if ending == "json" else "\n".join([*lines, ""])
    (tmp_path / f"log.{ending}").write_text(text)
    done = answered(
        "plan", *QUESTION, "--traffic", tmp_path / f"log.{ending}", "--rate", "1", "--json"
    )
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("form", TRAFFIC)
def test_traffic_needs_a_time_a_prompt_and_an_output(form: str, tmp_path: Path) -> None:
    columns = TRAFFIC[form]
    time = "2026-01-01 00:00:00" if columns["time"] == "date" else 0
    row = {columns["arrival"]: time, columns["prompt"]: 100, columns["output"]: 20}
    head = f"{','.join(row)}\n" if columns["table"] else ""
    line = ",".join(map(str, row.values())) if columns["table"] else json.dumps(row)
    (tmp_path / "traffic").write_text(f"{head}{line}\n{line}\n")
    arrivals = (
        f"requests={{arrivals: {{name: file, format: {form}, file: {tmp_path / 'traffic'}}}}}"
    )
    done = answered(
        "run",
        "durations_only",
        "--set",
        arrivals,
        "--set",
        "serving.policy={name: prefill_first, max_requests: 4}",
        "--json",
    )
    assert done.exit_code == 0, done.stderr


# ---- recorded acceptance and stated durations

LEAST: dict[str, dict[str, Any]] = {
    "specdecode_bench_eagle": {"acc_len_eagle": [2, 1]},
    "specdecode_bench_ngram": {"acc_len_ngram": [2, 1]},
    "specdecode_bench": {"acc_len_eagle": [2, 1], "acc_len_ngram": [2, 1]},
    "rest": {"accept_lengths": [1, 2], "steps_idx": [1]},
    "steps": {"accepted": [2, 0, 3]},
    "vllm_answers": {
        "metrics": {
            "speculative_decoding": {"per_step_accepted": [2, 0], "per_step_drafted": [3, 3]}
        }
    },
}


@pytest.mark.parametrize("form", TO_TRACE)
def test_a_record_of_steps_needs_its_counts(form: str, tmp_path: Path) -> None:
    assert form in LEAST, "LEAST has the smallest record of each format"
    record = LEAST[form]
    (tmp_path / "steps.jsonl").write_text(json.dumps(record) + "\n")
    words = [
        "trace",
        "convert",
        tmp_path / "steps.jsonl",
        "--from",
        form,
        "--out",
        tmp_path / "made.npz",
        "--json",
    ]
    assert answered(*words).exit_code == 0
    answered("trace", "info", tmp_path / "made.npz", "--json")
    for key in record:
        (tmp_path / "steps.jsonl").write_text(
            json.dumps({name: value for name, value in record.items() if name != key}) + "\n"
        )
        done = answered(*words)
        assert done.exit_code == 2
        assert f"'{key}'" in done.stderr


def test_a_trace_of_only_what_every_trace_holds(tmp_path: Path) -> None:
    facts = {
        "format": 1,
        "vocabulary": 100,
        "temperature": 0,
        "flavours": ["code"],
        "exit_layers": [],
    }
    facts["models"] = {"target": {}, "draft": {}}
    assert {name for name, field in Header.model_fields.items() if field.is_required()} == set(
        facts
    )
    sizes = {
        "offsets": np.array([0, 4, 8]),
        "flavour": np.zeros(2, np.uint8),
        "exit_rank": np.zeros((0, 8), np.uint16),
    }
    arrays = {
        name: sizes.get(name, np.zeros(8, np.float16 if name in "pq" else np.uint16))
        for name in ARRAYS["own"]
    }
    del arrays["run"]
    made = io.BytesIO()
    np.savez(made, header=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    (tmp_path / "least.npz").write_bytes(made.getvalue())
    for words in (("info",), ("iid",)):
        answered("trace", *words, tmp_path / "least.npz", "--json")
    assert answered("trace", "info", tmp_path / "least.npz", "--json").exit_code == 0


@pytest.mark.parametrize("load", ["rows", "cached_tokens", "sequences"])
def test_a_table_of_durations_needs_one_load(load: str, tmp_path: Path) -> None:
    (tmp_path / "passes.csv").write_text(f"{load},ms\n1,5\n")
    stated = {"strategy": {"name": "vanilla_sd", "gamma": 2}, "acceptance": {"rate": 0.5}}
    stated["durations"] = {"target_ms": {"file": "passes.csv"}, "draft_ms": 1}
    (tmp_path / "stated.yaml").write_text(json.dumps(stated))
    done = answered("run", tmp_path / "stated.yaml", "--json")
    assert done.exit_code == 0, done.stderr
