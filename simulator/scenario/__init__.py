"""Scenario: one what-if, read from YAML, checked, frozen.

It names a strategy, the models and the hardware they run on (or durations outright), where
acceptance comes from, and the requests. ``load`` resolves every name, applies overrides and reports
all faults.
"""

from simulator.scenario.fields import AnyStrategy, Scenario, resolved
from simulator.scenario.loading import Loaded, checked, load

__all__ = ["AnyStrategy", "Loaded", "Scenario", "checked", "load", "resolved"]
