"""Devices that are owned: no more of them are used, what is left is told, and how many would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.report.pages.plan import carried_words
from simulator.studies.plan.carried import DeviceCapacity, carried
from simulator.studies.plan.file import Plan
from simulator.studies.plan.headroom import PRECISION
from simulator.studies.plan.search import enough, search
from simulator.studies.plan.study import owned_uses
from tests.test_plan import small, written
from tests.test_question import asked

A100 = {"price_usd_per_hour": 2, "count": 8}
BUSY = "scenario.requests.arrivals.rate_per_s=40"


def owning(folder: Path, owned: int, *overrides: str, **changes: Any) -> Plan:
    """The small plan with so many A100 of eight owned, four of them at most in a fleet of one."""
    devices = {"a100_80g_sxm": A100 | {"owned": owned}}
    return small(folder, *overrides, devices=devices, replicas=8, **changes)


@pytest.mark.parametrize("owned", [1, 2, 3, 8])
def test_no_fleet_has_more_than_is_owned(tmp_path: Path, owned: int) -> None:
    plan = owning(tmp_path, owned)
    most = 0
    for candidate in plan.candidates:
        for replicas in candidate.sizes:
            most = max(most, replicas * candidate.devices["a100_80g_sxm"])
    assert most == owned
    pairs = [one for one in plan.candidates if one.devices["a100_80g_sxm"] == 2]
    assert bool(pairs) == (owned > 1)
    reasons = [one.reason for one in plan.left_out]
    if owned == 1:
        assert reasons == ["one replica needs 2 x a100_80g_sxm, and 1 is owned"] * 3
    else:
        assert not reasons


@pytest.mark.full
def test_how_many_would_do_is_the_answer_of_the_plan_that_may_rent_them(tmp_path: Path) -> None:
    free = search(small(tmp_path, BUSY, devices={"a100_80g_sxm": A100}, replicas=8)).best
    assert free
    needed = free.devices["a100_80g_sxm"]
    assert needed > 1
    enough_owned = search(owning(tmp_path, needed, BUSY))
    assert enough_owned.best
    assert enough_owned.best.devices == free.devices
    assert not enough(enough_owned)
    one_less = search(owning(tmp_path, needed - 1, BUSY))
    assert one_less.best is None
    would = enough(one_less)["a100_80g_sxm"]
    assert would
    assert would.devices == free.devices
    assert would.candidate.name == free.candidate.name


def test_the_sentence_tells_how_many_would_do(tmp_path: Path) -> None:
    devices = {"a100_80g_sxm": A100 | {"owned": 1}}
    path = str(written(tmp_path, devices=devices, replicas=8))
    done = CliRunner().invoke(main, ["plan", path, "--set", BUSY])
    assert done.exit_code == 3
    would = enough(search(owning(tmp_path, 1, BUSY)))["a100_80g_sxm"]
    assert would
    count = would.devices["a100_80g_sxm"]
    assert f"1 x a100_80g_sxm does not do; {count} x a100_80g_sxm would: " in done.stderr
    impossible = ["--set", "slo.tpot_ms.p90=0.1"]
    done = CliRunner().invoke(main, ["plan", path, *impossible])
    assert done.exit_code == 3
    assert done.stderr.endswith("1 x a100_80g_sxm does not do, nor does 8\n")


def test_a_replica_that_needs_more_than_is_owned_says_how_many_would_do(tmp_path: Path) -> None:
    hardware = {"a100": {"target": {"link": "nvlink_a100", "tensor_parallel": 2}}}
    devices = {"a100_80g_sxm": A100 | {"owned": 1}}
    path = str(written(tmp_path, devices=devices, hardware=hardware))
    done = CliRunner().invoke(main, ["plan", path])
    assert done.exit_code == 3
    assert "one replica needs more than is owned; 1 x a100_80g_sxm does not do; 2 x" in done.stderr


def test_more_owned_than_there_are_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="owned: 9 are more than there are"):
        owning(tmp_path, 9)


def test_a_line_says_what_is_owned(tmp_path: Path) -> None:
    done = asked(tmp_path, "--draws", "1", "--json", device="a100_80g_sxm:4")
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    used = data["answer"]["devices"]["a100_80g_sxm"]
    owned = data["owned"]["a100_80g_sxm"]
    assert (owned["owned"], owned["used"], owned["left"]) == (4, used, 4 - used)
    assert owned["carried_per_s"] is None  # four requests say nothing of more
    words = asked(tmp_path, "--draws", "1", "--long", device="a100_80g_sxm:4").stdout
    assert f"Owned: of 4 x a100_80g_sxm {used} are used and {4 - used} left." in words


def carried_at(folder: Path, rate_per_s: float) -> DeviceCapacity:
    """What three A100 carry, in a plan of so many requests a second."""
    rate = f"scenario.requests.arrivals.rate_per_s={rate_per_s}"
    ((name, use),) = owned_uses(owning(folder, 3, rate, "scenario.requests.count=100"))
    assert name == "a100_80g_sxm"
    return use


def test_what_devices_carry_does_not_follow_the_planned_rate(tmp_path: Path) -> None:
    """At a tenth of it, near it and at ten times: the same, by the same method, on all of them."""
    uses = [carried_at(tmp_path, rate) for rate in (0.5, 5.0, 50.0)]
    first, *others = [use.per_s for use in uses]
    assert first
    assert others == pytest.approx([first] * 2, rel=PRECISION)
    assert len({(use.candidate.name, use.replicas) for use in uses}) == 1
    assert sum(uses[0].candidate.fleet_devices(uses[0].replicas).values()) > 1


def test_devices_carry_what_their_best_method_does(tmp_path: Path) -> None:
    """No method and configuration alone carries more, to the precision of the search."""
    plan = owning(tmp_path, 3, "scenario.requests.count=100")
    best = carried(plan.candidates, 0.0)
    assert best
    assert best.per_s
    for candidate in plan.candidates:
        alone = carried([candidate], 0.0)
        assert alone
        assert (alone.per_s or 0.0) <= best.per_s * (1.0 + 2.0 * PRECISION)


def test_devices_on_which_nothing_meets_the_slo_carry_nothing(tmp_path: Path) -> None:
    plan = owning(tmp_path, 2, "slo.tpot_ms.p90=0.1", "scenario.requests.count=20")
    use = carried(plan.candidates, 0.0)
    assert use
    assert use.per_s == 0.0
    assert carried_words(use) == "nothing"


def test_a_plan_without_an_answer_says_what_the_devices_carry(tmp_path: Path) -> None:
    devices = {"a100_80g_sxm": A100 | {"owned": 1}}
    path = str(written(tmp_path, devices=devices, replicas=8))
    done = CliRunner().invoke(main, ["plan", path, "--set", BUSY])
    ((_, use),) = owned_uses(owning(tmp_path, 1, BUSY))
    assert use.per_s
    assert f"; 1 x a100_80g_sxm carries {use.per_s:.3g} requests a second" in done.stderr


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("a100_80g_sxm:0", "expected NAME, or NAME:N"),
        ("a100_80g_sxm:many", "expected NAME, or NAME:N"),
        ("a100_80g_sxm:2,a100_80g_sxm:3", "named twice"),
    ],
)
def test_a_number_that_is_none_is_refused(tmp_path: Path, device: str, words: str) -> None:
    done = asked(tmp_path, device=device)
    assert done.exit_code == 2
    assert words in done.stderr
