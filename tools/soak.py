#!/usr/bin/env python3
"""Commands as nobody means to type them, in places where nobody works: whatever comes, they answer
in words.

    python3 dev.py soak [--minutes N] [--seed N] [--family NAME]

Seven families of attempts, each with what has to hold:

* ``files``: shipped files broken by chance, through their loaders (``fuzz.py``).
* ``settings``: any field of a scenario or a plan set to anything; law and run answer, or refuse in
  a line for each fault.
* ``words``: any command with any words behind it; exit code 0, 2 or 3, and no half of an answer.
* ``books``: sound scenarios with other numbers; law, replay and simulation agree as claimed, books
  close, nothing is lost, and lazy batches leave what steps one by one leave.
* ``services``: any strategy, policy, load, memory, costs and acceptance together; whatever a run
  counts, times and keeps is the same with lazy batches and step by step, to the last bit.
* ``places``: the same command twice, in other folders, languages, orders of hashing, without a home
  or a terminal; same bytes.
* ``kills``: a command that writes, ended at any moment by any signal; old files or new ones, a
  sweep that goes on, and no process that outlives it.

Every attempt has a number, by which ``--only NUMBER`` makes it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fuzz
import yaml

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # how services are compared

import both_ways
from click.testing import CliRunner

from simulator.cli.main import main as specsim
from simulator.core.serving.lazy import passed
from simulator.inputs.catalogue import FOLDERS, Catalogue, shipped
from simulator.scenario import load, resolved

ROOT = Path(__file__).parent.parent
MOST_S = 60
"""CPU seconds of one attempt, and ten times as many by the clock: the machine may be busy."""
MOST_BYTES = 8 * 10**9
"""Of address space."""
SMALL = ("requests.count=4", "requests.concurrency=2", "requests.output_tokens=12")
SEVERAL = ("compare", "capacity", "load", "batches", "budget", "trees", "network")
COMMAND = "from simulator.cli.main import main; main()"
VALUES = (
    *fuzz.PARTS,
    *(
        "0.1",
        "../x",
        "./x.yaml",
        "a100_80g_sxm",
        "six_flavours_greedy",
        "x" * 300,
        "é",
        "[",
        "{a: b",
        "*x",
    ),
)
LINES = (
    *fuzz.NASTY,
    "",
    ".",
    "/",
    "//",
    "-",
    "--",
    "-1",
    "/dev/null",
    "/dev/full",
    "/proc/self/mem",
    "x" * 5000,
    "~",
    "a b",
    "%s",
)

TYPED = list[str]()
"""The words of the last command in this process, for what is said of a finding."""


class BrokenPromiseError(AssertionError):
    """Raised where an answer is none of those that a command may give."""


def promise(kept: bool, what: str) -> None:
    """Raise :class:`BrokenPromiseError` unless it is kept."""
    if not kept:
        raise BrokenPromiseError(what)


# ---- answers


def asked(words: list[str]) -> tuple[int, str]:
    """Exit code and stdout of a command in this process; raises what it raises, and where it
    answers as it may not.
    """
    TYPED[:] = words
    done = CliRunner().invoke(specsim, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    judge(done.exit_code, done.stdout, done.stderr, "--json" in words)
    return done.exit_code, done.stdout


def judge(code: int, out: str, errors: str, as_json: bool = False) -> None:
    """Hold an answer to what every command promises."""
    promise(code in (0, 2, 3), f"exit code {code}: {errors[-300:]}")
    promise("Traceback" not in errors, errors[-300:])
    if code == 0:
        promise(bool(out), "says nothing")
        if as_json:
            json.loads(out, parse_constant=_no_number)
        return
    promise(not out, f"exit code {code} behind an answer of {len(out)} characters")
    lines = errors.splitlines()
    told = all(line.startswith("error: ") for line in lines) or errors.startswith("Usage: ")
    promise(bool(lines) and told, f"exit code {code} without a line of its own: {errors[:300]!r}")


def _no_number(text: str) -> float:
    raise BrokenPromiseError(f"{text} in JSON")


# ---- what is changed


@cache
def fields(scenario: str) -> tuple[tuple[str, Any], ...]:
    """Every dotted field of a scenario with its value, everything looked up and every default in
    place.
    """
    return tuple(_leaves(resolved(load(scenario).scenario)))


def _leaves(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if path and not any(letter in path[-1] for letter in ".="):
        yield ".".join(path), part
    for key, below in part.items() if isinstance(part, dict) else ():
        yield from _leaves(below, (*path, str(key)))


@cache
def names(kind: str) -> tuple[str, ...]:
    """Shipped names, those of scenarios without the few that take long to read."""
    return tuple(Catalogue().names(kind))


def other_value(value: Any, chance: random.Random) -> Any:
    """A value near the one that is there, or anything at all."""
    if isinstance(value, bool) or not isinstance(value, int | float) or chance.random() < 0.15:
        return chance.choice(VALUES)
    factor = chance.choice((0, -1, 0.5, 2, 1e-3, 1e3, 1e9, 1e-12))
    return type(value)(value * factor) if abs(value * factor) < 1e300 else value


WHOLE = (
    *("serving.memory.kv_tokens=1", "serving.memory.kv_tokens=40", "serving.memory.kv_tokens=700"),
    *(
        "serving.memory.block_tokens=1",
        "serving.memory.block_tokens=999",
        "serving.replicas=3",
        "serving.replicas=17",
    ),
    *(
        "slo={ttft_ms: {p50: 1e-6}}",
        "slo={tpot_ms: {p99: 50}, e2e_ms: {p90: 1e9}}",
        "slo={tbt_ms: {p99: 50}}",
    ),
    "requests.output_tokens={name: uniform, least_tokens: 2, most_tokens: 50}",
    "requests.prompt_tokens={name: lognormal, mean_tokens: 50, spread: 1000, most_tokens: 500}",
    *(
        "requests.warm_up=1",
        "requests.warm_up=3",
        "target.tensor_parallel=3",
        "target.tensor_parallel=64",
    ),
    *(
        "acceptance={rate: 0.7}",
        "acceptance={rate: 0}",
        "acceptance={rate: 1}",
        "acceptance={always: 2}",
    ),
    "acceptance={trace: six_flavours_greedy, stand_in: true}",
    *(
        f"strategy={name}"
        for name in ("autoregressive", "pipeline", "pipeline_tree", "specpipe_tandem", "tree_sd")
    ),
    *(f"target.weights={form}" for form in ("fp8", "int4", "bf16", "nvfp4", "int8_wo")),
)
"""Parts of a scenario that others leave at their defaults, each sound in itself."""


def whole_part(chance: random.Random) -> list[str]:
    """One of them, another file of the catalogue, a policy, or arrivals and a policy."""
    kind = chance.choice(("part", "part", "name", "policy", "arrivals"))
    if kind == "part":
        return [chance.choice(WHOLE)]
    if kind == "name":
        field = chance.choice(("strategy", "target.device", "target.engine", "target.model"))
        kind = "method" if field == "strategy" else field.partition(".")[2]
        return [f"{field}={chance.choice(names(kind))}"]
    policy = chance.choice(("prefill_first", "chunked_prefill", "unified_budget", "fixed_batch"))
    size = {
        "prefill_first": "batch_tokens",
        "chunked_prefill": "chunk_tokens",
        "unified_budget": "budget_tokens",
    }.get(policy)
    budget = f", {size}: {chance.choice((1, 16, 512, 10**6))}" if size else ""
    served = f"serving.policy={{name: {policy}, max_requests: {chance.choice((1, 2, 64))}{budget}}}"
    if kind == "policy":
        return [served]
    process = chance.choice(("poisson", "deterministic", "gamma"))
    burst = f", burstiness: {chance.choice((1e-9, 0.5, 4, 1e9))}" if process == "gamma" else ""
    rate = f"rate_per_s: {chance.choice((1e-6, 0.1, 5, 1e6))}{burst}"
    return [f"requests={{arrivals: {{name: {process}, {rate}}}, count: 12}}", served]


def assignment(scenario: str, chance: random.Random) -> str:
    """A field set to another value, as ``--set`` takes it; numbers are likelier than words about
    them.
    """
    numbers = [(name, value) for name, value in fields(scenario) if type(value) in (int, float)]
    own = [
        entry
        for entry in numbers
        if not entry[0].startswith(("target.device", "target.engine", "draft"))
    ]
    field, value = chance.choice(chance.choice((own or numbers, numbers, fields(scenario))))
    text = (
        chance.choice(LINES)
        if chance.random() < 0.1
        else yaml.safe_dump(other_value(value, chance), default_flow_style=True)
    )
    return f"{field}={text.removesuffix('...' + chr(10)).strip()}"


# ---- families


def files(chance: random.Random, folder: Path) -> str:
    """Break a file, as ``fuzz.py`` does."""
    every = _loaders()
    return fuzz.tried(every[chance.choice(sorted(every))], chance, folder)


@cache
def _loaders() -> dict[str, fuzz.Loader]:
    return fuzz.loaders()


def settings(chance: random.Random, folder: Path) -> str:
    """Set a few fields, and ask for the law, a run, a sentence or a study of a small workload; some
    write their pages.
    """
    scenario = chance.choice(names("scenario"))
    words = [
        chance.choice(
            ("law", "law", "run", "run", "explain", *SEVERAL, "crossovers", "methods", "streams")
        ),
        scenario,
    ]
    changes = list[str]()
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        changes += whole_part(chance) if chance.random() < 0.5 else [assignment(scenario, chance)]
    if words[0] not in ("law", "explain"):
        open_loop = any(
            name.startswith("requests.arrivals") for name, _ in fields(scenario)
        ) or "arrivals" in str(changes)
        changes += SMALL[:1] if open_loop else SMALL
        words += {"batches": ["--sizes", "1-4", "--simulate", "2"], "load": ["--sizes", "1,3"]}.get(
            words[0], []
        )
        words += {"compare": [scenario], "methods": ["--only", chance.choice(names("method"))]}.get(
            words[0], []
        )
        if words[0] == "capacity" and not open_loop:
            words += ["--traffic", f"csv:{_traffic(chance, folder)}"]
        words += ["--workers", "1", "--search", "20"] if words[0] == "capacity" else []
    pages = {"law": ["--out", str(folder / "law.html")], "run": ["--out", str(folder / "rep")]}
    answer = pages[words[0]] if words[0] in pages and chance.random() < 0.15 else ["--json"]
    code, _ = asked([*words, *answer, *(word for change in changes for word in ("--set", change))])
    return "refused" if code else "answered"


def _traffic(chance: random.Random, folder: Path) -> str:
    """A small file of requests, sound but for what chance does to it."""
    rows = [
        f"{chance.choice((0, at, at * 1e3, 1.7e9 + at))!r},"
        f"{chance.choice((1, 7, 900))},{chance.choice((1, 2, 60))}"
        for at in range(3)
    ]
    path = folder / f"traffic{chance.choice(('', ' of mine', 'é'))}.csv"
    path.write_text(
        "\n".join(["arrival_s,prompt_tokens,output_tokens", *rows[: chance.randint(0, 3)], ""]),
        "utf-8",
    )
    return path.name


def words(chance: random.Random, folder: Path) -> str:
    """Type a command with words that belong to it, and some that belong nowhere."""
    command, typed = specsim, []
    while hasattr(command, "list_commands"):
        context = command.make_context("specsim", [], resilient_parsing=True)
        typed.append(
            chance.choice(
                [
                    name
                    for name in command.list_commands(context)
                    if name not in ("measure", "record")
                ]
            )
        )
        command = command.get_command(context, typed[-1])
    for parameter in command.params:
        wanted = parameter.required or chance.random() < (
            0.15 if parameter.param_type_name == "option" else 0.7
        )
        for _ in range(
            chance.choice((1, 1, 2)) if wanted and parameter.name not in ("minutes",) else 0
        ):
            typed += (
                [chance.choice(parameter.opts)] if parameter.param_type_name == "option" else []
            )
            typed += (
                [] if getattr(parameter, "is_flag", False) else [_word(parameter, chance, folder)]
            )
    for _ in range(chance.choice((0, 0, 1))):
        typed.insert(chance.randint(1, len(typed)), chance.choice(LINES))
    typed = [word.replace("\0", "") for word in typed]  # which no command line can carry
    if typed[0] in (
        "plan",
        "sweep",
        "validate",
        "methods",
        "capacity",
        "batches",
        "load",
    ) and chance.random() < (0.9 if typed[0] != "validate" else 1):
        typed = [*typed, "--workers", "none"]  # its words are read, and its work is for others
    typed += ["--set", "seed=none"] if "--replications" in typed else []
    code, _ = asked(typed)
    promise(Path(os.devnull).is_char_device(), f"{os.devnull} is a device no more")
    return "refused" if code else "answered"


def _word(parameter: Any, chance: random.Random, folder: Path) -> str:
    kind = next(
        (kind for kind in FOLDERS if kind in (parameter.name or "").rstrip("s")),
        chance.choice(list(FOLDERS)),
    )
    known = list(getattr(parameter.type, "choices", ())) or names(kind)
    other = (str(chance.choice((0, 1, 7, 10**9, -1))), chance.choice(LINES), folder.name, "own.csv")
    return chance.choice(chance.choice((known, other)))


def books(chance: random.Random, folder: Path) -> str:
    """Run a sound scenario with other numbers, and add up what it says."""
    scenario = chance.choice(names("scenario"))
    numbers = [
        (name, value)
        for name, value in fields(scenario)
        if type(value) in (int, float) and value > 0
    ]
    numbers = [
        (name, value)
        for name, value in numbers
        if not name.startswith(("requests.", "strategy.", "acceptance."))
    ]
    changes = []
    for name, value in chance.sample(numbers, min(3, len(numbers))):
        changes.append(
            f"{name}={type(value)(value * chance.choice((0.5, 0.9, 1.5, 2))) or value!r}"
        )
    prompt, output, places = (
        chance.choice((1, 60, 700)),
        chance.choice((2, 9, 40)),
        chance.choice((1, 1, 2)),
    )
    changes += [
        f"requests.{name}"
        for name in (f"prompt_tokens={prompt}", f"output_tokens={output}", f"concurrency={places}")
    ]
    if any(name.startswith("requests.arrivals") for name, _ in fields(scenario)):
        changes = [
            (
                f"requests={{arrivals: {{name: poisson, rate_per_s: {chance.choice((0.1, 3))}}}, "
                f"count: 12}}"
            )
        ]
    changes += [f"requests.count={chance.choice((4, 9))}", f"seed={chance.randint(0, 99)}"]
    for _ in range(chance.choice((0, 1, 1, 2))):
        changes += whole_part(chance)
    typed = ["run", scenario, "--json", *(word for change in changes for word in ("--set", change))]
    most = chance.choice((7, 7, passed.MOST))
    with both_ways.eager(most):
        code, out = asked(typed)
    if code:
        return "refused"
    _add_up(json.loads(out))
    with both_ways.step_by_step():
        promise(
            asked(typed) == (code, out),
            f"lazy batches written {most} iterations at a time change the answer",
        )
    return "answered"


def _add_up(told: dict[str, Any]) -> None:
    """Hold a run to its claim, Little's law and the conservation of rows, blocks and time."""
    simulated, replay = told["simulated"], told["replay"]
    serving = simulated["serving"]
    promise(not told["agreement"]["disagreement"], told["agreement"]["shown"])
    promise(
        abs(serving["littles_law"]["gap"]) < 1e-9,
        f"Little's law is off by {serving['littles_law']['gap']}",
    )
    for name in ("steps", "tokens") if told["agreement"]["gap"] is not None else ():
        promise(
            simulated[name] == replay[name] or told["scenario"]["serving"].get("replicas", 1) > 1,
            f"{name} differ",
        )
    promise(0 <= serving["wasted_drafts"] <= serving["drafted"], "more drafts wasted than made")
    promise(
        serving["recomputed_rows"] <= serving["prompt_rows"], "more rows recomputed than computed"
    )
    promise(
        serving["kv_tokens"] is None or serving["most_kv_tokens"] <= serving["kv_tokens"],
        "more cache used than there is",
    )
    promise(
        all(0 <= lane["busy_fraction"] <= 1 + 1e-9 for lane in told["lanes"].values()),
        "a lane busy for more than its time",
    )
    promise(
        serving["ttft_ms"]["mean"] <= serving["e2e_ms"]["mean"] * (1 + 1e-9),
        "ends before its first token",
    )


def services(chance: random.Random, folder: Path) -> str:
    """Serve the same requests with lazy batches and step by step."""
    service = both_ways.service(chance.choice)
    spans = chance.choice((0, 5, 100_000))
    TYPED[:] = [f"{name}={value!r}"[:120] for name, value in vars(service).items()]
    with both_ways.eager():
        differing = both_ways.differences(service, spans)
    promise(not differing, f"lazy batches change {', '.join(differing)}")
    return "answered"


PLACES = (
    {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC", "COLUMNS": "80"},
    {
        "PYTHONHASHSEED": "2",
        "LC_ALL": "C.UTF-8",
        "TZ": "Pacific/Kiritimati",
        "COLUMNS": "80",
        "TERM": "dumb",
        "HOME": "/nowhere",
    },
)


def places(chance: random.Random, folder: Path) -> str:
    """Run the same words in two places: folders with blanks and letters of other scripts,
    languages, orders of hashing.
    """
    scenario = chance.choice(names("scenario"))
    typed = [chance.choice(("run", "law", "explain", "show")), scenario]
    typed += ["--json"] if chance.random() < 0.5 or typed[0] == "run" else []
    if typed[0] != "show":
        few = max(16, load(scenario).scenario.requests.concurrency)
        changes = [f"requests.count={few}", f"seed={chance.randint(0, 9)}"]
        typed += [word for change in changes for word in ("--set", change)]
    told = []
    for number, place in enumerate(PLACES):
        here = folder / ("here", "über dort")[number]
        here.mkdir(exist_ok=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("HOME", "LANG", "TERM", "PYTHONHASHSEED")
        }
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                COMMAND,
                *typed,
                *(["--out", "rep"] if typed[0] == "run" else []),
            ],
            cwd=here,
            env={**kept, "PYTHONPATH": str(ROOT), **place},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        judge(
            done.returncode,
            done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace"),
        )
        promise(done.returncode == 0, done.stderr[-300:].decode("utf-8", "replace"))
        told.append(
            {"": done.stdout} | {path.name: path.read_bytes() for path in here.rglob("*.*")}
        )
        shutil.rmtree(here)
    differ = sorted(
        name for name in told[0].keys() | told[1] if told[0].get(name) != told[1].get(name)
    )
    promise(not differ, f"other bytes in another place: {differ} of {shlex.join(typed)}")
    return "answered"


SWEPT = (
    "sweep durations_only --evaluate law --axis acceptance.rate=0.1:0.9:9 --axis "
    "strategy.gamma=1:12:12 --workers 2"
)
MARK = "SPECSIM_SOAK"
"""Variable by which processes are known, however deep below a command they are."""
PATIENCE_S = 2.0
"""How long a process may outlive the command that began it and was killed."""
WRITTEN = {
    "rep": "run durations_only --set requests.count=20 --out rep",
    "page.html": "batches durations_only --sizes 1-4 --simulate 1 --out page.html",
    "page.md": "load durations_only --sizes 1,2 --set requests.count=8 --out page.md",
    "made.yaml": "trace convert 2.5 --from mean_length --window 4 --out made.yaml",
    "log.csv": "run durations_only --set requests.count=20 --json --request-log log.csv",
    "card.yaml": "calibrate device .times.csv --like rtx_3090 --quick --out card.yaml",
    "fleet": "plan ./.fleet.yaml --draws 2 --out fleet",
    "own.npz": "trace record --target .target --draft .draft --prompts .prompts.jsonl --device "
    "cpu --batch 2 --output-tokens 16 --out own.npz",
}
"""Commands by what they write; what they read stands in hidden files."""
SAME = ("made.yaml", "card.yaml", "own.npz")
"""Those of which there is one answer alone."""
TIMES = "operation,part,tokens,size_bytes,flops,time_us\n" + "".join(
    f"matmul,qkv,{tokens},{5e6 + 4e3 * tokens},{5e6 * tokens},{12 + tokens / 90}\n"
    for tokens in (1, 2, 4, 8, 64, 512)
)
FLEET = """about: Which way of answering is cheapest?
scenario:
  like: vanilla_qwen3_32b_a100
  requests: {arrivals: {name: poisson, rate_per_s: 1}, count: 30, prompt_tokens: 100, \
output_tokens: 20}
  serving: {policy: {name: prefill_first, max_requests: 8}}
slo: {ttft_ms: {p90: 5000}}
devices: {a100_80g_sxm: {price_usd_per_hour: 2, count: 8}}
hardware: {a100: {target: {tensor_parallel: 1}}}
strategies:
  autoregressive: {strategy: autoregressive, draft: null}
replicas: 2
"""


@cache
def _read() -> dict[str, bytes]:
    """Files that the commands of :data:`WRITTEN` read, by name."""
    files = {".times.csv": TIMES.encode(), ".fleet.yaml": FLEET.encode()}
    if find_spec("torch"):
        from tiny_pair import make_pair

        with TemporaryDirectory() as folder:
            made = make_pair(Path(folder))
            below = [path.relative_to(made) for path in made.rglob("*") if path.is_file()]
            files |= {f".{path}": (made / path).read_bytes() for path in below}
    return files


def _written() -> list[str]:
    """What can be written here: recording needs torch."""
    return [name for name in sorted(WRITTEN) if name != "own.npz" or find_spec("torch")]


def kills(chance: random.Random, folder: Path) -> str:
    """End a command that writes; what was there is there whole, or what was to come."""
    if chance.random() < 0.3:
        return _killed_sweep(chance, folder)
    name = chance.choice(_written())
    old, new = _whole(name, False), _whole(name, True)
    here = folder / "work"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    _put(here, old["files"] | _read())
    _killed(_typed(name, True), here, chance, new["seconds"])
    left = _held(here)
    promise(left in (old["files"], new["files"]), f"half of {name}: {sorted(left)}")
    shutil.rmtree(here)
    return "answered"


def _typed(name: str, new: bool) -> list[str]:
    seed = "scenario.seed=7" if name == "fleet" else "seed=7"
    return [*shlex.split(WRITTEN[name]), *(["--set", seed] if new and name not in SAME else [])]


@cache
def _whole(name: str, new: bool) -> dict[str, Any]:
    """What a command writes when nobody ends it, and the seconds that it takes."""
    with TemporaryDirectory() as folder:
        before = time.monotonic()
        _put(Path(folder), _read())
        errors = _begun(_typed(name, new), Path(folder)).communicate()[1]
        promise(bool(_held(Path(folder))), f"writes nothing: {errors[-300:]}")
        return {"seconds": time.monotonic() - before, "files": _held(Path(folder))}


def _killed_sweep(chance: random.Random, folder: Path) -> str:
    """A sweep that is ended and goes on writes the table of one that was left alone."""
    here = folder / "work"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    words = [*shlex.split(SWEPT), "--store", "s.sqlite", "--export", "table.csv"]
    table = _swept()
    _killed(words, here, chance, table["seconds"])
    resume = (
        ["--resume"] if (here / "s.sqlite").exists() and not (here / "table.csv").exists() else []
    )
    if resume:
        _, errors = _begun([*words, *resume], here).communicate()
        promise((here / "table.csv").exists(), f"does not go on: {errors[-300:]}")
    if (here / "table.csv").exists():
        promise((here / "table.csv").read_bytes() == table["table"], "another table behind a kill")
    shutil.rmtree(here)
    return "answered"


@cache
def _swept() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        before = time.monotonic()
        _begun(
            [*shlex.split(SWEPT), "--store", "s.sqlite", "--export", "table.csv"], Path(folder)
        ).communicate()
        return {
            "seconds": time.monotonic() - before,
            "table": Path(folder, "table.csv").read_bytes(),
        }


def _begun(typed: list[str], here: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *typed],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def _killed(typed: list[str], here: Path, chance: random.Random, seconds: float) -> None:
    """Begin a command and end it at a moment that chance picks; late ones are likelier, as that is
    when it writes.
    """
    process = _begun(typed, here)
    time.sleep(seconds * chance.choice((chance.uniform(0.1, 1.1), chance.uniform(0.8, 1.05))))
    process.send_signal(chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)))
    process.wait(timeout=MOST_S)
    until = time.monotonic() + PATIENCE_S
    while (left := _helpers(here)) and time.monotonic() < until:
        time.sleep(0.05)
    process.communicate(timeout=MOST_S)
    promise(
        not left,
        f"{len(left)} processes live {PATIENCE_S:g} s after the command that began them: "
        f"{left[0] if left else ''}",
    )


def _helpers(here: Path) -> list[str]:
    """Processes that a command begun here has left, as they were called."""
    found, mark = [], f"{MARK}={here}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (place / "environ").read_bytes().split(b"\0"):
                found.append(
                    (place / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")[:200]
                )
    return found


def _held(here: Path) -> dict[str, bytes]:
    """Every file below a folder but those in hidden folders, which a kill may leave, and batches to
    go on from.
    """
    paths = [path.relative_to(here) for path in sorted(here.rglob("*")) if path.is_file()]
    kept = [
        path
        for path in paths
        if not any(part.startswith(".") or part.endswith(".part") for part in path.parts)
    ]
    return {str(path): (here / path).read_bytes() for path in kept}


def _put(here: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)


FAMILIES: dict[str, tuple[Callable[[random.Random, Path], str], float]] = {
    "files": (files, 0.15),
    "settings": (settings, 0.25),
    "words": (words, 0.1),
    "books": (books, 0.2),
    "services": (services, 0.15),
    "places": (places, 0.05),
    "kills": (kills, 0.1),
}
"""Families, each with its share of the time."""


# ---- going on


class Soak:
    """Attempts by family and outcome, the seconds that they took, and findings by where they were
    raised, one of each.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.outcomes = Counter[tuple[str, str]]()
        self.seconds = Counter[str]()
        self.findings: dict[str, str] = {}

    def attempt(self, family: str, number: int, folder: Path) -> None:
        """Make one attempt and note what comes of it."""
        signal.setitimer(signal.ITIMER_PROF, MOST_S)
        signal.alarm(10 * MOST_S)
        # nothing secret
        before = time.monotonic()
        chance = random.Random(f"{self.seed}:{family}:{number}")
        try:
            outcome = FAMILIES[family][0](chance, folder)
        except Exception as error:
            outcome = "finding"
            self._note(family, number, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        self.seconds[family] += time.monotonic() - before
        self.outcomes[family, outcome] += 1

    def _note(self, family: str, number: int, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = (
            str(error)[:40]
            if isinstance(error, BrokenPromiseError)
            else f"{Path(frame.filename).name}:{frame.lineno}"
        )
        where = f"{family}: {type(error).__name__} at {what}"
        if where not in self.findings:
            told = "".join(traceback.format_exception(error)[-8:])
            self.findings[where] = (
                f"--seed {self.seed} --family {family} --only {number}\n{shlex.join(TYPED)}\n{told}"
            )
            line = f"{where}: {error}"[:300].replace("\n", " ")
            print(line, f"--family {family} --only {number}: {shlex.join(TYPED)[:600]}", flush=True)

    def next_family(self, among: list[str]) -> str:
        """The family that has had the least of its share of the time."""
        return min(among, key=lambda family: self.seconds[family] / FAMILIES[family][1])

    def print(self) -> None:
        """Attempts, rates and outcomes of every family, and the number of findings."""
        for family in FAMILIES:
            counts = {
                outcome: self.outcomes[one, outcome]
                for one, outcome in sorted(self.outcomes)
                if one == family
            }
            if counts:
                rate = 60 * sum(counts.values()) / max(self.seconds[family], 1e-9)
                told = "".join(f"{number:>9,} {outcome}" for outcome, number in counts.items())
                print(f"{family:<9}{rate:>8,.0f} a minute{told}")
        print(f"{self.outcomes.total():,} attempts, {len(self.findings)} findings")


def soak(
    seed: int, numbers: Iterator[int], until: float, among: list[str], first: bool = False
) -> Soak:
    """Attempts in a folder of their own until the time is up, or the ``first`` finding is made."""
    state = Soak(seed)
    for late in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(late, _late)
    with TemporaryDirectory(prefix="specsim soak ") as name:
        folder, before = Path(name).resolve(), Path.cwd()
        os.chdir(folder)
        for path in (shipped() / FOLDERS["workload"][0]).glob("*.[cj]*"):
            shutil.copy(path, folder)  # where the workloads look for it
        try:
            for number in numbers:
                if time.monotonic() > until or (first and state.findings):
                    break
                state.attempt(state.next_family(among), number, folder)
        finally:
            os.chdir(before)
    return state


def _late(*_: Any) -> None:
    raise TimeoutError(f"took more than {MOST_S} s")


def main() -> int:
    """The command line; 1 where anything was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--family", choices=FAMILIES, action="append", help="one family, repeatable"
    )
    parser.add_argument(
        "--only", type=int, help="one attempt of one family, with its whole traceback"
    )
    parser.add_argument("--first", action="store_true", help="end with the first finding")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # arithmetic on absurd but allowed numbers
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    numbers = count() if options.only is None else iter([options.only])
    state = soak(
        options.seed,
        numbers,
        time.monotonic() + 60 * options.minutes,
        options.family or list(FAMILIES),
        options.first,
    )
    state.print()
    if options.only is not None:
        print(*state.findings.values(), sep="\n")
    return bool(state.findings)


if __name__ == "__main__":
    sys.exit(main())
