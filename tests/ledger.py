"""A cost that notes down what it is asked for and answers in round numbers, and a step played on
lanes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from simpy import Event

from simulator.core.acceptance.sources import Acceptance, Cycle
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.rows import Phase, Rows
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Kind, Lanes, State
from simulator.core.strategies.common.traits import Facts, Finding
from simulator.core.world import World
from tests.test_cost import MODEL

PROMPT = Rows.prefill(6)
TINY = ModelSpec.model_validate(MODEL)


def odds_of(acceptance: Acceptance) -> OddsOf:
    return lambda gamma: acceptance.odds(gamma, None)


@dataclass
class Ledger:
    """A row takes the target 1 s, the draft 0.1 s, a head beside the target 0.01 s; stage ``i``
    takes ``i + 1`` seconds.
    """

    contention: float = 1.0
    method_host_ratio: float = 1.0
    outside_s: float = 0.0
    stages: int = 3
    jitters: bool = False
    reads_context: bool = True
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def _noted(self, seconds: float, lane: str, *question: Any) -> Phase:
        self.asked.append(question)
        return Phase(seconds, {lane: seconds})

    def target(self, rows: Rows, start: float = 0.0, stop: float = 1.0) -> Phase:
        return self._noted(1.0 * rows.tokens, "target compute", "target", rows, start, stop)

    def draft(self, rows: Rows, purpose: str = "window") -> Phase:
        return self._noted(0.1 * rows.tokens, "draft compute", "draft", rows, purpose)

    def head(self, head: Any, rows: Rows) -> Phase:
        return self._noted(0.01 * rows.tokens, "draft head compute", "head", head, rows)

    def prefill(self, role: str, rows: Rows) -> Phase:
        return self._noted(
            {"target": 0.5, "draft": 0.25}[role] * rows.tokens,
            f"{role} compute",
            "prefill",
            role,
            rows,
        )

    def rendezvous(self, at: str, logit_rows: int, payload_bytes: float) -> Phase:
        return self._noted(1e-3 * payload_bytes, "", "rendezvous", at, logit_rows, payload_bytes)

    def copy(self, tokens: int) -> float:
        return self._noted(1e-4 * tokens, "", "copy", tokens).wall_s

    def stage(self, index: int, rows: Rows) -> Phase:
        return self._noted((index + 1.0) * rows.tokens, "", "stage", index, rows)

    def carry(self, index: int, tokens: int) -> float:
        return self._noted(0.25 * (index + 1) * tokens, "", "carry", index, tokens).wall_s

    def token(self) -> float:
        return 0.125

    def drawn(self, seed: int) -> Ledger:
        return self


def near(seconds: float) -> float:
    """But for rounding."""
    return pytest.approx(seconds, rel=1e-12, abs=1e-12)


def states(strategy: Strategy, *requests: tuple[int, int], off_exit: bool = False) -> list[State]:
    """Requests by context and by the tokens that their verifications keep."""
    return [
        strategy.open(Cycle((kept,), (off_exit,)).cursor(0, None), context)
        for context, kept in requests
    ]


def booked(
    strategy: Strategy, durations: Any, kind: Kind, stages: int = 0
) -> tuple[list[tuple[Any, ...]], float]:
    """Spans of a step that begins at 0, and when it has ended."""
    world = World()
    stage_lanes = tuple(world.lane(f"stage {index + 1}") for index in range(stages))
    links = tuple(world.lane(f"link {index + 1}") for index in range(stages - 1))
    lanes = Lanes(
        world.lane("target"), world.lane("draft"), world.lane("rendezvous"), stage_lanes, links
    )

    def step() -> Iterator[Event]:
        yield from strategy.timeline(lanes, durations, kind)

    world.environment.run(world.environment.process(step()))
    return [tuple(span) for span in world.spans], world.now


def first_finding(strategy: Strategy, **facts: Any) -> Finding | None:
    """Return the first field that the facts do not allow, with the message about it; None where
    they allow everything.
    """
    return next(strategy.findings(Facts(**facts)), None)
