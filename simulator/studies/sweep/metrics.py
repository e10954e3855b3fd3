"""Name what a point of a sweep is measured by: columns with units, labels of plots, and which way is better."""

from typing import NamedTuple


class Metric(NamedTuple):
    """Names a measure on a plot, and says whether less of it is better."""

    label: str
    less_is_better: bool = True


METRICS = {
    "tpot_ms": Metric("time per token (ms)"),
    "tokens_per_s": Metric("tokens per second", False),
    "speedup": Metric("speed-up", False),
    "tokens_per_step": Metric("tokens per step", False),
    "step_ms": Metric("step time (ms)"),
    "speedup_with_prompts": Metric("speed-up, prompts included", False),
    "ttft_ms": Metric("time to first token (ms)"),
    "ttft_p99_ms": Metric("time to first token, 99 % of requests (ms)"),
    "tbt_p99_ms": Metric("time between tokens, 99 % of them (ms)"),
    "e2e_ms": Metric("end to end (ms)"),
    "mean_batch": Metric("requests in a step", False),
    "fallback_per_step": Metric("share of windows drafted again"),
}
"""The measures by column; the law gives the first five, replay and simulation give all."""
LAW_METRICS = tuple(METRICS)[:5]
