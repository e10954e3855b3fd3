"""The shipped pair and what it writes, for the tests that decode live; no test has a deadline:
machines are shared.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from functools import partialmethod
from hashlib import sha256
from inspect import signature
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import pytest
from _pytest.terminal import TerminalReporter
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, settings

from simulator.core.acceptance.trace import Trace
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.inputs.traces.file import read
from tests.fast_tier import LONG, leave_few, long_ones

settings.register_profile(
    "shared_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "mutants",
    deadline=None,
    max_examples=25,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("shared_machine")

# click 8.1 keeps stderr apart only when it is asked to
if "mix_stderr" in signature(CliRunner).parameters:
    CliRunner.__init__ = partialmethod(CliRunner.__init__, mix_stderr=False)


START = monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--within``: machines are shared, and a slow one must not fail what is right, nor hide
    what it did not get to.
    """
    told = (
        "begin no test that would end later, by the minutes of its mark; what is left over is "
        "skipped and named (-rs)"
    )
    parser.addoption("--within", type=float, default=float("inf"), metavar="SECONDS", help=told)


@pytest.hookimpl(tryfirst=True)  # marks are looked at afterwards
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave cases to the full tier, and put tests in an order, the same in every process, as none
    may need another before it.

    ``SPECSIM_ORDER`` decides it; without it, tests that take minutes come last.
    """
    leave_few(items)
    if order := os.environ.get("SPECSIM_ORDER"):
        items.sort(key=lambda item: sha256(f"{order} {item.nodeid}".encode()).digest())
    else:
        items.sort(key=minutes)


def pytest_collection_finish() -> None:
    """Leave what was collected, most of a million objects, to itself: looking through it again
    and again for what nobody uses any more takes a second of every sweep.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what would end too late."""
    if monotonic() - START + 60 * minutes(item) > (within := item.config.getoption("within")):
        pytest.skip(f"{item.nodeid} would not end within {within:.0f} s")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name the tests that make the fast tier slow."""
    if terminalreporter.config.option.markexpr != "not full":
        return
    durations_s: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            durations_s[report.nodeid] += report.duration
    if tests := long_ones(durations_s):
        terminalreporter.section(f"more than {LONG:.0%} of the time; mark them few or full")
        terminalreporter.write_line("\n".join(tests))


def minutes(item: pytest.Item) -> float:
    """Minutes that a test takes, as ``full(minutes=10)`` says; 0 for less than two."""
    return max((mark.kwargs.get("minutes", 0.0) for mark in item.iter_markers("full")), default=0.0)


if TYPE_CHECKING:
    import torch

    from benchmarks.family.members import Members


@pytest.fixture(scope="session")
def family() -> Members:
    """The pair of the shipped traces."""
    torch = pytest.importorskip("torch", reason="needs the extra 'record'")
    from benchmarks.family.members import Members

    torch.set_num_threads(1)
    return Members.read(shipped() / "scenarios/pairs/six_flavours.npz")


@pytest.fixture(scope="session")
def prompts() -> torch.Tensor:
    """The first tokens of one request of each flavour, (6, PROMPT_TOKENS); what the target wrote,
    so no text is needed.
    """
    torch = pytest.importorskip("torch", reason="needs the extra 'record'")
    from benchmarks.family.observations import PROMPT_TOKENS

    trace = read(Catalogue().names("trace")["six_flavours_greedy"])
    starts = [int(trace.offsets[requests[1]]) for requests in trace.requests_by_flavour.values()]
    return torch.from_numpy(
        np.stack([trace.token[start : start + PROMPT_TOKENS] for start in starts]).astype(np.int64)
    )


@pytest.fixture(scope="session")
def greedy(family: Members, prompts: torch.Tensor) -> Trace:
    """What the pair says of its own greedy continuations of ``prompts``."""
    from tests.live_recording import recorded

    return recorded(family, prompts, 0.0)
