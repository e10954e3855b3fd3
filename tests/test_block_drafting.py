"""Blocks drafted in one pass: DSpark's walk over its block, layers called again, and states that a
verification keeps.
"""

from __future__ import annotations

import pytest
from test_methods import method

from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.kernels import head_time, transition_time
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.rows import Rows
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.tree_sd import TreeSD
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.scenario import load
from simulator.studies.plan.commands.engines import ENGINES
from tests.test_cost import LINK, place


def shapes(name: str) -> ModelSpec:
    return validate(ModelSpec, read(Catalogue().names("model")[name], name))


def test_a_row_of_a_table_of_transitions_reads_rank_times_vocabulary() -> None:
    """A device of round numbers: 100 tokens of vocabulary, whose 16 bits are read at a byte a
    nanosecond, one row of 8 inputs and 100 outputs beside them.
    """
    where = place()
    vocabulary = where.model.vocab_size
    size = 2.0 * (8 * vocabulary + 8 + vocabulary)
    assert transition_time(where, 1, 8) == pytest.approx(size * 1e-9, rel=0.05)
    assert transition_time(where, 1, 16) > 1.8 * transition_time(where, 1, 8)


def test_the_walk_of_dspark_is_one_short_product_a_token() -> None:
    strategy = method("dspark").strategy
    assert isinstance(strategy, TreeSD)
    cost = HardwareCost(place())
    step = strategy.step(Kind("step", 1), 84)
    without = strategy.model_copy(update={"passes": strategy.passes[:2]})
    walk = strategy.phases(cost, step)["draft"].wall_s - without.phases(cost, step)["draft"].wall_s
    assert walk == pytest.approx(7 * transition_time(place(), 1, 256), rel=1e-9)
    assert (step.rows.tokens, strategy.window) == (8, 7)


def test_tables_of_transitions_are_weights() -> None:
    """151,936 x 256 twice beside five layers and five squares of Qwen3-4B: 78 M of 0.63 B."""
    small = shapes("qwen3_4b")
    whole = method("dspark").strategy.extra_memory(small).weights
    table = DraftHead(transition=256).weights(small)
    assert table == 2 * 256 * small.vocab_size
    assert (whole - table) / 1e9 == pytest.approx(0.54, abs=0.02)


def test_a_table_is_whole_on_every_rank() -> None:
    """Two devices read the table in the time of one, and the LM head in less."""
    one, two = place(), place(tensor_parallel=2, link=LINK)
    assert transition_time(two, 8, 256) == pytest.approx(transition_time(one, 8, 256), rel=1e-12)
    assert head_time(two, 8) < head_time(one, 8)


def test_a_layer_called_again_takes_the_time_of_as_many_layers() -> None:
    """Three calls of one layer, or three layers: the same time, a third of the weights."""
    head = DraftHead(layers=1, squares=2)
    again = (DraftPass(head=head, rows=(4, 1, 1)),)
    own = tuple(DraftPass(head=head, rows=(rows,)) for rows in (4, 1, 1))
    cost = HardwareCost(place())
    strategy = method("mtp_layers").strategy
    step = strategy.step(Kind("step", 1), 84)
    took = []
    weights = []
    for passes in (again, own):
        one = strategy.model_copy(update={"passes": passes})
        took.append(one.phases(cost, step)["draft"].wall_s)
        weights.append(one.extra_memory(shapes("mimo_v2_flash")).weights)
    assert took[0] == pytest.approx(took[1], rel=1e-12)
    assert weights[1] == 3 * weights[0]


def test_a_verification_keeps_a_state_for_every_row() -> None:
    """Of Qwen3.5-27B 154 MB a row: a step of seven drafts writes seven states more than a plain
    one, and a request holds eight of them.
    """
    scenario = load("dflash_2_qwen3_5_27b_h100").scenario
    target = scenario.target
    assert target is not None
    states = target.model.state_bytes
    assert states == pytest.approx(154e6, rel=0.01)
    (group,) = scenario.device_groups
    (role,) = group.roles
    held = role.request_gb(1_000, 8) - role.request_gb(1_000, 1)
    assert held == pytest.approx(7 * states / 1e9)
    plain, verified = (scenario.cost.target(Rows.decode(rows, 16_000, 16)) for rows in (1, 8))
    written = 7 * 16 * states / (target.device.memory_bandwidth_gb_s.value * 1e9)
    assert verified.wall_s - plain.wall_s > written


@pytest.mark.parametrize(
    ("method_name", "engine", "option"),
    [
        ("dspark", "vllm", '"method": "dspark"'),
        ("dflash", "vllm", '"method": "dflash"'),
        ("dflash", "sglang", "--speculative-algorithm DFLASH"),
    ],
)
def test_commands_name_block_drafters(method_name: str, engine: str, option: str) -> None:
    scenario = load("dspark_qwen3_4b_h100", [f"strategy={method_name}"]).scenario
    script = ENGINES[engine].script(scenario)
    assert script is not None and option in script
