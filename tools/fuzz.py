#!/usr/bin/env python3
"""Shipped files, broken by chance, through every loader: whatever they hold, a loader refuses them
in words or reads them.

    python3 dev.py fuzz [--minutes N] [--seed N] [--kind NAME]

What is read is used: a scenario's law is worked out, a trace's acceptance replayed. An input that
ends in anything but :class:`BadInput`, or takes longer than :data:`MOST_S`, is a finding: its
number is printed with what came of it, and ``--only NUMBER`` tries it alone.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import yaml

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # the corpus of broken files

from bad_inputs import corpus
from numpy.typing import NDArray
from test_bad_inputs import trace

from simulator.core.acceptance.statistics import statistics
from simulator.core.faults import BadInput
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.serving.load.traffic import TrafficFile
from simulator.core.serving.requests import Requests
from simulator.evidence.calibrate import measurements
from simulator.evidence.published import PublishedCell, rows
from simulator.inputs.catalogue import FOLDERS, Catalogue, shipped
from simulator.inputs.document import parse
from simulator.inputs.models.huggingface import read_config
from simulator.inputs.services.joined import joined
from simulator.inputs.services.observation_files import (
    OBSERVED,
    observation_files,
    read_observed,
)
from simulator.inputs.services.prediction import (
    Bounds,
    ChangedSetting,
    PredictedNumber,
    ServicePrediction,
    prediction_text,
    read_prediction,
)
from simulator.inputs.services.read import read_services
from simulator.inputs.services.tables import read_passes, read_requests, read_steps
from simulator.inputs.traces.converters import TO_TRACE
from simulator.inputs.traces.file import read as read_trace
from simulator.inputs.traces.summaries import TO_RATES
from simulator.report.services.observed import observed_page
from simulator.scenario import load
from simulator.scenario.decision.by_law import by_law
from simulator.scenario.result.data import law_details
from simulator.studies.plan.file import load_plan
from simulator.studies.sweep.executors import crew
from simulator.studies.sweep.store import reading, writing
from simulator.studies.sweep.study import study
from simulator.studies.sweep.sweeping import sweep
from simulator.studies.sweep.table import table

Array = NDArray[Any]
MOST_S = 20
"""Of one input; the machine may be busy."""
NUDGED = 0.3
"""Share of inputs in which only numbers change: with what chance leaves whole, a third of all
inputs is read and used.
"""
NASTY = (
    *(
        "0",
        "0.5",
        "1",
        "2",
        "64",
        "1000000",
        "1e300",
        "1e-300",
        "1e999",
        "-0.0",
        "-1",
        "-1e-320",
        ".nan",
        "NaN",
    ),
    *(
        "Infinity",
        "true",
        "null",
        "~",
        "''",
        "[]",
        "{}",
        "*a",
        "&a",
        "!!x y",
        "!",
        "%YAML 9.9\n",
        "#",
        "---\n",
        "\t",
        "|",
        ">",
    ),
    *(
        "99999999999999999999",
        "1" * 5000,
        "9007199254740993",
        "0x10",
        "1:30",
        "\x00",
        "\x1b[2J",
        "\ufeff",
        "\u2028",
        "é" * 40,
    ),
    *("../../../../etc/passwd", "./x.yaml", "x" * 300, "- ", "? ", ": ", '"', "'"),
)
CONFIG = b"""{"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, \
"num_attention_heads": 4, "head_dim": 16,
 "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 151936, "tie_word_embeddings": \
false,
 "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 4096, \
"kv_lora_rank": null}"""
PARTS: tuple[Any, ...] = (
    *(
        [],
        {},
        [[]],
        [{}],
        {"": ""},
        None,
        True,
        "",
        " ",
        "x",
        "1",
        [0],
        [-1],
        [1, 0],
        [2, 1],
        [1, 1],
        ["x"],
        {"x": 1},
        {1: 2},
    ),
    *(
        0,
        1,
        -1,
        2,
        10**6,
        2**31,
        2**63,
        10**30,
        0.0,
        0.5,
        -0.5,
        1.5,
        1e-320,
        1e-9,
        1e9,
        1e300,
        float("nan"),
        float("inf"),
    ),
)
SESSIONS = [
    (
        "own.csv",
        b"session,turn,arrival_s,think_s,new_tokens,output_tokens,system_prompt,system_tokens,parent\n"
        b"a,0,0,,20,5,s,8,\na,1,,2.5,4,5,,,\na,2,,1,4,5,,,0\nb,0,3,,9,5,,,\n",
    ),
    (
        "aiperf.jsonl",
        b'{"metadata": {"conversation_id": "a", "turn_index": 0, "request_start_ns": 10, '
        b'"request_end_ns": 20}, "metrics": {"input_sequence_length": {"value": 5}, '
        b'"output_sequence_length": {"value": 5}}, "error": null}\n',
    ),
    (
        "sharegpt.json",
        b'[{"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "you"}]'
        b"}]\n",
    ),
]
SERVICES = [
    (
        "forward_passes.jsonl",
        b'{"wall_time": 0.01, "dp_rank": 0, "scheduled_requests": {"num_decode_requests": 4, '
        b'"sum_decode_kv_tokens": 900}, "queued_requests": {"num_prefill_requests": 2}}\n' * 2,
    ),
    (
        "guidellm.yaml",
        b"metadata: {version: 2}\nbenchmarks:\n- duration: 2.5\n  metrics:\n    request_totals: "
        b"{successful: 1}\n  requests:\n    successful:\n    - {prompt_tokens: 40, output_tokens: "
        b"64, request_latency: 0.5, time_to_first_token_ms: 20.5, info: {turn_index: 0}}\n",
    ),
    (
        "iterations.jsonl",
        b'{"iterLatencyMS": 12.5, "numQueuedRequests": 1, "kvCacheStats": {"maxNumBlocks": 9, '
        b'"usedNumBlocks": 4}, "specDecodingStats": {"numDraftTokens": 8, "numAcceptedTokens": 5, '
        b'"numRequestsWithDraftTokens": 2}}\n' * 2,
    ),
    (
        "sglang.json",
        b'{"meta_info": {"prompt_tokens": 9, "completion_tokens": 20, "e2e_latency": 0.5, '
        b'"spec_verify_ct": 8, "spec_num_correct_drafts": 12, "spec_num_proposed_drafts": 24, '
        b'"spec_correct_drafts_histogram": [2, 2, 2, 2]}}\n',
    ),
    (
        "sglang_bench.jsonl",
        b'{"backend": "sglang", "completed": 2, "total_input_tokens": 30, "duration": 9.5, '
        b'"total_output_tokens": 40, "mean_e2e_latency_ms": 500.0, "mean_ttft_ms": 20.0, '
        b'"mean_tpot_ms": 5.0, "mean_itl_ms": 9.0, "accept_length": 2.2}\n',
    ),
    (
        "sglang_metrics.txt",
        b'sglang:num_running_reqs{tp_rank="0"} 3\nsglang:spec_accept_length 2.5\n'
        b"sglang:prompt_tokens_total 90\nsglang:cached_tokens_total 25\n",
    ),
    (
        "trtllm_metrics.txt",
        b"trtllm_spec_decode_num_draft_tokens_total 300\n"
        b"trtllm_spec_decode_num_accepted_tokens_total 120\ntrtllm_kv_cache_hit_rate 0.5\n",
    ),
]
"""Files of services, as their formats are described."""
RECORDS = [
    ("steps-own.jsonl", b'{"accepted": [2, 0, 3], "flavour": "code"}\n{"accepted": [1, 1]}\n'),
    (
        "vllm_answers-own.jsonl",
        b'{"metrics": {"speculative_decoding": {"num_spec_tokens": 3, "num_spec_steps": 2, '
        b'"per_step_accepted": [2, 0], "per_step_drafted": [3, 3]}}}\n',
    ),
    ("rest-own.jsonl", b'{"category": "x", "accept_lengths": [1, 2, 1], "steps_idx": [2]}\n'),
    ("specdecode_bench_eagle-own.jsonl", b'{"dataset": "x", "acc_len_eagle": [1, 2, 4, 1]}\n'),
    ("golden_lengths-own.txt", b"1.8, 2.4\n2.8 # three\n"),
    (
        "vllm_log-own.log",
        b"SpecDecoding metrics: Drafted: 10 tokens, Per-position acceptance rate: 0.5, 0.2\n" * 2,
    ),
    (
        "vllm_metrics-own.txt",
        b'vllm:spec_decode_num_drafts_total{engine="0"} 9.0\n'
        b'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 5.0\n',
    ),
    (
        "vllm_bench-own.json",
        b'{"spec_decode_num_drafts": 9, "spec_decode_per_position_acceptance_rates": [0.8, 0.5]}\n',
    ),
    (
        "trtllm-own.txt",
        (
            b"trtllm_spec_decode_num_draft_tokens_total "
            b"9.0\ntrtllm_spec_decode_num_accepted_tokens_total 5.0\n"
        ),
    ),
    (
        "llama_cpp-new.log",
        b"draft acceptance = 0.5 ( 9 accepted / 18 generated), mean acceptance length = 1.9, "
        b"acceptance rate per position = (0.6, 0.3)\n",
    ),
    (
        "sglang-own.log",
        b"Decode batch, #running-req: 3, #token: 9, accept len: 2.47, accept rate: 0.82\n",
    ),
    (
        "llama_cpp-own.log",
        (
            b"eval time = 9.0 ms / 20 tokens\ndraft acceptance rate = 0.5 ( 9 accepted / 18 "
            b"generated)\n"
        ),
    ),
    ("golden_lengths-inferencex.yaml", b"m:\n  thinking_on:\n    1: 1.8\n    2: 2.4\n"),
]


class Loader(NamedTuple):
    """What reads a kind of file, and sound files to break."""

    use: Callable[[Path], object]
    sound: Sequence[tuple[str, bytes]]
    """Name and content."""
    broken: Callable[[bytes, random.Random], bytes]


def _named(kind: str, most_bytes: int = 100_000) -> list[tuple[str, bytes]]:
    files = Catalogue().names(kind).values()
    return [(path.name, path.read_bytes()) for path in files if path.stat().st_size <= most_bytes]


def _beginnings(pattern: str, most_bytes: int) -> list[tuple[str, bytes]]:
    """Whole lines of shipped files."""
    return [
        (path.name, path.read_bytes()[:most_bytes].rpartition(b"\n")[0])
        for path in shipped().glob(pattern)
    ]


def _in_corpus(folder: str) -> list[tuple[str, bytes]]:
    """Broken files, to be broken further, under names that their loaders take."""
    return [
        (corpu.path.name, corpu.path.read_bytes()) for corpu in corpus() if corpu.folder == folder
    ]


def _law(scenario: str, *overrides: str) -> object:
    loaded = load(scenario, overrides)
    return law_details(loaded, by_law(loaded))


def _workload(path: Path) -> object:
    return _law("durations_only", "serving.policy={name: prefill_first}", f"requests=./{path.name}")


def _traffic(path: Path) -> object:
    file = TrafficFile.model_validate({"format": path.name.partition("-")[0], "file": str(path)})
    return sum(line.tokens for line in file.lines())


def _sessions(path: Path) -> object:
    file = SessionFile(file=str(path))
    workload = Requests.model_validate({"sessions": file, "count": 100_000})
    return sum(turn.tokens for turns in workload.turns(0) for turn in turns)


def _services(path: Path) -> object:
    """Join what a file of a service holds, print it, write it and read it back."""
    seen = []
    for services in read_services([path]):
        observed = joined(services)
        observed_page(observed)
        with TemporaryDirectory() as folder:
            for name, content in observation_files(observed, services).items():
                Path(folder, name).write_text(content, "utf-8")
            again = read_observed(Path(folder, OBSERVED))
            seen.append(again)
            read_requests(again, Path(folder))
            read_passes(again, Path(folder))
            read_steps(again, Path(folder))
    return seen


@cache
def _observation() -> bytes:
    """What is written of the kept files of a living service."""
    kept = Path(__file__).parent.parent / "tests/data/live_services"
    names = ("vllm_bench.json", "vllm_bench_metrics_before.txt", "vllm_bench_metrics_after.txt")
    (services,) = read_services([kept / name for name in names])
    return observation_files(joined(services), services)[OBSERVED].encode()


def _prediction() -> bytes:
    """A prediction with each kind of field."""
    bounds = Bounds(low=6.0, high=9.0)
    tpot = PredictedNumber(before=9.0, after=7.5, within_80=bounds, within_90=bounds)
    changed = ChangedSetting(field="strategy.gamma", before="3", after="2")
    return prediction_text(
        ServicePrediction(
            tried="gamma=2", changed=(changed,), scenario="mine", verdict="helps", tpot_ms=tpot
        )
    ).encode()


def _of_services() -> list[tuple[str, bytes]]:
    """Kept files of a living service, and the least of each other format."""
    kept = Path(__file__).parent.parent / "tests/data/live_services"
    return SERVICES * 5 + [(path.name, path.read_bytes()) for path in sorted(kept.iterdir())]


def _records(path: Path) -> object:
    form, lines = (
        path.name.partition("-")[0],
        path.read_text("utf-8", errors="replace").splitlines(),
    )
    return TO_TRACE[form](lines, 4) if form in TO_TRACE else TO_RATES[form](lines, 4, None)


def _part(kind: str) -> Callable[[Path], object]:
    return lambda path: _law("autoregressive_qwen3_32b_a100", f"target.{kind}=./{path.name}")


def loaders() -> dict[str, Loader]:
    """Every kind of file that users write."""
    papers = _beginnings("scenarios/papers/*/cells.csv", 6000)
    samples = [
        (name.replace("_", "-"), text)
        for name, text in _beginnings(f"{FOLDERS['workload'][0]}/*_sample.[cj]*", 3000)
    ]
    exits = trace(
        {"format": 2, "window": 4},
        run=np.ones(8, np.uint16),
        **{"head.rank": np.zeros((2, 8), np.uint16)},
    )
    sound = (
        b"operation,part,tokens,size_bytes,flops,time_us\n"
        b"matmul,qkv,1,5e6,5e6,12\nattention,decode,4,1e6,1e6,7.5\n"
    )
    return {
        "scenario": Loader(
            lambda path: _law(f"./{path.name}"),
            _named("scenario") * 5 + _in_corpus("scenarios"),
            broken,
        ),
        "device": Loader(_part("device"), _named("device"), broken),
        "link": Loader(_part("link"), _named("link"), broken),
        "engine": Loader(_part("engine"), _named("engine"), broken),
        "model": Loader(_part("model"), _named("model"), broken),
        "config": Loader(
            read_config, [("config.json", CONFIG)] * 20 + _in_corpus("configs"), broken
        ),
        "method": Loader(
            lambda path: _law("durations_only", f"strategy=./{path.name}"), _named("method"), broken
        ),
        "workload": Loader(
            _workload,
            _named("workload"),
            broken,
        ),
        "traffic": Loader(_traffic, samples + _in_corpus("traffic"), broken),
        "sessions": Loader(_sessions, SESSIONS * 10 + _in_corpus("sessions"), broken),
        "services": Loader(_services, _of_services() + _in_corpus("services"), broken),
        "observation": Loader(read_observed, [("observed.yaml", _observation())], broken),
        "prediction": Loader(read_prediction, [("prediction.yaml", _prediction())], broken),
        "plan": Loader(
            lambda path: load_plan(f"./{path.name}"),
            _named("plan") * 6 + _in_corpus("plans"),
            broken,
        ),
        "sweep": Loader(
            lambda path: study(f"./{path.name}", Catalogue()),
            _named("sweep") * 4 + _in_corpus("sweeps"),
            broken,
        ),
        "trace": Loader(
            lambda path: statistics(read_trace(path)),
            [("own.npz", trace()), ("other.npz", exits)],
            broken_trace,
        ),
        "record": Loader(_records, RECORDS * 10 + _in_corpus("records"), broken),
        "measurements": Loader(
            lambda path: measurements.read([path]),
            [("own.csv", sound)] * 20 + _in_corpus("measurements"),
            broken,
        ),
        "store": Loader(_stored, [("own.sqlite", store())], broken_store),
        "paper": Loader(lambda path: list(rows(PublishedCell, path)), papers, broken),
    }


def _stored(path: Path) -> object:
    with reading(path) as stored:
        return table(stored).frame.to_dict()


@cache
def store() -> bytes:
    """A sweep of six points with their law."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "own.sqlite")
        given = study(
            "durations_only",
            Catalogue(),
            axes=["acceptance.rate=0.2:0.8:3", "strategy.gamma=1,4"],
            evaluate="law",
        )
        with writing(path) as made, crew(1) as hired:
            sweep(given, made, hired)
        return path.read_bytes()


# ---- breaking


def broken(content: bytes, chance: random.Random) -> bytes:
    """A few changes, mostly one, of kinds that chance picks; or other numbers alone, which are
    often taken, and so used.
    """
    if chance.random() < NUDGED:
        return _nudged(content, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        content = chance.choice(CHANGES)(content, chance)
    return content


def broken_trace(content: bytes, chance: random.Random) -> bytes:
    """A sound archive of broken arrays, so that what is broken is not lost to a checksum; now and
    then a broken archive.
    """
    if chance.random() < 0.1:
        return broken(content, chance)
    arrays = dict(np.load(io.BytesIO(content)))
    for name in chance.sample(sorted(arrays), chance.choice((1, 1, 2))):
        held = arrays.pop(name)
        if name == "header":
            arrays[name] = np.frombuffer(broken(held.tobytes(), chance), np.uint8)
        else:
            arrays[chance.choice((*[name] * 9, "run", "head.rank", "tree.run"))] = _broken_array(
                held, chance
            )
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def broken_store(content: bytes, chance: random.Random) -> bytes:
    """Pages that chance breaks, or a sound file with broken cells, so that what is broken is not
    lost to its structure.
    """
    if chance.random() < 0.3:
        return _flip(content, chance) if chance.random() < 0.7 else _cut(content, chance)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as held:
        held.deserialize(content)
        tables = [
            name for (name,) in held.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for _ in range(chance.choice((1, 1, 2))):
            name = chance.choice(tables)
            column = chance.choice([row[1] for row in held.execute(f"PRAGMA table_info({name})")])
            value = chance.choice(
                (
                    None,
                    0,
                    -1,
                    1e300,
                    float("inf"),
                    10**18,
                    "x",
                    b"\xff",
                    "NaN",
                    chance.choice(NASTY),
                    "[1]",
                )
            )
            changes: tuple[tuple[str, tuple[object, ...]], ...] = (
                (f"UPDATE OR IGNORE {name} SET {column} = ?", (value,)),
                (f"UPDATE OR IGNORE {name} SET {column} = ? WHERE random() % 3 = 0", (value,)),
                (
                    "UPDATE facts SET value = replace(value, ?, ?)",
                    (chance.choice('[{":,0w'), chance.choice(NASTY)),
                ),
                (f"ALTER TABLE {name} RENAME COLUMN {column} TO other", ()),
                (f"DELETE FROM {name} WHERE random() % 2", ()),
            )
            with suppress(sqlite3.Error):
                held.execute(*chance.choice(changes))
        return held.serialize()


def _broken_array(held: Array, chance: random.Random) -> Array:
    kind = chance.choice(("f2", "f8", "i1", "i8", "u2", "u4", "U2", "?", "c8", "S3"))
    held = np.atleast_1d(held)
    changes: list[Callable[[], Array]] = [
        lambda: held[: chance.randint(0, len(held))],
        lambda: held.astype(kind),
        lambda: np.stack([held] * chance.randint(1, 3)),
        lambda: held.ravel()[0] if held.size else held,
        lambda: np.frombuffer(_flip(held.tobytes(), chance), held.dtype).reshape(held.shape),
        lambda: np.concatenate([held, held], axis=-1),
        lambda: held[::-1],
    ]
    return np.asarray(chance.choice(changes)())


def _flip(content: bytes, chance: random.Random) -> bytes:
    held = bytearray(content)
    for _ in range(chance.randint(1, 8) if held else 0):
        held[chance.randrange(len(held))] ^= 1 << chance.randrange(8)
    return bytes(held)


def _cut(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randint(0, len(content))
    return (
        content[:begin] + content[begin + chance.randint(1, 40) :]
        if chance.random() < 0.8
        else content[:begin]
    )


def _move_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        line = (
            lines[chance.randrange(len(lines))]
            if chance.random() < 0.5
            else lines.pop(chance.randrange(len(lines)))
        )
        lines.insert(chance.randint(0, len(lines)), b" " * chance.choice((0, 0, 2, 4)) + line)
    return b"".join(lines)


def _replace_value(content: bytes, chance: random.Random) -> bytes:
    """A word or a number becomes another of the file, or one that is asking for trouble."""
    found = list(re.finditer(rb"[\w.+-]+", content))
    if not found:
        return chance.choice(NASTY).encode()
    word = chance.choice(found)
    other = chance.choice(NASTY).encode() if chance.random() < 0.7 else chance.choice(found)[0]
    return content[: word.start()] + other + content[word.end() :]


def _nudged(content: bytes, chance: random.Random) -> bytes:
    """A number or two become others of their size."""
    for _ in range(chance.choice((1, 1, 2))):
        found = list(re.finditer(rb"(?<![\w.])\d{1,12}(\.\d{1,12})?(?![\w.])", content))
        if found:
            word = chance.choice(found)
            value = float(word[0]) * chance.choice((0.5, 0.9, 1.1, 2.0)) + chance.choice((0, 0, 1))
            other = f"{value:.4g}" if b"." in word[0] else str(round(value))
            content = content[: word.start()] + other.encode() + content[word.end() :]
    return content


def _insert(content: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + chance.choice(NASTY).encode() + content[at:]


def _replace_part(content: bytes, chance: random.Random) -> bytes:
    """A part of a document, deep or shallow, becomes something whole of another kind or size."""
    try:
        document = parse(content.decode(), "").data
    except (BadInput, ValueError):
        document = None
    places = list(_places(document))
    if not places:
        return _replace_value(content, chance)
    parent, key = chance.choice(places)
    parent[key] = chance.choice(
        (*PARTS, parent[key], [parent[key]], {"name": parent[key]}, [parent[key]] * 3)
    )
    return (
        json.dumps(document)
        if content.lstrip().startswith(b"{")
        else yaml.safe_dump(document, sort_keys=False)
    ).encode()


def _places(part: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a document that holds something, as what holds it and where."""
    if isinstance(part, dict | list):
        for key, below in list(part.items() if isinstance(part, dict) else enumerate(part)):
            yield part, key
            yield from _places(below)


CHANGES = (
    _replace_part,
    _replace_part,
    _flip,
    _cut,
    _move_lines,
    _replace_value,
    _replace_value,
    _replace_value,
    _insert,
)


# ---- trying


def tried(loader: Loader, chance: random.Random, folder: Path) -> str:
    """What comes of one input that chance makes, as :func:`outcome`."""
    name, content = chance.choice(loader.sound)
    path = folder / name
    if path.is_dir():  # what a command of the soak made of a name like this
        shutil.rmtree(path)
    path.write_bytes(loader.broken(content, chance))
    try:
        return outcome(loader, path)
    finally:
        path.unlink()


def outcome(loader: Loader, path: Path) -> str:
    """What comes of a file, "read" or "refused"; anything that a loader should not raise is
    raised.
    """
    try:
        loader.use(path)
    except BadInput as error:
        assert error.faults, "refused without a word"
        assert all(len(str(fault).splitlines()) == 1 for fault in error.faults), (
            "a fault of several lines"
        )
        return "refused"
    return "read"


def chance_of(seed: int, number: int) -> random.Random:
    """What decides everything about an input."""
    return random.Random(f"{seed}:{number}")


def _late(*_: Any) -> None:
    raise TimeoutError(f"took more than {MOST_S} s")


def fuzz(
    seed: int, numbers: Iterator[int], until: float, kinds: Sequence[str] = ()
) -> tuple[Counter[tuple[str, str]], dict[str, str]]:
    """Inputs by kind and outcome; findings by where they were raised, one of each; of all
    ``kinds`` where none is named.
    """
    every, outcomes, findings = loaders(), Counter[tuple[str, str]](), dict[str, str]()
    if kinds:
        unknown = sorted({*kinds} - {*every})
        assert not unknown, f"no such files: {', '.join(unknown)}; there are {', '.join(every)}"
        every = {kind: every[kind] for kind in kinds}
    for late in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(late, _late)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        for path in (shipped() / FOLDERS["workload"][0]).glob("*.[cj]*"):
            shutil.copy(path, folder)  # where the workloads look for it
        for number in numbers:
            if time.monotonic() > until:
                break
            chance = chance_of(seed, number)
            kind = chance.choice(sorted(every))
            signal.setitimer(signal.ITIMER_PROF, MOST_S)  # of CPU: the machine may be busy
            signal.alarm(10 * MOST_S)
            try:
                found = tried(every[kind], chance, Path(folder))
            except Exception as error:
                found = "finding"
                frame = traceback.extract_tb(error.__traceback__)[-1]
                where = (
                    f"{kind}: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
                )
                if where not in findings:
                    findings[where] = (
                        f"--seed {seed} --only "
                        f"{number}\n{''.join(traceback.format_exception(error)[-6:])}"
                    )
                    print(f"{where}: {error}"[:300], f"--only {number}", flush=True)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
            outcomes[kind, found] += 1
    return outcomes, findings


def main() -> int:
    """The command line; 1 where anything was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", default=[], help="only these files")
    parser.add_argument("--only", type=int, help="one input, with its whole traceback")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # arithmetic on absurd but allowed numbers
    numbers = count() if options.only is None else iter([options.only])
    outcomes, findings = fuzz(
        options.seed, numbers, time.monotonic() + 60 * options.minutes, options.kind
    )
    for kind in sorted({kind for kind, _ in outcomes}):
        held = {outcome: outcomes[kind, outcome] for outcome in ("refused", "read", "finding")}
        print(
            f"{kind:<13}" + "".join(f"{number:>9,} {outcome}" for outcome, number in held.items())
        )
    print(
        f"{outcomes.total():,} inputs, {len(findings)} findings",
        *(findings.values() if options.only is not None else ()),
        sep="\n",
    )
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
