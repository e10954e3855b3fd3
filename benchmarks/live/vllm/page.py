"""The page of the loop on a running vLLM: what each cell took, and what was predicted of it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.live.vllm.judged import UNITS, Judged, Verdict
from benchmarks.live.vllm.kept import Recording
from benchmarks.live.vllm.settings import CALIBRATION, CHOICES
from simulator.report.blocks import (
    Block,
    Bullets,
    Highlight,
    Hyperlink,
    Page,
    Paragraph,
    Strong,
    Table,
    Words,
    sections,
)
from simulator.report.wording import number, share, signed_share

HEAD = (
    *("configuration", "clients", "measured", "spread", "predicted", "90 % interval", "error"),
    *("bound", "turns in it"),
)
COMMAND = "python -m benchmarks.live.vllm.loop"


def page(recording: Recording, verdict: Verdict) -> Page:
    """Return the page of a record and its predictions."""
    about = recording.about
    covered, turns = verdict.coverage
    clear = [sign for sign in verdict.signs if sign.clear]
    right = sum(sign.right for sign in clear)
    turn_count = len(recording.turns)
    return Page(
        title="A running vLLM beside its prediction",
        about=f"vLLM {about['vllm']} on {about['machine']}; {about['date']}; {turn_count} turns.",
        answer=(
            f"{verdict.held} of {len(verdict.judged)} numbers that nothing was fitted to are "
            f"predicted within 8 % or the spread of the turns, half of them within "
            f"{share(verdict.middle_error)}; {right} of {len(clear)} gains and losses have their "
            f"sign; {covered} of {turns} measured numbers lie in their 90 % intervals."
        ),
        opening=list(_opening(verdict)),
        sections=sections(
            *((f"{UNITS[kind].capitalize()}", list(_cells(verdict, kind))) for kind in UNITS),
            ("Gains and losses", list(_signs(verdict))),
            ("How", list(_how(recording))),
            ("Decided after an error was seen", [Bullets(CHOICES)]),
        ),
        command=COMMAND,
        highlights=[
            Highlight(f"{verdict.held} of {len(verdict.judged)}", "numbers within their bounds"),
            Highlight(share(verdict.middle_error), "median error"),
        ],
    )


def _opening(verdict: Verdict) -> Iterator[Block]:
    far = [each for each in verdict.judged if not each.held]
    yield Bullets(
        [
            f"{each.cell[0]}, {each.cell[1]}, {UNITS[each.kind]}: {signed_share(each.error)}, and "
            f"{share(each.bound)} were allowed"
            for each in far
        ]
        or ["Every error is within its bound."]
    )


def _cells(verdict: Verdict, kind: str) -> Iterator[Block]:
    rows = [_row(each) for each in verdict.numbers if each.kind == kind]
    yield Table(HEAD, rows, UNITS[kind], sortable=True)


def _row(each: Judged) -> tuple[Words, ...]:
    """Return the cells of a number under ``HEAD``; an error beyond its bound stands out."""
    error: Words = signed_share(each.error)
    if each.judged and not each.held:
        error = Strong(signed_share(each.error))
    low, high = each.interval
    return (
        each.cell[0],
        each.cell[1],
        number(median(each.measured), 3),
        share(each.spread),
        number(each.predicted, 3),
        f"{number(low, 3)} to {number(high, 3)}",
        error,
        share(each.bound) if each.judged else "fitted",
        f"{each.covered} of {len(each.measured)}",
    )


def _signs(verdict: Verdict) -> Iterator[Block]:
    rows: list[tuple[Words, ...]] = []
    for sign in verdict.signs:
        outcome: Words = "right" if sign.right else Strong("wrong")
        if not sign.clear:
            outcome = "turns differ"
        measured = (
            f"{median(sign.measured):.2f} ({min(sign.measured):.2f} to {max(sign.measured):.2f})"
        )
        rows.append((*sign.cell, measured, f"{sign.predicted:.2f}", outcome))
    head = ("configuration", "clients", "measured speed-up (turns)", "predicted", "sign")
    yield Table(head, rows, "Time per token of plain decoding over that of each configuration")
    losses = sum(median(sign.measured) < 1.0 for sign in verdict.signs)
    yield Paragraph(f"Measured losses among them: {losses or 'none'}.")


def _how(recording: Recording) -> Iterator[Block]:
    fitted = ", ".join(f"{name} at {load}" for name, load in sorted(CALIBRATION))
    yield Paragraph(
        "The shipped family, its target's MLP widened by units that lead nowhere, in float32; "
        "passes on one core, API and clients on the other. Each turn starts a server for every "
        "configuration; `vllm bench serve` asks for 64 tokens behind prompts of 64. Acceptance is "
        "recorded from the family, not from the engine. Medians of the turns; the spread is half "
        "of what lies between the slowest and the fastest."
    )
    yield Paragraph(
        f"Eight numbers are fitted, to {fitted}; these were chosen before any prediction."
    )
    others = max(cell.others for turn in recording.turns for cell in turn.values())
    yield Paragraph(
        "The fit does not tell each of them apart: engine.yaml has ranges, which the intervals "
        f"hold. Other programs had at most {number(others, 2)} cores while a load was measured."
    )
    yield Paragraph(("Every number: ", Hyperlink("cells.csv", "cells.csv"), "."))
