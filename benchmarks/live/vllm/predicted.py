"""The profile of the running vLLM: eight numbers, fitted to a few cells; and what it predicts.

A cell is a scenario (``reports/live/vllm/profile``) that ``specsim run`` reads, too: as many
clients, requests and tokens, the target and the draft of the family, and acceptance from the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from scipy.optimize import least_squares

from benchmarks.live.vllm.kept import Cell, Recording
from benchmarks.live.vllm.settings import (
    CALIBRATION,
    CONFIGURATIONS,
    LOADS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SERVER,
    Configuration,
    Load,
)
from simulator.core.cost.rows import Rows
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.studies.service.simulated import simulated_service

FLAVOURS = ("code", "docs", "prose", "manual", "dialogue", "maths")
"""Kinds of text in the trace, in the order of its prompts."""
PRIOR = 0.03
"""What holds a term to where the search begins."""
KEYS = {"tpot_ms": "tpot_ms", "tokens_per_s": "output_tokens_per_s"}
"""What a study of a service calls each kind of number."""
DEVIATIONS = 1.645
"""Standard errors of a range of 90 %."""


class Term(NamedTuple):
    """A number of the profile that is fitted: where it stands, and where the search begins."""

    path: str
    begin: float
    also: tuple[str, ...] = ()
    """Further places that take the same number."""
    most: float = 1e6
    """Largest number that it may be."""


TERMS = (
    Term("device.matmul.default.memory_efficiency", 0.41, most=1.0),
    Term("device.matmul.default.compute_efficiency", 0.49, most=1.0),
    Term("device.small_operations.fixed_us", 860.0),
    Term("engine.schedule_us", 3_800.0),
    Term("engine.schedule_us_per_request", 280.0),
    Term(
        "engine.speculation.draft_model.fixed_us",
        1_650.0,
        ("engine.speculation.look_up.fixed_us",),
    ),
    Term("engine.verified_row_us", 12.0),
    Term("engine.outside_ms", 34.0),
)
"""At most eight; look-up is not in any cell of the calibration, so that its step is assumed to take
the host as long as one with a draft model.
"""


def strategy(how: Configuration) -> dict[str, Any]:
    """Return the strategy of a configuration."""
    if how.method is None:
        return {"name": "autoregressive"}
    if how.method == "ngram":
        return {
            "name": "tree_sd",
            "drafter": "lookup",
            "matched": {"value": 0.64, "source": "as recorded", "confidence": "measured"},
            "tree": {"branching": [1] * how.drafts, "source": "a chain, as the server was told"},
            "host_ms": {"value": 0, "source": "in speculation.look_up", "confidence": "assumed"},
        }
    return {"name": "vanilla_sd", "gamma": how.drafts}


def scenario(how: Configuration, asked: Load, outside_ms: float) -> dict[str, Any]:
    """Return the scenario of a cell; a client pauses for as long as a request is outside."""
    place = {"device": "./device.yaml", "engine": "./engine.yaml", "weights": "fp32"}
    content: dict[str, Any] = {
        "about": f"vLLM on a CPU: {how.name}, {asked.name}",
        "strategy": strategy(how),
        "target": {"model": "./target.json", "machine": "here", **place},
    }
    if how.method == "draft_model":
        content["draft"] = {"model": "./draft.json", "machine": "here", **place}
    if how.method:
        content["acceptance"] = {"trace": "./trace.npz"}
    requests: dict[str, Any] = {"count": asked.requests}
    if asked.clients is None:
        file = {"name": "file", "format": "csv", "file": f"./{asked.name}.csv"}
        requests["arrivals"] = file
        if how.method:
            names = prompts_of(FLAVOURS, asked.requests)
            requests["task_flavours"] = {name.replace("/", " "): [name] for name in names}
    else:
        requests["concurrency"] = asked.clients
        requests["sessions"] = {
            "name": "file",
            "file": f"./{asked.name}.csv",
            "between_s": outside_ms / 1e3,
        }
        if how.method:
            requests["recordings"] = prompts_of(FLAVOURS, asked.requests)
    policy = {
        "name": "unified_budget",
        "max_requests": SERVER["max-num-seqs"],
        "budget_tokens": SERVER["max-num-batched-tokens"],
    }
    return content | {"requests": requests, "serving": {"policy": policy}}


def prompts_of(trace_flavours: Sequence[str], count: int) -> list[str]:
    """Return the recording of each of the first ``count`` requests, in the order of the prompts."""
    kinds = len(trace_flavours)
    return [f"{trace_flavours[index % kinds]}/{index // kinds + 1}" for index in range(count)]


class Profile:
    """The scenarios of all cells in a folder, on a device and an engine with some terms changed."""

    def __init__(self, folder: Path, recording: Recording) -> None:
        self.folder, self.recording = folder, recording

    def write(self) -> None:
        """Write the scenario of every cell, and the arrivals of those without clients."""
        outside_ms = yaml.safe_load((self.folder / "engine.yaml").read_text())["outside_ms"][
            "value"
        ]
        for asked in LOADS:
            sent_s = self.recording.turns[0]["plain", asked.name].sent_s
            head, lines = "session,prompt_tokens,output_tokens", []
            for place in range(asked.requests):
                lines.append(f"{place},{PROMPT_TOKENS},{OUTPUT_TOKENS}")
            if asked.clients is None:
                head, lines = "arrival_s,prompt_tokens,output_tokens,task", []
                names = prompts_of(FLAVOURS, asked.requests)
                for at, name in zip(sent_s, names, strict=True):
                    task = name.replace("/", " ")
                    lines.append(f"{at:.6f},{PROMPT_TOKENS},{OUTPUT_TOKENS},{task}")
            (self.folder / f"{asked.name}.csv").write_text("\n".join([head, *lines]) + "\n")
            for how in CONFIGURATIONS:
                content = scenario(how, asked, outside_ms)
                text = yaml.safe_dump(content, sort_keys=False, width=100)
                (self.folder / f"{how.name}_{asked.name}.yaml").write_text(text)

    def overrides(self, values: Sequence[float], cell: Cell) -> list[str]:
        """Return what ``--set`` takes for the terms with these values."""
        roles = ["target", "draft"] if cell[0].startswith("draft") else ["target"]
        lines = []
        for term, value in zip(TERMS, values, strict=True):
            for path in (term.path, *term.also):
                ends = ("value", "low", "high") if path.startswith("engine") else ("value",)
                lines += [f"{role}.{path}.{end}={value!r}" for role in roles for end in ends]
            if term.path == "engine.outside_ms" and cell[1] != "poisson":
                lines.append(f"requests.sessions.between_s={value / 1e3!r}")
        return lines

    def simulated(self, cell: Cell, values: Sequence[float]) -> dict[str, float]:
        """Return what a cell takes with these terms, simulated, by kind of number."""
        path = self.folder / f"{'_'.join(cell)}.yaml"
        loaded = load(str(path), self.overrides(values, cell))
        outcome, _ = simulate(loaded.scenario, loaded.acceptance())
        found = {"tpot_ms": outcome.tpot_s * 1e3, "tokens_per_s": outcome.tokens_per_s}
        if cell[0].startswith("draft"):
            together = loaded.scenario.requests.concurrency
            step = loaded.scenario.cost.draft(Rows.decode(1, together * PROMPT_TOKENS, together))
            found["draft_ms"] = step.wall_s * 1e3 * loaded.scenario.schedule.window
        return found

    def steps(self, cell: Cell) -> int:
        """Return the steps of all requests of a cell behind their first tokens, simulated."""
        loaded = load(str(self.folder / f"{'_'.join(cell)}.yaml"))
        outcome, _ = simulate(loaded.scenario, loaded.acceptance())
        behind = loaded.scenario.requests.count * (OUTPUT_TOKENS - 1)
        return round(behind / outcome.tokens_per_step)

    def fitted(self) -> tuple[list[float], list[float]]:
        """Return the terms that come nearest to the cells of the calibration, none below 0, and how
        far each may be off in 90 of 100 cases.

        Least squares of logarithms; beside the cells each term is held to where the search begins,
        a factor of e weighing as much as a number that is off by ``PRIOR``. With J the derivatives
        and s the spread of what is left, standard errors are the roots of the diagonal of
        s^2 (J'J)^-1.
        """
        begin = np.array([term.begin for term in TERMS])
        cells = sorted(CALIBRATION)

        def off(moved: np.ndarray) -> np.ndarray:
            found = list(PRIOR * moved)
            for cell in cells:
                simulated = self.simulated(cell, (np.exp(moved) * begin).tolist())
                for kind, value in simulated.items():
                    found.append(np.log(value / self.recording.middle(cell, kind)))
            return np.array(found)

        most = np.log(np.array([term.most for term in TERMS]) / begin)
        bounds = (np.full(len(begin), -7.0), most)
        start = np.zeros(len(begin))
        found = least_squares(off, start, bounds=bounds, diff_step=[0.02] * len(begin), xtol=1e-4)
        slopes = np.asarray(found.jac)
        spread = np.sqrt(2.0 * found.cost / (len(found.fun) - len(begin)))
        errors = DEVIATIONS * spread * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
        fitted = np.exp(found.x) * begin
        return _rounded(fitted), _rounded(errors * fitted)

    def predict(self, cell: Cell) -> dict[str, tuple[float, tuple[float, float]]]:
        """Return what a cell takes by the files of the profile, by kind of number, each with its
        90 % interval.
        """
        service = simulated_service(load(str(self.folder / f"{'_'.join(cell)}.yaml")))
        found = {}
        for kind, key in KEYS.items():
            drawn = service.expected(key)
            low, high = drawn.interval(0.9)
            found[kind] = (drawn.value, (low, high))
        return found

    def keep(self, values: Sequence[float], errors: Sequence[float], source: str) -> None:
        """Write fitted terms into the files of device and engine, each with its source, and times
        with their ranges.
        """
        for name in ("device", "engine"):
            path = self.folder / f"{name}.yaml"
            content = yaml.safe_load(path.read_text())
            for term, value, error in zip(TERMS, values, errors, strict=True):
                for place in (term.path, *term.also):
                    file, *keys = place.split(".")
                    if file == name:
                        inner = content
                        for key in keys:
                            inner = inner[key]
                        confidence = "calibrated" if place == term.path else "assumed"
                        said = source if place == term.path else f"assumed: as {term.path}"
                        inner |= {"value": value, "source": said, "confidence": confidence}
                        if file == "engine":
                            inner |= {"low": max(0.0, value - error), "high": value + error}
            path.write_text(yaml.safe_dump(content, sort_keys=False, width=110))


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
