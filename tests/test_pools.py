"""Scenarios with pools: one that does both is no pool, what goes over is counted, faults are
named.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.cost.model import DraftHead
from simulator.core.cost.placement import Placement
from simulator.core.faults import BadInput, Infeasible
from simulator.core.serving.cache.tiers import TieredCache
from simulator.core.serving.fleet.sizes import cache_bytes, hidden_bytes, hidden_layers
from simulator.core.serving.fleet.tandem import Tandem
from simulator.report.run.serving import cache_cost as said_of_cost
from simulator.scenario import Loaded, load
from simulator.scenario.cache_cost import TokenTimes, cache_cost
from simulator.scenario.caveats import cautions
from simulator.scenario.evaluate import simulate
from simulator.scenario.explain import explain
from simulator.scenario.loading import variant
from simulator.scenario.pools import handed_bytes, pool_scenarios, redraft_seconds, service_of
from simulator.scenario.stability import cached_tokens, least_first_token_s, load_of

APART = "apart_eagle3_qwen3_32b_4xh100"
FEW = "requests.count=40"


def run_json(name: str, *overrides: str) -> str:
    """The JSON of ``specsim run``, without the command that is in it."""
    settings = [word for override in overrides for word in ("--set", override)]
    result = CliRunner().invoke(main, ["run", name, "--json", *settings], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "replicas"),
    [
        ("durations_only", 1),
        ("eagle3_gpt_oss_120b_h100", 1),
        ("vanilla_qwen3_32b_a100", 1),
        ("traffic_vanilla_llama_3_1_8b_4xa100", 4),
    ],
)
def test_a_single_pool_that_does_both_is_no_pool(name: str, replicas: int) -> None:
    """Every byte of the JSON is that of the same replicas without a pool."""
    pools = f"serving.pools=[{{role: both, replicas: {replicas}}}]"
    without = run_json(name, FEW, f"serving.replicas={replicas}")
    assert run_json(name, FEW, pools, "serving.replicas=1") == without


def apart(*overrides: str) -> Loaded:
    return load(APART, [FEW, *overrides])


def test_what_goes_over_is_counted_token_by_token() -> None:
    """Qwen3-32B: 64 layers with 8 heads of 128 numbers, keys and values, in 16 bits; the head has
    one layer like them; EAGLE-3 reads the hidden states, 5,120 wide, of three layers.
    """
    layer = 2 * 8 * 128 * 2
    sizes = {
        "transferred": 65 * layer,
        "recomputed": 64 * layer + 3 * 5_120 * 2,
        "absent": 64 * layer,
    }
    for state, token in sizes.items():
        scenario = apart(f"serving.handover.draft_state={state}").scenario
        handover = scenario.serving.handover
        assert handover is not None
        assert handed_bytes(scenario, handover, 1_000) == 1_000 * token, state


def test_a_pool_lays_its_target_over_that_of_the_scenario() -> None:
    pools = "[{role: prefill, target: {device: h200_sxm, tensor_parallel: 4}}, {role: decode}]"
    scenario = apart(f"serving.pools={pools}").scenario
    places: list[Placement | None] = [own.target for _, own in pool_scenarios(scenario)]
    assert [(place.device.name, place.tensor_parallel) for place in places if place] == [
        ("h200_sxm", 4),
        ("h100_sxm", 2),
    ]
    assert scenario.target == places[1]


def first_tokens(*overrides: str) -> dict[str, Any]:
    """The JSON of the simulated run."""
    simulated: dict[str, Any] = json.loads(run_json(APART, FEW, *overrides))["simulated"]
    return simulated


def test_what_the_parts_of_ttft_sum_up_to() -> None:
    """Beside them stands only what is outside of the engine."""
    loaded = apart()
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    handover = outcome.handover
    assert handover is not None
    parts_s = sum(part.mean for part in handover.parts.values())
    assert outcome.ttft_s == pytest.approx(parts_s + loaded.scenario.cost.outside_s, rel=1e-9)


def test_the_states_of_a_draft_cost_what_they_say() -> None:
    """A draft that reads the prompt again takes its time before the first step; one that knows
    nothing of it decodes more slowly; layer by layer a transfer hides behind the prefill.
    """
    states = ("transferred", "recomputed", "absent")
    found = {state: first_tokens(f"serving.handover.draft_state={state}") for state in states}
    scenario = apart().scenario
    redraft = found["recomputed"]["handover"]["ttft"]["redraft_ms"]["mean"]
    assert redraft >= redraft_seconds(scenario.schedule, scenario.cost, 1) * 1e3 > 0.0
    assert found["transferred"]["handover"]["ttft"]["redraft_ms"]["mean"] == 0.0
    assert found["absent"]["tpot_ms"] > found["transferred"]["tpot_ms"]
    assert found["absent"]["tokens_per_step"] < found["transferred"]["tokens_per_step"]
    behind = first_tokens("serving.handover.overlap=none")
    transfer_ms = behind["handover"]["ttft"]["transfer_ms"]["mean"]
    assert transfer_ms > 10 * found["transferred"]["handover"]["ttft"]["transfer_ms"]["mean"]


@pytest.mark.parametrize(
    ("override", "field", "words"),
    [
        ("serving.pools=[{role: decode}]", "serving.pools.0", "needs one of role prefill"),
        ("serving.pools=[{role: prefill}]", "serving.pools.0", "needs one of role decode"),
        ("serving.handover=null", "serving.handover", "say over which link"),
        ("serving.handover.link=infiniband_ndx", "serving.handover.link", "infiniband_ndr"),
        ("serving.pools=[{replicas: 2}]", "serving.pools.0.role", "is required and missing"),
        (
            "serving.pools=[{role: prefill}, {role: decode, draft: false}]",
            "serving.pools.1.draft",
            "this pool has no draft",
        ),
        (
            "serving.pools=[{role: prefill, draft: false}, {role: decode}]",
            "serving.pools.0.draft",
            "nobody fills it here",
        ),
        (
            "serving.pools=[{role: prefill, policy: {name: fixed_batch, max_requests: 2}}, "
            "{role: decode}]",
            "serving.pools.0.policy",
            "keeps places and room for whole outputs",
        ),
        (
            "serving.pools=[{role: prefill, target: {kv_cache: fp8}}, {role: decode}]",
            "serving.pools.0.target.kv_cache",
            "do not fit those of",
        ),
        ("serving.handover.routing=prefill_first", "serving.handover.overlap", "behind it"),
        ("serving.replicas=2", "serving.replicas", "stands beside pools"),
    ],
)
def test_faults_of_pools_are_named(override: str, field: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        apart(override)
    assert any(fault.field == field and words in fault.message for fault in error.value.faults), (
        error.value.lines
    )


def test_faults_of_pools_stand_where_they_were_written(tmp_path: Path) -> None:
    """Of two pools with unlike caches the one that says so; wrong roles make no list too short."""
    file = tmp_path / "written.yaml"
    file.write_text(
        f"like: {APART}\nserving:\n  pools:\n  - role: prefill\n"
        "  - {role: decode, target: {kv_cache: fp8}}\n",
        "utf-8",
    )
    with pytest.raises(BadInput) as error:
        load(str(file))
    line = f"{file}:5:29: serving.pools.1.target.kv_cache: caches of fp16 in the prefill pool"
    assert error.value.lines[0].startswith(line)
    file.write_text(MIXED.replace("role: both", "role: all").replace("STATE", "absent"), "utf-8")
    with pytest.raises(BadInput) as error:
        load(str(file))
    assert [fault.field for fault in error.value.faults] == ["serving.pools.2.role"]


def test_a_model_that_does_not_fit_a_pool_is_named_with_it() -> None:
    pools = "[{role: prefill, target: {device: l40s, tensor_parallel: 1}}, {role: decode}]"
    with pytest.raises(Infeasible, match="in the prefill pool, target qwen3_32b") as error:
        apart(f"serving.pools={pools}")
    assert error.value.faults[0].field.startswith("serving.pools.0.target")


def test_a_handover_without_pools_is_refused() -> None:
    with pytest.raises(BadInput, match="is for pools of prefill and decode"):
        load("durations_only", ["serving.handover={link: infiniband_ndr}"])


MIXED = """strategy: {name: vanilla_sd, gamma: 4}
durations: {target_ms: 36, draft_ms: 12, prefill_ms: 20, draft_prefill_ms: 5}
acceptance: {rate: 0.7}
requests: {concurrency: 6, count: 60, prompt_tokens: 100, output_tokens: 50}
serving:
  policy: {name: prefill_first, max_requests: 4}
  pools:
  - {role: prefill, draft: false}
  - {role: decode, replicas: 2}
  - {role: both}
  handover: {link: infiniband_ndr, token_bytes: 100000, draft_state: STATE}
"""


@pytest.mark.parametrize(
    ("state", "relation"), [("recomputed", "idealised"), ("absent", "idealised")]
)
def test_a_law_does_not_claim_the_steps_that_a_handover_disturbs(
    state: str, relation: str, tmp_path: Path
) -> None:
    """A draft that reads a prompt between two steps, or has not read it, makes them others than
    the law's; nothing of it is called a disagreement.
    """
    file = tmp_path / "mixed.yaml"
    file.write_text(MIXED.replace("STATE", state), "utf-8")
    data = json.loads(run_json(str(file)))
    assert data["agreement"]["claim"].startswith(relation)
    assert not data["agreement"]["disagreement"]
    assert [pool["finished"] for pool in data["simulated"]["pools"]] == [0, 45, 15]
    assert data["simulated"]["handover"]["size_bytes"] == 45 * 100 * 100_000


def test_a_draft_whose_cache_goes_over_leaves_the_law_exact(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    text = MIXED.replace("STATE", "transferred").replace("prefill, draft: false", "prefill")
    file.write_text(text, "utf-8")
    agreement = json.loads(run_json(str(file)))["agreement"]
    assert (agreement["claim"], agreement["disagreement"]) == ("exact", False)


def test_a_key_reaches_into_the_list_of_pools() -> None:
    """As in a sweep over the size of a pool; of a list nothing is made that is not there."""
    base = apart("serving.pools.1.replicas=2")
    changed = variant(base, {"serving.pools.0.target.device": "h200_sxm", "requests.count": 10})
    for loaded, devices in (
        (base, ["h100_sxm", "h100_sxm"]),
        (changed, ["h200_sxm", "h100_sxm"]),
    ):
        pools = loaded.scenario.serving.pools or ()
        assert [pool.replicas for pool in pools] == [1, 2]
        assert [pool.target.device.name for pool in pools if pool.target] == devices
    wider = variant(base, {"target.tensor_parallel": 4})
    own = [one.target.tensor_parallel for _, one in pool_scenarios(wider.scenario) if one.target]
    assert own == [4, 4]
    for key in ("serving.pools.2.replicas", "serving.pools.one.replicas"):
        with pytest.raises(BadInput, match="is a list of 2; expected a number below that"):
            apart(f"{key}=1")


SIX_TURNS = (
    "requests={arrivals: {name: poisson, rate_per_s: 0.5}, count: 12, prompt_tokens: 992, "
    "output_tokens: 100, sessions: {turns: 6, turn_tokens: 140, think_s: 3, "
    "context_tokens: 30000}}"
)
"""Two sessions of six turns, of which a later one brings 240 tokens more."""


def test_turns_find_their_prompts_where_they_were_read_and_no_outputs() -> None:
    """Five later turns each find the prompt before them, in blocks of 16 less the one that EAGLE
    drops; its output lies where it was written.
    """
    loaded = load(APART, [SIX_TURNS])
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    found = [(992 + 240 * turn) // 16 * 16 - 16 for turn in range(5)]
    assert outcome.serving.prefix_cache["hit_tokens"] == 2 * sum(found)
    assert [pool.finished for pool in outcome.pools] == [0, 12]
    reader = pool_scenarios(loaded.scenario)[0][1]
    assert cached_tokens(reader, written=False) == 2 * sum(found) / 12
    assert cached_tokens(reader) > cached_tokens(reader, written=False)


@pytest.mark.parametrize("shared", [True, False])
def test_a_store_is_one_for_all_who_read(shared: bool) -> None:
    """Two replicas read turns by turns; with a store between them each finds what the other has
    read, and alone a cache of its own finds less.
    """
    loaded = load(
        APART,
        [
            SIX_TURNS,
            "serving.router=round_robin",
            "serving.pools.0.replicas=2",
            "serving.memory={prefix_caching: true, tiers: [{name: store, link: nvlink_h100, "
            f"write: through, shared_by_replicas: {str(shared).lower()}}}]}}",
        ],
    )
    done = service_of(loaded.scenario, loaded.acceptance()).run()
    readers = [replica.memory for replica in done.replicas[:2]]
    stores = []
    for cache in readers:
        assert isinstance(cache, TieredCache)
        stores.append(cache.tiers[0].store)
    assert (stores[0] is stores[1]) == shared
    hits = sum(cache.hit_tokens for cache in readers if isinstance(cache, TieredCache))
    reader = pool_scenarios(loaded.scenario)[0][1]
    whole = cached_tokens(reader, written=False) * 12
    assert hits == whole if shared else hits < whole


def test_what_drafts_cost_a_cache_is_work_of_the_pool_that_reads(tmp_path: Path) -> None:
    """Ten prompts of 1,024 tokens, alike, nine of which drop a block of 16: 0.25 ms a token where
    they are read, whatever a step takes where they decode.
    """
    path = tmp_path / "alike.jsonl"
    lines = []
    for at in range(10):
        entry = {"timestamp": 1000 * at, "input_length": 1024, "output_length": 32}
        lines.append(json.dumps(entry | {"hash_ids": [0, 1]}) + "\n")
    path.write_text("".join(lines), "utf-8")
    file = tmp_path / "apart.yaml"
    file.write_text(
        "strategy: {name: vanilla_sd, gamma: 2}\n"
        "durations: {target_ms: 10, draft_ms: 5, prefill_ms: {base_ms: 1, row_ms: 0.25}, "
        "draft_prefill_ms: 0}\n"
        "acceptance: {always: 2}\n"
        f"requests: {{arrivals: {{name: file, format: mooncake, file: {path}}}}}\n"
        "serving:\n"
        "  policy: {name: prefill_first, max_requests: 4}\n"
        "  memory: {prefix_caching: true}\n"
        "  pools: [{role: prefill}, {role: decode}]\n"
        "  handover: {link: infiniband_ndr, token_bytes: 0}\n",
        "utf-8",
    )
    loaded = load(str(file))
    simulated, _ = simulate(loaded.scenario, loaded.acceptance())
    cache = {"prompt_tokens": 10240, "hit_tokens": 9 * 992, "dropped_tokens": 9 * 16}
    rates = cache | {"hit_rate": 9 * 992 / 10240}
    beside = cache | {"hit_tokens": 9 * 1008, "hit_rate": 9 * 1008 / 10240}
    heads, plain = (
        replace(simulated, serving=replace(simulated.serving, prefix_cache=books))
        for books in (rates, beside)
    )
    cost = cache_cost(loaded.scenario, heads, plain, TokenTimes(20e-3 / 3, 10e-3))
    assert cost is not None
    assert (cost.apart, cost.worth_tokens) == (True, None)
    assert cost.again_s == pytest.approx(14 * 0.25e-3)
    read_s = 1e-3 / 8 + 131 * 0.25e-3  # 1,024 tokens less 892.8, eight prompts in a pass
    assert cost.work_share == pytest.approx(cost.again_s / read_s)
    assert "of the work of a full replica that reads" in said_of_cost(cost)


def test_pages_speak_of_pools() -> None:
    """Each replica with what it has read and ended, and no prompts that hold decoding up."""
    result = CliRunner().invoke(main, ["run", APART, "--set", FEW, "--long"])
    page = " ".join(result.output.split())
    assert "1 replica in pool prefill, 1 replica in pool decode" in page
    assert "replicas behind" not in page
    assert "hold up the batch" not in page
    rows = [line.split()[:4] for line in result.output.splitlines()]
    assert ["1", "prefill", "40", "0"] in rows
    assert ["2", "decode", "0", "40"] in rows
    read = [replica["read"] for replica in first_tokens()["replicas"]]
    assert read == [40, 0]


def test_explain_says_what_pools_serve_by_law() -> None:
    """Fields that stand aside for arrivals and pools are no defaults."""
    loaded = apart()
    told = explain(loaded)
    load_by_law = load_of(loaded.scenario, loaded.acceptance())
    assert load_by_law
    assert f"at most {load_by_law.most_per_s:.4g} are served" in told.topics["by law"]
    least_s = least_first_token_s(loaded.scenario)
    assert least_s
    assert f"first token after {least_s * 1e3:.4g} ms" in told.topics["by law"]
    fields = {default.field for default in told.defaults}
    assert not fields & {"requests.concurrency", "serving.replicas"}
    assert {"requests.concurrency", "serving.replicas"} <= {
        default.field for default in explain(load("durations_only")).defaults
    }


def test_a_batch_of_the_law_fits_the_memory_that_decodes(tmp_path: Path) -> None:
    """Two blocks of 16 tokens, one for each request: two of eight places, two tokens in 2 s."""
    text = (
        "strategy: autoregressive\n"
        "durations: {target_ms: 1000, prefill_ms: 1}\n"
        "requests: {arrivals: {name: poisson, rate_per_s: 1.5}, count: 20, prompt_tokens: 8, "
        "output_tokens: 3}\n"
        "serving:\n"
        "  policy: {name: prefill_first, max_requests: 8, watermark: 0}\n"
        "  memory: {kv_tokens: ROOM}\n"
        "  pools: [{role: prefill}, {role: decode}]\n"
        "  handover: {link: infiniband_ndr, token_bytes: 0}\n"
    )
    for room, batch, most in (("32", 2, 1.0), ("128", 8, 4.0)):
        file = tmp_path / f"room_{room}.yaml"
        file.write_text(text.replace("ROOM", room), "utf-8")
        loaded = load(str(file))
        found = load_of(loaded.scenario, loaded.acceptance())
        assert found
        assert (found.batch, found.most_per_s) == (batch, pytest.approx(most))


@pytest.mark.parametrize(
    "name",
    [
        "mtp_qwen3_5_27b_h100",  # caches and states
        "eagle3_gpt_oss_120b_h100",  # windows
        "mtp_deepseek_v3_8xh200",  # latents
        "vanilla_qwen3_32b_a100",
    ],
)
@pytest.mark.parametrize("tokens", [1, 100, 5_000])
def test_caches_go_over_whole_and_once(name: str, tokens: int) -> None:
    """What a single device would hold of a sequence, however many share the model."""
    target = load(name).scenario.target
    assert target is not None
    alone = target.model_copy(update={"tensor_parallel": 1})
    held = alone.kv_gb(tokens) + alone.state_gb
    for ranks in (1, 2, 16):
        place = target.model_copy(update={"tensor_parallel": ranks})
        assert cache_bytes(place, tokens) == pytest.approx(held * 1e9, rel=1e-12)


def test_heads_read_as_many_layers_as_their_matrices_take() -> None:
    """EAGLE and MTP join one hidden state and an embedding (2h to h), EAGLE-3 three of them."""
    assert [hidden_layers(DraftHead(layers=1, squares=squares)) for squares in (2, 4)] == [1, 3]
    loaded = load(APART, [FEW, "serving.handover.hidden_layers=2"])
    scenario = loaded.scenario
    assert scenario.target
    assert hidden_bytes(scenario.schedule, scenario.target, 10, 2) == 10 * 2 * 5_120 * 2


def test_every_pool_is_paid_for() -> None:
    """Two devices that read and twice two that decode, at two dollars an hour each; energy counts
    each at its power while its own lane is busy.
    """
    pools = "serving.pools=[{role: prefill}, {role: decode, replicas: 2}]"
    priced = "target.device.price_usd_per_hour=2"
    data = json.loads(run_json(APART, FEW, pools, priced, "target.device.power_w=100"))
    bill = data["bill"]
    simulated = data["simulated"]
    assert bill["usd_per_hour"] == 12.0
    whole_s = simulated["tokens"] / simulated["tokens_per_s"]
    busy = [pool["replicas"] * pool["busy"]["target"] for pool in simulated["pools"]]
    joules = 2 * 100 * sum(busy) * whole_s / simulated["tokens"]
    assert bill["busy_j_per_token"] == pytest.approx(joules, rel=1e-9)
    assert bill["most_j_per_token"] == pytest.approx(6 * 100 / simulated["tokens_per_s"], rel=1e-9)


@pytest.mark.parametrize(
    ("prefills", "decodes", "most", "slower"),
    [(1, 2, 0.5, "prefill"), (3, 2, 1.0, "decode"), (4, 6, 2.0, "prefill")],
)
def test_arrivals_are_held_to_the_slower_pool(
    prefills: int, decodes: int, most: float, slower: str, tmp_path: Path
) -> None:
    """A prompt takes two seconds, and so do the two tokens behind the first one."""
    file = tmp_path / "apart.yaml"
    file.write_text(
        "strategy: autoregressive\n"
        "durations: {target_ms: 1000, prefill_ms: 2000}\n"
        "requests: {arrivals: {name: poisson, rate_per_s: 1.5}, count: 20, prompt_tokens: 8, "
        "output_tokens: 3}\n"
        "serving:\n"
        "  pools:\n"
        f"  - {{role: prefill, replicas: {prefills}, policy: {{name: prefill_first, "
        "max_requests: 1}}\n"
        f"  - {{role: decode, replicas: {decodes}, policy: {{name: fixed_batch, "
        "max_requests: 1}}\n"
        "  handover: {link: infiniband_ndr, token_bytes: 0}\n",
        "utf-8",
    )
    loaded = load(str(file))
    found = load_of(loaded.scenario, loaded.acceptance())
    assert found
    assert (found.most_per_s, found.slower) == (pytest.approx(most), slower)
    law = Tandem(2.0, 0.0, 2.0, prefills, decodes)
    assert found.most_per_s == pytest.approx(law.most_per_s)
    assert found.stable == (most > 1.5)
    assert found.stable or f"add replicas to the {slower} pool" in found.words


def test_how_a_handover_begins_is_said_until_it_is_stated() -> None:
    name = "apart_eagle3_qwen3_32b_4xh100"
    words = "a handover, and with it a first token, may take up to 10 ms longer than computed"
    assert any(said.startswith(words) for said in cautions(load(name).scenario))
    stated = load(name, ["serving.handover.start_up_us={value: 800, source: mine}"])
    assert not any("handover" in said for said in cautions(stated.scenario))
