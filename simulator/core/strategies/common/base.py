"""A strategy says who works when in one step of a batch, as a law and as a timeline.

A strategy is a frozen set of parameters. It composes a step from the state of each request, says
how long the parts of the step take, lets the time pass on the lanes, and settles what was verified.
Its law is the closed form over the same named durations. It knows no YAML, no tables and no plots.

What only some strategies can say is a capability of theirs
(:mod:`simulator.core.strategies.common.capabilities`).
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from simulator.core.acceptance.cursors import BARE, Cursor
from simulator.core.acceptance.sources import Acceptance, Exit, Odds
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.numeric import Numbers
from simulator.core.quantities import Frozen
from simulator.core.strategies.common.claim import Claim, Example
from simulator.core.strategies.common.law import Law, OddsOf, Part, means
from simulator.core.strategies.common.outputs import Outputs
from simulator.core.strategies.common.step import (
    ABSENT,
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_chain,
    intern_progress,
)
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits

LONGEST_WINDOW = 1_024
"""Draft tokens; far beyond any use, short enough for every formula."""
if TYPE_CHECKING:
    import typing_extensions

    D = typing_extensions.TypeVar("D", default=Any)
    S = typing_extensions.TypeVar("S", bound=State, default=Any)

    class _Typed(Generic[D, S]):
        """A type checker reads ``Strategy[D, S]`` as generic over its durations and states;
        ``Strategy`` alone has any.
        """
else:
    D = TypeVar("D")
    S = TypeVar("S", bound=State)

    class _Typed:
        """At run time ``Strategy[D]`` is ``Strategy``, as a generic model of pydantic is a class,
        found as a strategy.
        """

        def __class_getitem__(cls, parameters: type | tuple[type, ...]) -> type:
            return cls


class Strategy(_Typed[D, S], Frozen, ABC):
    """A strategy has named durations ``D`` in seconds, and a state ``S`` of each request; a
    subclass in a file of its own is found by its ``name``.

    One that needs no state of its own is a ``Strategy[D]``, whose requests are a ``State`` each.
    """

    name: str
    traits: ClassVar[Traits]
    """What holds whatever the settings."""
    bonus_on_full_accept: bool = True
    """Whether a window that is kept whole brings one more token, from the same pass."""

    # ---- what it is

    @property
    def window(self) -> int:
        """Return the draft tokens proposed for one verification, at most; 0 without speculation."""
        return 0

    def window_for(self, requests: int) -> int:
        """Return the draft tokens that each of ``requests`` decoding together gets."""
        return self.window

    def rows_at_hand(self, state: S, rows: int) -> int:
        """Return the rows of a request's next step, of so many at most: fewer where it is known
        before the step is planned that less was drafted for it.
        """
        return rows

    @property
    def needs(self) -> Needs:
        """Return what these settings need of models, caches and acceptance."""
        return Needs(draft_model=self.window > 0, cache_tokens=self.window + 1)

    def fitted_to(self, requests: int | None = None, stages: int | None = None) -> Self:
        """Return the strategy as it is set for a batch of ``requests`` on a pipeline of ``stages``;
        None leaves a setting.

        They become the fields of these names, where the strategy has such fields.
        """
        settings = {"requests": requests, "stages": stages}
        own = {
            name: value
            for name, value in settings.items()
            if value is not None and name in type(self).model_fields
        }
        if own:
            return self.model_copy(update=own)
        return self

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return the source whose cursors this strategy asks: ``verdicts`` of chains, or another
        reading of them.
        """
        return verdicts

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """Yield the fields whose values the facts do not allow, with a message: of a trace if it is
        given, else of the rest.
        """
        if facts.trace is None:
            yield from self._contradictions(facts)
        elif missing := self._unrecorded(facts.trace):
            yield missing

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield what these settings contradict: each other, the target, or acceptance that is
        stated.
        """
        yield from ()

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the field that asks for something the trace cannot answer, with a message that
        goes on from a file's name.
        """
        if trace.window is None or self.window <= trace.window:
            return None
        message = (
            f"knows windows of up to {trace.window} draft tokens, got {self.window}; set "
            f"strategy.gamma={trace.window}"
        )
        return "gamma", message

    # ---- the batch

    def open(
        self: "Strategy[D, State]", cursor: Cursor, context: int, drafted: bool = True
    ) -> State:
        """Return a request with ``context`` tokens in the cache; ``drafted``: its first window has
        been written too.

        A strategy with a state of its own says how that begins.
        """
        return State(cursor, context)

    @abstractmethod
    def compose(self, states: Sequence[S], prompts: Rows = NO_ROWS) -> Step:
        """Return what the next step of this batch is, with chunks of other requests' prompts in the
        same pass.
        """

    def settle(self, states: Sequence[S]) -> list[Progress]:
        """Verify what was proposed and return the progress of each request, in the order of
        ``states``.
        """
        bonus = self.bonus_on_full_accept
        proposal = BARE
        judged = 0
        settled = []
        for state in states:
            tokens = state.proposed
            if tokens is None:
                settled.append(ABSENT)
                continue
            if tokens != judged:
                proposal = intern_chain(tokens, bonus) if tokens else BARE
                judged = tokens
            accepted, committed, _, _ = state.cursor.judge(proposal)
            state.context += committed
            settled.append(intern_progress(committed, committed, accepted, tokens))
        return settled

    # ---- the time

    @abstractmethod
    def phases(self, cost: Cost, step: Step) -> Mapping[str, Phase]:
        """Return the parts of a step by the names of the durations; parts that do not occur may be
        left out.
        """

    def durations(self, cost: Cost, step: Step) -> D:
        """Return the named durations of a step, in seconds, and the contention where it is one of
        them: under it target and draft overlap.
        """
        named = {name: phase.wall_s for name, phase in self.phases(cost, step).items()}
        if "contention" in self.traits.durations._fields:
            named["contention"] = cost.contention
        durations: D = self.traits.durations(**named)
        return durations

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Return the seconds of a pass over nothing but prompts, through target and draft.

        ``ending`` of the prompts are complete with it, with ``context`` tokens in their caches
        together.
        """
        target = cost.prefill("target", prompts)
        if self.needs.draft_model:
            draft = cost.prefill("draft", prompts)
        else:
            draft = Phase(0.0, {})
        return Admission(target.wall_s, draft.wall_s, 0.0)

    @abstractmethod
    def timeline(self, lanes: Lanes, durations: D, kind: Kind) -> Timeline:
        """Book the step and return the events to wait for; when the last of them has come, the step
        is over.
        """

    # ---- the law

    @abstractmethod
    def step_seconds(self, durations: D, kind: Kind) -> Numbers:
        """Return the seconds of one step by the law; durations may be arrays."""

    @classmethod
    @abstractmethod
    def example(cls) -> Example:
        """Return small settings and stated durations under which the law is held to the
        timeline.
        """

    @abstractmethod
    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return how the law of ``requests`` at ``context`` cached tokens relates to the process.

        ``shares`` of the kinds of steps may be empty where they are not known; ``one_lane``: target
        and draft are one device.
        """

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the long-run share of each kind of step for a batch of independent requests."""
        return {Kind("step", requests): 1.0}

    def step(self, kind: Kind, context: Numbers) -> Step:
        """Return a step of this kind without prompts, with all requests at ``context`` tokens, or
        at each of an array.
        """
        rows = Rows.decode(self._window_of(kind) + 1, kind.verifying * context, kind.verifying)
        return Step(
            kind, rows + Rows.decode(1, kind.bare * context, kind.bare), kind.redrafts * context
        )

    def law(
        self,
        cost: Cost,
        odds: OddsOf,
        requests: int,
        context: int,
        kinds: Mapping[Kind, float] | None = None,
        one_lane: bool = False,
        outputs: Outputs | None = None,
    ) -> Law:
        """Return the law of ``requests`` at ``context`` cached tokens each: renewal-reward over
        step kinds.

        ``kinds`` replaces the shares of independent requests where the real ones are known. Without
        ``outputs`` they have no end; with them a step brings the tokens that are output.
        """
        parts = law_parts(self, cost, odds, requests, context, kinds)
        step_s, verified, request_step_s = means(parts)
        source = f"{self.traits.equation}; {odds(self.window_for(requests)).source}"
        shares = {part.kind: part.share for part in parts}
        emitted = _plain(share_emitted(self, parts, odds, outputs)) if outputs else 1.0

        independent = (
            not any(kind.verifying for kind in shares)
            or odds(self.window_for(requests)).independent
        )

        def claim() -> Claim:
            own = self.claim(cost, requests, context, shares, one_lane)
            if own.exact and outputs:
                return _with_ends(own, self._renews(shares), independent, emitted)
            return own

        return Law(
            _plain(step_s), _plain(verified), claim, source, shares, _plain(request_step_s), emitted
        )

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return whether every step of a request is like its first one, whatever the steps before
        it brought.

        Then the law of finite outputs is as exact as that of endless ones. ``shares`` are those of
        the kinds of steps.
        """
        return False

    def _chances(self, kind: Kind, odds: OddsOf) -> Mapping[int, Numbers]:
        """Return the chance of each number of tokens that a step of this kind commits for a request
        that verifies in it.
        """
        accepted = odds(self._window_of(kind)).accepted
        last = len(accepted) - 1
        chances = {kept + 1: accepted[kept] for kept in range(last)}
        full = last + self.bonus_on_full_accept
        return chances | {full: chances.get(full, 0.0) + accepted[last]}

    def _committed(self, kind: Kind, odds: OddsOf) -> Numbers:
        """Return the expected tokens that a step of this kind commits, over all its requests."""
        return (
            kind.verifying * odds(self._window_of(kind)).committed(self.bonus_on_full_accept)
            + kind.bare
        )

    def _window_of(self, kind: Kind) -> int:
        """Return the draft tokens of the windows that a step of this kind verifies."""
        if kind.window is None:
            return self.window
        return kind.window


def rows_of_a_request(strategy: Strategy) -> int:
    """Return the rows of a request in a verification, at most: those of a tree, else a row for each
    draft token and one more.
    """
    return strategy.needs.rows or strategy.window + 1


def early_exit(strategy: Strategy, layers: int | None) -> Exit | None:
    """Return the early exit that acceptance must know about, for a target of ``layers``; None
    without one.
    """
    exit = strategy.needs.exit
    if exit:
        return exit.within(layers)
    return None


def law_parts(
    strategy: Strategy,
    cost: Cost,
    odds: OddsOf,
    requests: int,
    context: int,
    kinds: Mapping[Kind, Numbers] | None = None,
) -> list[Part]:
    """Return what a law of ``requests`` at ``context`` cached tokens each is made of, by kind of
    step.
    """
    parts = []
    for kind, share in (kinds or strategy.kinds(odds, requests)).items():
        seconds = partial(strategy.step_seconds, kind=kind)
        durations = strategy.durations(cost, strategy.step(kind, context))
        committed = strategy._committed(kind, odds)
        parts.append(Part(kind, share, seconds, durations, committed, kind.batch))
    return parts


def share_emitted(
    strategy: Strategy, parts: Sequence[Part], odds: OddsOf, outputs: Outputs
) -> Numbers:
    """Return the share of the tokens committed in a law's ``parts`` that are output, as if steps
    were independent.

    Where acceptance is that of several kinds of text, each request is of one kind.
    """
    verifying = [strategy._window_of(part.kind) for part in parts if part.kind.verifying]
    by_kind = odds(verifying[0]).by_kind if verifying else ()
    if not by_kind:
        return _share_of_one_kind(strategy, parts, odds, outputs)
    endless = with_ends = 0.0
    for place, (steps, _) in enumerate(by_kind):

        def of_kind(window: int, place: int = place) -> Odds:
            return odds(window).by_kind[place][1]

        share = _share_of_one_kind(strategy, parts, of_kind, outputs)
        endless = endless + steps
        with_ends = with_ends + steps / share
    return endless / with_ends


def _share_of_one_kind(
    strategy: Strategy, parts: Sequence[Part], odds: OddsOf, outputs: Outputs
) -> Numbers:
    chances: dict[int, Numbers] = defaultdict(float)
    for part in parts:
        kind = part.kind
        share = part.share / part.batch
        chances[1] = chances[1] + share * kind.bare
        for tokens, chance in strategy._chances(kind, odds).items() if kind.verifying else ():
            chances[tokens] = chances[tokens] + share * kind.verifying * chance
    return outputs.share_emitted(
        [chances.get(tokens, 0.0) for tokens in range(max(chances, default=0) + 1)]
    )


def _with_ends(own: Claim, renews: bool, independent: bool, emitted: Numbers) -> Claim:
    """Return a claim of equality about steps as it holds for outputs that end, of whose tokens a
    share is ``emitted``.
    """
    taken = [] if renews else ["the first steps of a request are taken to be like its later ones"]
    taken += [] if independent else ["what steps keep is taken to be independent"]
    if not taken:
        return own
    cut = 1.0 - float(np.min(emitted))
    words = f"of outputs with an end, {' and '.join(taken)}"
    return Claim(
        "idealised",
        words + (f", so that ends cut {cut:.2g} of the tokens of a step" if cut else ""),
    )


def _plain(value: Numbers) -> Numbers:
    """Return a number as Python's float, and an array as it is."""
    if np.ndim(value):
        return value
    return float(value)
