"""How quick simulations are beside an earlier commit of this project, turn by turn.

    python benchmarks/bench_against.py [--tree PATH] [--only NAME ...] [--pairs N] [--million]

``PATH`` is a checkout of the earlier commit; without one, ``BEFORE`` is checked out by Git for as
long as this takes. Every turn of either side is a process of its own that finds the code of its
tree first; the sides take turns in pairs, after one of each that is not counted, and the median
counts, of pairs also the median of the ratios. Times are CPU seconds: of ``simulate`` alone in
*simulations* (``one_run.py``), of all that a process and its children do in *commands*.

*Simulations* serve 1,000 requests of 512 prompt and 128 output tokens which come at random, some
twenty at a time under ``unified_budget``; MTP on Qwen3.5-27B has the 16 clients of its scenario. A
goal holds for cold prices, as a user has them: the first simulation in its process. *Growth* is
told of this tree: a decode iteration of many and of one request, the difference of two output
lengths, so that what it takes to begin and end cancels out; and what a request takes to begin and
end, fitted by least squares over loads of several batches and lengths beside what an iteration
takes, and what each of its requests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from bench_cli import PEAK, started
from figures import Figure, at_least, at_most, show
from scipy.optimize import nnls

TITLE = "Beside an earlier commit"
ROOT = Path(__file__).resolve().parent.parent
BEFORE = "97aa638"
"""The commit that goals are set against."""
PAIRS = 7
WARM = 2
"""Simulations in a process behind the first."""
Values = Mapping[str, float]
"""What one turn measured, by name."""


class Row(NamedTuple):
    """A value of a turn: what it is, how it is told, and its goals."""

    what: str
    scale: float = 1.0
    """What it is multiplied by before it is told."""
    form: str = "{:.3f}"
    most: float | None = None
    """What it should be at most, as it is told."""
    times: float | None = None
    """How many times as quick as ``BEFORE`` it should be at least."""
    later: float | None = None
    """The same beside any other commit."""
    compared: bool = True
    """Whether the earlier commit is told beside it."""


class Part(NamedTuple):
    """What is measured in one turn, and the rows that tell of it."""

    measure: Callable[[Path], Values]
    rows: Mapping[str, Row]


# ---- simulations


def run(tree: Path, cases: list[tuple[str, list[str], int]]) -> list[dict[str, Any]]:
    """Simulate scenarios by the code of a tree, in a process of its own."""
    command = [
        sys.executable,
        str(Path(__file__).with_name("one_run.py")),
        json.dumps(cases, allow_nan=False),
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def cold_and_warm(scenario: str, changes: Sequence[str], tree: Path) -> Values:
    """CPU seconds of a scenario, by the first simulation of a process and by the next ones."""
    (found,) = run(tree, [(scenario, list(changes), 1 + WARM)])
    cold, *warm = found["seconds"]
    return {"cold": cold, "warm": median(warm), "told": _digest(found["told"])}


def simulation(
    scenario: str, *changes: str, times: float | None = None, later: float | None = None
) -> Part:
    """A scenario, cold and warm."""
    rows = {
        "cold": Row("CPU s, prices cold", times=times, later=later),
        "warm": Row("CPU s, prices warm"),
    }
    return Part(partial(cold_and_warm, scenario, changes), rows)


def _digest(told: object) -> float:
    """A number that stands for what was simulated, to the digits that powers and sums in another
    order leave alone.
    """
    return float(crc32(json.dumps(_rounded(told), allow_nan=False).encode()))


def _rounded(told: object) -> object:
    """What was told, with numbers of twelve digits."""
    if isinstance(told, list):
        return [_rounded(entry) for entry in told]
    return f"{told:.12g}" if isinstance(told, float) else told


def poisson(per_s: float, count: int = 1_000, output_tokens: int = 128) -> str:
    """Requests that come at random."""
    return (
        f"requests={{arrivals: {{name: poisson, rate_per_s: {per_s:g}}}, count: {count}, "
        f"prompt_tokens: 512, output_tokens: {output_tokens}}}"
    )


UNIFIED = "serving.policy={name: unified_budget}"
DURATIONS = "durations={target_ms: 20.0, draft_step_ms: 1.0, prefill_ms: 20.0}"
BY_LOAD = (
    "durations={target_ms: {base_ms: 12.0, row_ms: 0.05, cached_token_ms: 0.0004}, prefill_ms: 20}"
)
RATE = "acceptance={rate: 0.8}"
STATED = ("durations_only", RATE, UNIFIED)
SERIAL = "strategy={name: vanilla_sd, gamma: 3}"
HEAD = (
    "strategy={name: vanilla_sd, gamma: 3, "
    "drafter: {name: head, head: {layers: 1, squares: 4, vocabulary: 32000}}}"
)
A100 = ("traffic_vanilla_llama_3_1_8b_4xa100", "serving.replicas=1", UNIFIED)
MTP = "mtp_qwen3_5_27b_h100"
SIMULATIONS = {
    "stated_plain": simulation(
        *STATED, DURATIONS, "strategy=autoregressive", poisson(7.5), times=6
    ),
    "stated_plain_by_load": simulation(
        *STATED, BY_LOAD, "strategy=autoregressive", poisson(7.5), times=6
    ),
    "stated_sd": simulation(*STATED, DURATIONS, SERIAL, poisson(19), times=4),
    "stated_eagle3": simulation(*STATED, DURATIONS, HEAD, poisson(19), times=4),
    "stated_mtp": simulation(*STATED, DURATIONS, "strategy=mtp_3", poisson(19), times=4),
    "a100_plain": simulation(
        "traffic_autoregressive_llama_3_1_8b_4xa100", *A100[1:], poisson(9), times=5
    ),
    "a100_sd": simulation(*A100, SERIAL, poisson(11), times=5),
    "a100_eagle3": simulation(*A100, "draft=null", HEAD, poisson(15), times=6),
    "a100_eagle3_vllm": simulation(
        *A100,
        "draft=null",
        "strategy=vllm_eagle_3",
        "acceptance={per_position: [0.75, 0.7, 0.65]}",
        poisson(14),
        times=6,
    ),
    "h100_mtp": simulation(MTP, UNIFIED, "requests.count=256", times=20, later=3),
    "h100_mtp_prefill_first": simulation(
        MTP, "serving.policy={name: prefill_first}", "requests.count=256"
    ),
    "h100_mtp_as_shipped": simulation(MTP),
}

# ---- commands


def command(*words: str, most_s: float | None = None, most_mb: float | None = None) -> Part:
    """``specsim`` with these words, its start included."""

    def measure(tree: Path) -> Values:
        with TemporaryDirectory() as folder:
            here = [word.format(folder=folder) for word in words]
            seconds, mb = started(*here, tree=tree)
        return {"cpu_s": seconds, "mb": mb}

    rows = {
        "cpu_s": Row("CPU s", form="{:.2f}", most=most_s),
        "mb": Row("MB at most", form="{:.0f}", most=most_mb),
    }
    return Part(measure, rows)


def assigned(*changes: str) -> list[str]:
    """The words that set these changes; braces are kept from ``str.format``."""
    doubled = [change.replace("{", "{{").replace("}", "}}") for change in changes]
    return [word for change in doubled for word in ("--set", change)]


CALL = f"""
import simulator
simulator.run("durations_only", {{"strategy.gamma": 5, "requests.count": 20}})
{PEAK}
"""
PLAN = (
    *("plan", "--model", "Qwen/Qwen3-8B", "--device", "h100_sxm", "--requests", "20"),
    *("--traffic", "scenarios/workloads/azure_sample.csv", "--draws", "3"),
    *("--ttft-p95", "1s", "--tpot-p95", "20ms"),
)
"""The line of the README."""
SWEPT = (
    "sweep",
    "vanilla_qwen3_32b_a100",
    *assigned("requests.count=1", "requests.concurrency=1", "requests.output_tokens=1001"),
    *("--axis", "strategy.gamma=3,4,5,6", "--evaluate", "simulation", "--workers", "1"),
)
FEW, MANY = 8, 408
"""Points of the two sweeps whose difference is told."""


def on_a100(scenario: str, per_s: float, count: int, *changes: str) -> list[str]:
    """The words of a run on one A100."""
    requests = poisson(per_s, count)
    return ["run", scenario, *assigned("serving.replicas=1", UNIFIED, *changes, requests)]


PLAIN_RUN = partial(on_a100, "traffic_autoregressive_llama_3_1_8b_4xa100", 9)
SD_RUN = partial(on_a100, "traffic_vanilla_llama_3_1_8b_4xa100", 11)


def called(tree: Path) -> Values:
    """A run of twenty requests from Python."""
    seconds, mb = started(code=CALL, tree=tree)
    return {"cpu_s": seconds, "mb": mb}


def swept(tree: Path) -> Values:
    """CPU seconds of a point of a sweep on hardware, its store included."""
    seconds = []
    for points in (FEW, MANY):
        axis = f"draft.device.memory_bandwidth_gb_s=1000:2000:{points // 4}"
        with TemporaryDirectory() as folder:
            words = (*SWEPT, "--axis", axis, "--store", f"{folder}/points.sqlite")
            seconds.append(started(*words, tree=tree)[0])
    few, many = seconds
    return {"point": (many - few) / (MANY - FEW)}


COMMANDS = {
    "command_plain_1000": command(*PLAIN_RUN(1_000), "--json", most_s=1.2),
    "command_sd_1000": command(*SD_RUN(1_000, SERIAL), "--json", most_s=1.3),
    "command_plain_10000": command(*PLAIN_RUN(10_000), "--json", most_s=3),
    "command_sd_10000": command(*SD_RUN(10_000, SERIAL), "--json", most_s=3),
    "sweep": Part(swept, {"point": Row("CPU ms a point", 1e3, most=1.5)}),
    "plan": command(*PLAN, most_s=3),
    "call": Part(called, command(most_s=1.0, most_mb=90).rows),
}
MILLION = command(*SD_RUN(1_000_000, SERIAL), "--out", "{folder}/report", most_s=120, most_mb=200)

# ---- growth


LENGTHS = {1: (200, 40_200), 512: (200, 2_200)}
"""Output tokens of the two runs whose difference is told, by batch: a step of one is short."""
LOADS = tuple(product((5, 20, 80, 200), (16, 64, 128, 256)))
"""Mean batches and output tokens of the loads under which requests begin and end."""
PASS_S = 0.02
ROOMY = "serving.policy={name: unified_budget, budget_tokens: 16384, max_requests: 4096}"
NO_PREFILL = f"durations={{target_ms: {1e3 * PASS_S:g}, draft_step_ms: 1.0}}"


def step_by_batch(strategy: str, tree: Path) -> Values:
    """CPU seconds of a decode iteration of one request and of many, and of judging a window."""
    step = []
    for batch, lengths in LENGTHS.items():
        cases = []
        for tokens in lengths:
            requests = (
                f"requests={{concurrency: {batch}, count: {batch}, prompt_tokens: 512, "
                f"output_tokens: {tokens}}}"
            )
            cases.append(("durations_only", [DURATIONS, RATE, strategy, requests], 1 + WARM))
        few, many = run(tree, cases)
        seconds = min(many["seconds"]) - min(few["seconds"])
        step.append(seconds / (many["steps"] - few["steps"]))
    one, many_at_once = step
    return {
        "one": one,
        "many": many_at_once,
        "ratio": many_at_once / one,
        "drawing": few["drawing_s"],
    }


def by_request(strategy: str, tokens_a_step: float, step_s: float, tree: Path) -> Values:
    """CPU seconds that a request takes to begin and end, fitted beside those of an iteration and of
    a request in an iteration.
    """
    cases = []
    for batch, tokens in LOADS:
        stays_s = tokens / tokens_a_step * step_s
        changes = [NO_PREFILL, RATE, strategy, ROOMY, poisson(batch / stays_s, 1_000, tokens)]
        cases.append(("durations_only", changes, WARM))
    found = run(tree, cases)
    counts = np.array([[one["requests"], one["steps"], one["request_steps"]] for one in found])
    seconds = np.array([min(one["seconds"]) for one in found])
    # relative errors: a load of many steps is no better known than one of few
    fitted, _ = nnls(counts / seconds[:, None], np.ones(len(found)))
    request, step, request_step = map(float, fitted)
    left = counts @ fitted / seconds - 1.0
    return {
        "request": request,
        "step": step,
        "request_step": request_step,
        "off": float(np.abs(left).max()),
    }


def growth(strategy: str, most: float | None = None) -> Part:
    """What a batch of many costs beside one request."""
    rows = {
        "one": Row("CPU us an iteration, a batch of 1", 1e6, "{:.2f}"),
        "many": Row("CPU us an iteration, a batch of 512", 1e6, "{:.2f}"),
        "ratio": Row("the second of these over the first", form="{:.1f}", most=most),
    }
    if strategy == SERIAL:
        rows["drawing"] = Row("CPU us to draw and judge one window alone", 1e6, "{:.2f}")
    return Part(partial(step_by_batch, strategy), rows)


def ends(strategy: str, tokens_a_step: float, step_s: float, most: float) -> Part:
    """What a request that comes and goes takes."""
    rows = {
        "request": Row("CPU us a request, to begin and end", 1e6, "{:.1f}", most=most),
        "step": Row("CPU us an iteration beside it", 1e6, "{:.2f}"),
        "request_step": Row("CPU us a request in an iteration beside them", 1e6, "{:.3f}"),
        "off": Row("largest error of the fit, %", 100, "{:.0f}", compared=False),
    }
    return Part(partial(by_request, strategy, tokens_a_step, step_s), rows)


PLAIN = "strategy=autoregressive"
GROWTH = {
    "batch_plain": growth(PLAIN, 3),
    "batch_sd": growth(SERIAL),
    "requests_plain": ends(PLAIN, 1.0, PASS_S, 40),
    "requests_sd": ends(SERIAL, 2.95, PASS_S + 0.003, 60),
}
PARTS: dict[str, Part] = {**SIMULATIONS, **COMMANDS, **GROWTH}

# ---- turn by turn


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Check out a commit beside this tree for a while; raise :class:`SystemExit` where Git does not
    have it.
    """
    with TemporaryDirectory() as folder:
        tree, git = Path(folder) / "before", ("git", "-C", str(ROOT), "worktree")
        added = subprocess.run(
            [*git, "add", "--detach", str(tree), commit],
            capture_output=True,
            text=True,
            check=False,
        )
        if added.returncode:
            raise SystemExit(f"no checkout of {commit}, say --tree PATH: {added.stderr}")
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], capture_output=True, check=True)


def is_before(tree: Path) -> bool:
    """Whether a tree is that of ``BEFORE``."""
    asked = ["git", "-C", str(tree), "rev-parse", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.startswith(BEFORE)


def pairs_of(part: Part, tree: Path, pairs: int) -> list[tuple[Values, Values]]:
    """What the earlier tree and this one measure, turn by turn."""
    for side in (tree, ROOT) if pairs > 1 else ():
        part.measure(side)
    return [(part.measure(tree), part.measure(ROOT)) for _ in range(pairs)]


def told(values: list[float], form: str) -> str:
    """Their median, with the least and the most."""
    middle, least, most = (form.format(found(values)) for found in (median, min, max))
    return f"{middle} ({least} to {most})"


def figures_of(name: str, part: Part, tree: Path, pairs: int) -> Iterator[Figure]:
    """The rows of a part, and whether both trees simulated the same."""
    both = pairs_of(part, tree, pairs)
    first = is_before(tree)
    for key, row in part.rows.items():
        before = [row.scale * earlier[key] for earlier, _ in both]
        now = [row.scale * today[key] for _, today in both]
        figure = Figure(f"{name}: {row.what}", "")
        if row.most is not None:
            figure = at_most(figure.what, median(now), row.most, "{:g}")
        yield figure._replace(figure=told(now, row.form))
        if not row.compared:
            continue
        ratios = [earlier / today for earlier, today in zip(before, now, strict=True) if today]
        goal = row.times if first else row.later
        words = f"the same before: {told(before, row.form)}; times as much"
        if ratios:
            compared = at_least(words, median(ratios), goal, "{:.2f}")
            yield compared._replace(figure=told(ratios, "{:.2f}"))
    digests = {values["told"] for pair in both for values in pair if "told" in values}
    if digests:
        alike = len(digests) == 1
        yield Figure(f"{name}: the same numbers", "yes" if alike else "no", "yes", alike)


def figures() -> list[Figure]:
    """All parts, beside ``BEFORE``."""
    with worktree(BEFORE) as before:
        parts = [figures_of(name, part, before, PAIRS) for name, part in PARTS.items()]
        return [figure for part in parts for figure in part]


def million() -> list[Figure]:
    """A million requests with their report, once, by this tree alone."""
    values = MILLION.measure(ROOT)
    return [
        at_most(f"a million requests: {row.what}", values[key], row.most, row.form)
        for key, row in MILLION.rows.items()
        if row.most is not None
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=Path, help=f"an earlier checkout; by default {BEFORE}")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part, repeatable")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--million", action="store_true", help="a million requests, nothing else")
    options = parser.parse_args()
    if options.million:
        show(TITLE, million())
        return
    tree = options.tree.resolve() if options.tree else None
    with nullcontext(tree) if tree else worktree(BEFORE) as before:
        for name in options.only or PARTS:
            show(name, list(figures_of(name, PARTS[name], before, options.pairs)))


if __name__ == "__main__":
    main()
