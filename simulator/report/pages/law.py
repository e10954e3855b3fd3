"""The page of ``specsim law``: time per token by the closed form, step kinds, named durations in
ms.
"""

from collections.abc import Iterator, Sequence

from simulator.core.plain import PlainMapping
from simulator.inputs.shell import typed
from simulator.report.blocks import Block, Bullets, Highlight, Page, Paragraph, Table
from simulator.report.pages import decision as decided
from simulator.report.pages.what_if import blocks as sliders
from simulator.report.run.answer import doubt, known
from simulator.report.wording import as_sentence, number, share
from simulator.scenario.decision.answer import Decision
from simulator.scenario.uncertain.draws import Interval
from simulator.studies.what_if import WhatIf

KINDS_SHOWN = 4
"""Step kinds that a terminal shows, the most frequent ones."""


def page(
    details: PlainMapping,
    decision: Decision | None,
    command: str = "",
    law: WhatIf | None = None,
) -> Page:
    """Return the page of :func:`~simulator.scenario.result.data.law_details`: the answer, the
    decision behind it, sliders over ``law``, parts of a step.
    """
    opening: list[Block] = []
    if decision:
        interval = Interval(**details["speedup_interval"])
        words = f"{doubt(details['speedup'], interval)}. {known(details['intervals'])}."
        opening += [Paragraph(words), decided.reasons(decision)]
    if "closed_loop" in details:
        opening += map(Paragraph, waiting(details["closed_loop"]))
    opening += [Paragraph(as_sentence(caution)) for caution in details["cautions"]]
    if law:
        opening += sliders(law)
    opening += [_durations(details["kinds"]), Bullets(list(sentences(details)))]
    return Page(
        title=details["scenario"],
        answer=decided.led(decision, answer(details)),
        decides=decision is not None,
        opening=opening,
        highlights=[*decided.highlights(decision), *highlights(details)],
        command=command or typed("specsim", "law", names=[details["scenario"]]),
    )


def answer(details: PlainMapping) -> str:
    """Return the answer in a sentence."""
    law = details["law"]
    tpot_ms = number(law["tpot_ms"], 3)
    baseline_ms = number(details["baseline"]["tpot_ms"], 3)
    step_ms = number(law["step_ms"])
    tokens = number(law["tokens_per_step"])
    step = f"{step_ms} ms per step, {tokens} tokens per step"
    if "closed_loop" in details:
        rate = number(details["closed_loop"]["decoding_tokens_per_s"])
        return (
            f"{rate} tokens per second while decoding (law), {details['speedup']:.2f} times those "
            f"of autoregressive decoding; {tpot_ms} ms per token for a request that runs, against "
            f"{baseline_ms} ms: {step}."
        )
    return (
        f"{tpot_ms} ms per token (law), {details['speedup']:.2f} times the speed of "
        f"autoregressive decoding ({baseline_ms} ms, law): {step}."
    )


def waiting(loop: PlainMapping) -> Iterator[str]:
    """Yield how many clients run and wait for room, and what the closed loop comes to."""
    yield as_sentence(loop["words"])
    rate = number(loop["tokens_per_s"])
    ttft_s = number(loop["ttft_ms"] / 1e3, 3)
    yield (
        f"The closed loop, prompts included: {rate} tokens per second, TTFT {ttft_s} s once the "
        f"queue has filled up ({loop['relation']})."
    )


def highlights(details: PlainMapping) -> Iterator[Highlight]:
    """Yield time per token and speed-up."""
    tpot_ms = number(details["law"]["tpot_ms"], 3)
    yield Highlight(f"{tpot_ms} ms", "per token, by law")
    what = "the speed of autoregressive decoding"
    if "closed_loop" in details:
        what = "the tokens per second of autoregressive decoding"
    yield Highlight(f"{details['speedup']:.2f} ×", what)


def sentences(details: PlainMapping) -> Iterator[str]:
    """Yield what is left out, what the law is, and what it rests on."""
    law = details["law"]
    kinds = len(details["kinds"])
    if kinds > KINDS_SHOWN:
        yield f"On a terminal {kinds - KINDS_SHOWN} rarer step kinds are left out"
    yield f"Law: {law['source']}. Relation to the process: {law['relation']}"
    if "load" in details:
        yield details["load"]["words"]


def _durations(kinds: Sequence[PlainMapping]) -> Table:
    head = ("ms", *(f"{_kind(kind)}\n{share(kind['share'])}" for kind in kinds))
    on_terminal = tuple(range(min(len(head), KINDS_SHOWN + 1)))
    rows = list(_rows(kinds))
    return Table(head, rows, "Durations by step kind", terminal_columns=on_terminal)


def _rows(kinds: Sequence[PlainMapping]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each named duration, for the step, and for each term that is derived from
    them, by step kind.
    """
    for name in dict.fromkeys(name for kind in kinds for name in kind["durations"]):
        durations_ms = (number(kind["durations"].get(name)) for kind in kinds)
        yield name.removesuffix("_ms"), *durations_ms
    yield "step", *(number(kind["step_ms"]) for kind in kinds)
    for name in kinds[0]["derived"]:
        derived_ms = (number(kind["derived"].get(name)) for kind in kinds)
        yield name.removesuffix("_ms").replace("_", " "), *derived_ms


def _kind(kind: PlainMapping) -> str:
    """Return the name of a step kind, with how many requests of the step have no window."""
    missing = kind["redrafts"]
    if not missing and kind["verifying"]:
        missing = kind["bare"]
    if missing:
        return f"{kind['name']} of {missing}"
    return str(kind["name"])
