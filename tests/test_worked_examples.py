"""Every worked example of Mirror-SD's equations (MSD-*) and of the shared identities (X-*), to the
printed digits.

``data/mirror_sd_worked_examples.csv`` holds inputs and results. One function per block answers with
the project's own code; a row without an answer is a failure.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.verification import accepted_prefix
from simulator.core.acceptance.sources import Cycle, Odds, Rates
from simulator.core.cost.collectives import TreeAllReduce
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.strategies.common.claim import EXACT
from simulator.core.strategies.common.drafters import (
    AutoregressiveDrafter,
    StreamingDrafter,
    internal_steps,
)
from simulator.core.strategies.common.law import Law
from simulator.core.strategies.common.step import Kind, Step
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.papers.mirror_sd import (
    MirrorSD,
    batching_rule,
    exposed_draft,
    relative_overhead,
)
from tests.formulas import overlap_bound, overlap_mass, speculative_sampling, top

ROWS = list(csv.DictReader((Path(__file__).parent / "data/mirror_sd_worked_examples.csv").open()))
STEP, REUSE = Kind("step", 1), Kind("reuse", 1)
Answers = dict[str, Any]


def msd_1(i: dict[str, Any]) -> Answers:
    if "draft" in i:
        accepted = accepted_prefix(i["draft"], i["target"])
        return {"A": accepted, "correction_depth": accepted + 1}
    if "accepted_lengths" in i:
        mean = Cycle(tuple(i["accepted_lengths"])).odds(i["gamma"], None).mean_accepted
        return {"E_A": mean, "rho": mean / i["gamma"]}
    if "alpha" in i:
        mean = Rates((i["alpha"],)).odds(i["gamma"], None).mean_accepted
        return {"E_A": mean, "rho": mean / i["gamma"]}
    strategy = VanillaSD(gamma=i["gamma"])
    cost = StatedCost(
        StatedDurations(target_ms=i["T_target_ms"], draft_step_ms=i["draft_ms_per_token"]),
        strategy.needs.draft_steps,
    )
    durations = strategy.durations(cost, Step(STEP, Rows()))
    step, tokens = strategy.step_seconds(durations, STEP), 1 + i["E_A"]
    law = Law(step, tokens, EXACT, "example")
    return {
        "T_draft_ms": durations.draft * 1e3,
        "T_sd_ms": step * 1e3,
        "tokens_per_step": tokens,
        "tokens_per_s": 1 / law.tpot_s,
    }


def msd_2(i: dict[str, Any]) -> Answers:
    layers = (
        [1.0] * 8 + [1.5] * 8 if isinstance(i["layer_ms"], str) else [i["layer_ms"]] * i["layers"]
    )
    cost = StatedCost(StatedDurations(layers_ms=tuple(layers), draft_ms=0))
    durations = MirrorSD(exit_layer=i["exit_layer"]).durations(cost, Step(REUSE, Rows()))
    return {"T_prefix": durations.prefix * 1e3, "Delta": durations.suffix * 1e3}


def msd_3(i: dict[str, Any]) -> Answers:
    t = MirrorSD.traits.durations(
        i["T_prefix"], i["T_rv_ee"], i["Delta"], i["T_draft"], i["T_rv_fv"]
    )
    mirror = float(MirrorSD().step_seconds(t, REUSE))
    serial = VanillaSD().step_seconds(
        VanillaSD.traits.durations(t.draft, 0.0, t.prefix + t.suffix), STEP
    )
    return {
        "T_mirror": mirror,
        "T_sd": serial,
        "saved": serial - mirror,
        "speedup": serial / mirror,
        "exposed_draft": float(exposed_draft(t)),
    }


def msd_4(i: dict[str, Any]) -> Answers:
    if "eta" in i:
        steps = internal_steps(tuple(i["eta"]), i["gamma"])
        mean = sum(i["eta"][:steps]) / steps
        assert steps >= ceil(i["gamma"] / mean), "K10: the printed bound has the wrong direction"
        return {"J": steps, "mean_eta": mean, "ceil_gamma_over_mean": ceil(i["gamma"] / mean)}
    cost = StatedCost(StatedDurations(target_ms=1, draft_step_ms=i["u_ms"] + i["s_ms"]), i["J"])
    strategy = MirrorSD(gamma=i["J"], drafter=AutoregressiveDrafter())
    return {"T_draft_gen_ms": strategy.durations(cost, Step(REUSE, Rows())).draft * 1e3}


def msd_5(i: dict[str, Any]) -> Answers:
    if "G" in i:
        form = TreeAllReduce.model_validate({"alpha_us": 10, "bandwidth_gb_s": 15})
        return {"T_allreduce_us": form.seconds(1e6, i["G"]) * 1e6}
    role = "T" if "S_T" in i else "D"
    ranks, word_bytes = i[f"G_{role}"], 2
    form = TreeAllReduce.model_validate(
        {
            "alpha_us": i["alpha_s"] * 1e6,
            "bandwidth_gb_s": word_bytes / i["beta_s_per_word"] / 1e9,
            "log_base": "2" if i["log"] == "log2" else "e",
        }
    )
    words = i["B"] * i[f"S_{role}"] * i[f"H_{role}"]
    one = form.seconds(words * word_bytes, ranks) * 1e6
    collectives = 2 * i["N"] if role == "T" else 2 * i["J"]
    total = "T_target_comm_us" if role == "T" else "T_draft_comm_us"
    return {f"M_{role}_words": words / ranks, "T_allreduce_us": one, total: collectives * one}


def msd_6(i: dict[str, Any]) -> Answers:
    q, early = np.array(i["q"], dtype=float), np.array(i["p_exit"], dtype=float)
    return {"Omega": [overlap_mass(q, early, kappa) for kappa in i["kappa"]]}


def msd_7(i: dict[str, Any]) -> Answers:
    path = [*i["accepted"], i["correction"]]
    reuse = path in i["paths"]
    accepted = len(i["accepted"])
    odds_free = MirrorSD(gamma=7)
    verdict = next_verdict(accepted, off_exit=not reuse)
    assert odds_free.reuses(verdict, 7) == reuse
    name = odds_free.choice(reuse, verdict)
    known = {
        "fresh rollout": "fresh_rollout",
        "stored continuation": "precomputed_continuation",
        "branch rooted at the correction": "branch_rooted_at_correction",
    }
    return {"choice": known[name]}


def next_verdict(accepted: int, *, off_exit: bool) -> Any:
    from simulator.core.acceptance.cursors import Chain

    return Cycle((accepted,), (off_exit,)).cursor(0, None).judge(Chain(7))


def msd_8(i: dict[str, Any]) -> Answers:
    source = Rates((i["alpha"],), overlap=i["Omega"])
    if "gamma" not in i:
        odds = source.odds(1, None)
        return {"FF_given_mismatch": odds.off_exit[0] / odds.accepted[0]}
    reading = "first_position" if "first position only" in i.get("message", "") else "per_position"
    frequency = MirrorSD(gamma=i["gamma"], message=reading, bonus_on_full_accept=False).miss(
        source.odds(i["gamma"], None)
    )
    bound = 1 - i["Omega"]
    return {
        "FF": frequency,
        "FF_per_step": frequency,
        "bound": bound,
        "bound_holds": bool(frequency <= bound),
    }


def msd_9(i: dict[str, Any]) -> Answers:
    q, early, kappa = np.array(i["q"]), np.array(i["p_exit"]), i["kappa"]
    ranked = np.sort(q)[::-1]
    omega, bound = overlap_mass(q, early, kappa), overlap_bound(q, early, kappa)
    assert omega >= bound - 1e-12
    return {
        "eps": np.abs(early - q).max(),
        "q_S_star": q[top(q, kappa)].sum(),
        "lower_bound": bound,
        "Omega": omega,
        "margin": ranked[kappa - 1] - ranked[kappa],
        "same_set": set(top(q, kappa).tolist()) == set(top(early, kappa).tolist()),
    }


def msd_10(i: dict[str, Any]) -> Answers:
    rule = [batching_rule(size) for size in i["B"]]
    per_position = [
        MirrorSD(gamma=i.get("gamma", 7), batching_rule=True).fitted_to(size) for size in i["B"]
    ]
    kinds = [Kind("reuse", size) for size in i["B"]]
    branches = [
        s.branches(k) * s.gamma // s.positions(s.gamma)
        for s, k in zip(per_position, kinds, strict=True)
    ]
    return {
        "kappa": [kappa for kappa, _ in rule],
        "streams": [streams for _, streams in rule],
        "branches": branches,
    }


def msd_11(i: dict[str, Any]) -> Answers:
    mirror = i.get("T_draft", i.get("T_draft_mirror"))
    t = MirrorSD.traits.durations(suffix=i["Delta"], draft=mirror)
    return {"relative_overhead": float(relative_overhead(t, i.get("T_draft_sd", mirror)))}


def msd_12(i: dict[str, Any]) -> Answers:
    reading = "per_position" if "gamma" in i else "first_position"
    strategy = MirrorSD(
        gamma=i.get("gamma", 7),
        kappa=i["kappa"],
        message=reading,
        id_bytes=i["id_bytes"],
        logprob_bytes=i["logprob_bytes"],
    )
    return {"payload_bytes": strategy.payload_bytes(Kind("reuse", i["B"]))}


def msd_13(i: dict[str, Any]) -> Answers:
    if "T_AR" in i:
        return {"speedup": i["T_AR"] / Law(i["T_step"], 1 + i["E_A"], EXACT, "example").tpot_s}
    drafter = StreamingDrafter(streams=i["eta"]) if "eta" in i else AutoregressiveDrafter()
    exposed = []
    for gamma in i["gamma"]:
        strategy = MirrorSD(gamma=gamma, drafter=drafter)
        step = i.get("draft_ms_per_token", i.get("draft_ms_per_internal_step"))
        cost = StatedCost(
            StatedDurations(prefix_ms=0, suffix_ms=i["Delta"], draft_step_ms=step),
            strategy.needs.draft_steps,
        )
        exposed.append(float(exposed_draft(strategy.durations(cost, Step(REUSE, Rows())))) * 1e3)
    return {"exposed_ms": exposed}


def x_2(i: dict[str, Any]) -> Answers:
    chance, rest = speculative_sampling(np.array(i["p"]), np.array(i["q"]))
    return {
        "accept_prob": chance,
        "residual": "undefined (p = q)" if rest is None else rest.tolist(),
    }


BLOCKS: dict[str, Callable[[dict[str, Any]], Answers]] = {
    **{f"MSD-{n}": globals()[f"msd_{n}"] for n in range(1, 14)},
    "X-2": x_2,
}


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['eq_id']}-{row['case']}-{row['output']}"
)
def test_worked_example(row: dict[str, str]) -> None:
    answer = BLOCKS[row["eq_id"]](json.loads(row["inputs"]))[row["output"]]
    expected = parsed(row["value"])
    if isinstance(expected, str | bool):
        assert answer == expected
    else:
        assert answer == pytest.approx(expected, rel=5e-6, abs=1e-9)


def test_every_block_is_there() -> None:
    assert {row["eq_id"] for row in ROWS} == set(BLOCKS)


def test_identities_hold_together() -> None:
    """X-1: speed-up, throughput and relative step cost are three views of step time and tokens per
    step.
    """
    law, plain = Law(36.1, 5.0, EXACT, ""), Law(36.0, 1.0, EXACT, "")
    speedup = plain.tpot_s / law.tpot_s
    assert speedup == pytest.approx(law.tokens_per_step * plain.step_s / law.step_s)
    assert law.tokens_per_step / speedup == pytest.approx(law.step_s / plain.step_s)
    uniform = Odds(np.array([0.0, 0.0, 1.0]), np.zeros(3), 0.0, "")
    assert (uniform.mean_accepted, uniform.committed(), uniform.committed(bonus=False)) == (2, 3, 2)
