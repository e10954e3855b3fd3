"""A method: a published system as data, beside the strategy that runs it."""

from __future__ import annotations

from pydantic import Field

from simulator.files.schema import Confidence, Frozen


class PublishedMean(Frozen):
    """Tokens that a step committed on average, correction or bonus included, and the speed-up beside it."""

    target: str
    """For which target."""
    tokens_per_step: float = Field(gt=1)
    """Tokens of a step on average, correction or bonus included."""
    speedup: float | None = Field(default=None, gt=0)
    """The speed-up reported beside it."""
    source: str
    """Where it is printed."""
    confidence: Confidence = "published"
    """How well it is known."""


class Method(Frozen):
    """What is known of a method beside what its strategy computes.

    ``tunes_target``: the target itself is trained. ``batched_by``: programs that run it for several requests at once,
    with their source.
    """

    name: str = ""
    """The file's name."""
    about: str
    """What it is, in a sentence."""
    source: str
    """Paper or program."""
    tunes_target: bool = False
    """The target itself is trained."""
    batched_by: str = ""
    """Programs that run it for several requests at once."""
    published: tuple[PublishedMean, ...] = ()
    """Means that were published for it."""

    def mean_for(self, target: str) -> PublishedMean | None:
        """The published mean for a target, or for the nearest of its size: same parameters in its name (7b)."""
        size = target.rsplit("_", 1)[-1]
        same = [one for one in self.published if one.target == target]
        return next(iter(same or [one for one in self.published if one.target.endswith(f"_{size}")]), None)
