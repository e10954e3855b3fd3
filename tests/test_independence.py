"""How wrong i.i.d. is: nothing where it holds, what a hand count says where it does not, and the
committed page.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from simulator.cli.main import main
from simulator.core.acceptance.iid import (
    WINDOWS,
    IidError,
    Independence,
    every_drafter,
    independence,
)
from simulator.core.acceptance.statistics import independent
from simulator.core.acceptance.trace import Trace
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces import file as trace_file
from simulator.inputs.traces.file import read
from simulator.report.markdown import as_markdown
from simulator.report.pages.iid import FIGURE, NAME, detailed, figure, headline, page
from tests.test_acceptance import make_trace

REPORT = Path(__file__).parents[1] / "reports" / "iid" / f"{NAME}.md"


def drawn(
    rate_after_hit: float, rate_after_miss: float, requests: int = 200, tokens: int = 300
) -> Trace:
    """A two-state chain of agreement; both rates alike is i.i.d."""
    random = np.random.default_rng(5)
    uniform, kept = random.random((requests, tokens)), np.zeros((requests, tokens), dtype=bool)
    for position in range(1, tokens):
        kept[:, position] = uniform[:, position] < np.where(
            kept[:, position - 1], rate_after_hit, rate_after_miss
        )
    return make_trace(np.where(kept, 0, 1).tolist())


def test_the_formula_is_right_where_tokens_are_independent() -> None:
    found = independence(drawn(0.7, 0.7), "iid")
    assert found.rate == pytest.approx(0.7, abs=0.01)
    for error in found.errors:
        assert error.low_percent < 0.5
        assert error.high_percent > -0.5
        assert error.formula_tokens == pytest.approx(1.0 + independent(found.rate, error.gamma))


def start_rate(hit: float, miss: float, gamma: int) -> float:
    """How often the first token of a window is kept, of a two-state chain.

    s = (1 - s hit^(gamma-1)) miss + s hit^(gamma-1) (hit^2 + (1 - hit) miss): a full window ends
    behind a token of which it is not known whether the draft would have had it.
    """
    full = hit ** (gamma - 1)
    return miss / (1.0 + full * miss - full * (hit**2 + (1.0 - hit) * miss))


def test_bursts_err_by_what_the_chain_says() -> None:
    """After a hit 0.9, after a miss 0.3: the formula sees 0.652 at one token, three keep 1.445 and
    not 1.354.
    """
    found = independence(drawn(0.9, 0.3, requests=100, tokens=3000), "bursts")
    assert found.rate == pytest.approx(start_rate(0.9, 0.3, 1), abs=0.01)
    for error in found.errors:
        kept = start_rate(0.9, 0.3, error.gamma) * sum(
            0.9**position for position in range(error.gamma)
        )
        assert error.recorded_tokens == pytest.approx(1.0 + kept, rel=0.01)
        expected = 100.0 * (
            (1.0 + independent(start_rate(0.9, 0.3, 1), error.gamma)) / (1.0 + kept) - 1.0
        )
        assert error.low_percent < expected < error.high_percent
    assert found.errors[0].percent == pytest.approx(-3.7, abs=1.0)


def test_all_numbers_of_a_tiny_trace() -> None:
    """Agreement 1 1 0 1 0 1 1 0 from position 1: windows of one start at 1, 3, 4, 6, 8, of three at
    1, 4, 6.
    """
    trace = make_trace([[9, 0, 0, 2, 0, 5, 0, 0, 1]])
    found = independence(trace, "tiny", windows=(3,))
    assert found.rate == pytest.approx(3 / 5)
    (error,) = found.errors
    assert error.recorded_tokens == pytest.approx(8 / 3)
    assert error.formula_tokens == pytest.approx(1 + 0.6 + 0.36 + 0.216)
    assert error.percent == pytest.approx(100 * (2.176 / (8 / 3) - 1))
    assert (error.low_percent, error.high_percent) == pytest.approx(
        (error.percent, error.percent)
    ), "one request: no spread"


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=12), min_size=1, max_size=6))
def test_a_window_of_one_is_what_the_formula_is_fitted_to(agreement: list[list[bool]]) -> None:
    trace = make_trace([[9, *(0 if kept else 1 for kept in request)] for request in agreement])
    (error,) = independence(trace, "any", windows=(1,)).errors
    assert error.percent == pytest.approx(0.0, abs=1e-9)


def test_windows_beyond_what_was_recorded_are_left_out() -> None:
    trace = read(Catalogue().names("trace")["six_flavours_greedy"])
    assert [error.gamma for error in independence(trace.drafted_by("eagle"), "eagle").errors] == [
        3,
        5,
        8,
    ]
    assert [error.gamma for error in independence(trace, "draft").errors] == list(WINDOWS)


@pytest.mark.parametrize(
    "name", sorted(name for name in Catalogue().names("trace") if name.startswith("six_flavours"))
)
def test_the_committed_page_says_what_we_find(name: str) -> None:
    text = REPORT.read_text()
    trace = read(Catalogue().names("trace")[name])
    for row in detailed(every_drafter(trace, name, (), WINDOWS, 0)).rows:
        assert f"| {' | '.join(map(str, row))} |" in text


def test_command_writes_page_figure_and_json(tmp_path: Path) -> None:
    trace_file.write(make_trace([[9, 0, 0, 2, 0, 5, 0, 0, 1]] * 3), tmp_path / "own.npz")
    arguments = [
        "trace",
        "iid",
        str(tmp_path / "own.npz"),
        "--window",
        "2",
        "--out",
        str(tmp_path / "page"),
    ]
    data = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert data["traces"][0]["errors"][0]["gamma"] == 2
    assert [Path(path).name for path in data["written"]] == [
        f"{NAME}.md",
        f"{NAME}.html",
        "iid.data.csv",
        FIGURE,
    ]
    text = (tmp_path / "page" / f"{NAME}.md").read_text()
    assert f"]({FIGURE})" in text
    assert "--window 2" in text
    plain = CliRunner().invoke(main, arguments)
    assert plain.exit_code == 0
    assert "γ = 2" in plain.stdout


def test_the_page_says_the_worst_both_ways() -> None:
    found = [
        independence(drawn(*rates, requests=20), str(rates)) for rates in ((0.9, 0.3), (0.4, 0.9))
    ]
    text = as_markdown(page(found, "a command"))
    assert (
        f"too little by up to {-found[0].errors[-1].percent:.1f} % ({found[0].name}, γ = 8)" in text
    )
    assert (
        f"too much by up to {max(error.percent for error in found[1].errors):.1f} % "
        f"({found[1].name}"
    ) in text


def drafter(name: str, *errors: IidError) -> Independence:
    """A drafter with these errors, whose windows reach two positions."""
    return Independence(name, 10, 0.75, (0.75, 0.6), errors)


def off(gamma: int, percent: float) -> IidError:
    """An error at a window, of which the sign is sure."""
    return IidError(gamma, 2.0, 2.0 + percent / 50, percent, percent / 2, 2 * percent)


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ((off(3, 1.0), off(8, 2.0)), "too much by up to 2.0 % (any, γ = 8)."),
        ((off(3, -1.0), off(8, -2.0)), "too little by up to 2.0 % (any, γ = 8)."),
        (
            (off(3, 1.0), off(8, -2.0)),
            "too much by up to 1.0 % (any, γ = 3) and too little by up to 2.0 % (any, γ = 8).",
        ),
        ((off(3, 0.0),), "exactly what was recorded."),
    ],
)
def test_the_largest_errors_in_a_sentence(errors: tuple[IidError, ...], said: str) -> None:
    assert headline([drafter("any", *errors)]) == f"The i.i.d. formula predicts {said}"


def test_a_recording_without_windows_in_a_sentence() -> None:
    assert headline([drafter("any")]) == "No window to compare."


def test_a_page_reads_so() -> None:
    drafters = [drafter("long", off(3, 1.0), off(8, -2.0)), drafter("short", off(3, 0.5))]
    written = page(drafters, "a command")
    brief = written.opening[0]
    (_, whole) = written.sections[0].blocks
    assert brief.title == "Error by drafter and window"
    assert brief.head == ["", "a", "γ = 3", "γ = 8"]
    assert brief.rows == [
        ("long", "0.750", "+1.0 %", "-2.0 %"),
        ("short", "0.750", "+0.5 %", ""),
    ]
    assert whole.title == "Error of the formula by drafter"
    assert whole.sortable
    assert whole.head == ["", "a", "at 1", "at 2", "at 3", "γ = 3", "γ = 8"]
    kept = ("0.750", "0.600", "")
    assert whole.rows == [
        ("long", "0.750", *kept, "+1.0 % (+0.5 to +2.0)", "-2.0 % (-1.0 to -4.0)"),
        ("short", "0.750", *kept, "+0.5 % (+0.2 to +1.0)", ""),
    ]


def test_a_picture_reads_so() -> None:
    (axes,) = figure([drafter("long", off(3, 1.0), off(8, -2.0))]).axes
    assert axes.get_xlabel() == (
        "i.i.d. formula against recording, tokens per step (%); in brackets: share kept by windows "
        "of one token"
    )
    assert [text.get_text() for text in axes.get_yticklabels()] == ["long  (75.0 %)"]
    assert axes.get_legend_handles_labels()[1] == ["γ = 3", "γ = 8"]
