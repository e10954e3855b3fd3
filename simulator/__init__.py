"""specsim: speculative decoding, simulated beside its laws.

The public face is a handful of functions and what they return (:mod:`simulator.api`), and the
parts of which a strategy of your own is made. All of it is loaded when it is first asked for, so
that ``import simulator`` and ``specsim --help`` are quick.
"""

from __future__ import annotations

from importlib import import_module

# to a type checker it is true; the module that has it takes long to load, and Ctrl-C may come early
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from simulator.api.catalogue import catalogue
    from simulator.api.planning import compare_fleets, plan
    from simulator.api.recordings import iid, trace
    from simulator.api.result import Result
    from simulator.api.scenario import law, load, run
    from simulator.api.services import observe, verify, what_if
    from simulator.api.studies import compare, study
    from simulator.api.sweeping import sweep
    from simulator.core.faults import BadInput, Infeasible
    from simulator.scenario import Loaded, Scenario

__version__ = "0.2.0"

__all__ = ["BadInput", "Infeasible", "Loaded", "Result", "Scenario"]
__all__ += ["catalogue", "compare", "compare_fleets", "iid", "law", "load", "observe", "plan"]
__all__ += ["run", "study", "sweep", "trace", "verify", "what_if"]

_HOMES = {
    "api.scenario": "load run law",
    "api.sweeping": "sweep",
    "api.planning": "plan compare_fleets",
    "api.studies": "study compare",
    "api.recordings": "trace iid",
    "api.services": "observe verify what_if",
    "api.catalogue": "catalogue",
    "api.result": "Result",
    "scenario": "Loaded Scenario",
    "core.faults": "BadInput Infeasible",
    "core.acceptance.cursors": "Chain",
    "core.cost.protocol": "Cost",
    "core.cost.rows": "NO_ROWS Phase Rows together",
    "core.cost.stated": "StatedDurations",
    "evidence.law_check": "verdict_on",
    "report.law_claims": "law_sentence",
    "core.strategies": "Strategy strategies",
    "core.strategies.common.chain": "ChainStrategy",
    "core.strategies.common.claim": "EXACT Claim Example",
    "core.strategies.common.pipeline_laws": "break_even unequal_stages",
    "core.strategies.common.courses": "Course TellsCourses",
    "core.strategies.common.step": "Kind Lanes Progress State Step",
    "core.strategies.common.traits": "Needs Traits",
}
"""Modules below ``simulator`` and the public names in them: functions and results, then what
strategies are made of.
"""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Return a public name, loading its module the first time; raise AttributeError for an unknown
    one.
    """
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute '{name}'")
    value = getattr(import_module(f"simulator.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
