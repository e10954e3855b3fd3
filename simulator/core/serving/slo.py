"""Service level objective: how long a percentile of requests, or of gaps between tokens, may take.

``slo: {ttft_ms: {p99: 500}, tpot_ms: {p90: 50}}`` asks that 99 % of TTFT are at most 500 ms and 90
% of TPOT at most 50 ms.

*Attainment* of a limit is the share within it, counted and not read off a sketch. A request is
*good* if it meets every metric's limit itself (the loosest, where there are several); of
``tbt_ms``, if none of its gaps is longer. *Goodput* is good requests per second, as serving
benchmarks count it at a given rate (``--goodput`` of vLLM, after DistServe, Zhong et al., OSDI
2024); DistServe's own figure, the highest rate at which the asked share is good, is what ``specsim
capacity`` looks for.
"""

import re
from typing import Literal, NamedTuple

from pydantic import field_validator

from simulator.core.faults import told
from simulator.core.quantities import Frozen

Metric = Literal["ttft", "tbt", "tpot", "e2e"]
METRICS: tuple[Metric, ...] = ("ttft", "tbt", "tpot", "e2e")
"""Times of requests, in the order of reports."""


class Limit(NamedTuple):
    """``share`` of all values of a metric may take at most ``seconds``."""

    metric: Metric
    share: float
    seconds: float
    of: str = ""
    """The class of service whose values these are; empty for all requests."""

    @property
    def percentile(self) -> str:
        """Return the percentile as it is written: p99, p99.9."""
        return f"p{self.share * 100:g}"


class Slo(Frozen):
    """Limits on percentiles of a metric, each ``{pNN: milliseconds}``."""

    ttft_ms: dict[str, float] | None = None
    """From arrival to first token."""
    tbt_ms: dict[str, float] | None = None
    """Between two deliveries to one request."""
    tpot_ms: dict[str, float] | None = None
    """Per token behind the first, mean of a request."""
    e2e_ms: dict[str, float] | None = None
    """From arrival to last token."""

    @field_validator("ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", mode="before")
    @classmethod
    def _percentiles(cls, given: object) -> object:
        if given is None:
            return given
        if not isinstance(given, dict) or not given:
            raise ValueError(f"a limit needs a percentile, as in {{p99: 500}}; got {told(given)}")
        for name, limit in given.items():
            match = re.fullmatch(r"p(\d{1,2}(?:\.\d+)?)", str(name))
            if not match or not float(match[1]):
                raise ValueError(
                    f"a limit needs a percentile above p0 and below p100, as in {{p99: 500}}; "
                    f"got '{name}'"
                )
            if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
                raise ValueError(f"{name}: expected milliseconds above 0, got {told(limit)}")
        return given

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Return all limits that are stated, by metric and percentile."""
        stated = (
            (metric, name, ms)
            for metric in METRICS
            for name, ms in (getattr(self, f"{metric}_ms") or {}).items()
        )
        ordered = sorted(stated, key=lambda one: (METRICS.index(one[0]), float(one[1][1:])))
        return tuple(Limit(metric, float(name[1:]) / 100, ms / 1e3) for metric, name, ms in ordered)
