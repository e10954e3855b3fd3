# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Mirror-SD: the law, and where it ends
#
# **Up to which window does drafting cost Mirror-SD nothing, and what does its one-line law leave
# out?**
#
# Mirror-SD (Eq. 10) drafts while the target runs its upper layers. A step then takes
#
# $$T = T_{prefix} + rv_{ee} + \max\{\Delta, T_{draft}\} + rv_{fv}, \qquad \Delta = T_{suffix}$$
#
# As long as $T_{draft} \le \Delta$ a longer window costs nothing: the zero-slope region. Here the
# law stands beside a simulation that replays which draft tokens real models kept, and we look for
# the places where the two part.

# %%
import pandas as pd

import simulator

# %% [markdown]
# ## Round numbers first
#
# No hardware: a pass of 36 ms, an exit at half depth, a draft of 12 ms for its window. Every draft
# token is accepted four times of five.

# %%
law = simulator.law("durations_only")
law.to_frame().round(3)

# %% [markdown]
# There are two kinds of step. In the second the early exit's candidates did not hold the token that
# the target chose, so the window has to be written again with nothing to hide behind. The law is
# the mean over both.

# %%
result = simulator.run("durations_only")
pd.Series(
    {
        "law, ms per token": result.law.tpot_s * 1e3,
        "simulation, ms per token": result.simulated.tpot_s * 1e3,
        "windows lost, per step": result.simulated.fallback_per_step,
        "times autoregressive": result.speedup,
    }
).round(3)

# %% [markdown]
# ## On hardware
#
# Qwen3-32B on eight M2 Ultra GPUs with the draft on the Neural Engines. The step is flat up to the
# window at which drafting fills $\Delta$, then it climbs with every token.

# %%
mirror = simulator.run("mirror_qwen3_32b_m2_ultra")
mirror.picture("window_sweep")

# %% [markdown]
# ## Where it ends
#
# Three things the one-line formula does not say. A lost window is drafted in full view; fewer
# candidates ($\kappa$) make the draft's passes narrower and losses more frequent; and the two
# devices share a memory, so that each slows the other down.

# %%
rows = []
for kappa in (1, 2, 4, 8):
    changed = simulator.run("mirror_qwen3_32b_m2_ultra", {"strategy.kappa": kappa})
    rows.append(
        {
            "kappa": kappa,
            "windows lost": changed.simulated.fallback_per_step,
            "step, law (ms)": changed.law.step_s * 1e3,
            "step, simulation (ms)": changed.simulated.step_s * 1e3,
            "times autoregressive": changed.speedup,
        }
    )
table = pd.DataFrame(rows).set_index("kappa").round(3)
assert table["windows lost"].is_monotonic_decreasing, "more candidates, fewer lost windows"
table

# %%
steps = ["step, law (ms)", "step, simulation (ms)"]
axes = table[[*steps, "windows lost"]].plot(
    subplots=[steps], marker="o", figsize=(7, 4.6), xlabel="candidates kappa"
)
