"""A paper of round numbers, laid out as in the catalogue: a pass of the target is ``pass`` ms, a
draft token ``draft`` ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from pathlib import Path

from simulator.evidence.claims import NO_VALUES, Condition, PaperClaim, Values, claim
from simulator.evidence.published import PAPERS

SCENARIO = """
strategy: {name: vanilla_sd, gamma: 4}
durations: {target_ms: 1, draft_step_ms: 1}
acceptance: {always: 4}
requests: {count: 1, prompt_tokens: 1, output_tokens: 101}
"""
PARAMETERS = """
parameters:
  pass:
    {key: durations.target_ms, why: host cost, scale: log, start: 2, least: 0, most: 5,
     where: {method: [SD]}, decided_by: {task: [chat]}}
  draft:
    {key: durations.draft_step_ms, why: size, start: 1, least: 0.01, most: 9, per: [model], \
decided_by: {task: [chat, code]}}
  draft_on_code: {key: durations.draft_step_ms, why: longer, start: 0, least: 0, most: 9, where: \
{task: [code]}}
"""
CELLS = """
cell,source,model,task,method,quantity,published,role,scenario,overrides,metric
a,T1,small,chat,SD,tpot,8,calibrate,sd,,simulated.step_ms
b,T1,large,chat,SD,tpot,12,calibrate,sd,,simulated.step_ms
c,T1,small,code,SD,tpot,16,calibrate,sd,,simulated.step_ms
d,T1,large,code,SD,tpot,25,predict,sd,,simulated.step_ms
e,T1,large,code,SD,tpot,10,predict,sd,strategy.gamma=2,simulated.step_ms
f,T1,large,poem,SD,tpot,10,report,,,
"""
TERMS = {
    "pass": {"all": log(4)},
    "draft": {"small": 1.0, "large": 2.0},
    "draft_on_code": {"all": 2.0},
}
"""What fits the calibrated cells exactly; ``d`` is then predicted as 20 for 25, ``e`` as 12 for
10.
"""


def written(root: Path) -> Path:
    """The paper ``round`` in a catalogue at ``root``, not fitted yet; its folder."""
    folder = root / PAPERS / "round"
    folder.mkdir(parents=True)
    for name, text in (
        ("sd.yaml", SCENARIO),
        ("parameters.yaml", PARAMETERS),
        ("cells.csv", CELLS),
    ):
        (folder / name).write_text(text.lstrip())
    return folder


def toy_claim(
    ours: Values = NO_VALUES,
    *,
    name: str = "a",
    where: str = "T1",
    says: str = "fast",
    published: str = "",
    unit: str = "",
    shape: Sequence[Condition] = (),
    bound: Condition | None = None,
    bound_why: str = "",
    missing: str = "",
) -> PaperClaim:
    """A claim of the paper, made as :func:`claim` makes it of a function."""

    def measure() -> Values:
        return ours

    measure.__name__ = name
    measure.__doc__ = says
    make = claim(
        where=where,
        published=published,
        unit=unit,
        shape=shape,
        bound=bound,
        bound_why=bound_why,
        missing=missing,
    )
    return make(measure)
