"""What a report says about the load that scenarios carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from simulator.report.console import WIDEST, item, new_table
from simulator.report.markdown import table
from simulator.report.run_summary import number, percent, short_names
from simulator.studies.capacity import DRIFT, TOLERANCE, Capacity

HEAD = ("traffic", "scenario", "offered (req/s)", "verdict", "drift", "carries (req/s)", "of the offered", "TTFT p50 (s)")
HEAD_MORE = ("TTFT p99 (s)", "TPOT p50 (ms)", "tokens per s", "mean in system", "Little's law off by", "CPU s, run + search")
LEGEND = (
    f"Stable: at most {DRIFT:.0%} of the arrivals between the middles of the second and the last third stay in the system. "
    "Carries: what is delivered when work never lacks, as an unstable run shows and a stable one with all requests at once; "
    f"with an SLO the highest rate that meets it, bisected to {TOLERANCE:.0%} on the first requests. Times and tokens are "
    "those of the whole traffic at its own rate: of an unstable system they grow with its length."
)


def verdict(one: Capacity) -> str:
    """In a word or two."""
    if not one.offered.stable:
        return "unstable"
    return "stable" if one.offered.slo_met else "stable, SLO missed"


def named(found: Sequence[Capacity]) -> dict[str, str]:
    """Short names of scenarios."""
    names = list(dict.fromkeys(one.scenario for one in found))
    return dict(zip(names, short_names(names), strict=True))


def answers(found: Sequence[Capacity]) -> Iterator[str]:
    """Who carries a traffic and who carries most, a sentence each."""
    short = named(found)
    for traffic in dict.fromkeys(one.workload for one in found):
        here = [one for one in found if one.workload == traffic]
        best = max(here, key=lambda one: one.carried_per_s)
        carried = [short[one.scenario] for one in here if one.offered.carried]
        verdict = f"carried by {', '.join(carried)}" if carried else "carried by none"
        most = f"{short[best.scenario]} would carry most, {number(best.carried_per_s, 3)} requests per second"
        yield f"{traffic}, {number(best.offered.requests_per_s, 3)} requests per second: {verdict}; {most}"


def rows(found: Sequence[Capacity]) -> Iterator[tuple[str, ...]]:
    """Under ``HEAD``."""
    short = named(found)
    for one in found:
        run = one.offered
        offered, carried = number(run.requests_per_s, 3), number(one.carried_per_s, 3)
        times = percent(run.drift * 100), carried, f"{one.headroom:.2f} x", number(run.ttft_p50_ms / 1e3, 3)
        yield one.workload, short[one.scenario], offered, verdict(one), *times


def more(found: Sequence[Capacity]) -> Iterator[tuple[str, ...]]:
    """Under ``HEAD_MORE``."""
    for one in found:
        run = one.offered
        times = number(run.ttft_p99_ms / 1e3, 3), number(run.tpot_p50_ms, 3), number(run.tokens_per_s, 3)
        cpu = f"{run.cpu_s:.0f} + {one.search_cpu_s:.0f}"
        yield *times, number(run.mean_in_system, 3), f"{abs(run.littles_gap):.0e}", cpu


def print_capacities(found: Sequence[Capacity], console: Console) -> None:
    """The verdicts on a terminal."""
    width = min(console.width, WIDEST)
    for traffic in dict.fromkeys(one.workload for one in found):
        here = [one for one in found if one.workload == traffic]
        offered = number(here[0].offered.requests_per_s, 3)
        console.print(f"{traffic}: {offered} requests per second", style="bold", highlight=False)
        shown = new_table("", "verdict", "drift", "carries\nper s", "of the\noffered", "TTFT s\np50", "p99")
        for row, (last, *_) in zip((row for row in rows(found) if row[0] == traffic), more(here), strict=True):
            shown.add_row(row[1], *row[3:], last)
        console.print(shown, width=width)
    for sentence in (*answers(found), LEGEND):
        item(console, sentence, width)


def sections(found: Sequence[Capacity]) -> Iterator[str]:
    """The same as blocks of a page."""
    yield "\n".join(f"- **{sentence}**" for sentence in answers(found))
    yield table((*HEAD, *HEAD_MORE), [(*row, *further) for row, further in zip(rows(found), more(found), strict=True)])
    yield LEGEND


def summary(found: Sequence[Capacity]) -> dict[str, Any]:
    """As plain data; curves are left out."""
    curves = ("hours", "in_system")
    return {
        "capacities": [
            one._asdict()
            | {"headroom": one.headroom, "verdict": verdict(one)}
            | {"offered": {name: held for name, held in one.offered._asdict().items() if name not in curves}}
            for one in found
        ]
    }
