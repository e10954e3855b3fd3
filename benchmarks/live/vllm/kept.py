"""What is kept of a recorded vLLM: times of every request, counts of drafts, and passes, in one
packed file; texts are not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.live.vllm.settings import CONFIGURATIONS, LOADS

COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
}
"""What is counted between two scrapes."""
Cell = tuple[str, str]
"""A configuration and a load, by name."""


@dataclass(frozen=True)
class Measured:
    """One cell in one turn: seconds of each request, and what the server counted meanwhile."""

    duration_s: float
    sent_s: Sequence[float]
    """When each request was sent, from the first."""
    ttft_s: Sequence[float]
    rest_s: Sequence[float]
    """From the first token of each request to its last."""
    output_tokens: int
    """Of each request."""
    counted: dict[str, float]
    draft_ms: float
    """Time of the drafter in a step, as the worker wrote it down."""
    others: float
    """Cores that other programs had meanwhile."""

    @property
    def tokens_per_step(self) -> float:
        """Return the tokens of a request's step behind its first token; 1 without drafts."""
        behind = len(self.ttft_s) * (self.output_tokens - 1)
        return behind / (behind - self.counted.get("accepted", 0.0))

    @property
    def tpot_ms(self) -> float:
        """Return the mean over requests of the time of a token behind the first."""
        return 1e3 * fmean(self.rest_s) / (self.output_tokens - 1)

    @property
    def ttft_ms(self) -> float:
        """Return the mean time to the first token."""
        return 1e3 * fmean(self.ttft_s)

    @property
    def tokens_per_s(self) -> float:
        """Return all output tokens over the time from the first request to the last token."""
        return len(self.ttft_s) * self.output_tokens / self.duration_s


@dataclass(frozen=True)
class Recording:
    """All turns: what was measured by cell, one entry a turn."""

    about: dict[str, Any]
    turns: Sequence[dict[Cell, Measured]]

    @cached_property
    def cells(self) -> list[Cell]:
        """Return all cells, plain decoding first, loads in order."""
        return [(how.name, load.name) for how in CONFIGURATIONS for load in LOADS]

    def of(self, cell: Cell, what: str) -> list[float]:
        """Return a number of a cell in each turn, by the name of its property."""
        return [float(getattr(turn[cell], what)) for turn in self.turns]

    def middle(self, cell: Cell, what: str) -> float:
        """Return the median of the turns."""
        return median(self.of(cell, what))

    def spread(self, cell: Cell, what: str) -> float:
        """Return half the range of the turns over their median."""
        values = self.of(cell, what)
        return (max(values) - min(values)) / 2.0 / median(values)


def read(path: Path) -> Recording:
    """Return what a packed file holds."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        about, *cells = (json.loads(line) for line in lines)
    turns: list[dict[Cell, Measured]] = [{} for _ in range(about["turns"])]
    for cell in cells:
        turn, configuration, load = (cell.pop(key) for key in ("turn", "configuration", "load"))
        turns[turn][configuration, load] = Measured(**cell)
    return Recording(about, turns)


def pack(folder: Path, about: dict[str, Any], path: Path) -> None:
    """Write what the turns left in their folders into one packed file."""
    turns = sorted(folder.glob("turn_*"))
    lines = [about | {"turns": len(turns)}]
    for number, turn in enumerate(turns):
        passes = {
            path.name.removesuffix("_passes.jsonl"): _passes(path)
            for path in (folder / f"servers_{number}").glob("*_passes.jsonl")
        }
        for how in CONFIGURATIONS:
            for load in LOADS:
                name = {"turn": number, "configuration": how.name, "load": load.name}
                steps = passes.get(how.name, [])
                lines.append(name | _measured(turn / how.name, load.name, steps))
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _passes(path: Path) -> list[dict[str, Any]]:
    """Return the passes that a server wrote down, all but a last one that was cut."""
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}}")]


def draft_ms(passes: Sequence[dict[str, Any]], begin_s: float, end_s: float) -> float:
    """Return the median time of the drafter in the steps between two moments without prompts, in
    ms; 0 without any.
    """
    times = [
        1e3 * each["draft_time"]
        for each in passes
        if begin_s <= each["begin"] <= end_s
        and not each["scheduled_requests"]["num_prefill_requests"]
    ]
    return round(median(times), 4) if times else 0.0


def _measured(folder: Path, load: str, passes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    result = json.loads((folder / f"{load}.json").read_text())
    if result["failed"] or len(set(result["output_lens"])) > 1:
        raise ValueError(f"{folder / load}: requests failed or were cut short")
    before, after = (scraped(folder / f"{load}_{when}.txt") for when in ("before", "after"))
    first = min(result["start_times"])
    return {
        "duration_s": result["duration"],
        "sent_s": [round(sent - first, 6) for sent in result["start_times"]],
        "ttft_s": [round(seconds, 6) for seconds in result["ttfts"]],
        "rest_s": [round(sum(gaps), 6) for gaps in result["itls"]],
        "output_tokens": result["output_lens"][0],
        "counted": {key: after[key] - before[key] for key in COUNTERS if key in after},
        "draft_ms": draft_ms(passes, first, first + result["duration"]),
        "others": min(json.loads((folder / f"{load}_others.json").read_text())),
    }


def scraped(path: Path) -> dict[str, float]:
    """Return the counters of a scrape of /metrics."""
    found: dict[str, float] = {}
    for line in path.read_text().splitlines():
        name = line.partition("{")[0]
        for key, counter in COUNTERS.items():
            if name == counter:
                found[key] = found.get(key, 0.0) + float(line.rpartition(" ")[2])
    return found
