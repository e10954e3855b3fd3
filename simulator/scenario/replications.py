"""Replications: the same scenario with further seeds, which shows how far the numbers of a single
run may be off.

Replication k is ``specsim run --seed SEED+k``: other arrivals, lengths and recordings where these
are drawn, the same traffic where it is read from a file. Intervals are Student's t over the
replications, which are independent (Law, Simulation Modeling and Analysis, sec. 9.4.1); of
percentiles too, each replication giving one.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

from simulator.core.parallel import counted
from simulator.scenario import Loaded
from simulator.scenario.evaluate import simulate, tuned
from simulator.scenario.outcome import CONFIDENCE, QUANTILES, Mean, Outcome


def replicate(load: Callable[[int], Loaded], count: int, seed: int) -> dict[str, Mean]:
    """Return means of metrics, whose names end with their unit, over the seeds ``seed``, ``seed +
    1``, ...

    ``load`` reads the scenario with a seed. A metric that some of them could not measure is left
    out.
    """
    metrics = []
    for replication_seed in counted(range(seed, seed + count), "replications"):
        loaded = tuned(load(replication_seed))
        outcome, _ = simulate(loaded.scenario, loaded.acceptance())
        metrics.append(dict(_metrics(outcome)))
    means = {}
    for name in metrics[0]:
        measured = [value for replication in metrics if (value := replication[name]) is not None]
        if len(measured) == len(metrics):
            means[name] = mean(measured)
    return means


def mean(values: Sequence[float]) -> Mean:
    """Return the mean of two or more values, with the half-width of its Student-t interval."""
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return Mean(
        float(np.mean(values)), float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * spread
    )


def _metrics(outcome: Outcome) -> Iterator[tuple[str, float | None]]:
    """Yield the metrics of a run by name; None for one that it could not measure."""
    serving = outcome.serving
    for name in ("ttft", "tbt", "tpot", "e2e"):
        sketch = getattr(serving, name)
        yield f"{name}_mean_ms", sketch.mean_ms
        for share in QUANTILES:
            yield f"{name}_p{share}_ms", sketch.quantile_ms(share / 100)
    yield "tokens_per_s", outcome.tokens_per_s
    yield "mean_waiting", serving.mean_waiting
    if serving.counted.slo:
        yield "goodput_requests_per_s", serving.counted.goodput_requests_per_s
