"""Tables and sentences of a run's report about requests and batches, and about the memory of the
stages of a pipeline.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from simulator.cost.partition import GIB
from simulator.report.blocks import Table
from simulator.report.run_summary import say
from simulator.report.wording import number
from simulator.scenario import Scenario
from simulator.scenario.outcome import (
    CONFIDENCE,
    QUANTILES,
    Outcome,
    ServingOutcome,
    stage_memories,
)
from simulator.scenario.run import RunResult
from simulator.serving.metrics import level_quantile
from simulator.serving.slo import METRICS

REPLICATION_HEAD = (f"over seeds, {CONFIDENCE:.0%}", "mean", *(f"p{share}" for share in QUANTILES))


def times(serving: ServingOutcome) -> Table:
    """Return the table of times in milliseconds; quantiles are within half a per cent."""
    sketches = {"from arrival to admission": serving.wait, "TTFT": serving.ttft, "TBT": serving.tbt}
    return say.table(
        "times",
        (sketches | {"TPOT": serving.tpot, "E2E": serving.e2e}).items(),
        quantiles=QUANTILES,
    )


def replicas(outcome: Outcome) -> Table:
    """Return the table of replicas: busy is the share of the time of its busiest lane."""
    busy = [
        max(replica.busy_s.values(), default=0.0) / outcome.end_s for replica in outcome.replicas
    ]
    return say.table("replicas", zip(range(1, len(busy) + 1), outcome.replicas, busy, strict=True))


def replications(result: RunResult) -> Iterator[tuple[str, ...]]:
    """Yield rows under ``REPLICATION_HEAD``, mean and half of the interval; none without
    replications.
    """
    means = result.replications

    def cell(name: str) -> str:
        return f"{number(means[name].value, 3)} ± {number(means[name].half_width, 2)}"

    columns = ("mean", *(f"p{quantile}" for quantile in QUANTILES))
    for metric in METRICS if means else ():
        yield f"{metric.upper()} (ms)", *(cell(f"{metric}_{column}_ms") for column in columns)
    for name, text in (
        ("tokens_per_s", "tokens per s"),
        ("goodput_requests_per_s", "goodput per s"),
    ):
        if name in means:
            yield text, cell(name), *("" for _ in QUANTILES)


def sentences(result: RunResult) -> Iterator[str]:
    """Yield a sentence each on what is counted, goodput, batch, queue, Little's law, memory, waste
    and cost.
    """
    serving, setup = result.simulated.serving, result.scenario.serving
    batch, queue = (
        f"{level_quantile(levels, 0.95):,} for 95 % of the time, {max(levels, default=0):,} at most"
        for levels in (serving.batch_s, serving.queue_s)
    )
    facts = {"counted": serving.counted, "littles": serving.littles_law, "cost": result.expenses}
    yield from say.all("served", serving=serving, setup=setup, batch=batch, queue=queue, **facts)


def stages(scenario: Scenario) -> Table | None:
    """Return the table of memory in GiB with a row for each run of equal stages; None without a
    pipeline of a dense model.

    ``printed`` is the total with ``4 d^2 + 3 d f`` weights a layer, as if there were no grouped
    heads.
    """
    rows = []
    for (layers, true, printed), run in groupby(
        enumerate(stage_memories(scenario), start=1), key=itemgetter(1)
    ):
        first, *_, last = [place for place, _ in run] * 2
        places = str(first) if first == last else f"{first}-{last}"
        sizes = [size / GIB for size in true]
        rows.append(
            {
                "places": places,
                "layers": layers,
                "sizes": sizes,
                "gib": true.gib,
                "printed_gib": printed.gib,
            }
        )
    return say.table("stages", rows) if rows else None


def stage_caption(scenario: Scenario) -> str:
    """Return what the columns of the table mean."""
    stated = scenario.serving.memory.kv_tokens is not None
    return say("stage_caption", stated=stated, tokens=scenario.kv_tokens or 0)
