"""What a report says about requests and batches: times with their spread, memory, work done in vain."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.outcome import Serving
from simulator.report.facts import number, share
from simulator.run import Result

HEAD = ("ms", "mean", "p50", "p90", "p99", "most")


def times(serving: Serving) -> Iterator[tuple[str, ...]]:
    """Rows under ``HEAD``, in milliseconds; quantiles are within half a per cent."""
    held = (
        ("from arrival to admission", serving.wait),
        ("TTFT", serving.ttft),
        ("TBT", serving.tbt),
        ("TPOT", serving.tpot),
        ("E2E", serving.e2e),
    )
    for name, sketch in held:
        values = (sketch.mean, *(sketch.quantile(part) for part in (0.5, 0.9, 0.99)), max(sketch.most, 0.0))
        yield (name, *(number(seconds * 1e3) for seconds in values))


def sentences(result: Result) -> Iterator[str]:
    """Batch, memory and waste of the simulation, one sentence each."""
    simulated, one = result.simulated, result.simulated.serving
    rate = number(one.requests / simulated.end_s, 3)
    yield (
        f"Batch: {number(one.mean_batch, 3)} requests decode in a step on average; {number(one.mean_in_system, 3)} are in "
        f"the system = {rate} per second x {number(one.e2e.mean, 3)} s (Little's law, checked), "
        f"{number(one.mean_waiting, 3)} of them waiting"
    )
    room = f"room for {one.kv_tokens:,}, at most {share(one.most_kv_tokens / one.kv_tokens)} in use" if one.kv_tokens else ""
    yield (
        f"KV cache: {number(one.mean_kv_tokens, 3)} tokens held on average, {one.most_kv_tokens:,} at most, "
        f"{room or 'no limit stated'}; {one.preemptions:,} preemptions, "
        f"{one.recomputed_rows:,} of {one.prompt_rows:,} prefilled tokens recomputed"
    )
    if one.drafted:
        yield (
            f"In vain: {share(one.wasted_drafts / one.drafted)} of {one.drafted:,} judged draft tokens were rejected, "
            f"and {share(one.wasted_rows / one.verified_rows)} of {one.verified_rows:,} rows that the target verified "
            "brought no token"
        )


def crossed(first: int | None, for_good: int | None, name: str) -> str:
    """Where autoregressive decoding overtakes a strategy, in words."""
    if first is None:
        return f"{name} is ahead at every size"
    if first == for_good:
        return f"{name} is slower from B = {first} on"
    if for_good is None:
        return f"{name} is slower first at B = {first}, and ahead again at the largest"
    return f"{name} is slower first at B = {first}, and for good from B = {for_good} on"
