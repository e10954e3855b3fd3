"""What the page of a run says, in whole sentences: those that the kept demo does not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace as Facts
from typing import Any

import pytest

from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.cost.rows import Phase
from simulator.core.serving.load.arrivals import Deterministic, Gamma, Poisson
from simulator.core.serving.load.lengths import Uniform
from simulator.core.serving.load.traffic import TrafficFile
from simulator.core.serving.metrics import Sketch
from simulator.core.strategies.common.claim import EXACT, Claim
from simulator.core.strategies.common.step import Kind
from simulator.report.blocks import (
    Bullets,
    Code,
    Highlight,
    Paragraph,
    Section,
    Strong,
    Table,
    Words,
)
from simulator.report.run import (
    acceptance,
    answer,
    drafting,
    figures,
    gaps,
    memory,
    serving,
    steps,
    window,
)
from simulator.report.run.page import run_page
from simulator.scenario import load
from simulator.scenario.agreement import Agreement, GapPart
from simulator.scenario.evaluate import run
from simulator.scenario.expenses import Expenses
from simulator.scenario.outcome import Counted, LimitOutcome, Littles, Mean, Replica
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.uncertain.draws import Interval
from simulator.studies.window import SweepPoint


@pytest.fixture(scope="module")
def ran() -> RunResult:
    """Two requests of stated durations, whose drafting is hidden."""
    return run(load("durations_only", ["requests.count=2", "requests.output_tokens=16"]))


def texts(blocks: Sequence[Any]) -> list[Words]:
    """The paragraphs among blocks."""
    return [block.words for block in blocks if isinstance(block, Paragraph)]


def titles(sections: Sequence[Section]) -> list[str]:
    """The titles of sections, in order."""
    return [section.title for section in sections]


def with_scenario(result: RunResult, **updates: Any) -> RunResult:
    """A result whose scenario has other fields."""
    return replace(result, scenario=result.scenario.model_copy(update=updates))


# ---- the page


def test_the_sections_of_a_run_stand_in_order(ran: RunResult) -> None:
    sections = run_page(replace(ran, caveats=("a note",)), ()).sections
    assert titles(sections) == [
        "Law, replay and simulation",
        "Where the time goes",
        "Requests and batches",
        "Fallback",
        "How many draft tokens are kept",
        "The steps drawn",
        "Notes",
        "Where the numbers come from",
        "The scenario, resolved",
    ]
    assert sections[6].blocks == [Bullets(("a note",))]
    assert [section.title for section in sections if not section.terminal] == [
        "How many draft tokens are kept",
        "The steps drawn",
        "Where the numbers come from",
        "The scenario, resolved",
    ]


# ---- the answer


def simple(speedup: float, gamma: int = 3, together: bool = False) -> Any:
    """What a headline is made of."""
    return Facts(
        scenario=Facts(
            schedule=Facts(window=gamma, traits=Facts(hidden_behind=None, drafted_in=())),
            requests=Facts(together=together),
        ),
        simulated=Facts(tpot_s=0.01, tokens_per_s=90.0),
        baseline=Facts(tpot_s=0.01 * speedup, tokens_per_s=45.0),
        closed_loop=None,
        law=Facts(tpot_s=0.011),
        speedup=speedup,
        speedup_with_prompts=None,
        decision=None,
        phases={Kind("step", 1): {}},
    )


def test_the_answer_without_a_window_is_a_time() -> None:
    alone = simple(1.0, gamma=0)
    assert answer.headline(alone) == "10.0 ms per token (simulation)."
    assert list(answer.highlights(alone, Interval(1.0, 2.0))) == [
        Highlight("10.0 ms", "per token, simulation"),
        Highlight("11.0 ms", "per token by law, +10.00 % against the simulation"),
    ]


def test_the_answer_with_a_window_is_a_speedup() -> None:
    assert answer.headline(simple(0.5)) == (
        "10.0 ms per token (simulation), only 0.50 times as fast as autoregressive decoding "
        "(5.00 ms, simulation); drafting takes no pass of its own."
    )
    both = simple(2.0, together=True)
    assert answer.headline(both) == (
        "10.0 ms per token (simulation), 2.00 times as fast as autoregressive decoding (20.0 ms, "
        "simulation); 90.0 tokens per second against 45.0, too few to compare; drafting takes no "
        "pass of its own."
    )
    both.speedup_with_prompts = 1.9
    assert "against 45.0, 1.90 times, admissions included; " in answer.headline(both)
    assert [highlight.what for highlight in answer.highlights(both, None)][1] == (
        "the speed of autoregressive decoding (20.0 ms)"
    )
    assert list(answer.highlights(both, Interval(1.5, 2.25)))[1] == Highlight(
        "2.00 ×",
        "the speed of autoregressive decoding (20.0 ms); 90 % of 4,000 draws: 1.50 to 2.25 ×",
    )


def test_what_is_wrong_comes_before_what_is_in_doubt(ran: RunResult) -> None:
    counted = replace(
        ran.simulated.serving.counted,
        slo=(
            LimitOutcome("ttft", "p99", 100.0, 339.2, 0.5, False),
            LimitOutcome("tpot", "p50", 1000.0, 11.76, 1.0, True),
        ),
    )
    serving_outcome = replace(ran.simulated.serving, counted=counted)
    doubted = replace(
        with_scenario(ran, acceptance=AcceptanceSpec(trace="x", stand_in=True)),
        simulated=replace(ran.simulated, serving=serving_outcome),
        cautions=("a caution", "another"),
        rests_on="largest uncertainty: x",
    )
    assert not any(isinstance(block, Bullets) for block in answer.paragraphs(doubted, None))
    *said, conditions = texts(list(answer.paragraphs(doubted, Interval(2.5, 3.55))))
    assert said == [
        "A caution.",
        "Another.",
        f"Speed-up {ran.speedup:.2f}x (90 % interval 2.50 to 3.55).",
        "Largest uncertainty: x.",
        "SLO: TTFT p99 339.2 of 100.0 ms MISSED, TPOT p50 11.76 of 1,000 ms met.",
    ]
    assert conditions == (
        "Acceptance: trace x (stand-in from other models). Times: stated in the scenario, no "
        "hardware or engine. Tokens counted: verified. Load: 2 requests, 1 at a time, 512 prompt "
        "and 16 output tokens each."
    )


def test_a_disagreement_comes_first() -> None:
    wrong = simple(1.0, gamma=0)
    wrong.agreement = Agreement(Claim("upper_bound", "of x"), "DISAGREEMENT", 0.5, True)
    first = next(answer.paragraphs(wrong, None))
    assert first == Paragraph(
        (Strong("The law claims to be an upper bound: of x. This run shows: FAIL."),)
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "4 at a time"),
        (Poisson(rate_per_s=2.5), "2.5 a second (poisson)"),
        (Deterministic(rate_per_s=3), "3 a second (deterministic)"),
        (Gamma(rate_per_s=3, burstiness=0.5), "3 a second (gamma with burstiness 0.5)"),
        (TrafficFile(format="azure", file="a.csv"), "from a.csv (azure)"),
        (
            TrafficFile(format="csv", file="a.csv", from_s=60, rate_scale=2),
            "from a.csv (csv, 60 s to its end), at 2 times its rate",
        ),
        (
            TrafficFile(format="csv", file="a.csv", to_s=600),
            "from a.csv (csv, 0 s to 600 s)",
        ),
    ],
)
def test_when_requests_come(given: Any, words: str) -> None:
    requests: Any = Facts(arrivals=given, sessions=None, concurrency=4)
    assert answer.arrivals(requests) == words


def test_how_long_requests_are() -> None:
    drawn = Uniform(least_tokens=10, most_tokens=4000)
    requests = Facts(traffic=None, sessions=None, prompt_tokens=drawn, output_tokens=1024)
    scenario: Any = Facts(requests=requests, lengths=(1234.6, 99.9, 4096))
    words = "10 to 4,000 (uniform) prompt and 1,024 output tokens each"
    assert answer.sizes(scenario) == words
    requests.traffic = "a file"
    words = "1,235 prompt and 100 output tokens on average, at most 4,096 together"
    assert answer.sizes(scenario) == words
    requests.traffic = None
    requests.sessions = "of any kind"
    assert answer.sizes(scenario) == words


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"rate": 0.5}, "stated rates (assumed)"),
        ({"always": 3, "confidence": "measured"}, "stated cycle (measured)"),
        ({"cycle": {"accepted": [3, 0]}}, "stated cycle (assumed)"),
        (
            {"rate": 0.5, "source": "a paper", "confidence": "published"},
            "stated rates (published; source: a paper)",
        ),
        ({"trace": "t"}, "trace t"),
        (
            {"trace": "t", "drafter": "eagle", "rescale": {"tokens_per_step": 2.5}},
            "trace t, drafter eagle, re-scaled to 2.5 tokens a step",
        ),
    ],
)
def test_where_acceptance_comes_from(stated: dict[str, Any], words: str) -> None:
    assert answer.acceptance_source(AcceptanceSpec(**stated)) == words


def test_a_recording_of_the_models_themselves_is_recorded() -> None:
    assert answer.origin(AcceptanceSpec(trace="t")) == "recorded"
    assert answer.origin(AcceptanceSpec(trace="t", stand_in=True)) == "stand-in"


# ---- whether drafting is hidden


def drafted(
    phases: dict[str, float], redrafts: int = 0, one_lane: bool = False, contention: float = 1.0
) -> Any:
    """What a regime is made of: named phases in ms, and steps of ten that redraft for 5 ms."""
    parts = {name: Phase(ms / 1e3, {}) for name, ms in phases.items()}
    again = {Kind("fallback", 1, redrafts=1): {"redraft": Phase(0.005, {})}} if redrafts else {}
    return Facts(
        scenario=Facts(
            schedule=Facts(
                window=4, traits=Facts(hidden_behind="suffix", drafted_in=("draft", "first"))
            ),
            one_lane=one_lane,
            contention=contention,
            stages=3,
        ),
        phases={Kind("step", 1): parts, **again},
        simulated=Facts(kinds=dict.fromkeys(again, redrafts), steps=10, accepted={0: 1, 1: 3}),
    )


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (drafted({"first": 3.0}), "drafting a window takes 3.00 ms and nothing hides it"),
        (
            drafted({"draft": 4.0, "suffix": 9.0}, one_lane=True, contention=1.5, redrafts=2),
            "T_draft = 4.00 ms is not hidden: target and draft share one device, so Δ = 9.00 ms "
            "adds to it",
        ),
        (
            drafted({"draft": 4.0, "suffix": 9.0}),
            "T_draft = 4.00 ms is hidden behind Δ = 9.00 ms with 5.00 ms to spare",
        ),
        (
            drafted({"draft": 9.0, "suffix": 4.0}, redrafts=2),
            "T_draft = 9.00 ms exceeds Δ = 4.00 ms, so 5.00 ms of every step are exposed; 20.0 % "
            "of the steps redraft a window for 5.00 ms",
        ),
        (
            drafted({"draft_level": 2.0, "exchange": 1.0, "compute": 4.0}),
            "a step of all stages takes 4.00 ms to compute and 1.00 ms to prune and transmit; "
            "T_draft = 2.00 ms for a level is hidden with 3.00 ms to spare; 75.0 % of the tokens "
            "were in the tree, of which a point is 0.100 ms a token",
        ),
        (
            drafted({"draft_level": 8.0, "exchange": 1.0, "compute": 4.0}),
            "a step of all stages takes 4.00 ms to compute and 1.00 ms to prune and transmit; "
            "T_draft = 8.00 ms for a level is what it waits for; 75.0 % of the tokens were in the "
            "tree, of which a point is 0.160 ms a token",
        ),
    ],
)
def test_whether_drafting_is_hidden(result: Any, words: str) -> None:
    assert drafting.regime(result) == words


def test_where_nothing_is_drafted() -> None:
    assert drafting.regime(simple(1.0, gamma=0)) == "nothing is drafted"


# ---- the gaps


def why_first(**changes: Any) -> str:
    """What may explain the first gap of a window with rates, changed."""
    facts = {"gamma": 3, "source": "stated rates", "staged": False, "spec": {"rate": 0.5}}
    facts |= changes
    result: Any = Facts(
        scenario=Facts(
            schedule=Facts(window=facts["gamma"], traits=Facts(staged=facts["staged"])),
            acceptance=AcceptanceSpec(**facts["spec"]),
        ),
        odds=Facts(source=facts["source"]),
        simulated=Facts(windows=1234),
    )
    return gaps._why_first(result)


def test_what_may_explain_the_gap_of_acceptance() -> None:
    assert why_first(gamma=0) == "nothing is drafted, so acceptance plays no part"
    assert why_first(source="marginal run lengths of x") == (
        "averaged over all starts, long runs count at each of their positions, and decoding jumps "
        "over them"
    )
    assert why_first(source="marginal hits of x") == (
        "a token that was in the tree still comes late where pruning left a gap before its level: "
        "partial refills, which the share of hits does not count; and every request finds an empty "
        "pipeline"
    )
    cut = "the cycle is cut where an output ends; over whole cycles both are the same"
    assert why_first(spec={"always": 2}) == cut
    assert why_first(spec={"cycle": {"accepted": [1]}}) == cut
    chance = "positions are independent here, so what is left is chance over 1,234 windows"
    assert why_first() == chance
    assert why_first(staged=True) == f"{chance}, and the pipeline that every request finds empty"


def test_what_may_explain_the_gap_of_the_simulation(ran: RunResult) -> None:
    prompts = {Kind("step", 1, prompts=1): 3}
    together = ran.scenario.requests.model_copy(update={"concurrency": 2})
    lost = "the first window of a request is drafted outside the steps"
    assert list(gaps._reasons(ran)) == [lost]
    assert list(gaps._reasons(with_scenario(ran, requests=together))) == [
        "prefills of other requests hold up the batch, which empties at the end",
        lost,
    ]
    busy = replace(ran, simulated=replace(ran.simulated, kinds=prompts))
    assert list(gaps._reasons(busy)) == [
        "prompts of other requests travel in the steps, and the batch empties at the end",
        lost,
    ]
    counted = ["strategy.count=emitted", "requests.count=2", "requests.output_tokens=16"]
    emitted = run(load("duodecoding_llama_2_7b_a800", counted))
    growing, shown, *_ = gaps._reasons(emitted)
    assert growing == "the context grows from step to step while the law takes the mean context"
    assert shown == "a request ends when its last token is shown, checked or not"


@pytest.mark.parametrize(
    ("disagreement", "claim", "words"),
    [
        (
            True,
            EXACT,
            "the law or the timeline is wrong, as they disagree; no other reason is named until "
            "they agree",
        ),
        (False, EXACT, "nothing the law leaves out"),
        (False, Claim("upper_bound", "no waits"), "upper bound: no waits"),
    ],
)
def test_the_claim_of_a_law_is_among_the_reasons(
    disagreement: bool, claim: Claim, words: str
) -> None:
    result: Any = Facts(
        agreement=Agreement(claim, "", None, disagreement),
        scenario=Facts(
            schedule=Facts(window=0),
            requests=Facts(together=False),
            cost=Facts(reads_context=False),
        ),
        simulated=Facts(kinds={}, handover=None),
    )
    assert gaps._why_second(result) == words


def test_the_parts_of_a_gap_are_a_table() -> None:
    parts = gaps._measured_parts((GapPart("mix of kinds", 0.0115, -0.049),))
    assert parts == Table(
        ["taken into account, one after the other", "time per token (ms)", "explains of the gap"],
        [("mix of kinds", "11.50", "-4.9 %")],
        "From the law with marginal rates to the simulation",
    )


# ---- the steps


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Kind("step", 0), "step"),
        (Kind("step", 2), "step (2 verifying a window)"),
        (Kind("step", 2, window=3), "step (2 verifying a window of 3)"),
        (Kind("mixed", 1, bare=2), "mixed (1 verifying a window, 2 without a window)"),
        (Kind("lost", 0, redrafts=1, waiting=2), "lost (1 window redrafted)"),
        (Kind("lost", 0, redrafts=2), "lost (2 windows redrafted)"),
        (Kind("lost", 0, waiting=2, prompts=1), "lost (2 waiting, 1 prompt beside them)"),
        (Kind("step", 0, prompts=3), "step (3 prompts beside them)"),
    ],
)
def test_the_name_of_a_kind_of_step(kind: Kind, words: str) -> None:
    assert steps.kind_name(kind) == words


def test_where_the_parts_of_a_step_come_from() -> None:
    """Six kinds, of which four are shown; the first has a suffix."""
    plain = {"verify": Phase(0.1, {})}
    result: Any = Facts(phases={Kind("step", 1): plain})
    assert steps.parts_origin(result) == "Origin: stated in the scenario, with no split."
    result.phases = {Kind("step", size): plain for size in range(5)}
    result.phases[Kind("first", 1)] = {"suffix": Phase(0.1, {"target compute": 0.1})}
    assert steps.parts_origin(result) == (
        "Origin: the cost model at the mean context; draft and suffix run at the same time. A part "
        "that takes the same as in the first step kind is not repeated. Rarer step kinds left out "
        "here: 2."
    )


# ---- requests and batches


def counted(seconds: float, requests: int = 8, good: int = 6) -> Counted:
    """What counts of ten requests."""
    slo = (LimitOutcome("ttft", "p99", 100.0, 50.0, 0.75, True),)
    return Counted("the middle eight", requests, 0.0, seconds, 800, slo, good, 600)


def served(ran: RunResult, replicas: int, **changes: Any) -> list[str]:
    """The sentences of a run with other numbers."""
    setup = ran.scenario.serving.model_copy(update={"replicas": replicas})
    serving_outcome = replace(ran.simulated.serving, **changes)
    result = with_scenario(ran, serving=setup)
    return list(
        serving.sentences(
            replace(result, simulated=replace(ran.simulated, serving=serving_outcome))
        )
    )


def test_what_is_said_of_requests_and_batches(ran: RunResult) -> None:
    said = served(
        ran,
        replicas=2,
        requests=10,
        counted=counted(2.0),
        mean_batch=1.5,
        batch_s={1: 1.0, 2000: 99.0},
        mean_waiting=0.25,
        queue_s={},
        littles_law=Littles(2.0, 4.0, 0.5),
        mean_kv_tokens=100.0,
        most_kv_tokens=1000,
        kv_tokens=2000,
        preemptions=1000,
        recomputed_rows=2000,
        prompt_rows=3000,
        prefix_cache={"hit_rate": 0.25, "prompt_tokens": 4000, "evicted_tokens": 1000},
        drafted=2000,
        wasted_drafts=500,
        verified_rows=3000,
        wasted_rows=300,
    )
    assert said == [
        "Counted: the middle eight, 2.00 s; all else is of the whole run.",
        "Goodput: 3.00 requests and 300.0 tokens per second, of the 75.0 % of requests that meet "
        "every limit themselves.",
        "Batch: 1.50 requests decode in a step on average, up to 2,000 for 95 % of the time, 2,000 "
        "at most; 2 replicas behind least outstanding.",
        "Queue: 0.250 requests wait on average, up to 0 for 95 % of the time, 0 at most before a "
        "replica.",
        "Little's law holds: 2.000 in the system = 4.000 per second x 0.500 s, to within 0e+00.",
        "KV cache of a replica: 100 tokens held on average, 1,000 at most, room for 2,000, at most "
        "50.0 % in use; 1,000 preemptions, 2,000 of 3,000 prefilled tokens recomputed.",
        "Prefix caches of all replicas: 25.0 % of 4,000 prompt tokens were there already and not "
        "computed; 1,000 tokens of blocks evicted.",
        "Wasted work: 25.0 % of 2,000 verified draft tokens were rejected, and 10.0 % of 3,000 "
        "rows that the target verified brought no token.",
    ]


def test_what_is_not_measured_is_said(ran: RunResult) -> None:
    cache = {"hit_rate": 0.25, "prompt_tokens": 4000, "evicted_tokens": 0}
    first, second, *_, kv, prefix = served(
        ran, 1, requests=10, counted=counted(0.0), drafted=0, prefix_cache=cache
    )
    assert first == (
        "Counted: the middle eight, 0 s, in which no rate and no time between tokens is measured: "
        "tokens per second are of the whole run; all else is of the whole run."
    )
    assert second == (
        "Goodput: not measured, of the 75.0 % of requests that meet every limit themselves."
    )
    assert kv.startswith("KV cache: ")
    assert "no limit stated; " in kv
    assert prefix.startswith("Prefix cache: 25.0 %")


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        (Expenses(None, None, None, None, ("a",)), []),
        (
            Expenses(2.5, 0.75, None, None, ()),
            ["Cost: 0.750 USD per million tokens, at 2.500 USD per hour."],
        ),
        (
            Expenses(None, None, 1.5, 2.5, ("a",)),
            [
                "Energy: at most 2.500 J per token, with all devices at their datasheet's power; "
                "1.500 J while they are busy."
            ],
        ),
    ],
)
def test_what_tokens_cost(costs: Expenses, words: list[str]) -> None:
    assert list(serving._costs(costs)) == words


def test_a_run_over_seeds_has_a_table_of_its_own(ran: RunResult) -> None:
    columns = ("mean", "p50", "p90", "p95", "p99")
    means = {
        f"{metric}_{column}_ms": Mean(10.0, 0.5)
        for metric in ("ttft", "tbt", "tpot", "e2e")
        for column in columns
    }
    means["tokens_per_s"] = Mean(100.0, 2.0)
    blocks = serving.section(replace(ran, replications=means, seeds=5)).blocks
    assert blocks[1] == Table(
        ["over seeds, 95 %", *columns],
        [
            *((f"{metric} (ms)", *("10.0 ± 0.50",) * 5) for metric in ("TTFT", "TBT", "TPOT")),
            ("E2E (ms)", *("10.0 ± 0.50",) * 5),
            ("tokens per s", "100 ± 2.0", "", "", "", ""),
        ],
        "Over several seeds",
    )
    assert texts(blocks)[0] == (
        "± is half of a 95 % interval over 5 seeds (Student's t), of which this run's is the first."
    )


def test_limits_and_replicas_are_tables() -> None:
    assert serving._limits(counted(1.0)) == Table(
        ["SLO", "limit (ms)", "simulated (ms)", "within the limit", ""],
        [("TTFT p99", "100.0", "50.00", "75.0 %", "met")],
        "Limits of the SLO, and simulated times",
    )
    ttft = Sketch()
    ttft.add(0.25)
    replica = Replica(1000, 20000, Littles(1, 1, 1), ttft, 2.5, 0.5, 3000, {"target": 0.5})
    outcome: Any = Facts(replicas=(replica,), pools=(), end_s=2.0)
    assert serving._replicas(outcome) == Table(
        [
            "replica",
            "requests",
            "tokens",
            "busy",
            "batch",
            "queue",
            "preempted",
            "TTFT p99 (ms)",
        ],
        [("1", "1,000", "20,000", "25.0 %", "2.50", "0.500", "3,000", "250.0")],
        "Replica by replica",
    )


def test_a_time_that_never_occurred_is_not_measured() -> None:
    names = ("wait", "ttft", "tbt", "tpot", "e2e")
    outcome: Any = Facts(**{name: Sketch() for name in names})
    table = serving._times(outcome)
    assert table.rows[2] == ("TBT", "not measured", "", "", "", "", "")


# ---- memory of the stages


def test_the_memory_of_stages_is_captioned() -> None:
    name = "specpipe_llama_3_1_70b_8x3090"
    stated = memory.section(load(name, ["serving.memory.kv_tokens=81920"]).scenario)
    table, caption = stated.blocks
    assert isinstance(table, Table)
    columns = ["stages", "weights", "table", "KV", "tree", "runtime", "GiB", "printed"]
    assert (table.title, table.head) == ("Memory of the stages", columns)
    assert caption == Paragraph(
        "Memory of each stage in GiB. Table: embedding or LM head. KV: room for 81,920 tokens "
        "(stated). Printed: in total with 4 d² + 3 d f weights a layer, as SpecPipe counts them "
        "(SP-10)."
    )
    left = load(name).scenario
    assert (
        memory.stage_caption(left)
        .partition("tokens ")[2]
        .startswith("(what the weights leave on the fullest device). ")
    )
    assert not memory.section(load("durations_only").scenario).blocks


# ---- acceptance and other windows


def test_choices_without_windows_to_lose_have_a_section_of_their_own() -> None:
    result: Any = Facts(
        scenario=Facts(schedule=Facts()),
        simulated=Facts(choices={"long": 1, "short": 3}),
    )
    assert acceptance.of_strategy(result) == Section(
        "Choices", [Paragraph("Next window (simulation): short 75.0 %, long 25.0 %.")]
    )
    result.simulated.choices = {}
    assert not acceptance.of_strategy(result).blocks


def point(gamma: int, draft_ms: float, overlap_ms: float | None = 5.0) -> SweepPoint:
    """A window by law, whose time per token falls with it."""
    return SweepPoint(gamma, 10.0, 10.0 / gamma, 10.0, draft_ms, overlap_ms, 30.0)


def test_the_best_window_by_law_beside_that_of_the_run() -> None:
    points = [point(1, 1.0), point(2, 2.0)]
    by_law = "Best window by law (marginal rates): γ = 2 with 5.000 ms per token. This scenario"
    assert window.best_window(points, 2) == f"{by_law} runs γ = 2."
    points[0] = replace(points[0], simulated_tpot_ms=4.5)
    assert window.best_window(points, 1) == (
        f"{by_law} runs γ = 1: 10.00 ms by law, 4.500 ms by simulation; ",
        Code("--set strategy.gamma=2"),
        " simulates γ = 2.",
    )
    assert window.stated_draft(12.0, 7) == (
        "The stated draft_ms of 12.00 ms is for γ = 7; other windows are taken in proportion to "
        "their internal draft steps, and the stated target time as the same for all. A run of "
        "another window takes ",
        Code("durations.draft_ms"),
        " as it is stated.",
    )


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([point(1, 1.0, None)], ""),
        (
            [point(1, 2.0, None), point(3, 5.0, None)],
            "drafting is not hidden: T_draft adds 1.5 ms per draft token",
        ),
        (
            [point(1, 1.0), point(2, 2.0)],
            "shaded: T_draft ≤ Δ, drafting is hidden at every window shown",
        ),
        ([point(1, 1.0), point(2, 9.0)], "γ* = 1: up to here T_draft ≤ Δ is hidden"),
        (
            [point(1, 1.0), point(2, 9.0), point(3, 11.0)],
            "γ* = 1: up to here T_draft ≤ Δ is hidden\nbeyond, T_draft adds 2 ms per draft token",
        ),
    ],
)
def test_up_to_which_window_drafting_is_hidden(points: list[SweepPoint], words: str) -> None:
    assert figures.hidden_up_to(points) == words


def test_the_panels_of_other_windows_are_named() -> None:
    points = [
        replace(
            point(gamma, 2.0 * gamma),
            law_step_ms=11.0,
            vanilla_step_ms=12.0,
            vanilla_tpot_ms=8.0,
            simulated_step_ms=11.5,
            simulated_tpot_ms=7.0,
            replayed_tpot_ms=7.5,
            baseline_tpot_ms=baseline_ms,
        )
        for gamma, baseline_ms in ((1, 10.5), (2, 10.5))
    ]
    steps, tokens = figures.window_sweep(points).panels
    assert [one.label for one in steps.named] == [
        "vanilla, law",
        "mean step, law",
        "step without fallback, law",
        "mean step, simulation",
    ]
    assert [one.label for one in tokens.named] == [
        "vanilla, law",
        "law, marginal rates",
        "law, replayed means",
        "simulation",
        "autoregressive, law",
    ]
    assert (steps.y_label, tokens.y_label) == ("step time (ms)", "time per token (ms)")
    assert steps.x_label == "window γ (draft tokens)"
    above = [replace(each, baseline_tpot_ms=30.0, law_step_ms=10.0) for each in points]
    steps, tokens = figures.window_sweep(above).panels
    assert steps.named[1].label == "step, law"
    assert [note.words for note in tokens.notes] == [
        "autoregressive, law: 30.0 ms (above this panel)"
    ]
