"""Sliders over a law: the pieces on a page are the law, whatever the acceptance, the window and the
share of a duration.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.acceptance.sources import Acceptance, Rates, odds_of
from simulator.core.strategies.common.base import LONGEST_WINDOW, law_parts, share_emitted
from simulator.core.strategies.common.law import means
from simulator.report.blocks import Page, Sliders
from simulator.report.html import TEMPLATES, as_html
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import baseline, law, simulate, tuned
from simulator.scenario.expenses import expenses
from simulator.studies.plan.search import replicated
from simulator.studies.what_if import MANY_KINDS, SHARES, WhatIf, what_if
from simulator.studies.window import at_window
from tests.apart import kept

SCENARIOS = (
    "durations_only",
    "mirror_qwen3_32b_a100",
    "vanilla_qwen3_32b_a100",
    "ngram_qwen3_30b_a3b_h200",
    "specpipe_llama_3_1_70b_4xl40",
    "streaming_vicuna_7b_a100_batched",
    "lyanna_llama_2_7b_h800_no_first_token",
    "autoregressive_mistral_24b_m2_ultra",
    "pipeline_llama_3_1_70b_8x3090",
)
Where = tuple[int, int, str, int]
"""Place of the rate and of the window, name of a duration, place of its share."""


def source(loaded: Loaded, rate: float | None) -> Acceptance:
    """Acceptance of independent places; a rejected token is as seldom among what an early exit sent
    as it is now.
    """
    if rate is None:
        return loaded.acceptance()
    scenario = loaded.scenario
    odds = loaded.acceptance().odds(scenario.schedule.window, scenario.exit)
    rejected = odds.accepted[0]
    outside = odds.off_exit[0] / rejected if rejected else 0.0
    return scenario.schedule.reads(Rates((rate,), overlap=1.0 - outside * (1.0 - rate)))


def by_law(loaded: Loaded, pieces: WhatIf, where: Where) -> dict[str, float]:
    """The law itself with one duration changed, and the price of its tokens at the price of a
    replica.
    """
    rate, window, name, share = where
    verdicts = source(loaded, pieces["rates"][rate])
    if pieces["windows"][window] != loaded.scenario.schedule.window:
        changed = at_window(loaded, pieces["windows"][window])
        verdicts = changed.acceptance() if pieces["rates"][rate] is None else verdicts
        loaded = changed
    scenario = loaded.scenario
    odds = odds_of(verdicts, scenario.exit)
    parts = law_parts(
        scenario.schedule, scenario.cost, odds, pieces["requests"], scenario.mean_context
    )
    emitted = share_emitted(scenario.schedule, parts, odds, scenario.outputs)
    times = SHARES[share]
    for place, part in enumerate(parts):
        duration = getattr(part.durations, name)
        entries = (
            tuple(entry * times for entry in duration)
            if isinstance(duration, tuple)
            else duration * times
        )
        parts[place] = part._replace(durations=part.durations._replace(**{name: entries}))
    step_s, verified, request_step_s = means(parts)
    tokens = verified * emitted
    tokens_per_s = tokens * pieces["requests"] / step_s
    usd = (pieces["usd_per_hour"] or 0.0) / 3600.0 / tokens_per_s * 1e6
    return {
        "tpot": float(request_step_s / tokens),
        "step": float(step_s),
        "tokens": float(tokens),
        "usd": float(usd),
    }


def positions(pieces: WhatIf, count: int) -> list[Where]:
    draw = Random(7)
    rates, windows = range(len(pieces["rates"])), range(len(pieces["windows"]))
    names = pieces["durations"] or [""]
    return [
        (
            draw.choice(rates),
            draw.choice(windows),
            draw.choice(names),
            draw.randrange(1, len(SHARES)),
        )
        for _ in range(count)
    ]


def put_together(pieces: WhatIf, where: Where) -> float:
    """Seconds per token out of the pieces, as whoever shows them does it."""
    rate, window, name, share = where
    tokens = seconds = 0.0
    for kind, weight, committed in pieces["mixes"][rate][window]:
        step = pieces["steps"][window][kind]
        a, b, c, d = step["lines"][name]
        seconds += (
            weight
            * step["batch"]
            * max(a + b * pieces["shares"][share], c + d * pieces["shares"][share])
        )
        tokens += weight * committed
    return seconds / tokens


@pytest.mark.few(2)
@pytest.mark.parametrize("name", kept(SCENARIOS))
def test_the_pieces_are_the_law(name: str) -> None:
    loaded = tuned(load(name))
    pieces = what_if(loaded)
    rate, window = pieces["start"]
    own = law(loaded.scenario, loaded.acceptance(), pieces["requests"])
    assert pieces["tpot_s"][rate][window] == pytest.approx(own.tpot_s, rel=1e-12)
    assert pieces["plain_s"] == baseline(loaded.scenario, pieces["requests"]).tpot_s
    assert pieces["durations"]
    assert pieces["windows"] == sorted(pieces["windows"])
    for where in positions(pieces, 12):
        assert put_together(pieces, where) == pytest.approx(
            by_law(loaded, pieces, where)["tpot"], rel=1e-9
        ), where
    assert json.loads(json.dumps(pieces)) == pieces


def test_a_draft_that_is_hidden_costs_nothing_up_to_a_corner() -> None:
    """T = 18 + 0.05 + max(18, 12 s) + 0.05 ms: hidden up to half as much again."""
    pieces = what_if(load("durations_only"))
    rate, window = pieces["start"]
    (step,) = [kind for kind in pieces["steps"][window] if kind["lines"]["redraft"][1] == 0.0]
    assert step["seconds"] == pytest.approx(0.0361)
    assert step["lines"]["draft"] == pytest.approx([0.0361, 0.0, 0.0181, 0.012])
    assert pieces["rates"][rate] is None
    assert None not in pieces["rates"][:rate] + pieces["rates"][rate + 1 :]


def test_more_kinds_mean_fewer_points() -> None:
    many = what_if(load("mirror_qwen3_32b_a100", [f"requests.concurrency={MANY_KINDS + 4}"]))
    few = what_if(load("mirror_qwen3_32b_a100"))
    assert len(many["rates"]) < len(few["rates"])
    assert len(many["windows"]) < len(few["windows"])
    assert len(json.dumps(many)) < 200_000


def test_no_window_is_offered_that_no_strategy_takes() -> None:
    assert (
        max(what_if(load("vanilla_qwen3_32b_a100", ["strategy.gamma=900"]))["windows"])
        == LONGEST_WINDOW
    )


def test_a_window_that_a_rule_chooses_is_not_offered() -> None:
    loaded = tuned(load("vanilla_qwen3_32b_a100", ["strategy.adaptive={name: goodput}"]))
    assert what_if(loaded, 1)["windows"] == [loaded.scenario.schedule.window]


def test_the_price_is_that_of_a_replica_and_none_without_devices() -> None:
    assert what_if(load("durations_only"))["usd_per_hour"] is None
    loaded = replicated(load("mirror_qwen3_32b_a100", ["requests.count=4"]), 2)
    spent = expenses(loaded.scenario, simulate(loaded.scenario, loaded.acceptance())[0])
    assert spent is not None
    assert spent.usd_per_hour
    assert what_if(loaded)["usd_per_hour"] == spent.usd_per_hour / 2


def test_a_law_is_written_as_a_page_and_nothing_else_is_a_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["law", "durations_only", "--out", str(tmp_path / "law.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "law.html").read_text("utf-8")
    data = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', page)[0])
    assert data == what_if(load("durations_only"))
    assert f"specsim law durations_only --out {tmp_path}" in page
    refused = CliRunner().invoke(
        main, ["law", "durations_only", "--out", str(tmp_path / "law.pdf")]
    )
    assert (refused.exit_code, "ends in .html" in refused.output) == (2, True)


def test_a_name_in_the_data_is_no_markup(tmp_path: Path) -> None:

    pieces = what_if(load("durations_only")) | {"name": "</script><script>alert(1)</script>"}
    text = as_html(Page("x", opening=[Sliders("<b>", pieces)]))
    assert "alert(1)</script>" not in text
    assert "<small>&lt;b&gt;" in text


def test_pages_without_sliders_carry_no_script_for_them() -> None:

    assert "class Sliders" in (TEMPLATES / "sliders.js").read_text("utf-8")
    assert "class Sliders" not in as_html(Page("x"))


def test_a_rule_that_asks_a_recording_has_no_other_acceptance() -> None:
    loaded = load(
        "vanilla_llama_2_7b_a100",
        [
            "acceptance.drafter=draft",
            "strategy.gamma=8",
            "strategy.adaptive={name: confidence, p_min: 0.6}",
        ],
    )
    assert what_if(loaded)["rates"] == [None]
