"""What the answer of a run is worth, for a terminal: whether speculation helps, how much, why, and
what that rests on.
"""

from collections.abc import Iterator

from simulator.report.blocks import ALWAYS, FIRST, LAST, THEN, Remark, Standing
from simulator.report.pages import decision as decided
from simulator.report.run import answer
from simulator.report.run.drafting import regime
from simulator.report.run.gaps import agreement_sentence
from simulator.report.run.scaling import scaled
from simulator.report.run.serving import cache_cost, split, tiers_words
from simulator.report.wording import as_sentence, number
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.uncertain.draws import Interval


def standing(result: RunResult, speedup: Interval | None) -> Standing:
    """Return what is printed of a run; ``speedup``: its interval, if there is one."""
    interval = ""
    if result.scenario.schedule.window:
        interval = f"{_speedup(result, speedup)}."
    words = decided.led(result.decision, f"{_time(result)}.")
    return Standing(interval, doubts=result.doubts, more=list(_more(result)), answer=words)


def _more(result: RunResult) -> Iterator[Remark]:
    """Yield what else there is to say, what has to be said first."""
    if result.agreement.disagreement:
        yield Remark("Law", agreement_sentence(result), ALWAYS, 1)
    limits = result.simulated.serving.counted.slo
    if limits:
        yield Remark("SLO", f"{', '.join(map(answer.limit, limits))}.", ALWAYS, 2)
    for caution in result.cautions:
        yield Remark("Beware", as_sentence(caution), FIRST)
    if result.scenario.schedule.window:
        yield Remark("Why", as_sentence(regime(result)), FIRST)
    yield from _service(result)
    if result.decision:
        yield from _turns(result)


def _speedup(result: RunResult, interval: Interval | None) -> str:
    words = f"Speed-up {result.speedup:.2f}x"
    if interval:
        words = answer.doubt(result.speedup, interval)
    return f"{words}{decided.beside(result.decision)}"


def _time(result: RunResult) -> str:
    """Return simulated times and rates beside those of autoregressive decoding."""
    simulated = result.simulated
    plain = result.baseline
    words = f"{number(simulated.tpot_s * 1e3, 3)} ms per token"
    drafts = bool(result.scenario.schedule.window)
    if drafts:
        words += f", {number(plain.tpot_s * 1e3, 3)} without speculation"
    if result.scenario.requests.together:
        words += f"; {number(simulated.tokens_per_s, 3)} tokens per second"
        if drafts:
            words += f", {number(plain.tokens_per_s, 3)} without"
    return f"{words} (simulation)"


def _service(result: RunResult) -> Iterator[Remark]:
    """Yield what a service of many requests adds to the answer."""
    for sentence in answer.waiting(result):
        yield Remark("Clients", as_sentence(sentence), THEN)
    named = {
        "Replicas": scaled(result),
        "Apart": split(result),
        "Cache": cache_cost(result.cache_cost),
        "Tiers": tiers_words(result.simulated.serving),
    }
    for name, sentence in named.items():
        if sentence:
            yield Remark(name, sentence, THEN)


def _turns(result: RunResult) -> Iterator[Remark]:
    """Yield where speculation stops paying, and what to measure."""
    decision = result.decision
    if decision is None:
        return
    yield Remark("Flips", as_sentence(decided.flips(decision.flips)), THEN)
    if decision.measurement:
        words = decided.measurement(decision.measurement, decision.setting)
        yield Remark("To settle", as_sentence(words), LAST)
