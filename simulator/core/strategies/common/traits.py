"""What a strategy says about itself: its traits, what it needs, and the facts against which it is
checked.
"""

from typing import Any, NamedTuple

from simulator.core.acceptance.sources import Exit
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.model import DraftHead, ModelSpec

Finding = tuple[str, str]
"""A field of the strategy (dotted where it lies deeper), and the message about it."""


class Traits(NamedTuple):
    """The traits of a strategy are the same whatever its settings."""

    durations: type[Any]
    """Named tuple of seconds, in the paper's symbols."""
    equation: str
    """Paper and equation of the law."""
    drafted_in: tuple[str, ...] = ("draft",)
    """Names of the phases in which a window is drafted."""
    hidden_behind: str | None = None
    """Name of the duration that drafting hides behind; None where nothing overlaps."""
    alone: bool = False
    """Whether it takes one request at a time."""
    staged: bool = False
    """Whether it runs on the stages of a pipeline and nowhere else."""
    splits_passes: bool = False
    """Whether it stops within every pass of the target, behind a layer counted from the ends of the
    model.
    """
    separate_prompts: bool = False
    """Whether prompts take separate passes, so that a step carries none."""
    shared_budget: bool = False
    """Whether it verifies as many draft tokens of all requests together as a budget allows."""


class EarlyExit(NamedTuple):
    """An early exit stands at a layer number or a share of the depth, and sends the top ``width``
    tokens.
    """

    depth: int | float
    """Layer number, or share of the depth between 0 and 1."""
    width: int
    """Candidate tokens that it sends."""

    def within(self, layers: int | None) -> Exit:
        """Return the exit of a target of ``layers`` as a share of its depth; a number stays one
        where they are unknown.
        """
        if isinstance(self.depth, int) and layers:
            share = self.depth / layers
        else:
            share = float(self.depth)
        return Exit(share, self.width)


class Needs(NamedTuple):
    """The needs of a strategy as it is set: of a draft model, of rows and cache, of acceptance."""

    draft_model: bool
    """Whether windows are written by a draft model that the scenario has to name."""
    cache_tokens: int
    """Tokens that one step may put into the cache of a request."""
    draft_steps: int = 1
    """Internal draft steps J of one window (MSD-4); 0 where none takes time."""
    rows: int | None = None
    """Rows of the target's pass that a request takes, whatever the batch; None: one more than the
    window of the batch.
    """
    lookahead: int = 0
    """Tokens behind those of a step for which a draft with keys and values of its own gets room
    (vLLM's ``num_lookahead_tokens``).
    """
    draft_slots: int = 0
    """Tokens of a pass that the draft takes of each request beside the target's rows (vLLM's
    ``max_num_new_slots_for_drafting``).
    """
    in_flight: int = 1
    """Steps that run at once over disjoint requests: the stages of a pipeline, else 1."""
    dynamic_draft: bool = False
    """Whether the draft's answers decide how many tokens, or which tree of them, it proposes."""
    single_rates: bool = False
    """Whether the law solves equations for each acceptance rate, so that it takes no arrays of
    them.
    """
    exit: EarlyExit | None = None
    """Early exit of the target that acceptance must know about."""


class Facts(NamedTuple):
    """The facts of a scenario against which a strategy is checked; without a trace its settings are
    checked.
    """

    target: ModelSpec | None = None
    layers: int | None = None
    """Layers of the target; None where only durations are stated."""
    stages: int | None = None
    """Stages of the target's pipeline; 0 without one, None where nothing is said of them."""
    stated: bool = False
    """Whether acceptance is stated instead of recorded."""
    trace: Trace | None = None
    """Recording that is to answer; only this is checked where it is given."""


def stated_stages(stages: int, facts: Facts) -> list[Finding]:
    """Return that ``stages`` of a strategy must not be stated, as they come from the placement; 0
    states none.
    """
    if not stages or facts.stages is None:
        return []
    return [("stages", f"comes from target.pipeline, which has {facts.stages}; leave it out")]


def too_many_children(branching: int, target: ModelSpec | None) -> list[Finding]:
    """Return what is wrong with ``branching`` children of a node: there are no more than tokens in
    the vocabulary.
    """
    if target is None or branching <= target.vocab_size:
        return []
    return [
        (
            "branching",
            (
                f"a node has {target.vocab_size:,} children at most, one for each token; got "
                f"{branching:,}"
            ),
        )
    ]


def no_cut(covered: bool, head: DraftHead | None, target: ModelSpec | None) -> list[Finding]:
    """Return that the LM head of a draft head, whose vocabulary is ``covered`` in part, is as wide
    as the target's or wider.
    """
    if not covered or head is None or target is None:
        return []
    if head.width(target) < target.vocab_size:
        return []
    width = f"its LM head is {head.width(target):,} tokens wide"
    return [
        (
            "covered",
            (
                f"{width}, and {target.name} has {target.vocab_size:,}; set vocabulary of the "
                "head to fewer, or leave covered out"
            ),
        )
    ]
