"""Fleets that are stated beside each other, limits in words, and models whose ids name a format."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.core.cost.formats import FORMATS
from simulator.core.faults import BadInput, Infeasible
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import find_model
from simulator.inputs.models.quantised import ENDINGS
from simulator.report.markdown import as_markdown
from simulator.report.pages.fleets import _cheapest_first, headline, page as fleets_page
from simulator.report.wording import whole_share
from simulator.scenario import load
from simulator.scenario.as_served import said_of_engine
from simulator.studies.plan.carried import DeviceCapacity
from simulator.studies.plan.commands.checkpoints import KnownHead, known_head
from simulator.studies.plan.file import load_plan
from simulator.studies.plan.headroom import Headroom
from simulator.studies.plan.limits import LimitInWords, read_limit
from simulator.studies.plan.line.words import CountedGroup, read_devices, read_fleets
from simulator.studies.plan.question import planned
from simulator.studies.plan.search import Finding, search
from simulator.studies.plan.stated import (
    FleetGroup,
    StatedFleet,
    StatedFleets,
    fleet_exports,
    stated_fleets,
    usd_per_million_tokens,
)
from simulator.studies.plan.throughput import offered_per_s
from tests.test_question import asked, log, question

CATALOGUE = Catalogue()
ROOT = Path(__file__).parent.parent
RATE = 2.0
STREAM = {
    "arrivals": {"name": "poisson", "rate_per_s": RATE},
    "count": 20,
    "prompt_tokens": 300,
    "output_tokens": 30,
}


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("Qwen/Qwen3-32B", ""),
        ("Qwen/Qwen3-32B-FP8", "fp8_block"),
        ("RedHatAI/Qwen3-32B-FP8-dynamic", "fp8"),
        ("Qwen/Qwen3-32B-AWQ", "int4"),
        ("Qwen/Qwen3-32B-GPTQ-Int4", "int4"),
        ("some/Qwen3-32B-GPTQ-Int8", "int8_wo"),
        ("RedHatAI/Qwen3-32B-quantized.w4a16", "int4"),
        ("nvidia/Qwen3-32B-NVFP4", "nvfp4"),
        ("nvidia/Qwen3-32B-FP4", "nvfp4"),
        ("mlx-community/Qwen3-32B-4bit", "mlx_4"),
        ("Qwen/Qwen3-32B-GGUF:Q4_K_M", "q4_k_m"),
        ("unsloth/Qwen3-32B-GGUF:UD-Q4_K_XL", "ud_q4_k_xl"),
        ("unsloth/Qwen3-32B-UD-Q4_K_XL", "ud_q4_k_xl"),
        ("qwen3_32b:q8_0", "q8_0"),
    ],
)
def test_the_id_of_a_model_names_the_format_of_its_weights(name: str, weights: str) -> None:
    model = find_model(name, CATALOGUE, "--model")
    assert (model.reference, model.published_as) == ("qwen3_32b", "Qwen/Qwen3-32B")
    assert model.weights == weights


def test_every_format_that_an_ending_names_is_one() -> None:
    for form in ENDINGS.values():
        assert form.replace("\\1", "4") in FORMATS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Qwen/Qwen3-32B-GPTQ", "name Qwen/Qwen3-32B-GPTQ-Int4 or Qwen/Qwen3-32B-GPTQ-Int8"),
        ("Qwen/Qwen3-32B-GGUF", "name Qwen/Qwen3-32B-GGUF:Q4_K_M"),
        ("Qwen/Qwen3-32B-4bit", "leaves the format of its weights open; name Qwen/Qwen3-32B-GPTQ"),
        ("Qwen/Qwen3-32B-bnb-4bit", "name Qwen/Qwen3-32B-GPTQ-Int4, Qwen/Qwen3-32B-AWQ"),
        ("Qwen/Qwen3-32B-GGUF:Q9_X", "'Q9_X' is no quantisation of GGUF"),
        ("foo/Bar-7B-FP8", "is neither a model of the catalogue"),
    ],
)
def test_an_id_that_leaves_the_format_open_is_refused_with_names_that_do_not(
    name: str, words: str
) -> None:
    with pytest.raises(BadInput) as error:
        find_model(name, CATALOGUE, f"--model {name}")
    assert words in str(error.value)


def test_a_plan_takes_the_format_of_the_id_and_says_so(tmp_path: Path) -> None:
    asks = question(tmp_path, model="lmsys/vicuna-7b-v1.3-AWQ", draft="Tiny-Vicuna-1B-AWQ")
    plan, document = planned(asks, CATALOGUE)
    assert "weights: int4 (as lmsys/vicuna-7b-v1.3-AWQ says)" in plan.file.assumed
    assert document.data["scenario"]["target"]["weights"] == "int4"
    assert document.data["strategies"]["draft_model"]["draft"]["weights"] == "int4"
    for candidate in plan.candidates:
        assert candidate.loaded.scenario.target is not None
        assert candidate.loaded.scenario.target.weights == "int4"
    done = asked(tmp_path, "--weights", "fp8", model="lmsys/vicuna-7b-v1.3-AWQ")
    assert done.exit_code == 2
    assert "--weights fp8: is beside --model lmsys/vicuna-7b-v1.3-AWQ, which says int4" in (
        done.stderr
    )


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("ttft_ms p95 < 500", ("ttft_ms", "p95", 500.0)),
        (" TPOT p99 <= 40ms ", ("tpot_ms", "p99", 40.0)),
        ("e2e p50<2min", ("e2e_ms", "p50", 120_000.0)),
        ("tbt_p99.9 = 0.1 s", ("tbt_ms", "p99.9", 100.0)),
        ("ttft p95 < 500", None),
        ("ttft_ms p95 < 500ms", None),
        ("ttft p95 < 0ms", None),
        ("ttft p95 > 500ms", None),
        ("wait p95 < 1s", None),
    ],
)
def test_limits_are_read_as_people_write_them(
    text: str, limit: tuple[str, str, float] | None
) -> None:
    assert read_limit(text) == (limit and LimitInWords(*limit))


@pytest.mark.full
def test_limits_in_words_are_those_of_options(tmp_path: Path) -> None:
    """Three limits, two of them on one time; the same as one option each."""
    common = ("--requests", "4", "--draws", "1")
    words = "ttft_ms p95 < 1000, tpot_ms p50 < 60, tpot p99 < 90ms"
    kept = tmp_path / "words.yaml"
    spoken = asked(tmp_path, *common, "--slo", words, "--out", str(kept), "--json")
    assert spoken.exit_code == 0, spoken.output
    options = ("--tpot-p50", "60ms", "--tpot-p99", "90ms")
    typed = asked(tmp_path, *common, *options, "--json")
    assert json.loads(spoken.stdout) == json.loads(typed.stdout)
    again = CliRunner().invoke(main, ["plan", str(kept), "--draws", "1", "--json"])
    answer = json.loads(spoken.stdout)
    assert json.loads(again.stdout)["answer"] == answer["answer"]
    slo = load_plan(str(kept)).file.slo.model_dump(exclude_none=True)
    assert slo == {"ttft_ms": {"p95": 1000.0}, "tpot_ms": {"p50": 60.0, "p99": 90.0}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--slo", "tpot p95"), "expected 'ttft_ms p95 < 500' or 'tpot p99 < 40ms'"),
        (("--slo", "ttft p95 < 2s"), "ttft_ms p95 is limited twice; state it once"),
        (("--compare", "a100_80g_sxm:1"), "says what is owned beside --compare"),
        (("--out", "a.yaml", "--save", "b.yaml"), "is what --out a.yaml is, too"),
    ],
)
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = asked(tmp_path, *words)
    assert done.exit_code == 2
    assert message in done.stderr


def compared(folder: Path, *fleets: str, **options: str) -> Result:
    """What a line says of these fleets."""
    given = {
        "model": "lmsys/vicuna-7b-v1.3",
        "traffic": str(log(folder)),
        "slo": "ttft_ms p95 < 1000, tpot_ms p95 < 60",
        "requests": "4",
        "draws": "2",
    } | options
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    return CliRunner().invoke(main, ["plan", "--compare", *fleets, *words])


@pytest.mark.full
def test_stated_fleets_stand_in_one_table(tmp_path: Path) -> None:
    """One A100 does, a card of 8 GB has no room, and two slow ones do not do."""
    fleets = ("a100_80g_sxm:2", "rtx_4060_ti_8g:4", "l4:1")
    done = compared(tmp_path, *fleets, slo="ttft_ms p95 < 1000, tpot_ms p95 < 20")
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert "2 x a100_80g_sxm do for 3.20 USD an hour (1 of them suffice" in words
    assert "1 x l4 does not do" in words
    assert "4 x rtx_4060_ti_8g do not do" in words
    for device in ("a100_80g_sxm", "l4"):
        assert f"- {device}: engine vllm" in words  # defaults of every fleet, not of the first


@pytest.mark.parametrize(("times", "burst"), [(0.3, True), (1.0, False), (None, False)])
def test_a_fleet_that_carries_less_than_it_is_planned_for_does_in_a_burst_alone(
    times: float | None, burst: bool
) -> None:
    done: Any = SimpleNamespace(devices={"l4": 1})
    use = DeviceCapacity(done, 1, Headroom(times, 5.0, steady=True, recorded=40))
    part = FleetGroup(CountedGroup("l4", 1), 1.0, done, fewest=done, carried=use)
    assert StatedFleet((part,)).burst is burst
    assert not StatedFleet((replace(part, fewest=None),)).burst  # it does not do at all


@pytest.mark.full
def test_a_fleet_is_the_answer_of_the_plan_that_owns_it(tmp_path: Path) -> None:
    asks = question(tmp_path)
    fleets = stated_fleets(asks, [[CountedGroup("a100_80g_sxm", 2)]], CATALOGUE, draws=2)
    (fleet,) = fleets.fleets
    (group,) = fleet.groups
    plan, _ = planned(
        question(tmp_path, owned={"a100_80g_sxm": 2}),
        CATALOGUE,
    )
    best = search(plan).best
    assert best
    assert group.fewest
    assert group.fewest.candidate.name == best.candidate.name
    assert fleet.does
    assert fleet.usd_per_hour == 2 * 1.6
    assert group.whole
    assert sum(group.whole.devices.values()) == 2
    assert len(fleet.draws) == 2
    itself, *_ = ran = [run.cost_usd_per_million_tokens for run in (group.whole, *group.draws)]
    between = fleet.interval(usd_per_million_tokens)
    assert between
    assert min(ran) <= between.low <= itself <= between.high <= max(ran)
    data = fleets.as_data()
    assert data["fleets"][0]["does"] is True
    assert data["draws"] == 2


def test_what_would_do_is_said_in_a_sentence(tmp_path: Path) -> None:
    asks = question(tmp_path, slo={"ttft_ms": {"p95": 1000.0}, "tpot_ms": {"p95": 25.0}})
    fleets = stated_fleets(asks, [[CountedGroup("l4", 1)]], CATALOGUE, draws=1)
    (fleet,) = fleets.fleets
    assert not fleet.does
    assert fleet.carried_per_s is None  # four requests say nothing of more
    assert not fleet_exports(fleets)
    said = headline(fleets)
    (group,) = fleet.groups
    if group.would is None:
        assert said == "1 x l4 does not do, nor does 128."
    else:
        count = group.would.devices["l4"]
        assert said.startswith(f"1 x l4 does not do; {count} x l4 would: ")


def test_fleets_that_none_has_room_on_end_with_code_3(tmp_path: Path) -> None:
    with pytest.raises(Infeasible):
        stated_fleets(
            question(tmp_path, model="deepseek_v3"), [[CountedGroup("l4", 1)]], CATALOGUE, draws=1
        )


@pytest.mark.full
def test_devices_side_by_side_share_the_requests(tmp_path: Path) -> None:
    """Each is dealt as it carries; what both carry is the sum of what each does. Each has files of
    its own, which say where they run and which share goes there.
    """
    mixed = [CountedGroup("a100_80g_sxm", 1), CountedGroup("l4", 1)]
    fleets = stated_fleets(
        question(tmp_path, requests=STREAM), [mixed, mixed[:1]], CATALOGUE, draws=2
    )
    together, alone = fleets.fleets
    fast, slow = together.groups
    assert fast.share + slow.share == pytest.approx(1.0)
    assert fast.share > slow.share > 0.0
    for part in together.groups:
        assert part.whole
        rate = offered_per_s(part.whole.candidate.loaded)
        assert rate == pytest.approx(part.share * RATE)
    assert together.does
    carried = [part.carried and part.carried.per_s for part in together.groups]
    assert None not in carried
    assert together.carried_per_s == sum(filter(None, carried))
    assert carried[0] == alone.carried_per_s  # whatever its share is
    assert fast.share == pytest.approx((carried[0] or 0.0) / together.carried_per_s)
    assert together.usd_per_hour == pytest.approx(1.6 + (slow.usd_per_hour or 0.0))
    assert together.kept == sum(one.kept and two.kept for one, two in together.draws)
    said = headline(fleets)
    assert "1 x a100_80g_sxm + 1 x l4 do for" in said
    assert f"1 x a100_80g_sxm {whole_share(fast.share)}, 1 x l4" in said
    files = fleet_exports(fleets)
    folder = "1_x_a100_80g_sxm+1_x_l4"
    scripts = {name: text for name, text in files.items() if name.endswith(".sh")}
    assert sorted(scripts) == [
        f"{folder}/1_x_a100_80g_sxm/vllm.sh",
        f"{folder}/1_x_l4/vllm.sh",
        "1_x_a100_80g_sxm/vllm.sh",
    ]
    assert all(f"{Path(name).parent}/scenario.yaml" in files for name in scripts)
    first, second, *_ = scripts[f"{folder}/1_x_l4/vllm.sh"].split("\n")
    assert first.startswith("# for 1 replica, on 1 x l4 with vLLM")
    assert second.startswith(f"# of all requests {100 * slow.share:.0f} % go to these replicas")
    assert "the others to 1 x a100_80g_sxm" in second
    assert "of all requests" not in scripts["1_x_a100_80g_sxm/vllm.sh"]
    shown = as_markdown(fleets_page(fleets, "", files))
    assert all(name in shown for name in scripts)


@pytest.mark.full
def test_a_group_that_misses_the_slo_is_dealt_nothing(tmp_path: Path) -> None:
    """No token of an L4 comes within 15 ms, of an A100 all do; a card of 8 GB has no room."""
    slo = {"ttft_ms": {"p95": 1000.0}, "tpot_ms": {"p95": 15.0}}
    asks = question(tmp_path, requests=STREAM, slo=slo)
    names = ("a100_80g_sxm", "l4", "rtx_4060_ti_8g")
    fleet = [CountedGroup(name, 1) for name in names]
    fleets = stated_fleets(asks, [fleet], CATALOGUE, draws=1)
    (together,) = fleets.fleets
    assert [part.share for part in together.groups] == [1.0, 0.0, 0.0]
    assert together.does
    dealt = "(share of requests: 1 x a100_80g_sxm 100 %, 1 x l4 none, 1 x rtx_4060_ti_8g none)"
    assert dealt in headline(fleets)


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        ("l4:1+a100_80g_sxm", "expected NAME:N, a device and how many of it"),
        ("l4:1+l4:2", "'l4' is named twice"),
        ("l40s:1+m3:1", "is the beginning of m3_max, m3_ultra; name one of them, whole"),
    ],
)
def test_a_group_that_is_none_is_refused(tmp_path: Path, fleet: str, message: str) -> None:
    done = compared(tmp_path, fleet)
    assert done.exit_code == 2
    assert "--compare " in done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    ("option", "typed", "remedies"),
    [
        ("--device", "l4:2+l40s:4", ["--compare l4:2+l40s:4", "--device l4:2,l40s:4"]),
        ("--device", "l4+l40s", ["--compare l4:1+l40s:1", "--device l4,l40s"]),
        ("--compare", "l4:2,l40s:4", ["--compare l4:2 l40s:4", "--compare l4:2+l40s:4"]),
        ("--compare", "l4:2 + l40s:4", ["--compare l4:2+l40s:4"]),
    ],
)
def test_devices_joined_otherwise_are_refused_with_what_works(
    option: str, typed: str, remedies: list[str]
) -> None:
    """Every remedy is read, word by word, as the option that it names."""
    with pytest.raises(BadInput) as error:
        _read(option, typed)
    (fault,) = error.value.faults
    assert fault.place[0] == f"{option} {typed}"
    printed = re.findall(r"--(?:compare|device) [^;]+", fault.message)
    assert [words.removesuffix(" to choose among them") for words in printed] == remedies
    for remedy in remedies:
        named, words = remedy.split(" ", 1)
        assert _read(named, words)


def _read(option: str, words: str) -> Sequence[object]:
    if option == "--device":
        return read_devices(words, CATALOGUE)
    return read_fleets(words.split(), CATALOGUE)


def test_what_is_free_costs_nothing(tmp_path: Path) -> None:
    """Cards that are paid for are taken before others that do too, and as few as will do."""
    prices = {"a100_80g_sxm": 0.0}
    plan, _ = planned(question(tmp_path, devices=("l4", "a100_80g_sxm"), prices=prices), CATALOGUE)
    best = search(plan).best
    assert best
    assert best.devices == {"a100_80g_sxm": 1}
    assert best.cost_usd_per_hour == best.cost_usd_per_million_tokens == 0.0
    asks = question(tmp_path, prices=prices)
    (fleet,) = stated_fleets(asks, [[CountedGroup("a100_80g_sxm", 2)]], CATALOGUE, draws=1).fleets
    assert fleet.usd_per_hour == 0.0
    assert fleet.whole
    assert usd_per_million_tokens(fleet.whole) == 0.0
    done = asked(tmp_path, "--requests", "4", "--draws", "1", "--price", "a100_80g_sxm=0")
    assert done.exit_code == 0, done.output
    assert "0 USD per hour, 0 USD per million output tokens" in " ".join(done.stdout.split())
    (tmp_path / "scenario.yaml").write_text("like: vanilla_qwen3_32b_a100\n")
    free = load(str(tmp_path / "scenario.yaml"), ["target.device.price_usd_per_hour=0"])
    assert free.scenario.target
    assert free.scenario.target.device.price_usd_per_hour


@pytest.mark.full
def test_the_page_on_plans_says_what_its_fleets_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs/how-to/plan.md").read_text("utf-8")
    command = re.findall(r"^    specsim (plan --compare .*)$", text, re.MULTILINE)[0]
    (said,) = re.findall(r"^    (1 x h100_sxm does for .*)$", text, re.MULTILINE)
    done = CliRunner().invoke(main, shlex.split(command), env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    assert said in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"price": "h200_sxm=2"}, "--price h200_sxm: is none of the devices l4"),
        ({"out": "a.yaml"}, "--out a.yaml: is for one answer; name a folder with --out"),
        ({"save": "b.yaml"}, "--save b.yaml: is for one answer; name a folder with --out"),
    ],
)
def test_what_no_fleet_needs_is_refused(
    tmp_path: Path, words: dict[str, str], message: str
) -> None:
    done = compared(tmp_path, "l4:1", **words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_fleet_without_a_price_is_not_the_cheapest() -> None:
    does = cast(Finding, object())
    known = StatedFleet((FleetGroup(CountedGroup("l4", 1), 2.0, None, does),))
    unknown = StatedFleet((FleetGroup(CountedGroup("rtx_3090", 1), None, None, does),))
    falls_short = StatedFleet((FleetGroup(CountedGroup("t4", 1), 0.5, None),))
    fleets = StatedFleets((falls_short, unknown, known), (), 0)
    assert _cheapest_first(fleets) == [known, unknown, falls_short]


@pytest.mark.parametrize("fleet", ["a100_80g_sxm", "a100_80g_sxm:0", "a100_80g_sxm:x"])
def test_a_fleet_without_a_number_is_refused(tmp_path: Path, fleet: str) -> None:
    done = compared(tmp_path, fleet)
    assert done.exit_code == 2
    assert f"--compare {fleet}: expected NAME:N, a device and how many of it" in done.stderr


def test_a_head_is_found_among_the_means_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "scenarios" / "acceptance"
    folder.mkdir(parents=True)
    shipped = CATALOGUE.names("acceptance")["vicuna_7b_means"]
    own = yaml.safe_load(shipped.read_text("utf-8"))
    own |= {"target": "me/my-model", "means": own["means"][:1]}
    own["means"][0] |= {"method": "eagle_3", "draft": "me/my-head"}
    (folder / "mine.yaml").write_text(yaml.safe_dump(own))
    found = known_head(("me/my-model",), "eagle_3", Catalogue((tmp_path,)))
    assert found == KnownHead("me/my-head", "me/my-model")
    assert known_head(("me/my-model",), "eagle_3", CATALOGUE) == KnownHead("", "")


@pytest.mark.full
def test_the_beginning_of_a_single_device_names_it(tmp_path: Path) -> None:
    done = asked(tmp_path, "--requests", "4", "--draws", "1", "--long", device="b200:1")
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert "b200: taken as b200_sxm, the only device that begins so" in words
    assert asked(tmp_path, device="h100:1").exit_code == 2  # several begin so


def test_the_engine_says_what_it_does_with_prompts_and_passes() -> None:
    loaded = load("vanilla_qwen3_32b_a100", ["serving.policy={name: engine}"])
    said = "\n".join(said_of_engine(loaded.scenario, loaded.document))
    assert "prompts: cut into chunks that decode beside other requests, as in engine vllm" in said
    assert "graphs: 51 sizes up to 512 rows are captured" in said
