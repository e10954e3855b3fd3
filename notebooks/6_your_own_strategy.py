# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Your own strategy, in one file
#
# **What does a decoding strategy of your own take, and does it pay?**
#
# A strategy says who works when. Say yours is *eager drafting*: the draft does not wait for the
# verdict but goes on with the next window while the target verifies this one, in the hope that all
# of it will be kept. If it is, the next window is at hand when the verdict comes; if not, it was
# wasted work and is drafted again.
#
#     draft   |==window 1==|==window 2 (a guess)==|            |==window 3 (a guess)==|
#     target               |=====verify 1=====|               |=====verify 2=====|
#                                              kept: hit ^      lost: draft again
#
# A hit takes $\max\{T_{target}, T_{draft}\}$, a miss $\max\{T_{target}, T_{draft}\} + T_{draft}$.

# %%
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd

import simulator
from simulator import (
    EXACT,
    NO_ROWS,
    Chain,
    ChainStrategy,
    Claim,
    Cost,
    Example,
    Kind,
    Lanes,
    Phase,
    Rows,
    StatedDurations,
    Step,
    Traits,
    together,
)
from simulator import law_sentence, verdict_on  # to check a strategy; its own file does without

# %% [markdown]
# The durations carry the symbols of the drawing. `phases` says what each part costs, `timeline`
# lets it pass on the lanes, and `step_seconds` is the law: the same durations, no lanes. `kinds`
# says how often each kind of step occurs. `claim` says how far you vouch for the law, and `example`
# where it is to be tried.


# %%
class Durations(NamedTuple):
    """Seconds: verification, the guessed window beside it, the window that is written again after a
    miss.
    """

    target: float
    draft: float
    redraft: float


class EagerDrafting(ChainStrategy[Durations]):
    """Draft on while the target verifies."""

    name: Literal["eager_drafting"] = "eager_drafting"
    traits: ClassVar[Traits] = Traits(
        Durations,
        "max{T_target, T_draft} + T_draft if a draft token is rejected",
        hidden_behind="target",
        alone=True,
    )
    bonus_on_full_accept: bool = False  # the guess began behind the last draft token

    @classmethod
    def example(cls) -> Example:
        return Example(cls(gamma=4), StatedDurations(target_ms=30.0, draft_step_ms=5.0))

    def claim(
        self, cost: Cost, requests: int, context: int, shares: Mapping[Kind, Any], one_lane: bool
    ) -> Claim:
        return (
            Claim("lower_bound", "target and draft share one lane and cannot overlap")
            if one_lane
            else EXACT
        )

    def compose(self, states, prompts=NO_ROWS):
        (state,) = states
        state.proposed = self.gamma
        kind = Kind(
            "hit" if state.ready else "miss",
            1,
            redrafts=int(not state.ready),
            prompts=prompts.sequences,
        )
        return Step(
            kind, Rows.decode(self.gamma + 1, state.context), state.context * kind.redrafts, prompts
        )

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        internal_step = cost.draft(Rows.decode(1, step.rows.kv_tokens))
        window = together(internal_step, times=self.gamma)
        redraft = window if step.kind.redrafts else Phase(0.0, {})
        return {
            "target": cost.target(step.rows + step.prompts),
            "draft": window,
            "redraft": redraft,
        }

    def timeline(self, lanes: Lanes, durations: Durations, kind: Kind):
        if kind.redrafts:
            yield lanes.draft.start(durations.redraft, "window, again")
        verified = lanes.target.start(durations.target, "verify")
        yield lanes.draft.start(durations.draft, "guess")
        yield verified

    def step_seconds(self, durations: Durations, kind: Kind) -> Any:
        overlap = np.maximum(durations.target, durations.draft)  # a report asks with arrays
        return overlap + durations.redraft

    def kinds(self, odds, requests):
        whole = odds(self.gamma).accepted[-1]  # an array, where a report asks for many rates
        return {Kind("hit", 1): whole, Kind("miss", 1, redrafts=1): 1.0 - whole}

    def settle(self, states):
        (state,) = states
        proposal = Chain(self.gamma, self.bonus_on_full_accept)
        progress = super().settle(states)
        state.ready = progress[0].accepted == proposal.tokens
        return progress


# %% [markdown]
# Is the law right? The example is run under several acceptances, and law, replay and timeline have
# to agree to 1e-9. A law that is wrong on purpose shows what happens then.


# %%
class WrongLaw(EagerDrafting):
    name: Literal["wrong_law"] = "wrong_law"

    def step_seconds(self, durations: Durations, kind: Kind) -> Any:
        return durations.target + durations.draft + durations.redraft


right, wrong = (verdict_on(strategy.example()) for strategy in (EagerDrafting, WrongLaw))
print(law_sentence(right), law_sentence(wrong), sep="\n")

# %% [markdown]
# An instance goes wherever a strategy goes. Round numbers first: a target pass of 30 ms, a draft
# step of 5 ms, four tokens.

# %%
ROUND = ["strategy={name: vanilla_sd, gamma: 4}", "durations={target_ms: 30, draft_step_ms: 5}"]
stated = simulator.load("durations_only", ROUND)
eager = simulator.run(stated.replace(strategy=EagerDrafting(gamma=4)))
serial = simulator.run(stated)
pd.DataFrame(
    {
        name: {
            "step, law": result.law.step_s * 1e3,
            "step, simulation": result.simulated.step_s * 1e3,
            "tokens per step": result.simulated.tokens_per_step,
            "ms per token": result.simulated.tpot_s * 1e3,
        }
        for name, result in {"serial": serial, "eager": eager}.items()
    }
).round(3)

# %% [markdown]
# Does it pay? Only where a window is mostly kept: a miss pays for the window twice, and the bonus
# token is given up.

# %%
times = {}
for rate in (0.5, 0.7, 0.8, 0.9, 0.95):
    drawn = simulator.load(
        "durations_only",
        [
            "strategy={name: vanilla_sd, gamma: 4}",
            "durations={target_ms: 30, draft_step_ms: 5}",
            f"acceptance={{rate: {rate}}}",
        ],
    )
    both = simulator.run(drawn), simulator.run(drawn.replace(strategy=EagerDrafting(gamma=4)))
    times[rate] = {
        "serial": both[0].simulated.tpot_s * 1e3,
        "eager": both[1].simulated.tpot_s * 1e3,
    }
table = pd.DataFrame(times).T.round(2)
table

# %% [markdown]
# To keep it: put the class in a file of `simulator/core/strategies/`, or in a package of your own
# that registers it as an entry point of the group `specsim.strategies`. Then a scenario can say
# `strategy: {name: eager_drafting}`, `specsim list` shows it, and `specsim validate --law
# eager_drafting` and the tests hold its law to its timeline. A report prints what it claims and
# what the run shows of it.

# %%
assert not right.disagreement
assert wrong.disagreement, "a wrong law is caught"
assert abs(eager.law_replayed.step_s / eager.simulated.step_s - 1) < 1e-9, (
    "the law holds for its process"
)
assert not eager.agreement.disagreement
assert table.eager[0.95] < table.serial[0.95], "it pays where nearly every window is kept"
axes = table.plot(marker="o", figsize=(7, 3.4), xlabel="acceptance rate", ylabel="ms per token")
