"""All that is trained: a target, two drafts, early exits and draft heads, each with its
schedule.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

import torch
from torch import nn

from benchmarks.family.heads import EagleLayer, ExitHead, HiddenChain, MedusaHeads, Streams
from benchmarks.family.network import DRAFT, TARGET, Network
from benchmarks.family.pair import Family

EXIT_LAYERS = (2, 4, 6)
HEADS = {"eagle": EagleLayer, "lyanna": HiddenChain, "medusa": MedusaHeads, "streams": Streams}


@dataclass(frozen=True)
class TrainingSchedule:
    """One training stage: its length, peak learning rate, the seed of its weights and of its data,
    rows a step.
    """

    steps: int
    rate: float
    seed: int
    rows: int = 16


SCHEDULES = {
    "target": TrainingSchedule(steps=2_000, rate=3e-3, seed=1),
    "draft": TrainingSchedule(steps=1_200, rate=4e-3, seed=2),
    "plain": TrainingSchedule(steps=800, rate=4e-3, seed=5),
    "exits": TrainingSchedule(steps=600, rate=2e-3, seed=3, rows=8),
    "medusa": TrainingSchedule(steps=1_000, rate=2e-3, seed=13, rows=8),
    "streams": TrainingSchedule(steps=800, rate=3e-3, seed=14, rows=8),
    "eagle": TrainingSchedule(steps=600, rate=2e-3, seed=11, rows=8),
    "lyanna": TrainingSchedule(steps=500, rate=2e-3, seed=12, rows=8),
}
"""Every member of the family, in the order of training; the target comes first."""

OBJECTIVES = {
    "target": "next token of the text",
    "plain": "next token of the text",
    "draft": "distilled from the target (forward KL), half of the text its own",
    "exits": "distilled from the target's last layer (forward KL), half of the text its own",
}
"""Heads learn the target's next tokens by forward KL, depths weighted 0.8 to the power of the
depth.
"""


@dataclass(frozen=True)
class Members(Family):
    """The modules by name: ``target``, the drafts ``draft`` and ``plain``, ``exits``, and the
    heads.
    """

    @classmethod
    def blank(cls) -> Self:
        """Return a family with fresh weights, each module from a seed of its own."""
        modules: dict[str, nn.Module] = {}
        for name, schedule in SCHEDULES.items():
            torch.manual_seed(schedule.seed)
            modules[name] = _build(name, modules)
        return cls(modules, {})

    @property
    def exits(self) -> nn.ModuleList:
        """Return the early-exit heads, one for each of ``EXIT_LAYERS``."""
        return cast(nn.ModuleList, self.modules["exits"])

    def describe(self, loss: Mapping[str, float], tokens_per_row: int) -> dict[str, Any]:
        """Return sizes, training and loss (nats per token) of every module, for a header."""
        return {
            name: {
                **({"shape": asdict(module.shape)} if isinstance(module, Network) else {}),
                "parameters": sum(parameter.numel() for parameter in module.parameters()),
                "training_steps": SCHEDULES[name].steps,
                "training_tokens": SCHEDULES[name].steps * SCHEDULES[name].rows * tokens_per_row,
                "seed": SCHEDULES[name].seed,
                "loss": loss[name],
                "objective": OBJECTIVES.get(
                    name, "the target's next tokens (forward KL by depth), half of the text its own"
                ),
            }
            for name, module in self.modules.items()
        }


def _build(name: str, modules: Mapping[str, nn.Module]) -> nn.Module:
    if name == "target":
        return Network(TARGET)
    if name in ("draft", "plain"):
        return Network(DRAFT)
    if name == "exits":
        return nn.ModuleList(ExitHead(TARGET.width) for _ in EXIT_LAYERS)
    return HEADS[name](modules["target"])
