"""What vLLM's manager of the cache was asked for and what it answered, in order."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

STEP, GRANTED, REFUSED, PREEMPTED, FREED = range(5)
COLUMNS = {
    "requests": "session, turn, parent (-1: none), earlier request that it has most in common with "
    "(-1: none), tokens of prompt and output in common with that one, tokens of the prompt, tokens "
    "of the output; in order of arrival",
    "events": "[0]: a step begins; [1, request, computed before (hit, where it enters), computed "
    "now, known tokens]: granted; [2, the same]: refused; [3, request, known tokens]: preempted, "
    "its blocks freed; [4, request, tokens in all]: ended, its blocks freed. Left out are grants "
    "of a running request that neither take a block nor fill one, and what is refused again before "
    "anything has changed",
    "states": "of hybrids, for each request: ends, in units, of the prefixes whose states were in "
    "the cache in the last step before it ended",
}
Event = list[int]


def number_of(request_id: str) -> int:
    """Return the number of a request, which begins its name."""
    return int(request_id.split("-", maxsplit=1)[0])


@contextmanager
def watched(unit: int) -> Iterator[list[Event]]:
    """Yield a list into which everything goes that a scheduler asks of its cache meanwhile."""
    events: list[Event] = []
    seen: dict[int, tuple[int, ...]] = {}
    refused: list[Event] = []
    allocate, free, schedule = (
        KVCacheManager.allocate_slots,
        KVCacheManager.free,
        Scheduler.schedule,
    )

    def asked(self: Any, request: Any, num_new_tokens: int, *more: Any, **named: Any) -> Any:
        answer = allocate(self, request, num_new_tokens, *more, **named)
        number = number_of(request.request_id)
        before = request.num_computed_tokens + named.get("num_new_computed_tokens", 0)
        slots = before + num_new_tokens + named.get("num_lookahead_tokens", 0)
        full = min(before + num_new_tokens, request.num_tokens) // unit
        marks = (-(-slots // unit), full, before // unit, max(0, before - 1) // unit)
        event = [number, before, num_new_tokens, request.num_tokens]
        if answer is None:
            if refused != [event]:
                events.append([REFUSED, *event])
                refused[:] = [event]
            return answer
        if seen.get(number) != marks:
            events.append([GRANTED, *event])
            seen[number] = marks
            refused.clear()
        return answer

    def freed(self: Any, request: Any) -> None:
        free(self, request)
        number = number_of(request.request_id)
        running = request.status == RequestStatus.RUNNING
        events.append([PREEMPTED if running else FREED, number, request.num_tokens])
        seen.pop(number, None)
        refused.clear()

    def scheduled(self: Any, *more: Any, **named: Any) -> Any:
        if events and events[-1] == [STEP]:
            events.pop()
        events.append([STEP])
        return schedule(self, *more, **named)

    KVCacheManager.allocate_slots, KVCacheManager.free = asked, freed
    Scheduler.schedule = scheduled
    try:
        yield events
    finally:
        KVCacheManager.allocate_slots, KVCacheManager.free = allocate, free
        Scheduler.schedule = schedule


def write(path: Path, header: dict[str, Any], runs: Iterable[dict[str, Any]]) -> None:
    """Write a header and a line for each run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one, separators=(",", ":"), allow_nan=False) for one in (header, *runs)]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0))
