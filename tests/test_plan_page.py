"""What the page of a plan says, branch by branch, in its full words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simulator.core.serving.slo import Limit
from simulator.report.blocks import Bullets, Highlight, Paragraph, Strong, Table
from simulator.report.pages import decision as decided, goodput, plan as plan_page
from simulator.scenario import load
from simulator.scenario.uncertain.draws import Drawn, Interval
from simulator.studies.capacity import Trial
from simulator.studies.plan.break_even import BreakEven
from simulator.studies.plan.export import WindowSchedule
from simulator.studies.plan.headroom import Headroom
from simulator.studies.plan.robustness import Chance, Sensitivity
from simulator.studies.plan.search import Finding, MeasuredLimit, Search
from simulator.studies.plan.study import study
from tests.test_plan import small

TTFT, TPOT = Limit("ttft", 0.9, 0.3), Limit("tpot", 0.9, 0.02)


@pytest.fixture
def fleet(tmp_path: Path) -> Finding:
    """One replica of plain decoding that meets both limits, for 2 USD an hour."""
    (candidate, *_) = small(tmp_path).candidates
    measured = (MeasuredLimit(TTFT, 0.12, True), MeasuredLimit(TPOT, 0.015, True))
    return Finding(candidate, 1, measured)


FLEET = "1 replica, plain decoding on A100, tensor_parallel 1 (1 x a100_80g_sxm)"


def test_why_names_limits_and_what_a_smaller_fleet_breaks(fleet: Finding) -> None:
    limits = "TTFT p90 120 of 300 ms, TPOT p90 15.0 of 20.0 ms, simulated."
    assert plan_page.why(fleet, None) == (
        f"{limits} One replica is enough; the tightest limit is TPOT p90, at 75.0 %."
    )
    assert plan_page.why(fleet, TTFT) == f"{limits} With one replica fewer it breaks TTFT p90."


def test_the_next_fleet_says_what_it_costs_beside_the_answer(fleet: Finding) -> None:
    assert plan_page.dearer(fleet, fleet) == f"{FLEET}, at the same price, with less to spare."
    assert plan_page.dearer(replace(fleet, replicas=3), fleet) == (
        "3 replicas, plain decoding on A100, tensor_parallel 1 (3 x a100_80g_sxm), 6.000 USD per "
        "hour, 3.00 times the price."
    )


def test_a_mixture_that_no_device_holds_is_said_to_be_an_ideal_engines(fleet: Finding) -> None:
    large = load("autoregressive_deepseek_v3_8xh200", ["requests.count=64"])
    study: Any = SimpleNamespace(
        chosen=replace(fleet, candidate=replace(fleet.candidate, loaded=large))
    )
    first = next(plan_page.sentences(study))
    assert first.startswith("Times of deepseek_v3 over 8 x h200_sxm are those of an ideal engine")
    assert first.endswith("summed: 0.9).")


def test_why_a_fleet_is_not_recommended(fleet: Finding) -> None:
    unsure = replace(fleet)
    vars(unsure)["speedup"] = Drawn(1.0, np.array([-0.1, 0.1]))
    assert plan_page.unsure(unsure, 0.8) == (
        f"{FLEET}, 2.000 USD per hour: 50 % chance that it is faster than plain decoding, below "
        "80 % (least_chance)."
    )
    vars(unsure)["speedup"] = Drawn(1.0, np.array([-0.1, *[0.1] * 249]))
    assert "99 % chance" in plan_page.unsure(unsure, 0.999), "not 100 %, which is no less"


def test_every_outcome_of_a_harder_case_is_said(fleet: Finding) -> None:
    def said(
        answer: Finding | None, holds: bool = False, reason: str = "", unknown: bool = False
    ) -> str:
        return plan_page.outcome(Sensitivity("twice the traffic", answer, holds, reason, unknown))

    assert said(None, reason="unknown from 3", unknown=True) == "unknown from 3"
    assert said(None, reason="there is none") == "does not apply: there is none"
    assert said(None) == "no fleet meets the SLO, or none that may be recommended (least_chance)"
    assert said(fleet, holds=True) == "still holds; TPOT p90 at 75.0 % of its limit"
    assert said(fleet) == f"{FLEET}, 2.000 USD per hour"


AHEAD = (
    "by law it is 1.50 times as fast as autoregressive decoding on the same devices, at its mean "
    "batch of 4; it stays ahead"
)
EVEN = BreakEven(
    batch=4, speedup=1.5, rate=0.4, first_batch=7, places=8, latency_ratio=2.5, linked=True
)


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (
            EVEN,
            (
                f"{AHEAD} while more than 40% of draft tokens are kept; in batches below 7; up to "
                "2.5 times the latency of the links."
            ),
        ),
        (
            replace(EVEN, rate=None, first_batch=None, latency_ratio=None),
            f"{AHEAD} at any acceptance; in batches up to 8; whatever the latency of the links.",
        ),
        (
            replace(EVEN, rate=None, first_batch=None, latency_ratio=None, linked=False),
            f"{AHEAD} at any acceptance; in batches up to 8; there are no links.",
        ),
        (
            replace(EVEN, rate=None, speedup=0.9),
            (
                "by law it is 0.90 times as fast as autoregressive decoding on the same devices, "
                "at its mean batch of 4, and behind at any acceptance."
            ),
        ),
    ],
)
def test_break_even_is_said(point: BreakEven, words: str) -> None:
    assert plan_page.break_even_words(point) == words


CEILING = "; flops, bytes and KV cache allow at most 60 times."
ROOM = Headroom(25.0, 60.0, steady=True, recorded=20, requests=816, lasted_s=36.0)


@pytest.mark.parametrize(
    ("room", "number", "words"),
    [
        (
            replace(ROOM, interval=(20.0, 35.0)),
            "25 x",
            (
                "25 times the planned traffic (the log's 20 requests, drawn again: 816 requests "
                "within 36 s, to 5 %); from so few requests anything between 20 and 35 (90 % "
                "interval)"
            ),
        ),
        (
            replace(ROOM, recorded=None, capped=True),
            "at least 25 x",
            (
                "at least 25 times the planned traffic (arrivals and lengths as stated, drawn "
                "again: 816 requests within 36 s, to 5 %); no more was tried"
            ),
        ),
        (
            replace(ROOM, steady=False),
            "25 x",
            (
                "25 times the planned traffic (the log's 20 requests, once, their bursts so many "
                "times as large: 816 requests within 36 s, to 5 %)"
            ),
        ),
        (
            replace(ROOM, times=None, recorded=3),
            "unknown",
            "unknown from 3 requests, too few to draw more from",
        ),
        (
            replace(ROOM, times=0.5),
            "0.50 x",
            (
                "none. These requests meet the SLO, but of traffic that goes on in the same way "
                "the fleet carries about 0.5 times it"
            ),
        ),
        (
            replace(ROOM, times=0.5, recorded=None, by_law=True),
            "0.50 x",
            (
                "none. The SLO is met as long as stated, but of traffic that goes on in the same "
                "way the fleet carries by law about 0.5 times it"
            ),
        ),
        (
            replace(ROOM, times=0.0),
            "0 x",
            (
                "none. These requests meet the SLO, but of traffic that goes on in the same way "
                "the fleet carries none of it"
            ),
        ),
    ],
)
def test_headroom_is_said(room: Headroom, number: str, words: str) -> None:
    assert plan_page.multiple(room) == number
    assert plan_page.headroom_words(room) == f"{words}{CEILING}"


TRIAL = Trial(1, 1600, 0.031, False, False, 1, 1, 1, 1, 1, 1, 1, 0.0, 0, 0.0, (), ())


def test_more_requests_are_said_to_come_or_not() -> None:
    assert plan_page.longer(TRIAL, recorded=True) == (
        "The traffic is the 1,600 requests that were read, once; what comes after them is not in "
        "it."
    )
    assert plan_page.longer(TRIAL, recorded=False) == (
        "Over 1,600 requests the SLO is missed and the queue is growing (drift +3.1% of arrivals)."
    )
    assert plan_page.longer(TRIAL._replace(stable=True, slo_met=True), recorded=False) == (
        "Over 1,600 requests the SLO is met and the queue is stable (drift +3.1% of arrivals)."
    )


def test_resampled_runs_and_missing_prices_are_said() -> None:
    assert plan_page.resampled(Chance(19, 20, Interval(0.784, 0.997))) == (
        "The SLO was met in 19 of 20 resampled runs (90 % interval 78 % to 100 %; arrivals, "
        "recordings and device speeds are resampled, links are not)."
    )
    assert plan_page.without_price("my_card") == (
        "No price is known for my_card: its USD per hour counts devices; state one with --price "
        "my_card=2.50."
    )


def test_borrowed_acceptance_is_said() -> None:
    recorded = load("vanilla_llama_2_7b_a100").scenario
    assert plan_page.stand_in(recorded) == (
        "Acceptance is a stand-in, recorded from small models; that of the planned models may be "
        "higher or lower."
    )
    lent = load(
        "vanilla_llama_2_7b_a100",
        [
            "acceptance.rescale={tokens_per_step: 2.5, window: 4, source: 'a paper: Table 3', "
            "confidence: published}"
        ],
    )
    assert plan_page.stand_in(lent.scenario) == (
        "Acceptance is borrowed: its mean is published (a paper), its bursts are recorded from "
        "small models; yours may be higher or lower."
    )


def test_draft_lengths_by_batch_are_said(fleet: Finding) -> None:
    lead = "Draft tokens by batch size that give the most tokens per second by law: 1 to 3: 4, "
    assert plan_page.scheduled(WindowSchedule({1: 4, 4: 0}, fleet), 8) == (
        f"{lead}4 to 8: 0. Run with them, the SLO is met, TPOT p90 15.0 ms."
    )
    missed = replace(fleet, measured=(MeasuredLimit(TTFT, 0.45, False),))
    assert plan_page.scheduled(WindowSchedule({1: 4, 4: 0}, missed), 8) == (
        f"{lead}4 to 8: 0. Run with them, the SLO is missed, TTFT p90 450 ms."
    )
    table = " (schedule.csv: draft tokens by batch and context)."
    assert plan_page.switched_off({1024: {1: 3, 2: 2}}) == (
        "Of as many requests as the cache has room for, the model never recommends turning "
        f"speculation off{table}"
    )
    assert plan_page.switched_off({1024: {1: 3, 2: 2}, 4096: {1: 2, 4: 0, 8: 0}, 9: {2: 0}}) == (
        "The model recommends turning speculation off from 4 requests of 4,096 cached tokens on, "
        f"from 2 requests of 9 cached tokens on{table}"
    )


def test_what_was_looked_at_is_counted(tmp_path: Path, fleet: Finding) -> None:
    findings = (fleet, fleet, replace(fleet, bound="demand"))
    assert plan_page.looked_at(Search(small(tmp_path), findings)) == (
        "There are 6 candidates; of 3 fleets looked at, 2 were simulated and 1 ruled out by a "
        "bound."
    )


def test_a_page_has_its_answer_and_a_line_for_every_family(tmp_path: Path) -> None:
    """The second time with a family none of whose fleets meets the limits."""
    plan = small(tmp_path)
    answered = study(plan, "specsim plan small.yaml", draws=1)
    shown = plan_page.page(answered)
    cheapest = answered.chosen
    cost = plan_page.number(cheapest.cost_usd_per_million_tokens)
    assert shown.title == "Plan small"
    assert answered.decision is not None
    drafted, decision = answered.decision
    chance = decided.chance_words(decision.chance)
    assert (drafted.candidate.strategy, decision.verdict) == ("drafted", "may hurt")
    assert shown.answer == (
        f"Speculation with drafted may hurt: {chance} chance that it is faster than plain "
        "decoding. "
        f"{FLEET}: 2.000 USD per hour, {cost} USD per million output tokens."
    )
    assert list(shown.highlights) == [
        Highlight("1 replica", "plain decoding on A100, tensor_parallel 1"),
        Highlight("2.00 USD", "an hour"),
        Highlight(plan_page.multiple(answered.headroom), "headroom (times the planned traffic)"),
        Highlight("1 of 1", "resampled runs met the SLO (90 % interval 5 % to 100 %)"),
    ]
    leads = [
        item[0]
        for block in shown.opening
        if isinstance(block, Bullets)
        for item in block.items
        if isinstance(item, tuple)
    ]
    assert leads == [
        Strong("Why:"),
        Strong("Headroom:"),
        Strong("Not recommended:"),
        Strong("Flips:"),
        Strong("Acceptance:"),
        Strong("Half a token less per step:"),
        Strong("To settle it:"),
        Strong("With 10 % fewer accepted tokens:"),
        Strong("With links of twice the latency:"),
        Strong("With twice the traffic:"),
    ]
    search = replace(
        answered.search,
        findings=(cheapest, Finding(plan.candidates[2], 3, broken=TPOT, bound="alone")),
    )
    (alternatives, legend) = plan_page.page(replace(answered, search=search)).sections[0].blocks
    assert isinstance(alternatives, Table)
    assert alternatives.title == "The cheapest fleet of every strategy on every hardware"
    assert list(alternatives.head) == [
        "strategy",
        "hardware",
        "settings",
        "replicas",
        "devices",
        "USD/hour",
        "USD/million tokens",
        "when full",
        "headroom",
        "limit broken with one replica fewer",
        "chance to be faster",
        "TTFT p90 (ms)",
        "TPOT p90 (ms)",
    ]
    first, second = alternatives.rows
    assert first[:6] == ("plain", "a100", "tensor_parallel 1", "1", "1 x a100_80g_sxm", "2.000")
    assert second == (
        "drafted",
        "a100",
        "none",
        "up to 3",
        "",
        "",
        "",
        "",
        "",
        "TPOT p90",
        "",
        "",
        "",
    )
    assert alternatives.terminal_columns == (0, 1, 2, 3, 5, 6, 8, 10, 11, 12)
    assert legend == Paragraph(
        "Each line is the cheapest fleet of a strategy on some hardware that meets the SLO in "
        "simulation. Headroom: how many times the planned traffic it carries. Million tokens: of "
        "output, with the work for prompts included; when full: at that traffic. Chance to be "
        "faster: that speculation is faster than plain decoding at the mean batch, by law."
    )
    tables = [block for block in shown.blocks if isinstance(block, Table)]
    heads = {table.title: list(table.head) for table in tables}
    picture, priced = shown.figures
    assert (priced.title, priced.file) == ("Price against good requests", "goodput.svg")
    assert picture.title == (
        "Cost of fleets against the SLO: the cheapest of each family, and its sizes"
    )
    (axes,) = picture.drawing.axes
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title("left")) == (
        "USD per hour",
        "% of the tightest limit (200: or more)",
        "numbers: replicas; hollow: SLO missed",
    )
    assert heads["Prices"] == ["device", "USD/hour", "at most", "source"]
    assert heads["Time per token by law and batch size"] == [
        "candidate",
        *(f"ms/token at {size}" for size in (1, 2, 4, 8)),
        "most tokens/s",
    ]


def test_the_best_for_each_price_and_a_line_for_each_family() -> None:
    """The second fleet serves as much for more, the last one less than a cheaper one."""
    a, b = ("a100", "vanilla_sd"), ("l4", "autoregressive")
    fleets = [
        goodput.PricedFleet(4.0, 3.0, 6.0, a),
        goodput.PricedFleet(2.0, 1.0, 6.0, a),
        goodput.PricedFleet(3.0, 1.0, 6.0, b),
        goodput.PricedFleet(6.0, 2.0, 6.0, b),
    ]
    assert list(goodput.frontier(fleets)) == [fleets[1], fleets[0]]
    (panel,) = goodput.chart(fleets).panels
    best, of_a, of_b = panel.series
    assert (best.x, best.y) == ([2.0, 4.0, 4.0, 6.0], [1.0, 1.0, 3.0, 3.0])
    assert (of_a.label, of_a.x, of_a.y) == ("vanilla_sd on a100", [2.0, 4.0], [1.0, 3.0])
    assert (of_b.label, of_b.x, of_b.y) == ("autoregressive on l4", [3.0, 6.0], [1.0, 2.0])
    assert [level.label for level in panel.levels] == ["asked: 6.00 requests per second"]


def test_fleets_without_a_run_are_not_drawn(fleet: Finding) -> None:
    assert not list(goodput.blocks([fleet, fleet]))
