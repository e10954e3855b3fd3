"""DuoDecoding live on two cores of this machine: c, and gamma = c tried against its neighbours.

    core A  |== target reads the tail ==|recv, verify, send|
    core B  |== draft writes ==|send    |            recv  |

Two processes with one thread each, pinned to a core each; two messages per iteration, as in the
released program. Budgets take turns, since a shared machine drifts, and each side takes the
processor time of its own passes, which other programs' turns do not stretch.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.family.network import Network, Reader
from benchmarks.family.observations import PROMPT_TOKENS
from benchmarks.family.pair import Family
from benchmarks.live.decoding import alone
from benchmarks.verification import accepted_prefix, sequences_worth, verify
from simulator.core.acceptance.sequence_chances import budget, cost_coefficient
from simulator.core.acceptance.sequences import SequenceIteration, Split
from simulator.core.faults import BadInput, Fault
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.inputs.traces.file import read

CANDIDATES = 8
"""First tokens that are looked at, as in the released program."""
PAIR = "scenarios/pairs/six_flavours.npz"
WARM_UP = 4
"""Budget of the runs that say where to look."""


class Drafts(NamedTuple):
    """A message of the draft: the sequences it wrote."""

    sequences: list[list[int]]
    pass_s: list[float]
    """Processor seconds of each of its passes."""
    wall_s: float
    """Of all of it, by the clock on the wall."""


class BudgetVerdict(NamedTuple):
    """A message of the target: where the prefix is cut, its next token, and the rest of the chosen
    sequence.
    """

    kept: int
    token: int
    chosen: int | None


class SequenceDrafter:
    """Writes sequences behind a prefix one after another and rereads only what is new."""

    def __init__(self, draft: Network) -> None:
        self.reader, self.seen, self.pass_s = Reader(draft), list[int](), list[float]()

    def write(self, prefix: list[int], split: Split) -> Drafts:
        """Return all sequences of one iteration; their number is known after two passes (DUO-3)."""
        self.pass_s, begin = [], perf_counter()
        common = accepted_prefix(self.seen, prefix[:-1])
        self.reader.keep(common)
        first = self._odds(prefix[common:]).topk(CANDIDATES)
        starts, sequences = first.indices.tolist(), split.sequences(1)
        leader = starts[:1]
        if split.fixed is None and split.budget > 1:
            odds = self._odds(leader)
            sequences = split.sequences(sequences_worth(first.values.tolist(), float(odds.max())))
            leader = [*leader, int(odds.argmax())]
        length = split.tail(sequences) + 1
        rows = [self._continued(leader, length)[:length]]
        for start in starts[1:sequences]:
            self.reader.keep(len(prefix))
            rows.append(self._continued([start], length))
        self.seen = [*prefix, *rows[-1][:-1]]
        return Drafts(rows, self.pass_s, perf_counter() - begin)

    def _continued(self, row: list[int], length: int) -> list[int]:
        while len(row) < length:
            row = [*row, int(self._odds(row[-1:]).argmax())]
        return row

    def _odds(self, tokens: list[int]) -> torch.Tensor:
        start = thread_time()
        odds = self.reader.extend(tokens)[-1].softmax(-1)
        self.pass_s.append(thread_time() - start)
        return odds


def draft_process(connection: Connection, pair: Path, core: int | None) -> None:
    """Run the draft's side until the end: (prompt, split) opens a request, None ends the
    process.
    """
    settle_down(core)
    draft = Family.read(pair).draft
    connection.send(None)
    while (opened := connection.recv()) is not None:
        prefix, split = opened
        drafter, drafting = SequenceDrafter(draft), Split(1, 1)
        while True:
            drafts = drafter.write(prefix, drafting)
            connection.send(drafts)
            verdict = connection.recv()
            if verdict is None:
                break
            rest = [] if verdict.chosen is None else drafts.sequences[verdict.chosen][1:]
            prefix, drafting = [*prefix[: verdict.kept], verdict.token, *rest], split


def settle_down(core: int | None) -> None:
    """Pin this process to one thread on one core."""
    torch.set_num_threads(1)
    if core is not None:
        os.sched_setaffinity(0, {core})


@dataclass
class Decoding:
    """One request decoded live; seconds of iterations behind the first token."""

    tokens: list[int]
    iterations: list[SequenceIteration] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    """Passes of the draft, by iteration."""
    iteration_s: list[float] = field(default_factory=list)
    target_s: list[float] = field(default_factory=list)
    draft_s: list[float] = field(default_factory=list)
    """All passes of an iteration."""
    first_s: float = 0.0

    @property
    def committed(self) -> int:
        """Count the verified tokens behind the first one."""
        return sum(iteration.committed for iteration in self.iterations)


def decode(
    target: Network, connection: Connection, prompt: list[int], tokens: int, split: Split
) -> Decoding:
    """Decode greedily beside a :func:`draft_process`; the first iteration drafts one token while
    both read the prompt.
    """
    reader, text, tail = Reader(target), list(prompt), list[int]()
    done, begin = Decoding([]), perf_counter()
    connection.send((prompt, split))
    while True:
        first = len(text) == len(prompt)
        unread, start = [*text, *tail][reader.read :], thread_time()
        choices = reader.extend(unread)[-len(tail) - 1 :].argmax(-1).tolist()
        target_s = thread_time() - start
        drafts = connection.recv()
        right = [mine == wanted for mine, wanted in zip(tail, choices, strict=False)]
        committed, chosen = verify(right, [row[0] == choices[-1] for row in drafts.sequences])
        text += choices[:committed]
        reader.keep(len(text) - 1)
        over = len(text) - len(prompt) >= tokens
        connection.send(None if over else BudgetVerdict(len(text) - 1, text[-1], chosen))
        if first:
            done.first_s = perf_counter() - begin
        else:
            done.iterations.append(
                SequenceIteration(len(drafts.sequences), len(tail), committed, chosen is not None)
            )
            done.passes.append(len(drafts.pass_s))
            done.target_s.append(target_s)
            done.draft_s.append(sum(drafts.pass_s))
            done.iteration_s.append(perf_counter() - begin)
        begin = perf_counter()
        if over:
            done.tokens = text[len(prompt) :]
            return done
        tail = [] if chosen is None else drafts.sequences[chosen][1:]


@contextmanager
def beside(
    pair: Path,
    cores: Sequence[int],
    worker: Callable[[Connection, Path, int | None], None] = draft_process,
) -> Iterator[Connection]:
    """Run a ``worker`` on the second of two cores, this process on the first; restored when it
    ends.
    """
    here, there = get_context("spawn").Pipe()
    before = os.sched_getaffinity(0)
    process = get_context("spawn").Process(target=worker, args=(there, pair, cores[1]), daemon=True)
    process.start()
    there.close()
    try:
        settle_down(cores[0])
        here.recv()
        yield here
        here.send(None)
        process.join(10.0)
    finally:
        process.kill()
        os.sched_setaffinity(0, before)


def two_cores() -> list[int]:
    """Return the first two cores that this process may use; raise BadInput where there is only
    one.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise BadInput(
            [
                Fault(
                    ("benchmarks.live", 0, 0),
                    "",
                    "needs two cores, one for each side; this process may use one",
                )
            ]
        )
    return cores


def shipped_prompts(requests: int) -> list[list[int]]:
    """Return the first tokens of recorded requests, flavours in turn: text that the target
    wrote.
    """
    trace = read(Catalogue().names("trace")["six_flavours_greedy"])
    pools = list(trace.requests_by_flavour.values())
    chosen = [pools[index % len(pools)][index // len(pools)] for index in range(requests)]
    return [
        trace.token[(start := int(trace.offsets[request])) : start + PROMPT_TOKENS]
        .astype(int)
        .tolist()
        for request in chosen
    ]


@dataclass(frozen=True)
class LiveBudget:
    """A budget as it did on this machine; times in milliseconds, medians over its iterations."""

    budget: int
    tokens_per_s: float
    """Verified, behind the first token of each request; median of the rounds."""
    slowest_per_s: float
    fastest_per_s: float
    tokens_per_iteration: float
    iteration_ms: float
    target_ms: float
    draft_ms: float
    overhead_ms: float
    """Beyond the longer of the two sides: messages, verification, waking up, and other programs'
    turns.
    """


@dataclass(frozen=True)
class MeasuredBudgets:
    """The coefficient c of this machine and what budgets were worth."""

    target_ms: float
    """A pass over one token."""
    draft_ms: float
    cost_coefficient: float
    budget: int
    autoregressive_per_s: float
    best: int
    rounds: int
    requests: int
    budgets: list[LiveBudget]


def measure(
    budgets: Sequence[int], tokens: int, rounds: int, requests: int, sequences: int | None
) -> MeasuredBudgets:
    """Decode the same prompts with every budget in turn, round after round, and return what each
    was worth.

    Without ``budgets``: those around c as a first run has it, and as far as twice c. BadInput on a
    single core.
    """
    cores = two_cores()
    pair, prompts = shipped() / PAIR, shipped_prompts(requests)
    target = Family.read(pair).target
    runs: dict[int, list[list[Decoding]]] = {}
    with beside(pair, cores) as connection:
        first = decode(target, connection, prompts[0], tokens, Split(WARM_UP, 1))
        middle = budget(cost_coefficient(*_passes([first])))
        chosen = list(budgets) or sorted(
            {1, 2, *(max(1, middle + offset) for offset in range(-2, 3)), 2 * middle}
        )
        alone_s = 0.0
        for round_ in range(rounds):
            alone_s += sum(alone(target, prompt, tokens).seconds for prompt in prompts)
            for gamma in np.random.default_rng(round_).permutation(chosen).tolist():
                split = Split(gamma, min(gamma, sequences) if sequences else None)
                runs.setdefault(gamma, []).append(
                    [decode(target, connection, prompt, tokens, split) for prompt in prompts]
                )
    every = list(chain.from_iterable(chain.from_iterable(runs.values())))
    points = [_live_budget(gamma, runs[gamma]) for gamma in sorted(runs)]
    pass_s, draft_s = _passes(every)
    c = cost_coefficient(pass_s, draft_s)
    best = max(points, key=lambda point: point.tokens_per_s).budget
    count = rounds * requests * (tokens - 1)
    return MeasuredBudgets(
        pass_s * 1e3, draft_s * 1e3, c, budget(c), count / alone_s, best, rounds, requests, points
    )


def _passes(decoded: Sequence[Decoding]) -> tuple[float, float]:
    """Return the median seconds of a pass of the target over one token and of a pass of the draft,
    beside each other.
    """
    target_s: list[float] = []
    draft_s: list[float] = []
    for decoding in decoded:
        verified = zip(decoding.target_s, decoding.iterations, strict=True)
        target_s += [seconds for seconds, iteration in verified if not iteration.unverified]
        draft_s += [
            seconds / passes
            for seconds, passes in zip(decoding.draft_s, decoding.passes, strict=True)
        ]
    return median(target_s), median(draft_s)


def _live_budget(budget_: int, rounds: Sequence[Sequence[Decoding]]) -> LiveBudget:
    rates = [
        sum(decoding.committed for decoding in row)
        / sum(sum(decoding.iteration_s) for decoding in row)
        for row in rounds
    ]
    every = [decoding for row in rounds for decoding in row]
    times = [
        (whole, target, draft, whole - max(target, draft))
        for decoding in every
        for whole, target, draft in zip(
            decoding.iteration_s, decoding.target_s, decoding.draft_s, strict=True
        )
    ]
    whole, target, draft, over = (median(column) * 1e3 for column in zip(*times, strict=True))
    tokens = sum(decoding.committed for decoding in every) / len(times)
    return LiveBudget(
        budget_, median(rates), min(rates), max(rates), tokens, whole, target, draft, over
    )
