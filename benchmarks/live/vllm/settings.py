"""What is asked of the running vLLM: configurations, loads, requests; and which of them decide the
profile.

The roles were written down before any prediction was made (``ROLES``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

OUTPUT_TOKENS = 64
PROMPTS = 64
PROMPT_TOKENS = (40, 48, 56, 64, 72, 80, 88, 96)
"""Lengths of prompts, in turn."""


class Load(NamedTuple):
    """Clients that wait for their answers, or arrivals at a rate; and how many requests."""

    name: str
    requests: int
    clients: int | None = None
    rate_per_s: float | None = None


LOADS = (
    Load("1", 12, clients=1),
    Load("2", 20, clients=2),
    Load("4", 32, clients=4),
    Load("8", 48, clients=8),
    Load("16", 64, clients=16),
    Load("poisson", 32, rate_per_s=4.0),
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
        own = {"prompt_lookup_max": 3} if self.method == "ngram" else {"model": draft}
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
}
"""Options of every server, beside ``--enforce-eager``, ``--no-enable-prefix-caching`` and
``--no-async-scheduling``.
"""


def is_judged(configuration: str, load: str) -> bool:
    """Return whether a cell is predicted, and not calibrated on."""
    return (configuration, load) not in CALIBRATION
