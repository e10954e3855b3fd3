"""What changes would do to a service: the answer first, then each change beside the service as it
is.
"""

from collections.abc import Iterator

from simulator.inputs.services.warm import cold_words
from simulator.report.blocks import (
    FIRST,
    Block,
    Bullets,
    Code,
    Figure,
    Highlight,
    Listing,
    Page,
    Paragraph,
    Remark,
    Section,
    Standing,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.pages.decision import chance_words
from simulator.report.services.pictures import tried_figure
from simulator.report.services.verified import bounds_words
from simulator.report.wording import number, share, signed_share
from simulator.scenario.uncertain.draws import DRAWS
from simulator.studies.plan.commands.apart import why_no_command
from simulator.studies.service.tried import (
    JUDGED_BY,
    BeforeChange,
    Gain,
    TriedChange,
    WhatIfService,
)

PICTURE = "what_if.svg"
FAR_OFF = 0.2
"""Error of the simulation of a service as it is from which on that is said first."""
ON_A_TERMINAL = 4
"""Changes up to which a terminal shows each by itself."""
LEGEND = (
    "Helps: with a chance of at least 80 % a whole request is answered faster; hurts: of less than "
    f"20 %. Changes are those of the simulation, in brackets 80 % of {DRAWS:,} draws; what is not "
    "known of devices and engine is drawn once for before and after."
)
PREDICTED = (
    "Predicted: the measured number times its change, for further requests of the same kind; "
    "where nothing was measured, as simulated."
)


def gain_words(gain: Gain | None) -> str:
    """Return how a number changes, with the 80 % interval; a dash where it is not known."""
    if gain is None or gain.ratio is None:
        return "-"
    words = f"{_percent(gain.ratio)} %"
    if gain.drawn is None:
        return words
    low, high = gain.drawn.interval(0.8)
    return f"{words} ({_percent(low)} to {_percent(high)})"


def _percent(ratio: float) -> str:
    """Return a change as signed per cent, with a digit behind the point where it is small."""
    change = 100.0 * (ratio - 1.0)
    if abs(change) < 0.05:
        return "+0"
    return f"{change:+.1f}" if abs(change) < 10.0 else f"{change:+.0f}"


SUMMARY = [
    Column[TriedChange]("change", lambda tried: tried.change.typed),
    Column[TriedChange]("verdict", lambda tried: tried.verdict),
    Column[TriedChange]("faster", lambda tried: chance_words(tried.chance)),
    Column[TriedChange]("E2E", lambda tried: gain_words(tried.gain("e2e_ms"))),
    Column[TriedChange]("TTFT", lambda tried: gain_words(tried.gain("ttft_ms"))),
    Column[TriedChange]("TPOT", lambda tried: gain_words(tried.gain("tpot_ms"))),
    Column[TriedChange]("tokens/s", lambda tried: gain_words(tried.gain("output_tokens_per_s"))),
    Column[TriedChange]("tokens/step", lambda tried: gain_words(tried.gain("tokens_per_step"))),
]
BEFORE = [
    Column[BeforeChange]("as it is", lambda each: each.number.words),
    Column[BeforeChange](
        "measured", lambda each: number(each.measured and each.measured.value, 3) or "-"
    ),
    Column[BeforeChange]("simulated", lambda each: number(each.simulated, 3) or "-"),
    Column[BeforeChange]("error", lambda each: signed_share(each.error) or "-"),
]
GAINS = [
    Column[Gain]("number", lambda gain: gain.number.words),
    Column[Gain]("measured", lambda gain: number(gain.predicted.before, 3) or "-"),
    Column[Gain]("simulated", lambda gain: number(gain.simulated_before, 3)),
    Column[Gain]("simulated after", lambda gain: number(gain.simulated_after, 3)),
    Column[Gain]("change", gain_words),
    Column[Gain]("predicted", lambda gain: number(gain.predicted.after, 3)),
    Column[Gain]("80 %", lambda gain: bounds_words(gain.predicted.within_80)),
    Column[Gain]("90 %", lambda gain: bounds_words(gain.predicted.within_90)),
]


def page(result: WhatIfService, command: str = "") -> Page:
    """Return the page of changes tried on a service."""
    cautions = list(cautions_of(result))
    picture = "Numbers of the service as it is, and what changes would make of them"
    opening: list[Block] = [
        Figure(picture, PICTURE, lambda: tried_figure(result)),
        table("Changes", result.tries, SUMMARY, badges=(1,), terminal_columns=(0, 1, 2, 3, 5)),
    ]
    if cautions:
        opening.append(Bullets(cautions))
    opening += [Paragraph(LEGEND), _before_table(result)]
    return Page(
        f"What changes would do to {result.name}",
        answer=headline(result),
        highlights=_highlights(result),
        opening=opening,
        sections=list(_sections(result)),
        command=command,
        standing=_standing(result),
    )


def _standing(result: WhatIfService) -> Standing:
    """Return what each change does, those that help most first, and what to beware of."""
    ranked = sorted(result.tries, key=lambda tried: -tried.chance)
    best = ranked[0].gain(JUDGED_BY)
    interval = ""
    if best is not None and best.drawn is not None:
        low, high = best.drawn.interval(0.8)
        change = f"time of a whole request {_percent(low)} to {_percent(high)} %"
        interval = f"{ranked[0].change.typed}: {change} (80 % interval)."
    verdicts = []
    for each in ranked:
        verdicts.append(f"{each.change.typed} {each.verdict} ({chance_words(each.chance)})")
    assumed = list(dict.fromkeys(words for each in ranked for words in each.change.said))
    beware = [Remark("Beware", f"{words}.", FIRST) for words in cautions_of(result)]
    far_off = ", ".join(_far_off(result))
    if far_off and assumed:  # which leave no room for more
        assumed.insert(0, f"the simulation is far off what was measured ({far_off})")
    return Standing(interval, f"{', '.join(verdicts)}.", assumed, beware)


def headline(result: WhatIfService) -> str:
    """Return the change that helps most, or that none is likely to."""
    best = max(result.tries, key=lambda tried: tried.chance)
    words = f"{best.change.typed} {_effect(best)}"
    helping = sum(tried.verdict == "helps" for tried in result.tries)
    if len(result.tries) == 1:
        return f"{words}."
    left_out = f" ({len(result.untried)} left out)" if result.untried else ""
    if helping:
        return f"{helping} of {len(result.tries)} changes help{left_out}; most likely {words}."
    tries = f"None of {len(result.tries)} changes is likely to help{left_out}"
    return f"{tries}; nearest to it, {words}."


def _effect(tried: TriedChange) -> str:
    """Return what a change does to a whole request, in words."""
    gain = tried.gain(JUDGED_BY)
    change = f"E2E {gain_words(gain)}"
    return f"{tried.verdict}: {change}, faster with a chance of {chance_words(tried.chance)}"


def _far_off(result: WhatIfService) -> Iterator[str]:
    """Yield the numbers of the service in which the simulation is far off, and by how much."""
    for each in result.before:
        if each.error is not None and abs(each.error) >= FAR_OFF:
            yield f"{each.number.words} {signed_share(each.error)}"


def cautions_of(result: WhatIfService) -> Iterator[str]:
    """Yield what a reader has to know first: where the simulation is far off, what cannot be
    tried.
    """
    far_off = list(_far_off(result))
    target = result.base.scenario.target
    fit = target.engine.fit if target else None
    held_out = fit.errors.get("held out") if fit else None
    if far_off:
        yield (
            f"The simulation is far off what was measured ({', '.join(far_off)}), so changes are "
            f"those of another service: {_nearer(result, fitted=held_out is not None)}"
        )
    elif result.observed:
        yield from cold_words(result.observed)
    if fit and held_out is not None and held_out >= FAR_OFF:
        yield (
            f"What was held out of the fit to {fit.source} came {share(held_out)} off, and so may "
            "these: two values of K and a run without speculation tell more"
        )
    yield from _of_one_window(result)
    for untried in result.untried:
        yield f"{untried.typed}: left out, {untried.reason}"


def _nearer(result: WhatIfService, fitted: bool) -> str:
    """Return what brings the simulation nearer to the service."""
    cold = result.observed.cold if result.observed else None
    if fitted and cold:
        warm = f"leave out the warm-up (--skip {cold}, of calibrate service, too)"
    elif fitted:
        warm = "leave out a warm-up (specsim observe --skip)"
    elif cold:
        return f"leave out the warm-up (--skip {cold}), then calibrate (specsim calibrate service)"
    else:
        return "calibrate first (specsim calibrate service), or name a nearer scenario with --like"
    return f"{warm}, or fit to more observations"


def _of_one_window(result: WhatIfService) -> Iterator[str]:
    """Yield that a fit saw windows of one length, where others or none are tried: what a step costs
    and what its drafts add to it are then not told apart.
    """
    target = result.base.scenario.target
    if target is None or target.engine.fit is None or target.engine.hull is None:
        return
    rows = target.engine.hull.rows
    window = result.base.scenario.schedule.window
    if rows is None or rows[0] != rows[1] or rows[0] != window + 1:
        return
    others = [
        tried.change.typed
        for tried in result.tries
        if tried.change.loaded.scenario.schedule.window != window
    ]
    if others:
        seen = f"{window} draft tokens" if window else "plain decoding"
        yield (
            f"The fit saw {seen} alone, which does not tell what drafts add to a step: another fit "
            f"to the same server may turn the verdict on {', '.join(others)}; observe one of them, "
            "and fit to both"
        )


def _before_table(result: WhatIfService) -> Table:
    if result.observed is None:
        columns = [BEFORE[0], BEFORE[2]]
        return table("As it is", result.before, columns)
    return table("As it is", result.before, BEFORE)


def _sections(result: WhatIfService) -> Iterator[Section]:
    """Yield a section for each change: its numbers, what is assumed, the command."""
    shown = len(result.tries) <= ON_A_TERMINAL
    for tried in result.tries:
        columns = GAINS if result.observed else [GAINS[0], *GAINS[2:]]
        on_terminal = (0, 1, 4, 5, 6) if result.observed else (0, 1, 2, 3)
        title = f"Numbers of {tried.change.typed}"
        blocks: list[Block] = [
            table(title, tried.gains, columns, terminal_columns=on_terminal),
        ]
        remarks = [f"Assumed: {words}" for words in tried.change.said]
        if tried.command is None and tried.change.loaded.scenario.target:
            remarks.append(f"No command: {why_no_command(tried.change.loaded.scenario)}")
        if remarks:
            blocks.append(Bullets(remarks))
        if tried.command is not None:
            blocks.append(Listing(tried.command, "sh"))
        if tried.configuration is not None:
            blocks.append(Listing(tried.configuration, "yaml"))
        yield Section(f"{tried.change.typed}: {tried.verdict}", blocks, shown)
    settings = []
    for tried in result.tries:
        for each in tried.changed:
            words = f" {each.before or 'none'} -> {each.after or 'none'}"
            settings.append((f"{tried.change.typed}: ", Code(each.field), words))
    notes: list[Block] = [Paragraph(PREDICTED)]
    if settings:
        notes.append(Bullets(settings))
    yield Section("What is changed", notes, terminal=False)


def _highlights(result: WhatIfService) -> list[Highlight]:
    best = max(result.tries, key=lambda tried: tried.chance)
    gain = best.gain(JUDGED_BY)
    shown = [Highlight(best.verdict, best.change.typed, best.verdict)]
    if gain is not None and gain.ratio is not None:
        shown.append(Highlight(f"{_percent(gain.ratio)} %", "time of a whole request"))
    return shown
