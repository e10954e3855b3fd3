"""Methods that draft beside the target, side by side on as many devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator import law, run
from simulator.cli.main import main
from simulator.report.pages.parallel_methods import headline, page, sentences
from simulator.studies.parallel_methods import (
    ParallelComparison,
    ParallelPoint,
    candidates,
    study,
)

SCENARIO = "pearl_qwen3_32b_3xh200"
STATED = """\
strategy: vanilla_sd
durations: {target_ms: {base_ms: 20, sequence_ms: 1}, draft_step_ms: 2}
acceptance: {rate: 0.8, overlap: 0.9}
"""


def point(method: str, batch: int, over_serial: float | None, tpot_ms: float) -> ParallelPoint:
    return ParallelPoint(method, batch, 5, 3.0, tpot_ms, 2.0, 0.9, 10.0, 1.5, over_serial, 0.5)


COMPARED = ParallelComparison(
    "mine",
    "a target on 2 x h200_sxm with vllm, a draft drafts",
    (
        point("pearl", 1, 1.25, 4.0),
        point("serial", 1, None, 5.0),
        point("pearl", 8, 0.75, 7.0),
        point("serial", 8, None, 6.0),
    ),
    (),
    ("mirror_sd",),
)


def test_the_page_says_in_which_batches_a_method_pays() -> None:
    assert headline(COMPARED) == (
        "At batch 1 pearl is the quickest, 2.00 times plain decoding and 1.25 times serial "
        "speculation on as many devices; at batch 8 serial is the quickest, 2.00 times plain "
        "decoding."
    )
    assert list(sentences(COMPARED)) == ["pearl: worth its devices at batch 1"]
    notes = page(COMPARED).sections[-1].blocks[0]
    assert any("mirror_sd: acceptance states no overlap" in str(note) for note in notes.items)  # type: ignore[union-attr]


def test_devices_are_worth_what_they_bring_otherwise(tmp_path: Path) -> None:
    """Stated durations: a target and a draft are a device each. PEARL of 3 requests against 1.5 on
    each of two devices, halfway between serial speculation of one and of two.
    """
    file = tmp_path / "mine.yaml"
    file.write_text(STATED)
    compared = study(candidates(str(file), only=["pearl", "minedraft"]), str(file), (3,))
    (pearl,) = [found for found in compared.points if found.method == "pearl"]
    assert pearl.devices == 2.0
    assert pearl.tokens_per_s_per_device == pytest.approx(3 / (pearl.tpot_ms * 1e-3) / 2)
    serial = []
    for clients in (1, 2):
        of_windows = []
        for gamma in range(1, 9):
            sets = [f"requests.concurrency={clients}", f"strategy.gamma={gamma}"]
            of_windows.append(float(law(str(file), sets).tpot_s))
        serial.append(min(of_windows))
    assert pearl.over_serial == pytest.approx(sum(serial) / 2 / (pearl.tpot_ms * 1e-3))
    assert pearl.over_plain == pytest.approx(21.5 / pearl.tpot_ms)
    assert pearl.speedup == pytest.approx(23.0 / pearl.tpot_ms)


def asked(clients: int) -> str:
    lengths = "output_tokens: 300, prompt_tokens: 32"
    return f"requests={{count: {clients + 12}, concurrency: {clients}, {lengths}}}"


@pytest.mark.parametrize(("clients", "apart"), [(3, True), (96, False)])
def test_decoupled_servers_pay_at_low_batches_as_the_study_says(clients: int, apart: bool) -> None:
    """SpecActor on three H200: decoupled, a target on two of them and a drafter on the third;
    coupled, two thirds of the requests on each pair. By law, and simulated with short prompts,
    which the law leaves out.
    """
    compared = study(candidates(SCENARIO, only=["specactor"]), SCENARIO, (clients,))
    (found,) = [found for found in compared.points if found.method == "specactor"]
    assert compared.worth_it("specactor") == ([clients] if apart else [])
    assert found.devices == 3.0
    on_pair = clients * 2 // 3
    (serial,) = study(
        candidates(SCENARIO, only=["specactor"])._replace(methods=()), SCENARIO, (on_pair,)
    ).points
    together = [
        f"strategy={{name: vanilla_sd, gamma: {serial.window}}}",
        "draft.machine=h200",
        "channel=null",
        asked(on_pair),
    ]
    decoupled = [
        f"strategy={{name: specactor, gamma: {found.window}}}",
        asked(clients),
    ]
    tpot_s = [run(SCENARIO, sets).simulated.tpot_s for sets in (decoupled, together)]
    assert (tpot_s[0] < tpot_s[1]) is apart


def test_the_command_answers(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STATED)
    words = ["methods", str(file), "--parallel", "--only", "pearl", "--sizes", "1,2"]
    done = CliRunner().invoke(main, [*words, "--json", "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    points = json.loads(done.stdout)["points"]
    assert {row["method"] for row in points} == {"serial", "serial, draft apart", "pearl"}
    assert {row["batch"] for row in points} == {1, 2}
    assert "over serial" in (tmp_path / "page.html").read_text()


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STATED)
    done = CliRunner().invoke(main, ["methods", str(file), "--sizes", "1,2"])
    assert done.exit_code == 2
    assert "--sizes: is for --parallel" in done.stderr
    done = CliRunner().invoke(main, ["methods", str(file), "--parallel", "--only", "medusa_1"])
    assert done.exit_code == 2
    assert "'medusa_1' does not draft beside the target" in done.stderr
