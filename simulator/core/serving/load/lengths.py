"""Lengths of prompts and outputs: a number, or a distribution that is drawn from."""

from math import ceil, floor, log
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from simulator.core.quantities import Frozen
from simulator.core.serving.load.traffic import MOST_TOKENS


class _Bounded(Frozen):
    """Lengths between two bounds."""

    least_tokens: int = Field(default=2, gt=0, le=MOST_TOKENS)
    """No length is shorter."""
    most_tokens: int = Field(gt=0, le=MOST_TOKENS)
    """No length is longer."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.least_tokens > self.most_tokens:
            raise ValueError(
                f"least_tokens {self.least_tokens} is more than most_tokens {self.most_tokens}"
            )
        return self


class Uniform(_Bounded):
    """Lengths of which each from ``least_tokens`` to ``most_tokens`` is equally likely."""

    name: Literal["uniform"] = "uniform"

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` lengths, in tokens."""
        return random.integers(self.least_tokens, self.most_tokens, size=count, endpoint=True)


class LogNormal(_Bounded):
    """Many short lengths and a few long ones: log-normal, rounded, and moved to the bounds where it
    lies outside.

    ``mean_tokens`` and ``spread`` (standard deviation over mean) are those before the cut.
    """

    name: Literal["lognormal"] = "lognormal"
    mean_tokens: float = Field(gt=0, le=MOST_TOKENS)
    """Before the cut at both ends."""
    spread: float = Field(ge=0, le=1_000)
    """Standard deviation over mean, before the cut."""

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` lengths, in tokens."""
        variance = log(1.0 + self.spread**2)
        drawn = random.lognormal(log(self.mean_tokens) - variance / 2, variance**0.5, size=count)
        return np.clip(np.rint(drawn), self.least_tokens, self.most_tokens).astype(np.int64)


class Exponential(_Bounded):
    """Lengths without memory: exponential, rounded up (which makes it geometric), and moved to the
    bounds.

    ``mean_tokens`` is that of the exponential.
    """

    name: Literal["exponential"] = "exponential"
    mean_tokens: float = Field(gt=0, le=MOST_TOKENS)
    """Before the cut at both ends."""

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` lengths, in tokens."""
        drawn = np.ceil(random.exponential(self.mean_tokens, size=count))
        return np.clip(drawn, self.least_tokens, self.most_tokens).astype(np.int64)


class Even(Frozen):
    """The two whole numbers next to ``mean_tokens``, so spread that the mean is that number as
    nearly as can be.
    """

    name: Literal["even"] = "even"
    mean_tokens: float = Field(ge=1, le=MOST_TOKENS)
    """The mean of all lengths."""

    @property
    def least_tokens(self) -> int:
        """Return the shorter of the two lengths."""
        return floor(self.mean_tokens)

    @property
    def most_tokens(self) -> int:
        """Return the longer of the two lengths."""
        return ceil(self.mean_tokens)

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` lengths, in tokens; nothing about them is random."""
        ends: NDArray[np.int64] = np.floor(np.arange(count + 1) * self.mean_tokens).astype(np.int64)
        return ends[1:] - ends[:-1]


Lengths = Uniform | LogNormal | Exponential | Even


def _which(value: object) -> object:
    """Return the tag of a length: the name of its distribution, or ``number``."""
    if isinstance(value, dict):
        return value.get("name")
    return getattr(value, "name", "number")


_Drawn = (
    Annotated[Uniform, Tag("uniform")]
    | Annotated[LogNormal, Tag("lognormal")]
    | Annotated[Exponential, Tag("exponential")]
    | Annotated[Even, Tag("even")]
)
PromptTokens = Annotated[
    Annotated[int, Field(gt=0, le=MOST_TOKENS), Tag("number")] | _Drawn, Discriminator(_which)
]
OutputTokens = Annotated[
    Annotated[int, Field(gt=1, le=MOST_TOKENS), Tag("number")] | _Drawn, Discriminator(_which)
]


def draw_lengths(stated: int | Lengths, seed: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """Return ``count`` lengths: those of a distribution, or the same number over and over."""
    if isinstance(stated, int):
        return np.full(count, stated, dtype=np.int64)
    return stated.draw(np.random.default_rng(seed), count)
