"""Show a plan: the fleet first, then why, the alternatives, how robust it is, by law, prices,
exports, what went in.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure as Drawing

from simulator.core.numeric import grouped
from simulator.core.serving.load.busier import requests_in_words
from simulator.core.serving.slo import Limit
from simulator.inputs.writing import write_all
from simulator.report import WANTED
from simulator.report.blocks import (
    ALWAYS,
    FIRST,
    THEN,
    Block,
    Bullets,
    Code,
    Figure,
    Highlight,
    Listing,
    Page,
    Paragraph,
    Remark,
    Standing,
    Strong,
    Table,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import WIDTH_IN, PointLabel, canvas, label_points
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.page import page_files
from simulator.report.pages import decision as decided, goodput, what_if
from simulator.report.panels import GREY, dress, look
from simulator.report.run.serving import cache_cost
from simulator.report.wording import as_sentence, if_known, number, share, whole_share
from simulator.scenario import Scenario
from simulator.scenario.cache_cost import CacheCost
from simulator.scenario.caveats import taken_over
from simulator.scenario.decision.by_law import doubts_by_law
from simulator.scenario.uncertain.doubts import about_large_mixtures
from simulator.scenario.uncertain.draws import SHARE
from simulator.studies.capacity import Trial
from simulator.studies.plan.break_even import BreakEven
from simulator.studies.plan.carried import DeviceCapacity
from simulator.studies.plan.commands.apart import files_apart, why_no_command
from simulator.studies.plan.commands.engines import ENGINES
from simulator.studies.plan.export import DraftLengths, WindowSchedule, is_better
from simulator.studies.plan.file import Candidate, NoCandidate, Offer
from simulator.studies.plan.headroom import MOST_SETTLED, FillingUp, Headroom, filling_up
from simulator.studies.plan.limits import limit_name
from simulator.studies.plan.loads import BestUse
from simulator.studies.plan.robustness import TWICE, Chance, Sensitivity
from simulator.studies.plan.search import (
    Finding,
    Search,
    devices_in_words,
    owned_together,
    too_few,
)
from simulator.studies.plan.split_or_not import SplitOrNot, goodput_per_s
from simulator.studies.plan.study import LawPoint, PlanStudy
from simulator.studies.plan.throughput import offered_per_s

NAME, PICTURE, SCENARIO = "plan", "plan.svg", "scenario.yaml"
REQUESTS = ("traffic.csv", "sessions.csv")
FIGURE_TITLE = "Cost of fleets against the SLO: the cheapest of each family, and its sizes"
ON_TERMINAL = (0, 1, 2, 3, 5, 6, 8, 10)
"""Columns of the table of alternatives that a terminal shows, before those of the limits."""
MOST_USED = 200
"""Per cent of a limit, more of which is drawn as so much."""
LEGEND = (
    "Each line is the cheapest fleet of a strategy on some hardware that meets the SLO in "
    "simulation. Headroom: how many times the planned traffic it carries. Million tokens: of "
    "output, with the work for prompts included; when full: at that traffic. Chance to be faster: "
    "that speculation is faster than plain decoding at the mean batch, by law."
)


def write_plan(study: PlanStudy, folder: Path) -> None:
    """Write the page, its picture, and the answer for the programs that serve it: all of them or
    none.

    A folder that holds an earlier answer alone is replaced whole. Raises BadInput where the folder
    cannot be made.
    """
    files = page_files(page(study), NAME) | study.exports
    ours = {SCENARIO, *REQUESTS, "schedule.csv", "specpipe.yaml"}
    ours.update(files, goodput.PICTURES)
    for program in ENGINES.values():
        ours.update(program.names)
    ours.update(files_apart())
    write_all({folder / name: content for name, content in files.items()}, ours)


def page(study: PlanStudy) -> Page:
    """Return the page of a plan and its answer."""
    plan = study.search.plan
    scenario = study.chosen.candidate.loaded.scenario
    drawing = Figure(FIGURE_TITLE, PICTURE, lambda: plan_figure(study))
    said = Bullets(list(sentences(study)))
    everywhere = sections(
        ("Alternatives", _alternatives(study)), ("Taken by default", _assumed(study))
    )
    in_files = sections(
        (goodput.TITLE, goodput.blocks(study.sizes)),
        (what_if.TITLE, what_if.blocks(study.law)),
        ("By law, one replica", [_laws(study)]),
        ("Left out", _left_out(plan.left_out)),
        ("Prices", [_prices(plan.file.devices)]),
        ("Exported", _exports(study)),
        (PROVENANCE, provenance_blocks(scenario)),
        (RESOLVED, resolved_blocks(scenario)),
        terminal=False,
    )
    return Page(
        f"Plan {plan.file.name}",
        about=plan.file.about,
        answer=f"{decided_words(study)}{headline(study.chosen)}",
        highlights=list(highlights(study)),
        opening=[
            drawing,
            *_carried(study),
            _led(reasons(study)),
            *_reasons_of_decision(study),
            _led(changes(study)),
            said,
        ],
        sections=[*everywhere, *in_files],
        command=study.command,
        standing=standing(study),
    )


def standing(study: PlanStudy) -> Standing:
    """Return how often the SLO is met, whether speculation helps, on what that rests, and why the
    fleet is that one.
    """
    met = study.chance
    low, high = (whole_share(end) for end in met.interval)
    interval = (
        f"The SLO is met in {met.kept} of {met.draws} resampled runs ({whole_share(SHARE)} "
        f"interval {low} to {high})."
    )
    doubts: list[str] = []
    if study.decision:
        fleet_ = study.decision.fleet
        doubts = list(doubts_by_law(fleet_.candidate.loaded, fleet_.mean_batch))
    more = [Remark(topic, words, THEN) for topic, words in reasons(study)]
    if carried := _all_owned_shortly(study):
        more.insert(0, Remark("Carried", carried, ALWAYS, 2))
    for case in study.sensitivity:
        if case.change == TWICE:
            more.append(Remark("Twice the traffic", as_sentence(outcome(case)), FIRST))
    return Standing(interval, doubts=doubts, more=more)


def _led(sentences_by_topic: Iterable[tuple[str, str]]) -> Bullets:
    """Return sentences, each behind its topic."""
    return Bullets([(Strong(f"{topic}:"), f" {words}") for topic, words in sentences_by_topic])


# ---- the answer in words


def decided_words(study: PlanStudy) -> str:
    """Return whether speculation helps, with a blank behind it; empty without a decision."""
    if study.decision is None:
        return ""
    fleet, decision = study.decision
    if fleet is study.chosen:
        return f"{decided.sentence(decision)} "
    return (
        f"Speculation with {fleet.candidate.strategy} {decision.verdict}: "
        f"{decided.faster(decision.chance)}. "
    )


def _reasons_of_decision(study: PlanStudy) -> Iterator[Block]:
    if study.decision:
        yield decided.reasons(study.decision.decision)


def headline(chosen: Finding) -> str:
    """Return the fleet to rent and what it costs."""
    return (
        f"{fleet(chosen)}: {number(chosen.cost_usd_per_hour)} USD per hour, "
        f"{number(chosen.cost_usd_per_million_tokens)} USD per million output tokens."
    )


def all_owned(study: PlanStudy) -> str:
    """Return how many requests a second all the devices that are owned carry, and by which method;
    empty where none are, or nothing is known of it.
    """
    carried = list(_each_owned(study, carried_words))
    if not carried:
        return ""
    return f"{'; '.join(carried)}. Requests a second within the SLO, whatever the planned rate."


def _all_owned_shortly(study: PlanStudy) -> str:
    """Return the same in few words, without intervals and fleets."""
    carried = list(_each_owned(study, _carried_shortly))
    if not carried:
        return ""
    return f"requests a second within the SLO: {', '.join(carried)}."


def _each_owned(study: PlanStudy, words: Callable[[DeviceCapacity], str]) -> Iterator[str]:
    """Yield all devices of each name that are owned, with what they carry in ``words``."""
    for name, use in study.owned.items():
        if use.per_s is not None:
            yield f"{study.search.plan.file.devices[name].owned} x {name} {words(use)}"


def _carried_shortly(use: DeviceCapacity) -> str:
    if not use.per_s:
        return "none"
    return f"{_at_least(use.room)}{number(use.per_s, 3)} ({use.candidate.strategy})"


def carried_words(use: DeviceCapacity) -> str:
    """Return what some devices carry, and by which method; that they carry nothing within the
    SLO.
    """
    if not use.per_s:
        return "nothing"
    between = ""
    if use.between is not None:
        between = f", {number(use.between.low, 3)} to {number(use.between.high, 3)}"
    rate = f"{_at_least(use.room)}{number(use.per_s, 3)}{between}"
    return f"{rate} ({use.replicas} x {use.candidate.name})"


def _carried(study: PlanStudy) -> Iterator[Block]:
    """Yield what all owned devices carry, where some are."""
    if carried := all_owned(study):
        yield _led([("Carried", carried)])


def highlights(study: PlanStudy) -> Iterator[Highlight]:
    """Yield replicas, price, headroom, and how often the SLO was met."""
    chosen = study.chosen
    yield Highlight(_replicas(chosen), _words(chosen.candidate))
    yield Highlight(f"{number(chosen.cost_usd_per_hour, 3)} USD", "an hour")
    yield Highlight(multiple(study.headroom), "headroom (times the planned traffic)")
    met = f"resampled runs met the SLO ({_interval(study.chance)})"
    yield Highlight(f"{study.chance.kept} of {study.chance.draws}", met)


def _interval(chance: Chance) -> str:
    low, high = chance.interval
    return f"{whole_share(SHARE)} interval {whole_share(low)} to {whole_share(high)}"


def fleet(finding: Finding) -> str:
    """Return replicas, candidate and devices in words."""
    return f"{_replicas(finding)}, {_words(finding.candidate)} ({devices_in_words(finding)})"


def _replicas(finding: Finding) -> str:
    if finding.candidate.split:
        return f"{finding.replicas} replicas, {finding.candidate.split}"
    if finding.replicas == 1:
        return "1 replica"
    return f"{finding.replicas} replicas"


def _words(candidate: Candidate) -> str:
    """Return a candidate's name for readers: ``plain on h100`` is ``plain decoding on H100``."""
    strategy = candidate.strategy
    if not candidate.loaded.scenario.schedule.window and "decoding" not in strategy:
        strategy = f"{strategy} decoding"
    hardware = re.sub(r"\b[a-z]\d+\b", lambda model: model[0].upper(), candidate.hardware)
    settings = candidate.placed.removeprefix(f"{candidate.strategy} on {candidate.hardware}")
    return f"{strategy} on {hardware}{settings}"


def reasons(study: PlanStudy) -> Iterator[tuple[str, str]]:
    """Yield how the answer meets the SLO, why it is not smaller, what it carries, and what comes
    next, each with its topic.
    """
    chosen = study.chosen
    yield "Why", why(chosen, study.binding)
    if classes := classes_words(chosen):
        yield "Classes", classes
    if study.split:
        yield "Split or not", split_words(study.split, chosen)
        if study.split.kept:
            yield "What a split costs", split_rule(study.split)
    if chosen.candidate.loaded.scenario.requests.prompts_alone:
        yield (
            "Not measured",
            "time per token (TPOT), as no output has a second token; drafts are of no use there.",
        )
    if words := owned_words(study):
        yield "Owned", words
    yield "Headroom", headroom_words(study.headroom)
    if kept := prefix_cache(chosen, study.cache_cost):
        yield "Prefix cache", kept
    yield from _other_fleets(study)


def _other_fleets(study: PlanStudy) -> Iterator[tuple[str, str]]:
    """Yield the cheapest fleet of another family that is recommended, and those that are not."""
    chosen = study.chosen
    families = study.search.by_family.values()
    others = [finding for finding in families if finding is not chosen]
    recommended = [finding for finding in others if study.search.recommended(finding)]
    if recommended:
        yield "Next", dearer(recommended[0], chosen)
    for finding in families:
        if not study.search.recommended(finding):
            least = study.search.plan.file.least_chance
            yield "Not recommended", unsure(finding, least)


def classes_words(chosen: Finding) -> str:
    """Return how many requests of each class are good; empty without classes."""
    words = []
    classes = chosen.outcome.serving.classes if chosen.outcome else ()
    for of_class in classes:
        good = whole_share(of_class.good / max(1, of_class.arrived))
        rate = number(of_class.goodput_requests_per_s or 0.0, 3)
        words.append(f"{of_class.name}, {good} of {of_class.arrived:,} good, {rate} a second")
    if not words:
        return ""
    return f"{'; '.join(words)}."


def split_words(compared: SplitOrNot, chosen: Finding) -> str:
    """Return whether to split, and what the best split of some devices does beside the same devices
    together.
    """
    verdict = "split" if chosen.candidate.split else "do not split"
    if compared.apart is None:
        return f"{verdict}: {compared.refused}."
    split = compared.apart.candidate
    words = f"{verdict}. {devices_in_words(compared.apart)} split ({split.placed}, {split.split})"
    if compared.together is None:
        return f"{words}: {_met(compared.apart)}; no replicas that do both have as many devices."
    words += f" and together ({compared.together.replicas} x {compared.together.candidate.name}): "
    words += ", ".join(_split_instead(compared.apart, compared.together))
    words += f"; split, {_met(compared.apart)}, together, {_met(compared.together)}"
    if compared.missing:
        words += f". The comparison takes {compared.missing}"
    if compared.cheapest is None:
        return f"{words}. No split was found that may be recommended."
    return (
        f"{words}. The cheapest split that may be recommended is {fleet(compared.cheapest)}, "
        f"{number(compared.cheapest.cost_usd_per_hour)} USD per hour."
    )


def _split_instead(apart: Finding, together: Finding) -> Iterator[str]:
    """Yield what a split measures instead of the same devices together."""
    for split, whole in zip(apart.measured, together.measured, strict=True):
        yield f"{limit_name(split.limit)} {_ms(split.seconds)} instead of {_ms(whole.seconds)} ms"
    gaps = f"{_ms(_longest_gap_s(apart))} instead of {_ms(_longest_gap_s(together))} ms"
    yield f"gap between tokens p99 {gaps}"
    good_apart = goodput_per_s(apart)
    good_together = goodput_per_s(together)
    if good_apart is not None and good_together is not None:
        good = f"{number(good_apart, 3)} instead of {number(good_together, 3)}"
        yield f"good requests a second {good}"


def _met(finding: Finding) -> str:
    """Return whether a fleet meets the SLO, or what it misses."""
    if finding.missed is None:
        return "the SLO is met"
    return f"{limit_name(finding.missed)} is missed"


def _longest_gap_s(finding: Finding) -> float:
    """Return the longest gap between tokens but for one in a hundred, in seconds."""
    if finding.outcome is None:
        return 0.0
    return float(finding.outcome.serving.tbt.quantile(0.99))


def split_rule(compared: SplitOrNot) -> str:
    """Return how much of their throughput replicas keep that are split, by law, and what a handover
    takes.
    """
    if compared.balance is None:
        return ""
    sizes = ", ".join(map(str, compared.kept))
    kept = ", ".join(map(whole_share, compared.kept.values()))
    prompts = whole_share(compared.balance.read_share)
    words = (
        f"prompts are {prompts} of the work by law, so that the best splits "
        f"of {sizes} replicas keep {kept} of their throughput"
    )
    split = compared.apart
    handover = split and split.candidate.loaded.scenario.serving.handover
    if compared.handover_s is not None and handover:
        taken = f"{_ms(compared.handover_s)} ms in the mean"
        words += f"; the handover takes {taken} ({handover.link.name})"
    return f"{words}."


def owned_words(study: PlanStudy) -> str:
    """Return how many of the owned devices are used and left, and how many would do where these do
    not; empty where nothing is said to be owned.
    """
    words = []
    plan = study.search.plan
    for name, offer in plan.file.devices.items():
        if name in study.enough:
            words.append(too_few(plan, name, study.enough[name]))
        elif offer.owned is not None:
            used = study.chosen.devices.get(name, 0)
            words.append(f"of {offer.owned} x {name} {used} are used and {offer.owned - used} left")
    if not words:
        return ""
    if len(words) > 1:
        together = owned_together(plan)
        words.append(f"for all of them side by side ask --compare {together}")
    return f"{'; '.join(words)}."


def prefix_cache(chosen: Finding, cost: CacheCost | None) -> str:
    """Return the hit rate of the answer, and what speculation costs its cache; empty where nothing
    is kept.
    """
    if chosen.hit_rate is None:
        return ""
    if lost := cache_cost(cost):
        return lost
    found = f"{share(chosen.hit_rate)} of prompt tokens are found and not computed"
    if cost is None:
        return f"{found}."
    points = number(cost.lost_rate * 100, 2)
    return f"{found}; speculation drops nothing of them and costs {points} points of hit rate."


def unsure(finding: Finding, least_chance: float) -> str:
    """Return why a fleet that meets the SLO is not recommended: its speculation is not sure enough
    to be faster than plain decoding.
    """
    highest = ceil(100 * least_chance) - 1  # 79.6 % is below 80 %
    chance = min(round(100 * (finding.chance or 0.0)), highest)
    return (
        f"{fleet(finding)}, {number(finding.cost_usd_per_hour)} USD per hour: {chance} % chance "
        f"that it is faster than plain decoding, below {whole_share(least_chance)} (least_chance)."
    )


def why(chosen: Finding, binding: Limit | None) -> str:
    """Return how the answer meets the SLO, and why it is not smaller: the limit that it breaks with
    one replica fewer.
    """
    limits = []
    for measured in chosen.measured:
        times = f"{_ms(measured.seconds)} of {_ms(measured.limit.seconds)} ms"
        limits.append(f"{limit_name(measured.limit)} {times}")
    if binding is None:
        tightest = chosen.tightest
        used = f"{limit_name(tightest.limit)}, at {share(tightest.strain)}"
        size = f"One replica is enough; the tightest limit is {used}."
    else:
        size = f"With one replica fewer it breaks {limit_name(binding)}."
    return f"{', '.join(limits)}, simulated. {size}"


def dearer(finding: Finding, chosen: Finding) -> str:
    """Return the cheapest fleet of another family, and how much more than the answer it costs."""
    if finding.cost_usd_per_hour == chosen.cost_usd_per_hour:
        if sum(finding.devices.values()) > sum(chosen.devices.values()):
            return f"{fleet(finding)}, at the same price, of more devices."
        return f"{fleet(finding)}, at the same price, with less to spare."
    if not chosen.cost_usd_per_hour:
        return f"{fleet(finding)}, {number(finding.cost_usd_per_hour)} USD per hour."
    times = finding.cost_usd_per_hour / chosen.cost_usd_per_hour
    return (
        f"{fleet(finding)}, {number(finding.cost_usd_per_hour)} USD per hour, {times:.2f} times "
        "the price."
    )


def multiple(room: Headroom) -> str:
    """Return headroom as a number of times: two digits, or why there is none."""
    if room.times is None:
        return "unknown"
    return f"{_at_least(room)}{number(room.times, 2)} x"


def _at_least(room: Headroom) -> str:
    if room.capped:
        return "at least "
    return ""


def headroom_words(room: Headroom) -> str:
    """Return how much more traffic an answer carries, what that was drawn from, and what bounds
    it.
    """
    if room.times is None:
        carries = f"unknown from {requests_in_words(room.recorded or 0)}, too few to draw more from"
    elif room.times < 1.0:
        carries = _no_headroom(room, room.times)
    else:
        carries = _headroom(room, room.times)
    if room.by_arithmetic == inf:
        return f"{carries}."
    most = number(room.by_arithmetic, 2)
    return f"{carries}; flops, bytes and KV cache allow at most {most} times."


def _no_headroom(room: Headroom, times: float) -> str:
    """Return that a fleet does not carry the planned traffic for long, and how much of it."""
    if room.recorded:
        met = "These requests meet the SLO"
    else:
        met = "The SLO is met as long as stated"
    if not times:
        carries = "none of it"
    elif room.by_law:
        carries = f"by law about {number(times, 1)} times it"
    else:
        carries = f"about {number(times, 1)} times it"
    return f"none. {met}, but of traffic that goes on in the same way the fleet carries {carries}"


def _headroom(room: Headroom, times: float) -> str:
    """Return how many times the planned traffic a fleet carries, and how that is known."""
    run = f"{requests_in_words(room.requests)} within {number(room.lasted_s, 2)} s"
    carried = f"{_at_least(room)}{number(times, 2)} times the planned traffic"
    words = f"{carried} ({_tried(room)}: {run}, to 5 %)"
    if room.interval:
        low, high = room.interval
        between = f"anything between {number(low, 2)} and {number(high, 2)}"
        words += f"; from so few requests {between} ({whole_share(SHARE)} interval)"
    if room.capped:
        words += "; no more was tried"
    if room.cut_short:
        words += (
            f"; the run ends behind {MOST_SETTLED:,} turns a replica, before sessions have filled "
            "it up: with all of them it may be less"
        )
    return words


def _tried(room: Headroom) -> str:
    """Return from what more traffic was made, and how."""
    if room.recorded is None and room.steady:
        return "arrivals and lengths as stated, drawn again"
    if room.recorded is None:
        return "the file's sessions, begun so many times as fast"
    drawn = "drawn again" if room.steady else "once, their bursts so many times as large"
    return f"the log's {requests_in_words(room.recorded)}, {drawn}"


def changes(study: PlanStudy) -> Iterator[tuple[str, str]]:
    """Yield what would change the answer: something harder, or another acceptance, batch or
    link.
    """
    for case in study.sensitivity:
        yield f"With {case.change}", f"{outcome(case)}."
    if study.loads:
        yield "At other loads", loads_words(study)
    if study.break_even is not None:
        yield "Against plain decoding", break_even_words(study.break_even)


def loads_words(study: PlanStudy) -> str:
    """Return how the devices are best used, from which load on otherwise, and the load of the
    plan.
    """
    first = study.loads[0]
    devices = " + ".join(f"{count} x {name}" for name, count in first.devices.items())
    words = [f"by law tokens come soonest from {devices} as {_used(first)}"]
    for use in study.loads[1:]:
        rate = number(use.from_per_s, 3)
        words.append(f"from {use.from_requests:,} at a time on ({rate} a second) as {_used(use)}")
    chosen = study.chosen
    planned = number(offered_per_s(chosen.candidate.loaded), 3)
    at_a_time = chosen.replicas * chosen.mean_batch
    return (
        f"{'; '.join(words)}. Planned are {planned} a second; the answer decodes {at_a_time:,} at "
        "a time."
    )


def _used(use: BestUse) -> str:
    """Return how devices are used, in words."""
    return f"{use.replicas} x {_words(use.candidate)}"


def outcome(case: Sensitivity) -> str:
    """Return what becomes of the answer where one thing is harder."""
    if case.unknown:
        return case.reason
    if case.reason:
        return f"does not apply: {case.reason}"
    if case.answer is None:
        return "no fleet meets the SLO, or none that may be recommended (least_chance)"
    if case.holds:
        tightest = case.answer.tightest
        return f"still holds; {limit_name(tightest.limit)} at {share(tightest.strain)} of its limit"
    return f"{fleet(case.answer)}, {number(case.answer.cost_usd_per_hour)} USD per hour"


def break_even_words(point: BreakEven) -> str:
    """Return how far the answer is ahead of autoregressive decoding, and where that ends."""
    ahead = (
        f"by law it is {point.speedup:.2f} times as fast as autoregressive decoding on the same "
        f"devices, at its mean batch of {point.batch}"
    )
    if point.rate is None and point.speedup < 1.0:
        return f"{ahead}, and behind at any acceptance."
    if point.rate is None:
        accepted = "at any acceptance"
    else:
        accepted = f"while more than {point.rate:.0%} of draft tokens are kept"
    if point.first_batch is None:
        batches = f"up to {point.places}"
    else:
        batches = f"below {point.first_batch}"
    if point.latency_ratio is not None:
        links = f"up to {point.latency_ratio:.3g} times the latency of the links"
    elif point.linked:
        links = "whatever the latency of the links"
    else:
        links = "there are no links"
    return f"{ahead}; it stays ahead {accepted}; in batches {batches}; {links}."


def sentences(study: PlanStudy) -> Iterator[str]:
    """Yield how sure the answer is, with which draft lengths it runs, where speculation is off, and
    what was looked at.
    """
    scenario = study.chosen.candidate.loaded.scenario
    yield from map(as_sentence, about_large_mixtures(scenario))
    unpriced = _unpriced(study.search.plan.file.devices)
    if unpriced:
        yield " ".join(map(without_price, unpriced))
    yield longer(study.longer, recorded=scenario.requests.read_from_file)
    if filling := filling_up(study.chosen):
        yield not_full(filling)
    yield resampled(study.chance)
    if study.rests_on:
        yield as_sentence(study.rests_on)
    if scenario.acceptance.stand_in:
        yield stand_in(scenario)
    if study.schedule is not None:
        yield scheduled(study.schedule, scenario.batch)
    if study.adaptive is not None:
        yield adapted(study.adaptive, study.chosen)
    if study.lengths:
        yield switched_off(study.lengths)
    yield looked_at(study.search)


def _unpriced(offers: Mapping[str, Offer]) -> list[str]:
    """Return the devices of which no price is known."""
    return [name for name, offer in offers.items() if not offer.priced]


def without_price(name: str) -> str:
    """Return what stands in place of a price of a device that has none."""
    return (
        f"No price is known for {name}: its USD per hour counts devices; state one with --price "
        f"{name}=2.50."
    )


def resampled(chance: Chance) -> str:
    """Return in how many of the resampled runs the SLO was met."""
    return (
        f"The SLO was met in {chance.kept} of {chance.draws} resampled runs ({_interval(chance)}; "
        "arrivals, recordings and device speeds are resampled, links are not)."
    )


def longer(trial: Trial, recorded: bool) -> str:
    """Return whether the SLO is met and the queue stable over more requests; of a log, that nothing
    comes after it.
    """
    if recorded:
        return (
            f"The traffic is the {trial.requests:,} requests that were read, once; what comes "
            "after them is not in it."
        )
    met = "missed"
    if trial.slo_met:
        met = "met"
    queue = "growing"
    if trial.stable:
        queue = "stable"
    return (
        f"Over {trial.requests:,} requests the SLO is {met} and the queue is {queue} (drift "
        f"{trial.drift:+.1%} of arrivals)."
    )


def not_full(filling: FillingUp) -> str:
    """Return that a run ends before its system has filled up with sessions, and which one would
    not.
    """
    return (
        f"Sessions begin for {number(filling.begin_s, 2)} s, and one lasts "
        f"{number(filling.session_s, 2)} s in the mean: answer and headroom are those of a system "
        f"that fills up; with requests.count={filling.enough_turns} or more it is full."
    )


def stand_in(scenario: Scenario) -> str:
    """Return from where acceptance is borrowed that is not that of the planned models."""
    rescale = scenario.acceptance.rescale
    if rescale is None:
        return (
            "Acceptance is a stand-in, recorded from small models; that of the planned models may "
            "be higher or lower."
        )
    source = rescale.source.partition(":")[0]
    return (
        f"Acceptance is borrowed: its mean is published ({source}), its bursts are recorded from "
        "small models; yours may be higher or lower."
    )


def scheduled(schedule: WindowSchedule, places: int) -> str:
    """Return the draft tokens by batch size, and whether the SLO is met with them."""
    ranges = []
    for first, last, tokens in schedule.ranges(places):
        ranges.append(f"{first} to {last}: {tokens}")
    run = schedule.finding
    met = "missed"
    if run.kept:
        met = "met"
    tightest = f"{limit_name(run.tightest.limit)} {_ms(run.tightest.seconds)} ms"
    return (
        "Draft tokens by batch size that give the most tokens per second by law: "
        f"{', '.join(ranges)}. Run with them, the SLO is {met}, {tightest}."
    )


def adapted(run: Finding, chosen: Finding) -> str:
    """Return whether the SLO is met with adaptive verification, and whether the commands have
    it.
    """
    met = "met" if run.kept else "missed"
    limit = run.tightest
    tightest = f"{limit_name(limit.limit)} {_ms(limit.seconds)} ms"
    without = f"{limit_name(chosen.tightest.limit)} {_ms(chosen.tightest.seconds)} ms"
    taken = "the exported command has it" if is_better(run, chosen) else "it is left off"
    return (
        "With adaptive verification, which verifies as many of these drafts as bring most tokens "
        f"per second, the SLO is {met}, {tightest} ({without} without): {taken}."
    )


def switched_off(lengths: DraftLengths) -> str:
    """Return from which batch on the law drafts nothing, by context."""
    places = []
    for context, tokens in lengths.items():
        batches = [batch for batch, drafted in tokens.items() if not drafted]
        if batches:
            places.append(f"from {min(batches)} requests of {context:,} cached tokens on")
    advice = (
        "Of as many requests as the cache has room for, the model never recommends turning "
        "speculation off"
    )
    if places:
        advice = f"The model recommends turning speculation off {', '.join(places)}"
    return f"{advice} (schedule.csv: draft tokens by batch and context)."


def looked_at(search: Search) -> str:
    """Return how many fleets were simulated, and how many a bound ruled out."""
    bounded = sum(bool(finding.bound) for finding in search.findings)
    return (
        f"There are {len(search.plan.candidates)} candidates; of {len(search.findings)} fleets "
        f"looked at, {search.simulated} were simulated and {bounded} ruled out by a bound."
    )


def _ms(seconds: float) -> str:
    if seconds >= 0.1:
        return f"{seconds * 1e3:,.0f}"
    return number(seconds * 1e3, 3)


# ---- tables


class Family(NamedTuple):
    """Holds a line of the table of alternatives: the cheapest fleet of a strategy on some
    hardware, or why there is none.
    """

    hardware: str
    strategy: str
    settings: str
    replicas: str
    cheapest: Finding | None
    capacity: Headroom | None
    broken: str
    """The limit that it breaks with one replica fewer, or that its largest fleet breaks."""
    plain_hit_rate: str = ""
    """Share of prompt tokens that plain decoding finds; empty where nothing is drafted or kept."""


def _alternatives(study: PlanStudy) -> Iterator[Block]:
    """Yield the table of alternatives: a line for each family of candidates, and a column for each
    limit (ms).
    """
    limits = [measured.limit for measured in study.chosen.measured]
    columns: list[Column[Family]] = [
        Column("strategy", lambda row: row.strategy),
        Column("hardware", lambda row: row.hardware),
        Column("settings", lambda row: row.settings),
        Column("replicas", lambda row: row.replicas),
        Column("devices", lambda row: if_known(row.cheapest, devices_in_words)),
        Column("USD/hour", lambda row: if_known(row.cheapest, _usd_per_hour)),
        Column("USD/million tokens", lambda row: if_known(row.cheapest, _usd_per_million_tokens)),
        Column("when full", _when_full),
        Column("headroom", lambda row: if_known(row.capacity, multiple)),
        Column("limit broken with one replica fewer", lambda row: row.broken),
        Column("chance to be faster", lambda row: if_known(row.cheapest, _chance)),
    ]
    if any(row.hit_rate is not None for row in study.search.by_family.values()):
        columns.append(Column("hit rate", lambda row: if_known(row.cheapest, _hit_rate)))
        columns.append(Column("hit rate without drafts", lambda row: row.plain_hit_rate))
    before = len(columns)
    for place, limit in enumerate(limits):
        columns.append(Column(f"{limit_name(limit)} (ms)", _measured_ms(place)))
    of_limits = range(before, len(columns))
    yield table(
        "The cheapest fleet of every strategy on every hardware",
        _families(study),
        columns,
        sortable=True,
        terminal_columns=(*ON_TERMINAL, *of_limits),
    )
    yield Paragraph(LEGEND)


def _families(study: PlanStudy) -> Iterator[Family]:
    for (hardware, strategy), cheapest in study.runners_up.items():
        if cheapest is None:
            yield _without_fleet(study.search, hardware, strategy)
            continue
        settings = []
        for path, value in cheapest.candidate.settings:
            _, _, field = path.rpartition(".")
            settings.append(f"{field} {value}")
        if cheapest.candidate.split:
            settings.append(str(cheapest.candidate.split))
        in_words = ", ".join(settings) or "as given"
        replicas = str(cheapest.replicas)
        capacity = study.capacities[cheapest.candidate.family]
        broken = if_known(study.search.binding(cheapest), limit_name)
        cost = study.cache_costs.get(cheapest.candidate.family)
        plain_rate = "" if cost is None else share(cost.plain_hit_rate)
        yield Family(hardware, strategy, in_words, replicas, cheapest, capacity, broken, plain_rate)


def _without_fleet(search: Search, hardware: str, strategy: str) -> Family:
    """Return the line of a family that meets the SLO nowhere, with a limit that its last fleet
    missed.
    """
    most = 0
    missed = None
    for finding in search.findings:
        if finding.candidate.family == (hardware, strategy):
            most = max(most, finding.replicas)
            missed = finding.missed
    return Family(
        hardware, strategy, "none", f"up to {most}", None, None, if_known(missed, limit_name)
    )


def _usd_per_hour(finding: Finding) -> str:
    return number(finding.cost_usd_per_hour)


def _chance(finding: Finding) -> str:
    """Return the chance that speculation is faster than plain decoding; nothing where nothing is
    drafted.
    """
    return if_known(finding.chance, decided.chance_words)


def _hit_rate(finding: Finding) -> str:
    return if_known(finding.hit_rate, share)


def _usd_per_million_tokens(finding: Finding) -> str:
    return number(finding.cost_usd_per_million_tokens)


def _when_full(row: Family) -> str:
    """Return USD per million tokens at the most traffic that a fleet carries."""
    if row.cheapest is None or row.capacity is None or not row.capacity.times:
        return ""
    return number(row.cheapest.cost_usd_per_million_tokens / row.capacity.times)


def _measured_ms(place: int) -> Callable[[Family], str]:
    """Return what shows the measured time of a limit."""

    def measured(row: Family) -> str:
        if row.cheapest is None:
            return ""
        return _ms(row.cheapest.measured[place].seconds)

    return measured


def _assumed(study: PlanStudy) -> Iterator[Block]:
    assumed = list(study.search.plan.file.assumed)
    assumed += map(as_sentence, taken_over(study.chosen.candidate.loaded))
    if assumed:
        yield Bullets(assumed)


class CandidateLaw(NamedTuple):
    """Holds the law of a candidate, by requests that decode together."""

    name: str
    by_batch: dict[int, LawPoint]

    def tpot_ms(self, batch: int) -> str:
        """Return the time per token of a batch; nothing where it has no room."""
        point = self.by_batch.get(batch)
        if point is None:
            return ""
        return number(point.tpot_ms, 3)


def _laws(study: PlanStudy) -> Table:
    rows = []
    for name, points in grouped(study.laws, lambda point: point.candidate.name).items():
        by_batch = {point.batch: point for point in points}
        rows.append(CandidateLaw(name, by_batch))
    sizes = sorted({point.batch for point in study.laws})
    columns: list[Column[CandidateLaw]] = [
        Column("candidate", lambda row: row.name),
        *(Column(f"ms/token at {size}", _at_size(size)) for size in sizes),
        Column("most tokens/s", _most_tokens_per_s),
    ]
    return table("Time per token by law and batch size", rows, columns, sortable=True)


def _at_size(size: int) -> Callable[[CandidateLaw], str]:
    return lambda row: row.tpot_ms(size)


def _most_tokens_per_s(row: CandidateLaw) -> str:
    most = max(point.tokens_per_s for point in row.by_batch.values())
    return number(most, 3)


def _left_out(combinations: Sequence[NoCandidate]) -> Iterator[Block]:
    if not combinations:
        return
    columns: list[Column[NoCandidate]] = [
        Column("combination", lambda combination: combination.name),
        Column("why", lambda combination: combination.reason),
    ]
    yield table("Combinations that cannot run", combinations, columns)


def _prices(offers: Mapping[str, Offer]) -> Table:
    columns: list[Column[str]] = [
        Column("device", lambda device: device),
        Column("USD/hour", lambda device: f"{offers[device].price_usd_per_hour.value:g}"),
        Column("at most", lambda device: offers[device].usable),
        Column("source", lambda device: offers[device].price_usd_per_hour.source),
    ]
    return table("Prices", offers, columns)


def _exports(study: PlanStudy) -> Iterator[Block]:
    yield from listings(study.exports)
    why = why_no_command(study.chosen.candidate.loaded.scenario)
    if why and "specpipe.yaml" not in study.exports:
        yield Paragraph(f"No command that serves it is written: {why}.")
    run = Code(f"specsim run {SCENARIO}")
    yield Paragraph((Code(SCENARIO), ": the answer, to be run by ", run, "."))


def listings(files: Mapping[str, str]) -> Iterator[Block]:
    """Yield what stands in exported files, by their paths, but for what was simulated."""
    for name, text in files.items():
        if Path(name).name not in (SCENARIO, *REQUESTS):
            yield Paragraph((Code(name), ":"))
            yield Listing(text)


# ---- the figure


def plan_figure(study: PlanStudy) -> Drawing:
    """Return a drawing: cost against the share of the tightest limit that is used, a line for each
    family.
    """
    chosen = study.chosen
    labels = [PointLabel("answer", *_point(chosen), {"size": 8, "weight": "bold"})]
    families = study.search.by_family
    legend_in = 0.17 * len(families)
    high_in = max(2.7, 0.8 + legend_in)
    legend_at = "outside right upper"
    if WANTED.narrow:
        high_in = 2.7 + legend_in
        legend_at = "outside lower left"
    with canvas(high_in, WIDTH_IN * 1.2) as drawing:
        axes = drawing.subplots()
        axes.axhline(100.0, color=GREY, lw=1.6, ls="--", label="SLO")
        for place, family in enumerate(families):
            hardware, strategy = family
            colour, marker, line = look(place)
            sizes = [finding for finding in study.sizes if finding.candidate.family == family]
            axes.plot(*_points(sizes), line, lw=1.0, color=colour)
            kept = _points([finding for finding in sizes if finding.kept])
            label = f"{strategy} on {hardware}"
            axes.plot(*kept, marker, ms=6, mfc=colour, mec=colour, label=label)
            missed = _points([finding for finding in sizes if not finding.kept])
            axes.plot(*missed, marker, ms=6, mfc="white", mec=colour)
            for finding in sizes:
                labels.append(PointLabel(str(finding.replicas), *_point(finding), {"size": 7}))
        axes.margins(0.12)
        dress(
            axes,
            x_label="USD per hour",
            y_label=f"% of the tightest limit ({MOST_USED}: or more)",
            title="numbers: replicas; hollow: SLO missed",
            ylim=(0.0, None),
        )
        drawing.legend(loc=legend_at)
        label_points(drawing, axes, labels)
        return drawing


def _points(fleets: Sequence[Finding]) -> tuple[list[float], list[float]]:
    points = [_point(finding) for finding in fleets]
    return [cost for cost, _ in points], [used for _, used in points]


def _point(finding: Finding) -> tuple[float, float]:
    """Return the cost of a fleet, and the per cent of its tightest limit that it uses."""
    used = min(MOST_USED, finding.tightest.strain * 100)
    return finding.cost_usd_per_hour, used
