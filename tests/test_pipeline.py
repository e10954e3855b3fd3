"""A target on the stages of a pipeline: what each holds, what a pass costs, and what is said when
one is wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.report.run.memory import stage_caption, stages
from simulator.scenario import Loaded, load

STAGES = """\
strategy: autoregressive
target:
  model: llama_3_1_70b
  device: rtx_3090
  engine: ideal
  weights: bf16
  pipeline:
    stages:
    - {server: a, layers: 22, device: l40}
    - {server: a, layers: 24, device: l40}
    - {server: b, layers: 24, device: l40}
    - {server: b, layers: 10}
    within: pcie_4_x16
    between: ethernet_10g
acceptance: {always: 0}
requests: {count: 4, output_tokens: 64}
"""


def loaded(folder: Path, text: str = STAGES) -> Loaded:
    (folder / "x.yaml").write_text(text)
    return load(str(folder / "x.yaml"))


def test_stages_share_out_layers_embedding_and_head(tmp_path: Path) -> None:
    """Four stages on two devices: 22, 24, 24 and 10 layers; the parts add up to the model, tables
    at both ends.
    """
    target = loaded(tmp_path).scenario.target
    assert target is not None
    parts = target.parts
    assert [(part.device.name, part.model.num_hidden_layers) for part in parts] == [
        *(("l40", 22), ("l40", 24), ("l40", 24), ("rtx_3090", 10)),
    ]
    assert target.devices == "3 x l40 + 1 x rtx_3090"
    assert sum(part.model.weights for part in parts) == target.model.weights
    layer, table = 855_638_016, 128_256 * 8_192
    assert [part.model.weights for part in parts] == [
        22 * layer + table,
        24 * layer,
        24 * layer,
        10 * layer + table,
    ]
    assert sum(part.kv_gb(1000) for part in parts) == pytest.approx(target.kv_gb(1000))


def test_a_pass_goes_through_all_stages_and_links(tmp_path: Path) -> None:
    cost = loaded(tmp_path).scenario.cost
    assert isinstance(cost, HardwareCost)
    rows = Rows.decode(1, 1_000)
    stages = [cost.stage(index, rows).wall_s for index in range(4)]
    links = [cost.carry(index, 1) for index in range(3)]
    assert cost.target(rows).wall_s == pytest.approx(sum(stages) + sum(links), rel=1e-12)
    assert links == pytest.approx(
        [10e-6 + 16384 / 31.5e9, 50e-6 + 16384 / 1.25e9, 10e-6 + 16384 / 31.5e9]
    )
    assert stages[1] == pytest.approx(24 / 22 * stages[0])
    assert cost.token() == pytest.approx(50e-6 + 4 / 1.25e9)


def test_stated_stages_are_a_whole_pass_too() -> None:
    cost = StatedCost(StatedDurations(stages_ms=(10, 20, 30), links_ms=(1, 2), token_ms=0.5))
    rows = Rows.decode(1, 100)
    assert cost.target(rows).wall_s == pytest.approx(0.063)
    assert [cost.stage(index, rows).wall_s for index in range(cost.stages)] == pytest.approx(
        [0.01, 0.02, 0.03]
    )
    assert (cost.carry(1, 64), cost.token()) == pytest.approx((0.002, 0.0005))


FAULTS = [
    (
        STAGES.replace("    - {server: b, layers: 10}\n", ""),
        2,
        "x.yaml:2:1: target: the stages hold 70 layers, llama_3_1_70b has 80",
    ),
    (
        STAGES.replace("layers: 10", "layers: 0"),
        2,
        "x.yaml:12:19: target.pipeline.stages.3.layers: a stage holds a layer or more, got 0",
    ),
    (
        STAGES.replace("    between: ethernet_10g\n", ""),
        2,
        (
            "x.yaml:7:3: target.pipeline: there is no link between stages 2 and 3, on servers 'a' "
            "and 'b'; set between"
        ),
    ),
    (
        STAGES.replace("    within: pcie_4_x16\n", ""),
        2,
        (
            "x.yaml:7:3: target.pipeline: there is no link between stages 1 and 2, both on server "
            "'a'; set within"
        ),
    ),
    (
        STAGES.replace("ethernet_10g", "ethernet_10"),
        2,
        (
            "x.yaml:14:5: target.pipeline.between: there is no link 'ethernet_10'; did you mean "
            "'ethernet_10g'?"
        ),
    ),
    (
        STAGES.replace("layers: 22, device: l40", "layers: 22, device: l400"),
        2,
        (
            "x.yaml:9:31: target.pipeline.stages.0.device: there is no device 'l400'; did you mean "
            "'l40'?"
        ),
    ),
    (
        STAGES.replace("layers: 22", "leyers: 22"),
        2,
        "x.yaml:9:19: target.pipeline.stages.0.leyers: unknown field; did you mean 'layers'?",
    ),
    (
        STAGES.replace("layers: 22, device: l40", "layers: 22"),
        3,
        (
            "x.yaml:9:7: target.pipeline.stages.0: stage 1 llama_3_1_70b 40.1 GB does not fit "
            "rtx_3090 with 25.77 GB, of which 23.193 may be used; give it fewer layers or another "
            "device"
        ),
    ),
]


@pytest.mark.parametrize(("text", "code", "expected"), FAULTS, ids=lambda value: str(value)[-40:])
def test_one_line_that_helps(
    text: str, code: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["run", "./x.yaml"])
    assert result.exit_code == code
    assert expected in result.stderr


def test_a_strategy_that_stops_within_a_pass_does_not_run_on_stages(tmp_path: Path) -> None:
    text = (
        STAGES.replace("strategy: autoregressive", "strategy: mirror_sd")
        + "draft: {model: llama_3_2_1b, device: l40, engine: ideal}\n"
    )
    (tmp_path / "x.yaml").write_text(text)
    result = CliRunner().invoke(main, ["run", str(tmp_path / "x.yaml")])
    assert result.exit_code == 2
    assert "mirror_sd stops within a pass, which a pipeline cannot do" in result.stderr


def test_a_report_tells_the_memory_of_each_stage_both_ways() -> None:
    """Table 1 with its budget of 81,920 tokens: 23.5, 21.5, 23.5 GiB as printed; grouped heads take
    2.2 GiB less.
    """
    scenario = load("specpipe_llama_3_1_70b_8x3090", ["serving.memory.kv_tokens=81920"]).scenario
    table = stages(scenario)
    assert table is not None
    rows = [dict(zip(table.head, map(str, row), strict=True)) for row in table.rows]
    assert [row["stages"] for row in rows] == ["1 (10 layers)", "2-7 (10 layers)", "8 (10 layers)"]
    assert [float(row["printed"]) for row in rows] == pytest.approx([23.5, 21.5, 23.5], rel=5e-3)
    assert [float(row["GiB"]) for row in rows] == pytest.approx([21.27, 19.31, 21.27], abs=5e-3)
    assert [row["table"] for row in rows] == ["1.96", "0", "1.96"]
    assert "room for 81,920 tokens (stated)" in stage_caption(scenario)
    assert stages(load("mirror_qwen3_32b_a100").scenario) is None
