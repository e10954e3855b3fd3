"""Windows that follow the batch: how many draft tokens a request gets when so many decode together.

A larger batch makes verification dearer per token, so the best window shrinks with it. ``gamma`` of the
strategy is the longest window; each rule here answers with a window from 0 (no speculation in this step)
to ``gamma``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simulator.files.schema import Frozen


class FixedWindow(Frozen):
    """The same window whatever the batch."""

    name: Literal["fixed"] = "fixed"

    def window(self, gamma: int, requests: int) -> int:
        """Gamma."""
        return gamma


class WindowTable(Frozen):
    """A window from each listed batch size on, up to the next one (vLLM's "dynamic speculative decoding").

    ``windows: {1: 7, 8: 3, 64: 0}`` drafts seven tokens for one to seven requests and none from 64 on.
    Below the smallest size the window is ``gamma``.
    """

    name: Literal["table"] = "table"
    windows: dict[Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]] = Field(min_length=1)
    """From each batch size on, the window."""

    def window(self, gamma: int, requests: int) -> int:
        """That of the largest size not above ``requests``."""
        return _looked_up(self.windows, gamma, requests)


class OffAbove(Frozen):
    """Gamma up to a batch of ``requests``, none above (vLLM's ``speculative_disable_by_batch_size``)."""

    name: Literal["off_above"] = "off_above"
    requests: int = Field(gt=0)
    """The largest batch that speculates."""

    def window(self, gamma: int, requests: int) -> int:
        """Gamma or nothing."""
        return gamma if requests <= self.requests else 0


class GoodputWindow(Frozen):
    """The window with the most verified tokens per second by law, for each size of the batch (SmartSpec's goodput).

    ``windows`` is worked out before a run from the strategy's law, marginal acceptance rates and the mean
    context; a scenario may state it, which makes it a table.
    """

    name: Literal["goodput"] = "goodput"
    windows: dict[Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Worked out before a run, unless stated."""

    def window(self, gamma: int, requests: int) -> int:
        """That of the largest size not above ``requests``; gamma before anything is worked out."""
        return _looked_up(self.windows, gamma, requests)


Adaptive = Annotated[FixedWindow | WindowTable | OffAbove | GoodputWindow, Field(discriminator="name")]


def _looked_up(windows: dict[int, int], gamma: int, requests: int) -> int:
    sizes = [size for size in windows if size <= requests]
    return min(gamma, windows[max(sizes)]) if sizes else gamma
