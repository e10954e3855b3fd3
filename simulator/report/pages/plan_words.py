"""A plan in words, and on a terminal: the answer first, then what else there is, then how firm it is."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from simulator.report.console import WIDEST, item, new_table
from simulator.report.run_summary import number, share
from simulator.scenario.uncertainty import SHARE
from simulator.studies.plan.robustness import Sensitivity
from simulator.studies.plan.search import Finding
from simulator.studies.plan.study import PlanStudy, limit_name

BRIEF_LEGEND = "Carries: the most traffic at which it keeps the SLO, over that of the plan; when full: USD/Mtok at that traffic"
LEGEND = (
    "Each line: the cheapest fleet of a strategy on some hardware that keeps the SLO, by simulation. Missed by one less: the "
    "limit that a replica less breaks. Carries: the most traffic at which it keeps the SLO, over that of the plan. Million "
    "tokens: of output, the prompts' work included; when full: at the most traffic that it carries."
)


def headline(done: PlanStudy) -> str:
    """The answer in one sentence."""
    chosen = done.chosen
    return f"{fleet(chosen)}: {number(chosen.cost_usd_per_hour)} USD per hour."


def fleet(one: Finding) -> str:
    """Replicas, candidate and devices."""
    devices = " + ".join(f"{count * one.replicas} x {name}" for name, count in one.candidate.devices.items())
    return f"{one.replicas} {'replica' if one.replicas == 1 else 'replicas'} of {one.candidate.name} ({devices})"


def sentences(done: PlanStudy) -> Iterator[str]:
    """What the answer keeps, why it is not smaller, what it carries, and how sure that is."""
    chosen = done.chosen
    times = (f"{limit_name(one.limit)} {_ms(one.seconds)} of {_ms(one.limit.seconds)} ms" for one in chosen.measured)
    yield f"Simulated: {', '.join(times)}; {number(chosen.cost_usd_per_million_tokens)} USD per million output tokens."
    yield _why_not_fewer(done)
    yield f"It keeps the SLO up to {done.capacity:.2f} times the traffic of the plan (bisection, to 1 %)."
    longer = done.longer
    stable = "stable" if longer.stable else "growing"
    yield (
        f"Over {longer.requests:,} requests the SLO is {'kept' if longer.slo_met else 'missed'} and the queue {stable} "
        f"(drift {longer.drift:+.1%} of arrivals)."
    )
    chance = done.chance
    yield (
        f"Chance that the SLO is kept: {chance.kept} of {chance.draws} worlds drawn anew, {SHARE:.0%} interval "
        f"{chance.interval.low:.0%} to {chance.interval.high:.0%} (drawn: arrivals, recordings, device speeds; not links)."
    )
    if chosen.candidate.loaded.scenario.acceptance.stand_in:
        yield "Acceptance is a stand-in, recorded from small models: that of the models planned with may be higher or lower."
    yield from _break_even(done)
    if done.schedule:
        found = done.schedule.finding
        tightest = f"{limit_name(found.tightest.limit)} {_ms(found.tightest.seconds)} ms"
        held = f"the SLO is {'kept' if found.kept else 'missed'}, {tightest}"
        ranges = ", ".join(f"{a} to {b}: {k}" for a, b, k in done.schedule.ranges(chosen.candidate.loaded.scenario.batch))
        yield f"Draft tokens by batch size, of most tokens a second by law: {ranges}. Run with them, {held}."
    looked = done.search
    ruled = sum(bool(one.bound) for one in looked.findings)
    yield (
        f"{len(looked.plan.candidates)} candidates; of {len(looked.findings)} fleets looked at, {looked.simulated} were "
        f"simulated and {ruled} ruled out by a bound."
    )


def _why_not_fewer(done: PlanStudy) -> str:
    tightest = done.chosen.tightest
    if done.binding is None:
        return f"One replica is enough; the tightest limit is {limit_name(tightest.limit)}, at {share(tightest.strain)}."
    return f"One replica less misses {limit_name(done.binding)}."


def _break_even(done: PlanStudy) -> Iterator[str]:
    found = done.break_even
    if found is None:
        return
    yield f"By law {found.speedup:.2f} times autoregressive decoding on the same devices at its mean batch of {found.batch}."
    rate = "at any acceptance" if found.rate is None else f"while more than {found.rate:.0%} of draft tokens are kept"
    batch = f"up to {found.places}" if found.first_batch is None else f"below {found.first_batch}"
    latency = "there are no links"
    if found.linked:
        latency = (
            "whatever the latency of the links"
            if found.latency_ratio is None
            else f"to {found.latency_ratio:.3g} x the latency"
        )
    if found.rate is None and found.speedup < 1.0:
        yield "Break-even: it is behind at any acceptance."
        return
    yield f"Break-even: it stays ahead {rate}; in batches {batch}; {latency}."


HEAD = (
    "strategy",
    "hardware",
    "settings",
    "replicas",
    "devices",
    "USD/hour",
    "USD/million tokens",
    "when full",
    "carries",
    "missed by one less",
)


def rows(done: PlanStudy) -> Iterator[tuple[str, ...]]:
    """One line for each family, under ``HEAD`` and a column for each limit."""
    for (hardware, strategy), one in done.runners_up.items():
        if one is None:
            yield (strategy, hardware, "none", *_none(done, (hardware, strategy)))
            continue
        settings = ", ".join(f"{path.split('.')[-1]} {value}" for path, value in one.candidate.settings) or "as given"
        binding = done.search.binding(one)
        yield (
            *(strategy, hardware, settings, f"{one.replicas}"),
            " + ".join(f"{count * one.replicas} x {name}" for name, count in one.candidate.devices.items()),
            *(number(one.cost_usd_per_hour), number(one.cost_usd_per_million_tokens)),
            number(one.cost_usd_per_million_tokens / done.capacities[one.candidate.family]),
            f"{done.capacities[one.candidate.family]:.2f} x",
            limit_name(binding) if binding else "",
            *(_ms(held.seconds) for held in one.measured),
        )


def _none(done: PlanStudy, family: tuple[str, str]) -> Iterator[str]:
    """The rest of the line of a family that keeps the SLO nowhere: what its last finding missed."""
    found = [one for one in done.search.findings if one.candidate.family == family]
    last = found[-1] if found else None
    yield f"up to {max((one.replicas for one in found), default=0)}"
    yield from ("", "", "", "", "")
    yield limit_name(last.missed) if last and last.missed else ""
    yield from ("" for _ in done.search.plan.file.slo.limits)


def head(done: PlanStudy) -> tuple[str, ...]:
    """``HEAD`` and the limits."""
    return (*HEAD, *(f"{limit_name(one)} (ms)" for one in done.search.plan.file.slo.limits))


def changes(done: PlanStudy) -> Iterator[tuple[str, str]]:
    """What becomes of the answer where something is harder."""
    for one in done.sensitivity:
        yield one.change, _under(one)


def _under(one: Sensitivity) -> str:
    if one.reason:
        return f"not asked: {one.reason}"
    if one.answer is None:
        return "nothing keeps the SLO"
    if one.holds:
        tightest = one.answer.tightest
        return f"still holds; {limit_name(tightest.limit)} at {share(tightest.strain)} of its limit"
    return f"{fleet(one.answer)}, {number(one.answer.cost_usd_per_hour)} USD per hour"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.1 else number(seconds * 1e3, 3)


def print_plan(done: PlanStudy, console: Console) -> None:
    """The answer, the families, the changes."""
    width = min(console.width, WIDEST)
    console.print(headline(done), style="bold", width=width, highlight=False)
    for sentence in sentences(done):
        item(console, sentence, width)
    shown = new_table("USD/h", "USD/Mtok", "when\nfull", "carries", *_limits(done), "cheapest of each")
    shown.columns[-1].justify = "left"
    for strategy, hardware, settings, replicas, _, hour, tokens, full, carried, missed, *times in rows(done):
        words = f"{replicas} x {strategy} on {hardware}: {settings}"
        if not any(times):
            words = f"none: {strategy} on {hardware}, {replicas}, misses {missed}"
        shown.add_row(hour, tokens, full, carried, *times, words)
    console.print(shown, width=width)
    item(console, BRIEF_LEGEND, width)
    for change, answer in changes(done):
        item(console, f"{change}: {answer}", width)
    if done.search.plan.left_out:
        item(
            console,
            f"left out: {len(done.search.plan.left_out)} combinations that cannot run (in --json and on the page)",
            width,
        )


def _limits(done: PlanStudy) -> Iterator[str]:
    return (limit_name(one) for one in done.search.plan.file.slo.limits)


def laws(done: PlanStudy) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    """Time per token by batch size; the highest tokens a second of one replica."""
    sizes = sorted({one.batch for one in done.laws})

    def lines() -> Iterator[tuple[str, ...]]:
        for name in dict.fromkeys(one.candidate.name for one in done.laws):
            held = {one.batch: one for one in done.laws if one.candidate.name == name}
            times = (number(held[size].tpot_ms, 3) if size in held else "" for size in sizes)
            yield name, *times, number(max(one.tokens_per_s for one in held.values()), 3)

    return ("candidate", *(f"ms/token at {size}" for size in sizes), "most tokens/s"), lines()
