# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # The i.i.d. formula against recorded acceptance
#
# **How wrong is the textbook formula for accepted tokens, and does it change a decision?**
#
# Papers write the tokens of a step as $(1 - \alpha^{\gamma + 1}) / (1 - \alpha)$: every draft token
# is kept with the same chance, whatever happened before. Real acceptance comes in bursts and
# differs between texts and positions. How far off is the formula if it is fitted where it is
# easiest, at one draft token, and used where it matters?

# %%
import matplotlib.pyplot as plt
import pandas as pd

import simulator

# %%
formula = simulator.iid("six_flavours_greedy", windows=(1, 3, 5, 8))
errors = formula.to_frame()
errors.round(1)

# %% [markdown]
# Positive: the formula promises too much. The error belongs to the drafter. Trees and heads get
# weaker with depth (too optimistic); look-up is all or nothing, a hit is followed by hits (too
# pessimistic); a distilled chain is close to independent.

# %%
with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for drafter in formula.value:
        positions = range(1, len(drafter.by_position) + 1)
        axes.plot(
            positions, drafter.by_position, "o-", ms=3, lw=1, label=drafter.name.partition(":")[2]
        )
    axes.set_xlabel("position in the window")
    axes.set_ylabel("share kept, of those that got there")
    axes.legend(ncols=3, fontsize=7, frameon=False)

# %% [markdown]
# ## What it does to a decision
#
# The same scenario with the recording, with its marginal rates by position, and with one i.i.d.
# rate.

# %%
recorded = simulator.run("vanilla_qwen3_32b_a100")
first = recorded.odds.accepted[1:].sum()
independent = simulator.run(
    "vanilla_qwen3_32b_a100", {"acceptance": {"rate": round(float(first), 6)}}
)
times = pd.Series(
    {
        "recorded, simulation": recorded.simulated.tpot_s * 1e3,
        "recorded, law with marginal rates": recorded.law.tpot_s * 1e3,
        "one rate, simulation": independent.simulated.tpot_s * 1e3,
        "one rate, law": independent.law.tpot_s * 1e3,
    },
    name="ms per token",
).round(3)
assert errors["gamma 1"].abs().max() < 1e-9, "fitted there, so exact there"
times

# %%
axes = times.iloc[::-1].plot.barh(figsize=(7, 2.4), xlabel="ms per token")

recorded.picture("timeline")
