# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # DuoDecoding: the budget of a draft on the CPU
#
# **How many tokens should a draft on the CPU write while the GPU verifies?**
#
# The draft runs on the CPU while the GPU verifies what was drafted one step before. A step takes
# $\max\{T_{target},
# T_{draft}\}$, and the paper sets the budget to $c = T_{target} / T_{draft}$ tokens, so that
# neither waits. Is that the best budget, and how sharp is it?

# %%
import pandas as pd

import simulator

# %%
slow = simulator.study("budget", "duodecoding_llama_2_7b_a800_figure_1")
slow.picture()

# %% [markdown]
# Law, replay and simulation of each budget. *Verified* counts tokens that the target has seen;
# *emitted* counts like the released program, which also reports tokens that nobody has checked when
# it stops.
#
# Below c every further token is free, beyond it costs its own time: the optimum has one steep side.
# The law says how steep.

# %%
(study,) = slow.studies
points = (
    slow.to_frame().drop_duplicates("gamma").set_index("gamma")[["draft_ms", "step_ms"]].round(2)
)
points

# %% [markdown]
# ## Against drafting on the same GPU

# %%
runs = {
    name: simulator.run(name) for name in ("duodecoding_llama_2_7b_a800", "vanilla_llama_2_7b_a800")
}
pd.DataFrame(
    {
        name: {
            "ms per token": result.simulated.tpot_s * 1e3,
            "times plain decoding": result.speedup,
            "first token (ms)": result.simulated.ttft_s * 1e3,
        }
        for name, result in runs.items()
    }
).round(2)

# %%
c = int(study.cost_coefficient)
assert points.step_ms[c] < points.step_ms[c + 1], "one token beyond c makes the step longer"
axes = points.plot(marker="o", ms=3, figsize=(7, 3.4), xlabel="budget, tokens", ylabel="ms")
line = axes.axvline(study.cost_coefficient, color="grey", ls="--")
