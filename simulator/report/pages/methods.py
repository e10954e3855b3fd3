"""Methods side by side: their features, one comparison, and up to which batch they pay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from simulator.report.console import WIDEST, item, new_table
from simulator.report.markdown import table
from simulator.report.run_summary import number
from simulator.studies.method_features import Features
from simulator.studies.methods import Crossover, ExcludedMethod, MethodPoint

AnyPoint = TypeVar("AnyPoint", MethodPoint, Crossover)
ORIGINS = {
    "recorded": "acceptance recorded from the scenario's own models",
    "stand_in": "acceptance recorded from other, small models",
    "published": "acceptance published or measured for large models",
    "stated": "acceptance stated by the scenario",
}
"""What a panel or a part of a table says about where acceptance comes from."""


SHORT = {"recorded": "rec.", "published": "publ."}


def by_origin(found: Sequence[AnyPoint]) -> Iterator[tuple[str, list[AnyPoint]]]:
    """What is said of each origin of acceptance, and those that have it."""
    for origin, words in ORIGINS.items():
        held = [one for one in found if one.origin == origin]
        if held:
            yield f"{words[0].upper()}{words[1:]}", held


def print_features(found: Mapping[str, Features], console: Console) -> None:
    """Features of SpecPipe's Table 2, weights, rows, and where acceptance can come from."""
    width = min(console.width, WIDEST)
    head = ("free\ndraft", "not\ntrained", "large\nbatch", "dyn.\ndraft", "rows", "1e9", "from")
    table = new_table("method", *head)
    for name, one in found.items():
        answers = (one.adds_no_latency, one.no_training, one.large_batch, one.dynamic_draft)
        weights = _billions(one.extra_weights)
        table.add_row(
            name,
            *("yes" if answer else "no" for answer in answers),
            str(one.verified_rows),
            weights,
            SHORT.get(one.acceptance, one.acceptance),
        )
    console.print(table, width=width)
    item(
        console,
        "Free draft: drafting adds no latency. As in SpecPipe's Table 2, but worked out from each method's law and file",
        width,
    )
    item(console, "Rows: of the target's pass in one step of a request; 1e9: weights beside a target of 7B", width)
    item(console, "From: acceptance is recorded from small models, published as a mean, both, or only yours to state", width)


def _billions(weights: int) -> str:
    return "" if not weights else "< 0.01" if weights < 10_000_000 else f"{weights / 1e9:.2f}"


def print_methods(points: Sequence[MethodPoint], without: Iterable[ExcludedMethod], title: str, console: Console) -> None:
    """One table for each origin of acceptance, fastest method first."""
    width = min(console.width, WIDEST)
    console.print(Text(title, style="bold"), width=width)
    for words, held in by_origin(points):
        stated = any(one.published_speedup for one in held)
        head = ["speed-\nup", *(["publ."] if stated else []), "ms per\ntoken", "law", "tokens\n/ step", "draft\nms"]
        table = new_table("method", *head, "rows")
        for one in held:
            ratios = (one.speedup, *([one.published_speedup] if stated else []))
            times = (one.tpot_ms, one.law_tpot_ms, one.tokens_per_step, one.draft_ms)
            cells = (*("" if ratio is None else f"{ratio:.2f}" for ratio in ratios), *(number(value, 3) for value in times))
            table.add_row(one.method, *cells, str(one.verified_rows))
        console.print(Text(f"\n{words}", style="bold"), width=width)
        console.print(table, width=width)
    if len({one.origin for one in points}) > 1:
        item(console, "The two parts are not comparable: their acceptance is of models of very different size", width)
    if any(one.published_speedup for one in points):
        item(console, "publ.: the speed-up that the source of the mean reports, on hardware and software of its own", width)
    item(console, "Times are simulated; law: with marginal acceptance. Draft and rows: of a step in which all propose", width)
    for name, relation in sorted({one.method: one.relation for one in points if one.relation}.items()):
        item(console, f"{name}: the law is no equality here ({relation})", width)
    print_left_out(without, console)


CROSSED = ("method", "rows of one", "speed-up at B = 1", "slower from B =", "for good from B =", "where a tile ends")
BY_LAW = "By law of the step, with the tokens a step that a replay of one request at a time commits"


def crossover_rows(held: Iterable[Crossover]) -> Iterator[tuple[str, ...]]:
    """One line for each method, under ``CROSSED``."""
    for one in held:
        never = f"over {one.points[-1].batch}"
        rows = str(one.points[0].verify_rows // one.points[0].batch)
        cells = (never if size is None else str(size) for size in (one.first, one.for_good))
        edge = "" if one.for_good is None else "yes" if one.for_good in one.tile_edges else "no"
        yield (one.method, rows, f"{one.points[0].speedup:.2f}", *cells, edge)


def crossover_sentences(studies: Sequence[Crossover]) -> Iterator[str]:
    """Who pays longest and shortest, for each origin of acceptance."""
    for words, held in by_origin(studies):
        slower = sorted((one.first or one.points[-1].batch + 1, one.method) for one in held)
        never = [name for size, name in slower if size > held[0].points[-1].batch]
        first = [(size, name) for size, name in slower if name not in never]
        told = [f"{name} falls behind first, from {size} requests on" for size, name in first[:1]]
        told += [f"{name} last, from {size} on" for size, name in first[1:][-1:]]
        told += [f"never up to {held[0].points[-1].batch}: {', '.join(never)}"] if never else []
        yield f"{words}: {'; '.join(told)}."


def crossover_sections(studies: Sequence[Crossover], without: Iterable[ExcludedMethod]) -> Iterator[str]:
    """The same as blocks of a page."""
    yield "\n".join(f"- {sentence}" for sentence in crossover_sentences(studies))
    for words, held in by_origin(studies):
        yield f"## {words}"
        yield table(CROSSED, crossover_rows(held))
    yield f"{BY_LAW}."
    if lines := [f"- {one.method} is left out: {one.reason}" for one in without]:
        yield "\n".join(lines)


def print_crossovers(studies: Sequence[Crossover], without: Iterable[ExcludedMethod], title: str, console: Console) -> None:
    """Up to which batch each method pays, by law."""
    width = min(console.width, WIDEST)
    console.print(Text(title, style="bold"), width=width)
    for words, held in by_origin(studies):
        console.print(Text(f"\n{words}", style="bold"), width=width)
        shown = new_table(
            "method", "rows\nof one", "speed-up\nat B = 1", "slower\nfrom B =", "for good\nfrom B =", "where a\ntile ends"
        )
        for row in crossover_rows(held):
            shown.add_row(*row)
        console.print(shown, width=width)
    item(console, BY_LAW, width)
    print_left_out(without, console)


def print_left_out(without: Iterable[ExcludedMethod], console: Console) -> None:
    """Methods that do not run here, and why."""
    for one in without:
        item(console, f"{one.method} is left out: {one.reason}", min(console.width, WIDEST))
