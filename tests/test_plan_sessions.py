"""Plans for prompts that are kept: what caches have of them, what speculation costs them, and
sessions as the load.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.report.blocks import Table
from simulator.report.pages import plan as plan_page
from simulator.scenario.cache_cost import CacheCost
from simulator.studies.plan.file import Plan, load_plan
from simulator.studies.plan.study import study, summary

KEPT: dict[str, Any] = {
    "about": "a 30B on one H200, prompts that begin alike",
    "scenario": {
        "like": "eagle3_qwen3_30b_a3b_h200",
        "serving": {
            "policy": {"name": "prefill_first", "max_requests": 8},
            "memory": {"prefix_caching": True, "block_tokens": 16},
        },
    },
    "slo": {"ttft_ms": {"p90": 2000}, "tpot_ms": {"p90": 100}},
    "devices": {"h200_sxm": {"price_usd_per_hour": 3, "count": 2}},
    "hardware": {"h200": {"target": {"device": "h200_sxm"}}},
    "strategies": {
        "plain": {"strategy": "autoregressive"},
        "eagle3": {"draft": None},
    },
    "replicas": 2,
}


def kept(folder: Path, requests: dict[str, Any], *overrides: str, **changes: Any) -> Plan:
    """A plan for these requests."""
    written = KEPT | changes
    scenario = {**written["scenario"], "requests": requests}
    path = folder / "kept.yaml"
    path.write_text(yaml.safe_dump({**written, "scenario": scenario}, sort_keys=False))
    return load_plan(str(path), overrides)


def alike(folder: Path, count: int = 8) -> dict[str, Any]:
    """Requests, one a second, whose prompts of 1,024 tokens are all the same."""
    line = {"input_length": 1024, "output_length": 8, "hash_ids": [0, 1]}
    lines = [json.dumps({"timestamp": 1000 * at, **line}) for at in range(count)]
    path = folder / "alike.jsonl"
    path.write_text("\n".join(lines))
    return {"arrivals": {"name": "file", "format": "mooncake", "file": str(path)}}


# ---- what caches have, and what drafts cost them


def test_a_plan_says_what_is_found_and_what_drafts_cost(tmp_path: Path) -> None:
    """Of eight prompts seven find all but the last block of 16 tokens, and EAGLE-3 drops one of
    those.
    """
    answered = study(kept(tmp_path, alike(tmp_path), "least_chance=0"), draws=1)
    found = summary(answered)
    rows = {row["strategy"]: row for row in found["families"]}
    assert rows["plain"]["cheapest"]["hit_rate"] == pytest.approx(7 * 1008 / 8192)
    assert rows["plain"]["cache_cost"] is None
    assert rows["eagle3"]["cheapest"]["hit_rate"] == pytest.approx(7 * 992 / 8192)
    cost = rows["eagle3"]["cache_cost"]
    assert cost["lost_rate"] == pytest.approx(7 * 16 / 8192)
    assert cost["dropped_tokens"] == 14
    assert 0.0 < cost["work_share"] < 1.0
    assert found["cache_cost"] == rows[found["answer"]["strategy"]]["cache_cost"]
    (alternatives, _) = plan_page.page(answered).sections[0].blocks
    assert isinstance(alternatives, Table)
    head = list(alternatives.head)
    shown = {
        row[0]: (row[head.index("hit rate")], row[head.index("hit rate without drafts")])
        for row in alternatives.rows
    }
    assert shown == {"plain": ("86.1 %", ""), "eagle3": ("84.8 %", "86.1 %")}


def test_the_answer_says_what_its_cache_has(tmp_path: Path) -> None:
    answered = study(kept(tmp_path, alike(tmp_path)), draws=1)
    chosen = answered.chosen
    rate = plan_page.share(chosen.hit_rate or 0.0)
    found = f"{rate} of prompt tokens are found and not computed"
    assert plan_page.prefix_cache(chosen, None) == f"{found}."
    nothing = CacheCost(0.0, 0.5, 0.5, 0.0, 0.0, None)
    assert plan_page.prefix_cache(chosen, nothing) == (
        f"{found}; speculation drops nothing of them and costs 0 points of hit rate."
    )
    dropped = CacheCost(14.0, 0.5, 0.6, 0.001, 0.02, 30.0)
    assert plan_page.prefix_cache(chosen, dropped).startswith("Speculation costs 10.0 points")
    topics = [topic for topic, _ in plan_page.reasons(answered)]
    assert "Prefix cache" in topics
