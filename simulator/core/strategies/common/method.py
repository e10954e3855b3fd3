"""A method is a published system as data, next to the strategy that runs it."""

from pydantic import Field

from simulator.core.cost.engine import Home
from simulator.core.cost.hull import Hull
from simulator.core.quantities import Confidence, Frozen


class PublishedMean(Frozen):
    """A published mean is the tokens that a step committed, correction or bonus included, and the
    speed-up printed with it.
    """

    target: str
    """Name of the target."""
    tokens_per_step: float = Field(gt=1)
    """Mean tokens of a step, correction or bonus included."""
    speedup: float | None = Field(default=None, gt=0)
    """Speed-up over plain decoding that is reported with it."""
    source: str
    """Paper and place where it is printed."""
    confidence: Confidence = "published"
    """Confidence in the source."""


class Method(Frozen):
    """A method holds what is known of it besides what its strategy computes.

    ``tunes_target``: the target itself is trained. ``batched_by``: programs that run it for several
    requests at once, with their source.
    """

    name: str = ""
    """Name of the file."""
    about: str
    """A sentence that says what it is."""
    source: str
    """Paper or program that it comes from."""
    tunes_target: bool = False
    """Whether the target itself is trained."""
    batched_by: str = ""
    """Programs that run it for several requests at once."""
    nearest: str = "draft"
    """Drafter of the shipped recordings whose chains come nearest to its own: they lend their
    bursts to a mean of it.
    """
    fitted_on: Home | None = None
    """The device that the calibrated numbers of its strategy were fitted on."""
    hull: Hull | None = None
    """What they were fitted on, beside the device."""
    published: tuple[PublishedMean, ...] = ()
    """Means that were published for it, by target."""

    def mean_for(self, target: str) -> PublishedMean | None:
        """Return the published mean for a target, or for another with the same size in its name
        (7b); None without either.
        """
        size = target.rsplit("_", 1)[-1]
        same_target = [mean for mean in self.published if mean.target == target]
        same_size = [mean for mean in self.published if mean.target.endswith(f"_{size}")]
        return next(iter(same_target or same_size), None)
