"""Adaptive windows follow the batch: they say how many draft tokens a request gets when so many decode together.

A larger batch makes verification dearer per token, so the best window shrinks with it. ``gamma`` of the strategy is the longest
window; each rule here answers with a window from 0 (no speculation in this step) to ``gamma``.
"""

from typing import Annotated, Literal

from pydantic import Field

from simulator.files.schema import Frozen


class FixedWindow(Frozen):
    """The window is the same whatever the batch."""

    name: Literal["fixed"] = "fixed"

    def window(self, gamma: int, requests: int) -> int:
        """Return gamma, in draft tokens."""
        return gamma


class WindowTable(Frozen):
    """The window changes at each listed batch size (vLLM's "dynamic speculative decoding").

    ``windows: {1: 7, 8: 3, 64: 0}`` drafts seven tokens for one to seven requests and none from 64 on.
    Below the smallest size the window is ``gamma``.
    """

    name: Literal["table"] = "table"
    windows: dict[Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]] = Field(min_length=1)
    """Draft tokens from each batch size on."""

    def window(self, gamma: int, requests: int) -> int:
        """Return the draft tokens of the largest listed size not above ``requests``."""
        return _looked_up(self.windows, gamma, requests)


class OffAbove(Frozen):
    """The window is gamma up to a batch of ``requests``, and 0 above (vLLM's ``speculative_disable_by_batch_size``)."""

    name: Literal["off_above"] = "off_above"
    requests: int = Field(gt=0)
    """Largest batch that speculates, in requests."""

    def window(self, gamma: int, requests: int) -> int:
        """Return gamma or 0 draft tokens."""
        return gamma if requests <= self.requests else 0


class GoodputWindow(Frozen):
    """The window has the most verified tokens per second by law, for each size of the batch (SmartSpec's goodput).

    ``windows`` is worked out before a run from the strategy's law, marginal acceptance rates and the mean
    context; a scenario may state it, which makes it a table.
    """

    name: Literal["goodput"] = "goodput"
    windows: dict[Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Draft tokens from each batch size on; worked out before a run, unless stated."""

    def window(self, gamma: int, requests: int) -> int:
        """Return the draft tokens of the largest size not above ``requests``; gamma before anything is worked out."""
        return _looked_up(self.windows, gamma, requests)


Adaptive = Annotated[FixedWindow | WindowTable | OffAbove | GoodputWindow, Field(discriminator="name")]


def stated_windows(rule: FixedWindow | WindowTable | OffAbove | GoodputWindow) -> dict[int, int]:
    """Return the draft tokens that a rule states from each batch size on; empty for a rule without a table."""
    return rule.windows if isinstance(rule, WindowTable | GoodputWindow) else {}


def _looked_up(windows: dict[int, int], gamma: int, requests: int) -> int:
    """Return the window of the largest size in ``windows`` not above ``requests``, at most gamma."""
    sizes = [size for size in windows if size <= requests]
    return min(gamma, windows[max(sizes)]) if sizes else gamma
