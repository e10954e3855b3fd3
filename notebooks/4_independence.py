# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # The i.i.d. formula against recorded acceptance
#
# Papers write the tokens of a step as $(1 - \alpha^{\gamma + 1}) / (1 - \alpha)$: every draft token is kept with the
# same chance, whatever happened before. Real acceptance comes in bursts and differs between texts and positions. How
# far off is the formula if it is fitted where it is easiest, at one draft token, and used where it matters?

# %%
import matplotlib.pyplot as plt
import pandas as pd

from simulator.catalogue import Catalogue
from simulator.acceptance.iid import every_drafter
from simulator.scenario.run import run
from simulator.scenario import load
from simulator.acceptance.trace import read

# %%
trace = read(Catalogue().names("trace")["six_flavours_greedy"])
found = every_drafter(trace, "greedy", (), (1, 3, 5, 8), 0)
errors = pd.DataFrame({one.name: {error.gamma: error.percent for error in one.errors} for one in found}).T
errors.columns = [f"gamma {gamma}" for gamma in errors.columns]
errors.round(1)

# %% [markdown]
# Positive: the formula promises too much. The error belongs to the drafter. Trees and heads get weaker with depth (too
# optimistic); look-up is all or nothing, a hit is followed by hits (too pessimistic); a distilled chain is close to
# independent.

# %%
with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for one in found:
        axes.plot(range(1, len(one.by_position) + 1), one.by_position, "o-", ms=3, lw=1, label=one.name.removeprefix("greedy:"))
    axes.set_xlabel("position in the window")
    axes.set_ylabel("share kept, of those that got there")
    axes.legend(ncols=3, fontsize=7, frameon=False)

# %% [markdown]
# ## What it does to a decision
#
# The same scenario with the recording, with its marginal rates by position, and with one i.i.d. rate.

# %%
recorded = run(load("vanilla_qwen3_32b_a100"))
first = recorded.odds.accepted[1:].sum()
independent = run(load("vanilla_qwen3_32b_a100", [f"acceptance={{rate: {first:.6f}}}"]))
pd.Series(
    {
        "recorded, simulation": recorded.simulated.tpot_s * 1e3,
        "recorded, law with marginal rates": recorded.law.tpot_s * 1e3,
        "one rate, simulation": independent.simulated.tpot_s * 1e3,
        "one rate, law": independent.law.tpot_s * 1e3,
    },
    name="ms per token",
).round(3)

# %%
assert errors["gamma 1"].abs().max() < 1e-9, "fitted there, so exact there"
