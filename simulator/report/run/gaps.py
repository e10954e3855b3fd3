"""Law, replay and simulation side by side, and the gaps between them."""

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.core.strategies.common.capabilities import accounting_of
from simulator.core.strategies.common.law import Law
from simulator.report.blocks import Block, Bullets, Paragraph, Section, Strong, Table, Words
from simulator.report.columns import Column, table
from simulator.report.law_claims import on_page
from simulator.report.run.acceptance import SaysOfRuns
from simulator.report.wording import number, percent, share
from simulator.scenario.agreement import GapPart
from simulator.scenario.outcome import Outcome
from simulator.scenario.result.run_result import RunResult

TITLE = "Law, replay and simulation"
CAPTION = (
    "Law: step over tokens, at the mean context. Replay and simulation: mean over requests of "
    "(E2E − TTFT)/(tokens − 1). The law with replayed means uses the simulation's own acceptance "
    "and step mix, so it explains the gap but predicts nothing."
)


@dataclass(frozen=True)
class Gap:
    """The difference of two columns in per cent of the first, and what it may come from."""

    title: str
    percent: float
    why: str
    """Reasons that there may be; ``run --explain-gap`` measures what each of them explains."""
    parts: tuple[tuple[str, float], ...]
    """Names and sizes in per cent of the factors that multiply to the whole difference."""


def section(result: RunResult) -> Section:
    """Return the table of law, replay and simulation, and what the gaps between them come from."""
    bullets = []
    for gap in gaps(result):
        bullets.append((Strong(f"{gap.title}: {percent(gap.percent)}"), " ", _explained(gap)))
    blocks: list[Block] = [_answers(result), Paragraph(CAPTION), Bullets(bullets)]
    if result.gap_parts:
        blocks.append(_measured_parts(result.gap_parts))
    blocks.append(Paragraph(f"Law: {result.law.source}. {agreement_sentence(result)}"))
    return Section(TITLE, blocks, brief=result.explain_gap)


def _answers(result: RunResult) -> Table:
    """Return the table with a column for the simulation, the replay and each of the laws."""
    columns: dict[str, Law | Outcome] = {
        "simulation": result.simulated,
        "replay": result.replay,
        "law, marginal rates": result.law,
        "law, replayed means": result.law_replayed,
    }
    answers = columns.values()
    simulated_s = result.simulated.tpot_s
    times_s = [answer.tpot_s for answer in answers]
    rows: list[tuple[Words, ...]] = [
        ("mean step (ms)", *(number(answer.step_s * 1e3) for answer in answers)),
        ("tokens per step and request", *(number(answer.tokens_per_step) for answer in answers)),
        (
            "verified, those behind an end too",
            *(number(answer.verified_per_step) for answer in answers),
        ),
        (Strong("time per token (ms)"), *(Strong(number(time_s * 1e3)) for time_s in times_s)),
        (
            "time per token against the simulation",
            *(percent(change(simulated_s * 1e3, time_s * 1e3)) for time_s in times_s),
        ),
    ]
    return Table(["", *columns], rows, "Law, replay and simulation of a step and a token")


def change(old: float, new: float) -> float:
    """Return a change in per cent."""
    return (new / old - 1.0) * 100.0


def _explained(gap: Gap) -> str:
    parts = ", ".join(f"{name} {percent(size)}" for name, size in gap.parts)
    return f"({parts}). May be due to: {gap.why}."


def _measured_parts(parts: tuple[GapPart, ...]) -> Table:
    columns: list[Column[GapPart]] = [
        Column("taken into account, one after the other", lambda part: part.reason),
        Column("time per token (ms)", lambda part: number(part.tpot_s * 1e3)),
        Column("explains of the gap", lambda part: share(part.share)),
    ]
    return table("From the law with marginal rates to the simulation", parts, columns)


def gaps(result: RunResult) -> list[Gap]:
    """Return two gaps: from the law with marginal rates to the law with replayed means, and from
    there to the simulation.
    """
    law = result.law
    means = result.law_replayed
    simulated = result.simulated
    steady_s = simulated.step_s / simulated.tokens_per_step
    first = Gap(
        "Gap 1: law with marginal rates to law with replayed means",
        change(law.tpot_s, means.tpot_s),
        _why_first(result),
        (
            ("tokens per step", change(means.tokens_per_step, law.tokens_per_step)),
            ("mix of step kinds", change(law.step_s, means.step_s)),
        ),
    )
    second = Gap(
        "Gap 2: law with replayed means to simulation",
        change(means.tpot_s, simulated.tpot_s),
        _why_second(result),
        (
            ("mean step and tokens of a step", change(means.tpot_s, steady_s)),
            ("admissions", change(steady_s, simulated.tpot_s)),
        ),
    )
    return [first, second]


def _why_first(result: RunResult) -> str:
    """Return what may explain the gap that is due to acceptance."""
    schedule = result.scenario.schedule
    spec = result.scenario.acceptance
    if not schedule.window:
        return "nothing is drafted, so acceptance plays no part"
    if result.odds.source.startswith("marginal run lengths"):
        return (
            "averaged over all starts, long runs count at each of their positions, and decoding "
            "jumps over them"
        )
    if result.odds.source.startswith("marginal hits"):
        return (
            "a token that was in the tree still comes late where pruning left a gap before its "
            "level: partial refills, which the share of hits does not count; and every request "
            "finds an empty pipeline"
        )
    if spec.trace is not None:
        return (
            "acceptance comes in bursts and flavours differ, so the positions that decoding visits "
            "keep another share than all recorded positions, which the marginal rate averages"
        )
    if spec.cycle or spec.always is not None:
        return "the cycle is cut where an output ends; over whole cycles both are the same"
    windows = f"{result.simulated.windows:,} windows"
    staged = ", and the pipeline that every request finds empty" if schedule.traits.staged else ""
    return f"positions are independent here, so what is left is chance over {windows}{staged}"


def _why_second(result: RunResult) -> str:
    """Return what may explain this gap; where the law breaks its claim that is said alone, as
    nothing else is known then.
    """
    if result.agreement.disagreement:
        return (
            "the law or the timeline is wrong, as they disagree; no other reason is named until "
            "they agree"
        )
    return "; ".join(_reasons(result)) or "nothing the law leaves out"


def _reasons(result: RunResult) -> Iterator[str]:
    """Yield what happens in the simulation and not in the law."""
    scenario = result.scenario
    schedule = result.scenario.schedule
    if result.simulated.handover:
        yield "the batch changes as requests are handed over, and empties at the end"
    elif any(kind.prompts for kind in result.simulated.kinds):
        yield "prompts of other requests travel in the steps, and the batch empties at the end"
    elif scenario.requests.together:
        yield "prefills of other requests hold up the batch, which empties at the end"
    if scenario.cost.reads_context:
        yield "the context grows from step to step while the law takes the mean context"
    shown_unchecked = accounting_of(schedule) == "emitted"
    if schedule.window and shown_unchecked:
        yield "a request ends when its last token is shown, checked or not"
    if schedule.window and isinstance(schedule, SaysOfRuns):
        yield schedule.left_out_by_law()
    if not result.agreement.claim.exact:
        yield str(result.agreement.claim)


def agreement_sentence(result: RunResult) -> str:
    """Return what the law claims of its process, and what this run shows of it."""
    claim = result.agreement.claim
    left_out = f": {claim.words}" if claim.words else ""
    shown = on_page(result.agreement.shown)
    return f"The law claims to be {claim.noun}{left_out}. This run shows: {shown}."
