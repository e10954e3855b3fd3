"""Decoding on this machine against its prediction: time per token, and every step's tokens.

Blocks of decoding and blocks in which passes are timed alternate, request by request, in one run.
The prediction of a round is the project's own simulation, on ``durations`` of that round's timed
passes and on acceptance recorded from the very prompts that are decoded. A round's prediction and
measurement make one error; the median of the rounds is stated, the spread of the rounds beside it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, stdev
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import yaml
from scipy.stats import t as student

from benchmarks.family.observations import PROMPT_TOKENS, assemble, describe, observe
from benchmarks.family.pair import Family
from benchmarks.live import budget as live_budget, decoding as live, pipeline as live_pipeline
from benchmarks.live.costs import (
    Beside,
    Clock,
    Samples,
    TimedText,
    slowdown,
    time_in_turns,
    time_plain,
    time_stages,
)
from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sequences import Split
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.inputs.catalogue import shipped
from simulator.inputs.traces import file as trace_file
from simulator.record.scores import Sampling
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import simulate

BEAM = Beam(8, 8, 2)
"""The tree in two stages: as many children of the root as pay on a core."""
BOUNDS = {"autoregressive": 0.08, "vanilla_sd": 0.08, "duodecoding": 0.12, "specpipe": 0.12}
"""Of the error of time per token, by strategy; what runs on two cores may be further off."""
COVERED = 0.9
"""Share of measured rounds that an interval is meant to hold."""
MORE_TOKENS = 32
"""Recorded behind what is decoded, for windows that begin near its end."""
CLOCKS: Mapping[str, Clock] = {"wall": perf_counter, "processor": thread_time}


class Setting(NamedTuple):
    """A strategy and its window, 0 where it has none."""

    strategy: str
    gamma: int


class TimedRequest(NamedTuple):
    """One request: seconds from its first token to its last, and the tokens that each step
    brought.
    """

    seconds: float
    steps: list[int]


@dataclass
class LivePoint:
    """A setting: milliseconds per token by round, as measured and as predicted, and its steps."""

    setting: Setting
    measured_ms: list[float] = field(default_factory=list)
    predicted_ms: list[float] = field(default_factory=list)
    requests: int = 0
    identical: int = 0
    """Requests whose steps were those of the simulation, one by one."""

    @property
    def error(self) -> float:
        """Return predicted over measured time, less one; median of the rounds."""
        return median(p / m for p, m in zip(self.predicted_ms, self.measured_ms, strict=True)) - 1.0

    @property
    def spread(self) -> float:
        """Return half the range of the rounds over their median."""
        return (max(self.measured_ms) - min(self.measured_ms)) / 2.0 / median(self.measured_ms)

    @property
    def bound(self) -> float:
        """Return the allowed error as a share: the strategy's bound, or the spread where that is
        larger.
        """
        return max(BOUNDS[self.setting.strategy], self.spread)

    @property
    def held(self) -> bool:
        """Return whether the error keeps the bound."""
        return abs(self.error) <= self.bound

    @property
    def interval_ms(self) -> tuple[float, float]:
        """Return where one more round is expected in ms, from predictions alone: Student's t on
        their logarithms.
        """
        logs, rounds = np.log(self.predicted_ms), len(self.predicted_ms)
        if rounds < 2:
            return self.predicted_ms[0], self.predicted_ms[0]
        half = student.ppf((1 + COVERED) / 2, rounds - 1) * stdev(logs) * (1 + 1 / rounds) ** 0.5
        return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))

    @property
    def covered(self) -> int:
        """Count the measured rounds within the interval."""
        low, high = self.interval_ms
        return sum(low <= measured <= high for measured in self.measured_ms)

    def data(self) -> dict[str, Any]:
        """Return the point as plain data."""
        names = (
            "measured_ms",
            "predicted_ms",
            "error",
            "spread",
            "bound",
            "held",
            "interval_ms",
            "covered",
            "requests",
        )
        return self.setting._asdict() | {
            name: getattr(self, name) for name in (*names, "identical")
        }


class Live(NamedTuple):
    """Holds the result of a live validation."""

    points: list[LivePoint]
    clock: str
    load: tuple[float, float]
    """Programs that wanted a core, mean of a minute, before and after; this one is one or two of
    them.
    """

    @property
    def coverage(self) -> float:
        """Return the share of measured rounds within their intervals."""
        return sum(point.covered for point in self.points) / sum(
            len(point.measured_ms) for point in self.points
        )

    @property
    def missed(self) -> int:
        """Count the settings whose error is beyond its bound."""
        return sum(not point.held for point in self.points)

    @property
    def exit_code(self) -> int:
        """Return 1 where a step was not as simulated, 3 where an error is beyond its bound, else
        0.
        """
        same = all(point.identical == point.requests for point in self.points)
        if not same:
            return 1
        return 3 if self.missed else 0

    def windows(self) -> dict[str, tuple[int, int]]:
        """Return the best windows, measured and predicted, of strategies that have one."""
        return {strategy: self.best(strategy) for strategy in WINDOWED}

    def data(self) -> dict[str, Any]:
        """Return the validation as plain data."""
        names = ("clock", "load", "coverage", "missed")
        facts = {name: getattr(self, name) for name in names}
        return {
            **facts,
            "best_window": self.windows(),
            "points": [point.data() for point in self.points],
        }

    def best(self, strategy: str) -> tuple[int, int]:
        """Return the window of least time per token, measured and predicted."""
        points = [point for point in self.points if point.setting.strategy == strategy]
        measured = min(points, key=lambda point: median(point.measured_ms))
        return measured.setting.gamma, min(
            points, key=lambda point: median(point.predicted_ms)
        ).setting.gamma


class Machine(NamedTuple):
    """The pair on this machine: a draft and a second stage wait on the other core, of which one
    works at a time.
    """

    family: Family
    drafting: Any
    second: Any
    clock: Clock

    def decode(self, setting: Setting, prompt: list[int], tokens: int) -> TimedRequest:
        """Decode one request live."""
        target = self.family.target
        if setting.strategy == "autoregressive":
            decoded = live.alone(target, prompt, tokens, self.clock)
            return TimedRequest(decoded.seconds, [1] * len(decoded.accepted))
        if setting.strategy == "vanilla_sd":
            drafter = live.autoregressive_drafter(self.family.draft)
            drafter(prompt, 1)
            decoded = live.speculate(target, drafter, prompt, setting.gamma, tokens, self.clock)
            return TimedRequest(decoded.seconds, [kept + 1 for kept in decoded.accepted])
        if setting.strategy == "duodecoding":
            both = live_budget.decode(
                target, self.drafting, prompt, tokens, Split(setting.gamma, 1)
            )
            return TimedRequest(sum(both.iteration_s), [step.committed for step in both.iterations])
        staged = live_pipeline.decode(self.family, self.second, prompt, tokens, BEAM)
        steps = [token for passage in staged.passages for token in (*[0] * (passage.steps - 1), 1)]
        return TimedRequest(staged.seconds, steps)

    def time(
        self, samples: Samples, strategy: str, text: TimedText, gammas: Sequence[int], repeats: int
    ) -> None:
        """Time a block of the passes that a strategy consists of."""
        for _ in range(repeats):
            if strategy == "autoregressive":
                time_plain(samples, self.family, text, self.clock)
            elif strategy == "vanilla_sd":
                time_in_turns(
                    samples, self.family, text, [gamma + 1 for gamma in gammas], self.clock
                )
        if strategy == "duodecoding":
            Beside(samples, self.family, self.drafting, text).time(sorted({1, *gammas}), repeats)
        elif strategy == "specpipe":
            time_stages(
                samples,
                self.family,
                self.second,
                text,
                (1, 2, 4, BEAM.width),
                repeats,
                BEAM.branching,
            )


def stated(samples: Samples, setting: Setting) -> dict[str, Any]:
    """Return the durations that a scenario states, from a round's timed passes.

    Messages take the time of the side that waits for them: the draft that needs the verdict, the
    second stage that needs a row. The other side works on meanwhile.
    """
    strategy, gamma = setting
    if strategy == "autoregressive":
        return {"durations": {"target_ms": samples.mean_ms("plain")}}
    if strategy == "vanilla_sd":
        return {
            "durations": {
                "target_ms": samples.by_rows_ms("target"),
                "draft_step_ms": samples.mean_ms("draft"),
            }
        }
    if strategy == "duodecoding":
        window = gamma * samples.mean_ms("draft apart") + samples.mean_ms("exchange")
        passes = {"target_ms": samples.by_rows_ms("target apart"), "draft_ms": window}
        slower = {
            "value": slowdown(samples),
            "source": "measured: both cores at work",
            "confidence": "measured",
        }
        handling = {"rv_fv_ms": samples.mean_ms("handling") / 2}
        return {"durations": passes | handling, "shared_memory": {"slowdown": slower}}
    stages = [samples.by_rows_ms("first"), samples.mean_ms("second") + samples.mean_ms("hop")]
    return {
        "durations": {"stages_ms": stages, "token_ms": samples.mean_ms("cut"), "draft_step_ms": 0.0}
    }


WINDOWED = ("vanilla_sd", "duodecoding")
STRATEGIES: Mapping[str, dict[str, Any]] = {
    "autoregressive": {"name": "autoregressive"},
    "vanilla_sd": {"name": "vanilla_sd"},
    "duodecoding": {"name": "duodecoding", "sequences": 1},
    "specpipe": {
        "name": "specpipe",
        "width": BEAM.width,
        "branching": BEAM.branching,
        "prune_ms": {
            "value": 0,
            "source": "measured: in durations.token_ms",
            "confidence": "measured",
        },
    },
}


@dataclass
class LivePrediction:
    """Simulations on recorded acceptance, from files in ``folder`` that ``specsim run`` reads
    too.
    """

    folder: Path
    requests: int
    tokens: int

    def load(self, setting: Setting, samples: Samples) -> Loaded:
        """Return the scenario of a setting on timed passes."""
        strategy, gamma = setting
        content = {
            "about": (
                f"{strategy} with the shipped small pair on this machine, passes timed between "
                "blocks of decoding"
            ),
            "strategy": STRATEGIES[strategy] | ({"gamma": gamma} if gamma else {}),
            **stated(samples, setting),
            "acceptance": {"trace": "./trace.npz"},
            "requests": {
                "count": self.requests,
                "prompt_tokens": PROMPT_TOKENS,
                "output_tokens": self.tokens,
            },
        }
        path = self.folder / f"{strategy}{gamma or ''}.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
        return load(str(path))

    def simulated(self, loaded: Loaded) -> tuple[float, list[list[int]]]:
        """Return milliseconds per token, and the tokens of each step by request, in the order of
        the recording.
        """
        acceptance, steps = loaded.acceptance(), [list[int]() for _ in range(self.requests)]
        trace = cast(Trace, loaded.trace)

        def kept(iteration: Any) -> None:
            if iteration.kind != "prefill":
                steps[order[iteration.requests[0]]].append(iteration.tokens[0])

        order = Replay(trace, (), loaded.scenario.seed).order
        outcome, _ = simulate(loaded.scenario, acceptance, log=kept)
        return outcome.tpot_s * 1e3, steps


def recorded(family: Family, prompts: Sequence[Sequence[int]], tokens: int) -> Trace:
    """Record what the pair says of its own continuations of the prompts."""
    written = [live.alone(family.target, [*prompt], tokens).tokens for prompt in prompts]
    observed = observe(family, torch.tensor(prompts), torch.tensor(written), Sampling(), [BEAM])
    return assemble(describe(family, Sampling(), 0, [BEAM]), [observed], tokens)


def settings(gammas: Sequence[int]) -> Iterator[tuple[str, list[Setting]]]:
    """Yield every strategy with its settings."""
    for strategy in STRATEGIES:
        yield (
            strategy,
            [Setting(strategy, gamma) for gamma in (gammas if strategy in WINDOWED else (0,))],
        )


def validate(
    gammas: Sequence[int],
    tokens: int,
    requests: int,
    rounds: int,
    clock: str = "wall",
    repeats: int = 1,
    out: Path | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Live:
    """Decode, time and predict, round by round, and return every setting's errors; ``tick`` follows
    each request.

    ``clock``: what one core alone is timed by, on the ``wall`` or of its ``processor``, which other
    programs' turns do not stretch; two cores are timed on the wall. ``out``: a folder for the trace
    and the last round's scenarios. Raises BadInput on a single core.
    """
    cores, prompts, pair = (
        live_budget.two_cores(),
        live_budget.shipped_prompts(requests),
        shipped() / live_budget.PAIR,
    )
    torch.set_num_threads(1)
    family, before = Family.read(pair), os.getloadavg()[0]
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        trace = recorded(family, prompts, tokens + MORE_TOKENS)
        trace_file.write(trace, folder / "trace.npz")
        texts = [_halfway(trace, prompt, request, tokens) for request, prompt in enumerate(prompts)]
        drafting = stack.enter_context(live_budget.beside(pair, cores))
        second = stack.enter_context(
            live_budget.beside(pair, cores, live_pipeline.second_stage_process)
        )
        machine = Machine(family, drafting, second, CLOCKS[clock])
        points = {setting: LivePoint(setting) for _, some in settings(gammas) for setting in some}
        prediction = LivePrediction(folder, requests, tokens)
        for round_ in range(rounds):
            random = np.random.default_rng(round_)
            samples, decoded = Samples(), {setting: list[TimedRequest]() for setting in points}
            for prompt, text in zip(prompts, texts, strict=True):
                for strategy, some in settings(gammas):
                    for index in random.permutation(len(some)):
                        machine.time(samples, strategy, text, gammas, repeats)
                        decoded[some[index]].append(machine.decode(some[index], prompt, tokens))
                tick()
            for setting, point in points.items():
                _judge(
                    point,
                    decoded[setting],
                    prediction.simulated(prediction.load(setting, samples)),
                    tokens,
                )
    return Live(list(points.values()), clock, (before, os.getloadavg()[0]))


def _halfway(trace: Trace, prompt: list[int], request: int, tokens: int) -> TimedText:
    """A recorded text at the mean context of its decoding."""
    start = int(trace.offsets[request])
    written = trace.token[start : int(trace.offsets[request + 1])].astype(int).tolist()
    return TimedText([*prompt, *written[: tokens // 2]], written[tokens // 2 :])


def _judge(
    point: LivePoint,
    decoded: Sequence[TimedRequest],
    predicted: tuple[float, list[list[int]]],
    tokens: int,
) -> None:
    """One round of a setting."""
    tpot_ms, steps = predicted
    point.predicted_ms.append(tpot_ms)
    point.measured_ms.append(
        sum(request.seconds for request in decoded) / (len(decoded) * (tokens - 1)) * 1e3
    )
    point.requests += len(decoded)
    point.identical += sum(
        request.steps == simulated for request, simulated in zip(decoded, steps, strict=True)
    )
