"""Scrapes of ``/metrics`` of vLLM, SGLang, TensorRT-LLM and llama-server: what passed between the
first and the last of them.

Of a single scrape counters are those since the server began. Replicas of one server (``engine``,
``dp_rank``) are added up; of ranks that hold one model together the first counts. With attention
that is data parallel SGLang numbers ranks (``tp_rank``) over all replicas.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.core.faults import BadInput
from simulator.core.plain import PlainMapping
from simulator.inputs.loader import packaged
from simulator.inputs.services.exposition import (
    Labels,
    SeriesKey,
    SeriesValues,
    finite,
    increase,
    sample_in,
    series,
)
from simulator.inputs.services.measured import (
    MS,
    ServiceFile,
    counted,
    mean_of,
    over_all_steps,
)
from simulator.inputs.services.observed import (
    MeasuredTime,
    NotHeld,
    ObservedAcceptance,
    ObservedLengths,
    ObservedLoad,
    ObservedState,
)

ENGINES: PlainMapping = packaged(Path(__file__).with_name("engines.yaml"))
Names = Mapping[str, Mapping[str, Sequence[str]]]
TOTAL = "_total"
PARTS = ("_bucket", "_sum", "_count")
"""Endings of the series of a histogram."""
TOGETHER = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of ranks that hold one model together."""
TYPE = "# TYPE "
"""How a line begins that states what a series is, once a scrape."""
PRIORITY = "priority"
"""Label of what is of requests of a priority alone; of all of them where it is empty."""
REASON = "finished_reason"
FAILED = ("abort", "error")
"""Reasons of an end without an answer."""
MOST_DIGITS = 15
BEGAN = "process_start_time_seconds"
DEFINITIONS = {
    "ttft": "from the arrival of a request at the server to its first token",
    "itl": "from one output of a request to the next, of a step however many tokens it has",
    "tpot": "of a request, decoding over its tokens behind the first",
    "e2e": "from the arrival of a request at the server to its last token",
    "queue": "until a request is first in a batch",
    "inference": "from the first batch of a request to its last token",
    "prefill": "from the first batch of a request to its first token",
    "decode": "from the first to the last token of a request",
}
TPOT_OF_SGLANG = "from one output of a request to the next over its tokens, each token counted"


class Histogram(NamedTuple):
    """What a histogram counted between scrapes."""

    total: float
    values: float
    """How many."""
    below: Sequence[tuple[float, float]]
    """Upper ends of buckets, and how many values lie below."""

    def percentile(self, share: float) -> float | None:
        """Return the value below which a share lies, linearly inside its bucket, as Prometheus
        has it; None in the first bucket and the last one, which are as wide as any time.
        """
        rank = share * self.values
        start = 0.0
        before = 0.0
        for end, count in self.below:
            if count >= rank and count > before:
                if end == inf or start == 0.0:
                    return None
                return start + (end - start) * (rank - before) / (count - before)
            start, before = end, count
        return None


class Scrapes:
    """The series of an engine in one scrape or more."""

    def __init__(self, file: str, engine: str, values: SeriesValues) -> None:
        self.file = file
        self.engine = engine
        self.names: Names = ENGINES[engine]
        self.by_name: dict[str, dict[Labels, Sequence[float]]] = {}
        for (name, labels), scraped in _once(values).items():
            self.by_name.setdefault(name, {})[labels] = scraped
        self.count = max(map(len, values.values()), default=0)

    def series_of(self, group: str, what: str) -> Mapping[Labels, Sequence[float]]:
        """Return the values by labels under the newest name that is there."""
        for name in self.names.get(group, {}).get(what, ()):
            for written in _written(name):
                if written in self.by_name:
                    return self.by_name[written]
        return {}

    def counter(self, what: str) -> int | None:
        """Return how much a counter grew, over all labels; None where there is none."""
        name = (*self.names["counters"].get(what, ()), what)[0]
        values = self.series_of("counters", what)
        if not values:
            return None
        return round(sum(self._grown(name, scraped) for scraped in values.values()))

    def ended(self) -> tuple[int | None, int | None]:
        """Return how many requests were answered, and how many failed or were given up; None for
        what is not counted.
        """
        answered = failed = 0.0
        values = self.series_of("counters", "requests")
        reasons = {dict(labels).get(REASON) for labels in values}
        for labels, scraped in values.items():
            grown = self._grown("requests", scraped)
            if dict(labels).get(REASON) in FAILED:
                failed += grown
            else:
                answered += grown
        return round(answered) if values else None, round(failed) if reasons - {None} else None

    def by_position(self) -> list[int]:
        """Return how many drafts kept each position."""
        counts: dict[int, float] = {}
        name = "accepted tokens by position"
        for labels, scraped in self.series_of("counters", "accepted_by_position").items():
            position = dict(labels).get("position", "")
            if position.isdecimal() and len(position) <= 4:
                place = int(position)
                counts[place] = counts.get(place, 0.0) + self._grown(name, scraped)
        if set(counts) != set(range(len(counts))):
            raise BadInput.at(self.file, "counts accepted tokens by position, but not of each")
        return [round(counts[place]) for place in range(len(counts))]

    def gauge(self, what: str) -> list[float]:
        """Return a gauge scrape by scrape, over all labels; empty where there is none."""
        values = list(self.series_of("gauges", what).values())
        if not values:
            return []
        return [sum(scraped[place] for scraped in values) for place in range(self._least(values))]

    def share(self, what: str) -> list[float]:
        """Return a gauge that is not added up scrape by scrape, the largest of all labels."""
        values = list(self.series_of("gauges", what).values())
        if not values:
            return []
        return [max(scraped[place] for scraped in values) for place in range(self._least(values))]

    def histogram(self, group: str, what: str) -> Histogram | None:
        """Return what a histogram counted; None where there is none, or it counted nothing."""
        for name in self.names.get(group, {}).get(what, ()):
            sums = self.by_name.get(f"{name}_sum", {})
            counts = self.by_name.get(f"{name}_count", {})
            count = sum(self._grown(f"{name}_count", scraped) for scraped in counts.values())
            if not sums or not count > 0.0:
                continue
            total = sum(scraped[-1] - self._before(scraped) for scraped in sums.values())
            below: dict[float, float] = {}
            for labels, scraped in self.by_name.get(f"{name}_bucket", {}).items():
                end = self._end(dict(labels).get("le", ""))
                below[end] = below.get(end, 0.0) + self._grown(f"{name}_bucket", scraped)
            return Histogram(max(0.0, total), count, sorted(below.items()))
        return None

    def info(self, what: str, label: str) -> int | None:
        """Return a whole number that stands in a label of what an engine says of itself, of its
        replicas the least; None where there is none.
        """
        stated = []
        for labels in self.series_of("infos", what):
            text = dict(labels).get(label, "")
            if text.isdecimal() and len(text) <= MOST_DIGITS:
                stated.append(int(text))
        return min(stated, default=None)

    def label(self, name: str) -> str | None:
        """Return the value of a label that all series share; None where they differ."""
        values = set()
        for by_labels in self.by_name.values():
            for labels in by_labels:
                values.add(dict(labels).get(name))
        values.discard(None)
        return values.pop() if len(values) == 1 else None

    def _end(self, text: str) -> float:
        try:
            return float(text)
        except ValueError as error:
            message = f"expected a number as the end of a bucket, found '{text[:40]}'"
            raise BadInput.at(self.file, message) from error

    def _before(self, scraped: Sequence[float]) -> float:
        """Return what a counter was before; one that is new in a later scrape was 0."""
        return scraped[0] if self.count > 1 and len(scraped) == self.count else 0.0

    def _grown(self, name: str, scraped: Sequence[float]) -> float:
        increase(name, scraped, self.file)
        return scraped[-1] - self._before(scraped)

    @staticmethod
    def _least(values: Sequence[Sequence[float]]) -> int:
        return min(map(len, values))


class ScrapeText(NamedTuple):
    """A file of one scrape, or of several one behind the other."""

    path: str
    lines: Sequence[str]

    @property
    def name(self) -> str:
        """Return the name of a file without its folder; an address as it is."""
        return self.path if "://" in self.path else Path(self.path).name


def read_scrapes(scraped: Sequence[ScrapeText], between_s: float | None = None) -> ServiceFile:
    """Return what passed between the scrapes of a server; ``between_s`` seconds lie between the
    first and the last.

    Raises :class:`BadInput` for a counter that fell, for lines that are none of the format, and
    where no engine is known.
    """
    each: list[ScrapeText] = []
    for scrape in scraped:
        _check_lines(scrape)
        each += _apart(scrape)
    lines: list[str] = []
    in_order = _by_age(each)
    file = ", ".join(dict.fromkeys(scrape.name for scrape in in_order))
    for scrape in in_order:
        lines += scrape.lines
    _check_whole(in_order)
    values = series(lines, _all_names())
    engine = _engine_of(file, values)
    _check_same_process(file, values)
    for (name, _), scrapes in values.items():
        if name in _counters():
            increase(name, scrapes, file)
    return _service_file(Scrapes(file, engine, values), between_s)


def _engine_of(file: str, values: SeriesValues) -> str:
    """Return the engine that series are of; raises :class:`BadInput` for none or several."""
    engines = []
    for engine in ENGINES:
        if any(name in _names_of(engine) for name, _ in values):
            engines.append(engine)
    if len(engines) != 1:
        what = " and ".join(engines) or "no engine that is known"
        known = ", ".join(ENGINES)
        raise BadInput.at(file, f"holds metrics of {what}; expected those of one of {known}")
    return engines[0]


def _apart(text: ScrapeText) -> list[ScrapeText]:
    """Return the scrapes of a file: another begins where a series or its type is stated again."""
    begins = [0]
    seen: set[SeriesKey | str] = set()
    for place, line in enumerate(text.lines):
        sample = sample_in(line)
        if sample is None and not line.startswith(TYPE):
            continue
        stated = line if sample is None else (sample.name, sample.labels)
        if stated in seen:
            begins.append(place)
            seen.clear()
        seen.add(stated)
    ends = [*begins[1:], len(text.lines)]
    return [
        ScrapeText(text.path, text.lines[begin:end])
        for begin, end in zip(begins, ends, strict=True)
    ]


def _check_whole(scraped: Sequence[ScrapeText]) -> None:
    """Raise :class:`BadInput` for a counter that a scrape has and a later one lacks."""
    for before, after in pairwise(scraped):
        values = series(after.lines, _counters())
        for name, labels in series(before.lines, _counters()):
            if (name, labels) not in values:
                message = f"lacks the counter {name}, which a scrape before it has; is it cut?"
                raise BadInput.at(after.path, message)


def _by_age(scraped: Sequence[ScrapeText]) -> Sequence[ScrapeText]:
    """Return scrapes of one process from the earliest on, by what they have counted; in the order
    in which they are named where it is not seen that one process has shown them all.
    """
    began: set[float] = set()
    all_values = []
    for scrape in scraped:
        started = series(scrape.lines, [BEGAN])
        if not started:
            return scraped
        began.update(*started.values())
        all_values.append(series(scrape.lines, _counters()))
    if len(began) != 1:
        return scraped
    in_all = set(all_values[0]).intersection(*all_values)  # one may be cut
    counted = [sum(values[key][-1] for key in in_all) for values in all_values]
    return [scraped[place] for place in np.argsort(counted, kind="stable")]


def _once(values: SeriesValues) -> SeriesValues:
    """Return series without those that others hold: those of further ranks of a replica, and those
    of a priority beside all.
    """
    chosen: dict[SeriesKey, Sequence[float]] = {}
    replicas = set()
    for (name, labels), scraped in sorted(values.items()):
        stated = dict(labels)
        replica = tuple(pair for pair in labels if pair[0] not in TOGETHER)
        of_all = tuple(sorted({**stated, PRIORITY: ""}.items()))
        part = bool(stated.get(PRIORITY)) and (name, of_all) in values
        if not part and (name, replica) not in replicas:
            replicas.add((name, replica))
            chosen[name, labels] = scraped
    return chosen


def _check_lines(scrape: ScrapeText) -> None:
    """Raise the error of a line that is no sample, or of a sample that is no number."""
    names = _all_names()
    for line, text in enumerate(scrape.lines, 1):
        sample = sample_in(text)
        if sample is None and text.strip() and not text.startswith("#"):
            message = f"expected NAME{{LABELS}} VALUE, found '{text.strip()[:40]}'; is it cut?"
            raise BadInput.at((scrape.path, line, 1), message)
        if sample is not None and sample.name in names:
            try:
                finite(sample.value, line)
            except BadInput as error:
                raise BadInput.at((scrape.path, line, 1), error.faults[0].message) from error


def _check_same_process(file: str, values: SeriesValues) -> None:
    """Raise :class:`BadInput` where the server began anew between scrapes."""
    for (name, _), began_s in values.items():
        if name == BEGAN and any(before != after for before, after in pairwise(began_s)):
            message = "the server was started anew between two scrapes; take two behind that"
            raise BadInput.at(file, message)


@cache
def _names_of(engine: str) -> set[str]:
    """Return the names of all series of an engine that are read."""
    names = set()
    for group, by_what in ENGINES[engine].items():
        for given in by_what.values():
            for name in given:
                if group in ("times_s", "lengths"):
                    names |= {f"{name}{part}" for part in PARTS}
                else:
                    names |= set(_written(name))
    return names


def _written(name: str) -> tuple[str, str]:
    """Return how a series is called: a counter perhaps without its ending."""
    return name, name.removesuffix(TOTAL)


@cache
def _counters() -> set[str]:
    """Return the names of all series that only grow."""
    names = {name for name in _all_names() if name.endswith((TOTAL, "_count", "_bucket"))}
    return names.union(*map(_written, names))


@cache
def _all_names() -> set[str]:
    return {BEGAN}.union(*map(_names_of, ENGINES))


def _service_file(scrapes: Scrapes, between_s: float | None) -> ServiceFile:
    """Return what the series of one engine say."""
    times = [time for quantity in DEFINITIONS if (time := _time(scrapes, quantity)) is not None]
    answered, failed = scrapes.ended()
    output_tokens = scrapes.counter("output_tokens")
    acceptance = _acceptance(scrapes, output_tokens)
    tokens_per_s = None
    if between_s and output_tokens is not None:
        tokens_per_s = output_tokens / between_s
    load = ObservedLoad(
        duration_s=between_s,
        requests=answered,
        failed=failed,
        prompt_tokens=scrapes.counter("prompt_tokens"),
        output_tokens=output_tokens,
        cached_tokens=scrapes.counter("cached_tokens"),
        prompts=_lengths(scrapes, "prompts"),
        outputs=_lengths(scrapes, "outputs"),
        output_tokens_per_s=tokens_per_s,
    )
    return ServiceFile(
        file=scrapes.file,
        kind=f"{scrapes.engine} /metrics, {_scrapes_in_words(scrapes.count)}",
        engine=scrapes.engine,
        model=scrapes.label("model_name"),
        load=load,
        times=times,
        acceptance=acceptance,
        state=_state(scrapes),
        not_held=_not_held(scrapes, acceptance, times),
    )


def _scrapes_in_words(count: int) -> str:
    return "1 scrape since it began" if count == 1 else f"{count} scrapes"


def _time(scrapes: Scrapes, quantity: str) -> MeasuredTime | None:
    """Return a time as its histogram has it."""
    histogram = scrapes.histogram("times_s", quantity)
    if histogram is None:
        return None
    p50, p90, p99 = (_ms(histogram.percentile(share)) for share in (0.5, 0.9, 0.99))
    per_token = scrapes.engine == "SGLang" and quantity == "tpot"
    definition = TPOT_OF_SGLANG if per_token else DEFINITIONS[quantity]
    return MeasuredTime.model_validate(
        {
            "quantity": quantity,
            "seen_by": "server",
            "file": scrapes.file,
            "definition": definition,
            "count": round(histogram.values),
            "mean_ms": MS * histogram.total / histogram.values,
            "p50_ms": p50,
            "p90_ms": p90,
            "p99_ms": p99,
            "from_buckets": True,
        }
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else MS * seconds


def _lengths(scrapes: Scrapes, what: str) -> ObservedLengths | None:
    histogram = scrapes.histogram("lengths", what)
    if histogram is None:
        return None
    return ObservedLengths(
        mean_tokens=histogram.total / histogram.values,
        p50_tokens=histogram.percentile(0.5),
        p90_tokens=histogram.percentile(0.9),
        p99_tokens=histogram.percentile(0.99),
    )


def _acceptance(scrapes: Scrapes, output_tokens: int | None) -> ObservedAcceptance | None:
    """Return what counters say of drafts, and gauges beside them or where there are none.

    The decode steps of all requests are the counted times between their outputs; each request has
    one output before them, its first token.
    """
    acceptance = _with_gauges(scrapes, _of_counters(scrapes))
    outputs = scrapes.histogram("times_s", "itl")
    firsts = scrapes.histogram("times_s", "ttft")
    if outputs is None or firsts is None or output_tokens is None or scrapes.engine != "vLLM":
        return acceptance
    decoded = output_tokens - round(firsts.values)
    return over_all_steps(acceptance, decoded, round(outputs.values))


def _of_counters(scrapes: Scrapes) -> ObservedAcceptance | None:
    positions = scrapes.by_position()
    return counted(
        scrapes.file,
        scrapes.counter("drafts"),
        scrapes.counter("drafted_tokens"),
        scrapes.counter("accepted_tokens"),
        positions,
        window=len(positions) or None,
    )


def _with_gauges(
    scrapes: Scrapes, acceptance: ObservedAcceptance | None
) -> ObservedAcceptance | None:
    """Return acceptance with what gauges say: the tokens of a draft where counters do not say them,
    and the window.
    """
    mean = _mean_tokens_per_draft(scrapes)
    if mean is not None and (acceptance is None or acceptance.tokens_per_draft is None):
        base = acceptance or ObservedAcceptance(file=scrapes.file)
        acceptance = base.model_copy(update={"tokens_per_draft": mean})
    windows = scrapes.share("window")
    if acceptance is not None and windows:
        acceptance = acceptance.model_copy(update={"window": round(windows[-1]) or None})
    return acceptance


def _mean_tokens_per_draft(scrapes: Scrapes) -> float | None:
    """Return the mean that gauges of replicas show; 0 says that nothing was drafted."""
    by_replica = scrapes.series_of("gauges", "tokens_per_draft").values()
    return mean_of([length for scraped in by_replica for length in scraped if length > 0.0])


def _state(scrapes: Scrapes) -> ObservedState:
    running = scrapes.gauge("running")
    waiting = scrapes.gauge("waiting")
    used = scrapes.share("kv_used_share")
    queried = scrapes.counter("queried_tokens")
    hit = scrapes.counter("hit_tokens")
    passes = scrapes.histogram("lengths", "passes")
    return ObservedState(
        scrapes=scrapes.count,
        running_mean=mean_of(running),
        running_most=max(running, default=None),
        waiting_mean=mean_of(waiting),
        waiting_most=max(waiting, default=None),
        kv_used_share_mean=mean_of(used),
        kv_used_share_most=max(used, default=None),
        kv_capacity_tokens=_capacity(scrapes),
        kv_block_tokens=scrapes.info("cache", "block_size"),
        queried_tokens=queried,
        hit_tokens=hit,
        hit_rate=_hit_rate(scrapes, queried, hit),
        preemptions=scrapes.counter("preemptions"),
        engine_passes=None if passes is None else round(passes.values),
    )


def _hit_rate(scrapes: Scrapes, queried: int | None, hit: int | None) -> float | None:
    """Return the share of prompt tokens found in a cache: by what was looked up in it, else by all
    prompts, else as a gauge last has it.
    """
    if queried and hit is not None:
        return hit / queried
    cached = scrapes.counter("cached_tokens")
    if cached is not None:
        prompt_tokens = scrapes.counter("prompt_tokens")
        return cached / prompt_tokens if prompt_tokens else None
    rates = scrapes.share("hit_rate")
    return rates[-1] if rates else None


def _capacity(scrapes: Scrapes) -> int | None:
    """Return for how many tokens a replica's KV cache has room, by its blocks where it says no
    more.
    """
    stated = scrapes.info("cache", "kv_cache_size_tokens")
    blocks = scrapes.info("cache", "num_gpu_blocks")
    block_tokens = scrapes.info("cache", "block_size")
    if stated is None and blocks is not None and block_tokens is not None:
        return blocks * block_tokens
    gauges = [tokens for tokens in scrapes.share("kv_capacity") if tokens > 0.0]
    if stated is None and gauges:
        return round(gauges[-1])
    return stated


def _not_held(
    scrapes: Scrapes, acceptance: ObservedAcceptance | None, times: Sequence[MeasuredTime]
) -> list[NotHeld]:
    lacks = [
        NotHeld(
            what="each request: when it came, how long it is",
            remedy="a benchmark beside it: vllm bench serve --save-detailed, or AIPerf",
        )
    ]
    if acceptance is None:
        lacks.append(
            NotHeld(
                what="acceptance: no draft is counted",
                remedy="vLLM --speculative-config, SGLang --speculative-algorithm",
            )
        )
    elif scrapes.engine == "SGLang":
        lacks.append(
            NotHeld(
                what="acceptance by position",
                remedy="answers of requests with return_spec_tokens_details",
            )
        )
    if not times:
        lacks.append(
            NotHeld(
                what="times of requests",
                remedy="requests that end between the two scrapes",
            )
        )
    return lacks
