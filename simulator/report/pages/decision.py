"""Shall one switch speculation on? The answer in a sentence, and what it rests on in a few
lines.
"""

import re
from collections.abc import Iterator

from simulator.report.blocks import Bullets, Highlight, Strong
from simulator.report.wording import number, signed_share, whole_share
from simulator.scenario.decision.answer import (
    AcceptanceOrigin,
    AcceptanceTurn,
    Along,
    Decision,
    FewerTokens,
    Flips,
    Measurement,
    Setting,
)

CERTAIN = 0.995
"""Chance from which on per cent would be rounded to 100, which no draws can show."""


def led(decision: Decision | None, answer: str) -> str:
    """Return an answer behind the decision, where there is one."""
    if decision is None:
        return answer
    return f"{sentence(decision)} {answer}"


def sentence(decision: Decision) -> str:
    """Return whether speculation helps, and how sure that is."""
    return f"Speculation {decision.verdict}: {faster(decision.chance)}."


def faster(chance: float) -> str:
    """Return a chance that speculation is faster in words."""
    return f"{chance_words(chance)} chance that it is faster than plain decoding"


def chance_words(chance: float) -> str:
    """Return a chance in whole per cent; no draws make it certain."""
    if chance >= CERTAIN:
        return "over 99 %"
    if chance <= 1.0 - CERTAIN:
        return "under 1 %"
    return whole_share(chance)


def highlights(decision: Decision | None) -> Iterator[Highlight]:
    """Yield the chance that speculation is faster; nothing without a decision."""
    if decision:
        what = f"chance that speculation is faster than plain decoding: it {decision.verdict}"
        yield Highlight(chance_words(decision.chance), what, decision.verdict)


def reasons(decision: Decision) -> Bullets:
    """Return what stands behind a decision, a line for each question."""
    lines = []
    for topic, words in said(decision):
        lines.append((Strong(f"{topic}:"), f" {words}."))
    return Bullets(lines)


def said(decision: Decision) -> Iterator[tuple[str, str]]:
    """Yield topic and words: where it flips, on which acceptance it rests, what half a token less
    would do, and what to measure.
    """
    yield "Flips", flips(decision.flips)
    now = decision.setting
    tokens = f"{number(now.tokens_per_step, 3)} tokens per step of {now.window} draft tokens"
    yield "Acceptance", f"{tokens}, {acceptance(decision.rests_on)}"
    if decision.half_a_token_less:
        measure = f" in {decision.first.measure}" if decision.both else ""
        yield "Half a token less per step", fewer(decision.half_a_token_less, measure)
    if decision.measurement:
        yield "To settle it", measurement(decision.measurement, decision.setting)


def beside(decision: Decision | None) -> str:
    """Return what stands behind a speed-up in time per token, where that in output tokens per
    second is another.
    """
    if decision is None or not decision.both:
        return ""
    side = decision.first
    how_sure = f"{side.verdict}, {chance_words(side.chance)}"
    return f"; in {side.measure} {side.speedup:.2f}x ({how_sure})"


def flips(where: Flips) -> str:
    """Return where the speed-up by law is 1, one number changed at a time."""
    batch = where.batch
    context = where.context
    still = []
    words = []
    if batch.first == batch.last == 1:
        words.append("it takes one request at a time")
    elif batch.turns:
        words.append(turns(batch, "a batch of"))
    else:
        still.append(f"no batch up to {batch.last:,}")
    if context.turns:
        words.append(turns(context, "a context of", " tokens"))
    else:
        still.append(f"no context from {context.first:,} to {context.last:,} tokens")
    if still:
        words.append(f"{' and '.join(still)} changes this")
    return "; ".join([*words, acceptance_turn(where.acceptance)])


def turns(along: Along, before: str, behind: str = "") -> str:
    """Return the turns of a speed-up over a number, with words before and behind its values."""
    words = []
    for turn in along.turns:
        side = "faster" if turn.faster else "slower"
        words.append(f"{side} from {before} {turn.at:,}{behind} on")
    return ", ".join(words)


def acceptance_turn(turn: AcceptanceTurn) -> str:
    """Return the acceptance at which both are equally fast, beside that of the scenario."""
    if turn.tokens_per_step is None:
        if turn.faster_at_last:
            return "faster even if no draft token is kept"
        return "slower even if every draft token is kept"
    kept = ""
    if turn.chance is not None:
        kept = f", {whole_share(turn.chance)} of draft tokens kept"
    level = f"as fast as plain decoding at {number(turn.tokens_per_step, 3)} tokens per step"
    return f"{level}{kept} (now {number(turn.now, 3)})"


def acceptance(origin: AcceptanceOrigin) -> str:
    """Return on which acceptance a decision rests."""
    match origin.origin:
        case "recorded":
            words = f"recorded from these models ({origin.where})"
        case "borrowed":
            words = "borrowed from other models"
            if origin.where:
                words += f" ({first_clause(origin.where)})"
        case "stated":
            known = [origin.confidence]
            if origin.where:
                known.append(first_clause(origin.where))
            words = f"stated ({', '.join(known)})"
    if origin.drawn:
        return f"{words}; the chance counts its range"
    if origin.origin == "recorded":
        return words
    return f"{words}; the chance takes it as it is"


def first_clause(source: str) -> str:
    """Return a source up to its first colon, semicolon, bracket or full stop."""
    return re.split(r"[:;.](?:\s|$)| \(", source, maxsplit=1)[0]


def fewer(tokens: FewerTokens, measure: str = "") -> str:
    """Return what half a token less per step would do; ``measure``: to which speed-up, in words."""
    how_sure = f"{tokens.verdict}, {chance_words(tokens.chance)}"
    return f"{tokens.speedup:.2f}x{measure} ({how_sure})"


def measurement(measured: Measurement, setting: Setting) -> str:
    """Return what to measure, and what that settles."""
    change = f"speed-up {signed_share(measured.change)}"
    match measured.what:
        case "acceptance":
            words = "record acceptance on your prompts"
            return f"{words} ({measured.confidence}, {change})"
        case "draft":
            words = f"measure a pass of the draft at batch {setting.batch}"
        case "link":
            words = "measure a transfer over the link"
        case "step":
            words = f"measure a step at batch {setting.batch} with K {setting.window} and with none"
    return f"{words} ({measured.settles}, {measured.confidence}, {change})"
