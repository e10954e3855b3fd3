"""What is asked of the running vLLM: configurations, loads, requests; and which of them decide the
profile.

The cells of ``CALIBRATION`` were written down before any prediction was made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

OUTPUT_TOKENS = 64
PROMPTS = 64
MOST_DRAFTS = 5
LOOK_UP = 3
"""Tokens that n-gram look-up compares (``prompt_lookup_max``, and so ``prompt_lookup_min``)."""
PROMPT_TOKENS = 64


class Load(NamedTuple):
    """Clients that wait for their answers, or arrivals at a rate; and how many requests."""

    name: str
    requests: int
    clients: int | None = None
    rate_per_s: float | None = None
    output_tokens: int = OUTPUT_TOKENS


LOADS = (
    Load("1", 6, clients=1),
    Load("2", 10, clients=2),
    Load("4", 16, clients=4),
    Load("8", 24, clients=8),
    Load("16", 32, clients=16),
    Load("poisson", 16, rate_per_s=4.0),
)


class Configuration(NamedTuple):
    """A way to speculate: a draft model or n-gram look-up, and drafts a step; plain without."""

    name: str
    method: str | None = None
    drafts: int = 0

    def speculation(self, draft: str) -> dict[str, Any] | None:
        """Return ``--speculative-config``."""
        if self.method is None:
            return None
        own = {"prompt_lookup_max": LOOK_UP} if self.method == "ngram" else {"model": draft}
        return {"method": self.method, "num_speculative_tokens": self.drafts, **own}


CONFIGURATIONS = (
    Configuration("plain"),
    *(Configuration(f"draft_{drafts}", "draft_model", drafts) for drafts in (1, 2, 3, 4, 5)),
    Configuration("ngram_3", "ngram", 3),
)
CALIBRATION = {(name, load) for name in ("plain", "draft_3") for load in ("1", "4", "16")}
"""Configurations and loads that decide the profile; all others are judged."""
SERVER = {
    "dtype": "float32",
    "max-model-len": 512,
    "max-num-seqs": 16,
    "max-num-batched-tokens": 2048,
    "gpu-memory-utilization": 0.3,
    "distributed-executor-backend": "uni",
}
"""Options of every server, beside ``--enforce-eager``, ``--no-enable-prefix-caching`` and
``--no-async-scheduling``.
"""


def is_judged(configuration: str, load: str) -> bool:
    """Return whether a cell is predicted, and not calibrated on."""
    return (configuration, load) not in CALIBRATION


CHOICES = (
    "The form of the profile was tried on a turn of plain and draft_3 on a busy machine, and on a "
    "whole turn whose servers had stood still for a minute before each load. Neither is in the "
    "record.",
    "Behind the second, which had errors of all cells: a load is warmed up (a first request took "
    "330 ms where others take 50), loads are shorter, and clients pause for as long as a request "
    "is outside of the engine.",
    "Begins of the fit are what plain and draft_3 of that turn gave. Without a weak pull to them "
    "(PRIOR), and without the time of the drafter in steps of draft_3, eight terms are not told "
    "apart; both came in behind the first two turns of the record.",
    "Of the two times of a speculative step that K 3 alone does not tell apart, that of the step "
    "is fitted and that of a pass of the draft is 0. Passes that were timed, with K 1 and 5 among "
    "them, had been seen.",
)
"""What was decided after an error was seen."""
