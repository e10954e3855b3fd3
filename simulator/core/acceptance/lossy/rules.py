"""Rules by which a verification keeps more than the target would have written: outputs change.

A rule looks at the target's probability p of a drafted token, given the text and what was drafted
before it, and at the entropy H (nats) of its distribution there:

    typical     kept if p > min(threshold, alpha exp(-H)): FasterDecoding/Medusa (e2a5d20);
                vLLM's typical_acceptance_sampler (0244fee), which its engine V1 no longer has
    threshold   kept if p >= single, else with chance min(1, P / accumulated), P the sum of p over
                the children of a node up to this one: SGLang, speculative_sampling.cuh (120affb)

With ``single`` and ``accumulated`` at 1 the second is sampling from the target, whatever a draft
proposes; both are about temperatures above 0, as engines compare first choices at 0. A recording
says what a rule keeps if it holds p and H of what a drafter writes (``NAME.rollout.p``, of greedy
chains; ``NAME.tree.p``, of a static tree). Windows start behind the target's own text there; what
follows a token that it would not have written is taken to be alike, which
``python -m benchmarks.family.scored --check`` holds to decoding.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simulator.core.acceptance.lossy.scores import Floats, Ints, Kept, RankPath, Scores
from simulator.core.acceptance.sources import Acceptance, Rates, Replay
from simulator.core.quantities import Frozen, Ranged

Part = Annotated[float, Field(gt=0.0, le=1.0)]


class RuleLaw(NamedTuple):
    """The law of a rule says with which chance r a draft token is kept where those before it
    are.
    """

    kept: str
    """The chance or the condition, in symbols: p and q are the target's and the draft's probability
    of a token, H the entropy of the target's distribution in nats.
    """
    source: str
    """Paper or program."""
    exact_where: str
    """Where a step brings as many tokens as r says."""


EXACT = RuleLaw(
    "r = Σ min(p, q) over the vocabulary; at temperature 0 whether both have one first choice",
    "Leviathan et al. (arXiv 2211.17192), Corollary 3.6",
    "tokens are kept independently",
)
"""Law of verification without a rule, which leaves outputs as they are."""
PASSES = RuleLaw(
    "r + (1 − r) f, with the share f of rejected tokens that are kept all the same",
    "ours",
    "rejected tokens are kept independently",
)
"""Law of a rule of which only ``passes`` is known."""


class LossyRule(Frozen):
    """A rule keeps drafted tokens that the target alone would have written with a smaller
    chance.
    """

    law: ClassVar[RuleLaw]

    name: str
    passes: Ranged | None = None
    """Share of the draft tokens the target rejects that the rule keeps, where no recording says so:
    with stated rates, or a recording without the target's probabilities.
    """
    changed: Ranged | None = None
    """Share of the written tokens that the target alone would not have written, where a stated
    acceptance was measured under the rule.
    """

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for name in ("passes", "changed"):
            stated: Ranged | None = getattr(self, name)
            if stated is not None and max(stated.value, stated.high or 0.0) > 1.0:
                raise ValueError(f"{name}: expected a share of at most 1")
        return self

    @property
    @abstractmethod
    def words(self) -> str:
        """Return the rule in words."""

    @property
    def lossy(self) -> bool:
        """Return whether outputs differ from those of the target."""
        return True

    @abstractmethod
    def kept(self, scores: Scores, seed: int) -> Kept:
        """Return what is kept of each recorded proposal."""


class TypicalRule(LossyRule):
    """A token is kept if the target finds it typical: likelier than a threshold that falls with its
    entropy.
    """

    law: ClassVar[RuleLaw] = RuleLaw(
        "r: the share of tokens with p > min(threshold, alpha exp(−H)); of a tree the longest such "
        "path",
        "Medusa (arXiv 2401.10774); FasterDecoding/Medusa e2a5d20",
        "a recording holds p and H, and its text is the target's",
    )

    name: Literal["typical"] = "typical"
    threshold: Part = 0.09
    """Highest probability that is asked for (Medusa's epsilon)."""
    alpha: Part = 0.3
    """Part of exp(-entropy) that is asked for."""

    @property
    def words(self) -> str:
        """Return the rule in words."""
        return f"typical acceptance (threshold {self.threshold:g}, alpha {self.alpha:g})"

    def asked(self, entropy: Floats) -> Floats:
        """Return the probability above which a token is kept, by entropy (...) in nats."""
        return np.minimum(self.threshold, self.alpha * np.exp(-entropy))

    def kept(self, scores: Scores, seed: int) -> Kept:
        """Return the longest paths all of whose tokens are typical, the first of them by ranks."""
        row_of = {path: row for row, path in enumerate(scores.nodes)}
        count = scores.p.shape[1]
        whole: dict[RankPath, NDArray[np.bool_]] = {(): np.ones(count, dtype=bool)}
        tokens: Ints = np.zeros(count, dtype=np.int64)
        forced: Floats = np.zeros((scores.levels, count))
        for path in sorted(row_of, key=len):
            asked = self.asked(scores.entropy[scores.parents.index(path[:-1])])
            whole[path] = whole[path[:-1]] & (scores.p[row_of[path]] > asked)
            longer = whole[path] & (tokens < len(path))
            tokens[longer] = len(path)
            for level in range(len(path)):
                on_path = scores.p[row_of[path[: level + 1]]]
                forced[level, longer] = 1.0 - on_path[longer]
        return Kept(tokens, forced)


class ThresholdRule(LossyRule):
    """A token is kept if the target finds it likely enough, else by a draw that may be in its
    favour.
    """

    law: ClassVar[RuleLaw] = RuleLaw(
        "r = 1 where p ≥ single, else min(1, P / accumulated), P the sum of p over siblings so far",
        "SGLang, speculative_sampling.cuh 120affb",
        "a recording holds p, and its text is the target's",
    )

    name: Literal["threshold"] = "threshold"
    single: Part = 1.0
    """Probability from which on a token is kept (SGLang, speculative_accept_threshold_single)."""
    accumulated: Part = 1.0
    """By what the probability of a draw is divided (SGLang, speculative_accept_threshold_acc)."""

    @property
    def words(self) -> str:
        """Return the rule in words."""
        if not self.lossy:
            return "sampling from the target"
        return f"threshold acceptance (single {self.single:g}, accumulated {self.accumulated:g})"

    @property
    def lossy(self) -> bool:
        """Return whether a threshold is below 1."""
        return min(self.single, self.accumulated) < 1.0

    def kept(self, scores: Scores, seed: int) -> Kept:
        """Return the paths that are walked down with one draw a level, children by rank."""
        coins = np.random.default_rng(seed).random((scores.levels, scores.p.shape[1]))
        count = scores.p.shape[1]
        tokens: Ints = np.zeros(count, dtype=np.int64)
        forced: Floats = np.zeros((scores.levels, count))
        at: dict[RankPath, NDArray[np.bool_]] = {(): np.ones(count, dtype=bool)}
        for parent in scores.parents:
            here = at.get(parent, np.zeros(count, dtype=bool))
            level = len(parent)
            summed = np.zeros(count)
            before = np.zeros(count)
            for row, path in scores.children(parent):
                p = scores.p[row]
                summed = summed + p
                upto = np.where(p >= self.single, 1.0, np.minimum(1.0, summed / self.accumulated))
                upto = np.maximum(before, upto)
                chosen = here & (before < coins[level]) & (coins[level] <= upto)
                at[path] = chosen
                tokens[chosen] = level + 1
                chance = np.maximum(upto - before, 1e-12)
                forced[level, chosen] = np.maximum(0.0, 1.0 - p / chance)[chosen]
                before = upto
        return Kept(tokens, forced)


Rule = Annotated[TypicalRule | ThresholdRule, Field(discriminator="name")]


def relaxed(verdicts: Acceptance, passes: float, seed: int) -> Acceptance:
    """Return verdicts under a rule that keeps a share of the draft tokens that are rejected, each
    independently; of stated rates, or of a recording that holds agreement by position.
    """
    if isinstance(verdicts, Rates):
        rates = tuple(rate + (1.0 - rate) * passes for rate in verdicts.rates)
        return replace(verdicts, rates=rates, overlap=max(verdicts.overlap, *rates))
    if isinstance(verdicts, Replay) and verdicts.trace.run is None:
        drawn = np.random.default_rng([seed, 1]).random(len(verdicts.accepted)) < passes
        return verdicts.keeping(verdicts.accepted | drawn)
    return verdicts
