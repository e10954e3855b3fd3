# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # SpecPipe: how wide a tree, and the price of a miss
#
# **How wide a draft tree should feed a pipeline, and what does a token outside it cost?**
#
# A target cut into m stages works on m levels of a draft tree at a time. While the next token is in
# the tree, a token leaves every step; a token outside it empties the pipeline. Eq. (1) of the
# paper,
#
# $$E(T) = \max_i t_i(w) + (1 - P(w)) \sum_i t_i(w),$$
#
# trades the two against each other: a wider tree misses less, and each of its levels takes longer.

# %%
import numpy as np
import pandas as pd

import simulator
from simulator import break_even, unequal_stages

# %% [markdown]
# ## The equation alone
#
# Eight equal stages of 5 ms. Without a tree a token takes 40 ms. The table says what a hit rate is
# worth, and from which on the tree pays.

# %%
hits = np.array([0.0, 0.5, 0.8, 0.9, 0.95, 1.0])
stages = np.full((8, 1), 5.0)
pd.DataFrame(
    {"P": hits, "E(T), ms": unequal_stages(stages, hits), "plain pipeline, ms": 40.0}
).set_index("P").round(2)

# %%
print(
    f"a level of w tokens as quick as one token pays from P = {break_even(5.0, 5.0, 8):.3f} on, a "
    f"level of twice the time from P = {break_even(5.0, 10.0, 8):.3f} on"
)

# %% [markdown]
# ## Trees that were recorded
#
# P(w) of a real drafter is not a formula. The shipped recording holds how every token of 90 texts
# passes through dynamic trees of width 1 to 128. Llama-3.1-70B on eight RTX 3090:

# %%
trees = simulator.study("trees", "specpipe_llama_3_1_70b_8x3090")
trees.picture()

# %%
(study,) = trees.studies
best = study.best
columns = ["width", "branching", "hit", "printed_ms", "tpot_ms", "steps"]
pd.DataFrame(
    [
        {name: getattr(point, name) for name in columns}
        for point in study.points
        if point.branching == best.branching
    ]
).round(3)

# %% [markdown]
# `printed_ms` is Eq. (1). The replay is slower: a token that *is* in the tree may still come late,
# because pruning left a gap in front of its level (`steps` is above 1 even where nearly every token
# is in the tree). The best width is where a level fills a token tile of the slowest stage; the next
# token beyond it buys another tile.
#
# ## The price of a miss
#
# What a miss does to the devices, in time. Stages and links run as soon as they can; the rows are
# the stages.

# %%
result = simulator.run(
    "specpipe_llama_3_1_70b_two_servers", {"requests.count": 1, "requests.prompt_tokens": 64}
)
pd.Series(
    {
        "law, ms per token": result.law.tpot_s * 1e3,
        "simulation, ms per token": result.simulated.tpot_s * 1e3,
        "times the plain pipeline": result.speedup,
    }
).round(2)

# %%
assert best.width in (16, 32, 64), "the optimum lies between one and two tiles"
assert all(point.tpot_ms >= point.mean_step_ms for point in study.points)
result.picture("timeline")
