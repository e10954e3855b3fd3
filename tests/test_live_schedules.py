"""Our scheduler against a running vLLM, step by step: who takes part with how many tokens, who is
preempted, and what is found in the cache.

The records were made by ``benchmarks/live/vllm/schedules.py``; the README there says how.
"""

from __future__ import annotations

from typing import Any

import pytest
from vllm_blocks import VllmCache

from benchmarks.live.vllm.replayed import Compared, Run, cache_of, compared
from benchmarks.live.vllm.schedules import runs_of
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.requests import Request

SERVED = runs_of("served")


class BlockByBlock(Blocks):
    """vLLM's cache with its copies of blocks (``vllm_blocks.py``), as a pool of ours."""

    __slots__ = ("blocks",)

    def __init__(self, run: Run) -> None:
        super().__init__(run["unit"], run["blocks"])
        rows = [[0, 0, 0, *row[:4]] for row in run["requests"]]
        self.blocks = VllmCache({**run, "requests": rows, "lookahead": 0})

    def cached(self, request: Request) -> int:
        return self.blocks.hit(request.index, known(request)) * self.block_tokens

    def fits(self, request: Request, tokens: int) -> bool:
        pool = self.blocks.pool
        if request.index in self.blocks.tables:
            (table,) = self.blocks.tables[request.index]
            return self.needed(tokens) - len(table.blocks) <= len(pool.waiting)
        hit = self.blocks.hit(request.index, known(request))
        found = [pool.find(self.blocks.key(0, request.index, place)) for place in range(hit)]
        idle = sum(not pool.users[block] for block in found)
        return self.needed(tokens) - hit + idle <= len(pool.waiting)

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        if not self.fits(request, tokens):
            return False
        if request.index not in self.blocks.tables:
            self.blocks._enter(request.index, self.blocks.hit(request.index, known(request)))
        (table,) = self.blocks.tables[request.index]
        table.blocks += self.blocks.pool.take(max(0, self.needed(tokens) - len(table.blocks)))
        if request.state is not None:
            self.blocks._fill(request.index, known(request))
        self.count(request)
        return True

    def share(self, request: Request, tokens: int) -> None:
        self.blocks._fill(request.index, tokens)

    def keep(self, request: Request, tokens: int) -> None:
        """What a request has, it keeps until it leaves."""
        if not tokens:
            (table,) = self.blocks.tables.pop(request.index)
            self.blocks.pool.free(table.blocks[::-1])
            self.count(request)

    def count(self, request: Request) -> None:
        """No slots: room is asked for in every step."""
        tables = self.blocks.tables.get(request.index, [])
        request.blocks = sum(len(table.blocks) for table in tables)
        self.used = int(self.total) - len(self.blocks.pool.waiting)


def known(request: Request) -> int:
    return request.prompt_tokens + request.tokens


def name_of(run: Run) -> str:
    load = f"{run['clients']} clients" if run["clients"] else "poisson"
    parts: list[Any] = [run["method"], run["drafts"], load, run["budget"], run["blocks"], "blocks"]
    more = [word for word in ("caching", "ranked") if run[word]]
    return " ".join(map(str, [*parts, *more]))


def shares(done_of: list[Compared]) -> tuple[int, int, int]:
    """Steps recorded, compared, and the same."""
    return (
        sum(done.steps for done in done_of),
        sum(done.compared for done in done_of),
        sum(done.alike for done in done_of),
    )


def test_the_records_are_not_trivial() -> None:
    methods = {(run["method"], run["drafts"]) for run in SERVED}
    chains = {("draft_model", 3), ("eagle", 3)}
    assert methods >= {("none", 0), ("ngram", 3), ("ngram", 5), *chains}
    assert {run["clients"] for run in SERVED} == {0, 1, 4, 8, 16}
    done_of = [compared(run, cache_of(run)) for run in SERVED]
    recorded, _, _ = shares(done_of)
    assert recorded >= 2_000
    assert sum(done.preempted[0] for done in done_of) >= 40
    assert sum(done.hits[0] for done in done_of) > 5_000
    accepted: dict[str, int] = {}
    chunks = 0
    for run in SERVED:
        for step in filter(None, run["steps"]):
            chunks += any(not drafts and not yielded for _, _, drafts, yielded, *_ in step[1])
            tokens = sum(max(0, row[3] - 1) for row in step[1])
            accepted[run["method"]] = accepted.get(run["method"], 0) + tokens
    assert min(accepted[method] for method in ("ngram", "draft_model", "eagle")) > 200
    assert chunks > 200


@pytest.mark.parametrize("run", SERVED, ids=name_of)
def test_ours_does_in_each_step_what_vllm_does(run: Run) -> None:
    """In every step, with a cache that has vLLM's copies of blocks, where anything is kept."""
    exact = compared(run, BlockByBlock(run) if run["caching"] else cache_of(run))
    assert not exact.difference
    assert exact.preempted[0] == exact.preempted[1]
    assert exact.hits[0] == exact.hits[1]


def test_ours_does_what_vllm_does_in_99_of_100_steps() -> None:
    done_of = [compared(run, cache_of(run)) for run in SERVED]
    _, both, alike = shares(done_of)
    assert both >= 2_000
    assert alike >= 0.99 * both
