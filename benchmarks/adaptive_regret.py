"""What adaptive verification loses to the best fixed window of the same draft, by simulation.

    python -m benchmarks.adaptive_regret --out reports/adaptive        # ten minutes of one core

Batches of 1, 2, 4, ... 512 requests, all arms over the same draws: acceptance by position drawn
anew for every window, and recorded roll-outs, whose requests walk through the same recordings from
the same places. Contexts stay as they are, so that a step is priced by its rows alone. A window of
0 would draft nothing, which the rule never does; plain decoding stands beside it.

Events, too: the same recordings with prompts, contexts that grow, and requests that come and go,
the fixed windows around the best one beside the rule. Runs of large batches have fewer steps there,
of more requests each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.cursors import position_of
from simulator.core.acceptance.sources import odds_of
from simulator.core.acceptance.tree_replay import RecordedRuns, RunCursor
from simulator.core.strategies.adaptive_verification import AdaptiveVerification
from simulator.inputs.writing import write_all
from simulator.report.markdown import table
from simulator.scenario import Loaded, Scenario, load
from simulator.scenario.evaluate import baseline, simulate, tuned
from simulator.scenario.outcome import Outcome

STEPS = 20_000
BATCHES = tuple(1 << power for power in range(10))
DRAWN = ("adaptive_dflash_qwen3_coder_30b_a3b_h200", ["target.engine=vllm"])
RECORDED = ("adaptive_rollouts_llama_2_7b_a100", ["acceptance.drafter=draft"])
STRIDE = 37
"""Positions by which requests that walk through the same recording stand apart."""
IN_EVENTS = 400_000
"""Steps of requests in a run of events: those of the run, times its batch."""
LENGTHS = "prompt_tokens: 300, output_tokens: 512"
Ints = NDArray[np.int64]


class Arms(NamedTuple):
    """Tokens per second of one batch."""

    requests: int
    fixed: Mapping[int, float]
    """By window."""
    adaptive: float
    plain: float | None
    """Plain decoding by law; None where the arms read prompts, too."""
    steps: int
    """Of the rule's arm."""

    @property
    def best(self) -> int:
        """Return the best fixed window."""
        return max(self.fixed, key=lambda window: self.fixed[window])

    @property
    def regret(self) -> float:
        """Return what adaptive verification loses to it, as a share."""
        return 1.0 - self.adaptive / self.fixed[self.best]


def placed(name: str, settings: list[str], requests: int) -> Loaded:
    """Return a scenario with so many clients, of which all run."""
    return load(name, [*settings, f"requests={{count: {requests}, concurrency: {requests}}}"])


def _rule_of(loaded: Loaded) -> AdaptiveVerification:
    """Return the strategy of a scenario; raises TypeError for another one."""
    strategy = loaded.scenario.strategy
    if not isinstance(strategy, AdaptiveVerification):
        raise TypeError(f"{strategy.name} verifies windows of a fixed length")
    return strategy


class Prices:
    """The seconds of steps of one batch at the mean context of a scenario."""

    def __init__(self, scenario: Scenario, strategy: AdaptiveVerification, requests: int) -> None:
        self.scenario = scenario
        self.strategy = strategy
        self.requests = requests
        self.known: dict[int, float] = {}

    def of(self, budget: int) -> float:
        """Return the seconds of a step that verifies so many draft tokens, whole blocks drafted."""
        if budget not in self.known:
            kind = self.strategy.kind_with(self.requests, budget)
            step = self.strategy.step(kind, self.scenario.mean_context)
            durations = self.strategy.durations(self.scenario.cost, step)
            self.known[budget] = float(self.strategy.step_seconds(durations, kind))
        return self.known[budget]


def plain_rate(scenario: Scenario, requests: int) -> float:
    """Return the tokens per second of plain decoding."""
    return requests / float(baseline(scenario, requests).tpot_s)


def drawn_arms(steps: int, batches: tuple[int, ...] = BATCHES) -> Iterator[Arms]:
    """Yield the arms of each batch where every window is drawn anew by the chances of positions."""
    largest = placed(*DRAWN, max(batches))
    strategy = _rule_of(largest)
    window = strategy.window
    odds = odds_of(largest.acceptance(), None)
    reach = 1.0 - np.cumsum(odds(window).accepted)[:window]
    tuned = strategy.tuned(largest.scenario.cost, odds, max(batches), 0)
    for requests in batches:
        scenario = placed(*DRAWN, requests).scenario
        prices = Prices(scenario, tuned, requests)
        budget = tuned.budget_for(requests)
        windows = budget // requests + (np.arange(requests) < budget % requests)
        random = np.random.default_rng(requests)
        kept: Ints = np.zeros(window + 1, dtype=np.int64)
        adaptive = 0
        for _ in range(steps):
            run = window - np.searchsorted(reach[::-1], random.random(requests), side="right")
            kept += np.bincount(run, minlength=window + 1)
            adaptive += int(np.minimum(run, windows).sum()) + requests
        fixed = {}
        for length in range(1, window + 1):
            tokens = int(np.minimum(np.arange(window + 1), length) @ kept) + steps * requests
            fixed[length] = tokens / (steps * prices.of(length * requests))
        rate = adaptive / (steps * prices.of(budget))
        yield Arms(requests, fixed, rate, plain_rate(scenario, requests), steps)


def _walked(acceptance: RecordedRuns, requests: int) -> list[RunCursor]:
    """Return the cursors of so many requests, no two at the same place of a recording."""
    cursors = []
    for request in range(requests):
        cursor = acceptance.cursor(request, None)
        if not isinstance(cursor, RunCursor):
            raise TypeError(f"{type(cursor).__name__} walks through no recording")
        turn = request // len(acceptance.order)
        cursor.position = turn * STRIDE % len(cursor.recorded.run)
        cursors.append(cursor)
    return cursors


def _fixed_tokens(cursors: list[RunCursor], window: int, steps: int) -> int:
    """Return the tokens that so many steps of all requests bring with one window for all."""
    longest = max(len(cursor.recorded.run) for cursor in cursors)
    runs = np.zeros((len(cursors), longest), dtype=np.int64)
    lengths = np.zeros(len(cursors), dtype=np.int64)
    for place, cursor in enumerate(cursors):
        lengths[place] = len(cursor.recorded.run)
        runs[place, : lengths[place]] = cursor.recorded.run
    position = np.array([position_of(cursor) for cursor in cursors])
    every = np.arange(len(cursors))
    tokens = 0
    for _ in range(steps):
        brought = np.minimum(runs[every, position], window) + 1
        tokens += int(brought.sum())
        position = (position + brought) % lengths
    return tokens


def recorded_arms(steps: int, batches: tuple[int, ...] = BATCHES) -> Iterator[Arms]:
    """Yield the arms of each batch where requests walk through recordings, and every token has its
    own chance.
    """
    for requests in batches:
        loaded = placed(*RECORDED, requests)
        scenario = loaded.scenario
        acceptance = loaded.acceptance()
        if not isinstance(acceptance, RecordedRuns):
            raise TypeError(f"{type(acceptance).__name__} is no recording")
        strategy = _rule_of(loaded)
        tuned = strategy.tuned(scenario.cost, odds_of(acceptance, None), requests, 0)
        prices = Prices(scenario, tuned, requests)
        context = scenario.mean_context
        states = [tuned.open(cursor, context) for cursor in _walked(acceptance, requests)]
        tokens = 0
        seconds = 0.0
        for _ in range(steps):
            tuned.compose(states)
            seconds += prices.of(sum(state.proposed or 0 for state in states))
            for progress in tuned.settle(states):
                tokens += progress.verified
        fixed = {}
        for window in range(1, tuned.window + 1):
            of_all = _fixed_tokens(_walked(acceptance, requests), window, steps)
            fixed[window] = of_all / (steps * prices.of(window * requests))
        yield Arms(requests, fixed, tokens / seconds, plain_rate(scenario, requests), steps)


def _in_events(requests: int, steps: int, more: tuple[str, ...] = ()) -> Outcome:
    """Return a run of so many requests at a time, and of about as many steps or more; at its end
    fewer and fewer are left.
    """
    name, settings = RECORDED
    outputs = 512
    count = requests * max(4, -(-steps * 2 // outputs))
    load_of = f"requests={{count: {count}, concurrency: {requests}, {LENGTHS}}}"
    loaded = tuned(load(name, [*settings, load_of, *more]))
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    return outcome


def event_arms(steps: int, replayed: list[Arms]) -> Iterator[Arms]:
    """Yield the arms of each batch by events: the rule, and the fixed windows around the best one
    of the replay.

    ``steps`` of requests are simulated in each, at most as many of a run as the replay had.
    """
    for before in replayed:
        requests = before.requests
        long = min(before.steps, steps // requests)
        fixed = {}
        for window in before.fixed:
            if abs(window - before.best) <= 1:
                stated = f"strategy.budget_tokens={{{requests}: {requests * window}}}"
                fixed[window] = _in_events(requests, long, (stated,)).tokens_per_s
        ran = _in_events(requests, long)
        yield Arms(requests, fixed, ran.tokens_per_s, None, ran.steps)


def page(arms: list[Arms]) -> str:
    """Return the arms of all batches as a table."""
    header = ["requests", "steps", "best fixed window", "its tokens/s", "adaptive"]
    header += ["regret", "plain"]
    rows = [
        [
            str(one.requests),
            f"{one.steps:,}",
            str(one.best),
            f"{one.fixed[one.best]:,.0f}",
            f"{one.adaptive:,.0f}",
            f"{one.regret:+.2%}",
            "" if one.plain is None else f"{one.plain:,.0f}",
        ]
        for one in arms
    ]
    return table(header, rows)


@click.command()
@click.option("--steps", default=STEPS, show_default=True, help="Steps of each arm.")
@click.option("--batch", "batches", multiple=True, type=int, help="Requests; 1 to 512 by default.")
@click.option(
    "--events", default=IN_EVENTS, show_default=True, help="Steps of requests by events; 0: none."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the page.")
def main(steps: int, batches: tuple[int, ...], events: int, out: Path | None) -> None:
    """Print what adaptive verification loses to the best fixed window, batch by batch."""
    chosen = batches or BATCHES
    paragraphs = ["# What adaptive verification loses to the best fixed window"]

    def say(words: str, arms: list[Arms]) -> None:
        paragraphs.extend((words, page(arms)))
        click.echo(f"{words}\n\n{page(arms)}\n")

    by_position = list(drawn_arms(steps, chosen))
    say(f"Chances of positions, drawn anew in each of {steps:,} steps ({DRAWN[0]}):", by_position)
    by_token = list(recorded_arms(steps, chosen))
    say(f"Chances of tokens, {steps:,} steps through recordings ({RECORDED[0]}):", by_token)
    if events:
        of_events = list(event_arms(events, by_token))
        say(
            f"The same by events ({LENGTHS}), fixed windows around the best one:",
            of_events,
        )
    paragraphs.append("Command: `python -m benchmarks.adaptive_regret --out reports/adaptive`")
    if out:
        write_all({out / "regret.md": "\n\n".join(paragraphs) + "\n"})


if __name__ == "__main__":
    main()
