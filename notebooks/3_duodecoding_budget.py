# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # DuoDecoding: how many tokens should a draft on the CPU write?
#
# The draft runs on the CPU while the GPU verifies what was drafted one step before. A step takes $\max\{T_{target},
# T_{draft}\}$, and the paper sets the budget to $c = T_{target} / T_{draft}$ tokens, so that neither waits. Is that the
# best budget, and how sharp is it?

# %%
import pandas as pd
from IPython.display import SVG

from simulator.report.pages.budget import budget_figure
from simulator.scenario.run import run
from simulator.scenario import load
from simulator.studies.budget import budget_study, coefficient

# %%
slow, quick = load("duodecoding_llama_2_7b_a800_figure_1"), load("duodecoding_llama_2_7b_a800")
{name: round(coefficient(one), 2) for name, one in {"slow CPU": slow, "quick CPU": quick}.items()}

# %% [markdown]
# ## Every budget
#
# Law, replay and simulation of each. *Verified* counts tokens that the target has seen; *emitted* counts like the
# released program, which also reports those that nobody has checked when it stops.

# %%
study = budget_study(slow)
SVG(budget_figure([study]))

# %% [markdown]
# Below c every token more is free, beyond it costs its own time: the optimum has one steep side. The law says how
# steep.

# %%
columns = ["gamma", "draft_ms", "step_ms"]
points = pd.DataFrame([{name: getattr(point, name) for name in columns} for point in study.points]).set_index("gamma").round(2)
points

# %% [markdown]
# ## Against drafting on the same GPU

# %%
pd.DataFrame(
    {
        name: {
            "ms per token": one.simulated.tpot_s * 1e3,
            "times plain decoding": one.speedup,
            "first token (ms)": one.simulated.ttft_s * 1e3,
        }
        for name in ("duodecoding_llama_2_7b_a800", "vanilla_llama_2_7b_a800")
        for one in [run(load(name))]
    }
).round(2)

# %%
c = int(coefficient(slow))
assert points.step_ms[c] < points.step_ms[c + 1], "one token beyond c makes the step longer"
