# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Planning a service
#
# Chat with Qwen3-32B, so many requests a second, a first token within 1.5 s and 50 ms for each one after it, for nine
# requests of ten. Which strategy on how many A100? The plan file holds the question; here with fewer requests than the
# shipped one, so that a cell takes seconds.

# %%
import pandas as pd

from simulator.studies.plan.search import Finding, search
from simulator.studies.plan.file import load_plan

plan = load_plan("chat_qwen3_32b", ("scenario.requests.count=120",))
pd.DataFrame(
    [
        {"candidate": one.name, "devices of a replica": sum(one.devices.values()), "USD per hour": one.price_usd_per_hour}
        for one in plan.candidates
    ]
).set_index("candidate").round(2)

# %% [markdown]
# ## The search
#
# Fleets are looked at from the cheapest on. One is ruled out without a simulation only where a bound proves that it
# must miss a limit, so the answer is that of simulating them all.

# %%
found = search(plan)


def verdict(one: Finding) -> str:
    if one.kept:
        return "keeps the SLO"
    return f"misses {one.missed.metric.upper()}" + (" (by a bound)" if one.bound else "")


rows = [(f"{one.replicas} x {one.candidate.name}", one.cost_usd_per_hour, verdict(one)) for one in found.findings]
pd.DataFrame(rows, columns=["fleet", "USD per hour", "verdict"]).set_index("fleet").round(2).head(20)

# %%
best = found.best
print(f"{best.replicas} x {best.candidate.name}: {best.cost_usd_per_hour:.2f} USD an hour")

# %% [markdown]
# ## What if twice as many came?

# %%
twice = load_plan("chat_qwen3_32b", ("scenario.requests.count=120", "scenario.requests.arrivals.rate_per_s=12"))
busier = search(twice).best
print(f"{busier.replicas} x {busier.candidate.name}: {busier.cost_usd_per_hour:.2f} USD an hour")

# %% [markdown]
# `specsim plan chat_qwen3_32b` presses the answer further: capacity, sensitivity to acceptance and links, the chance
# that the SLO is kept, break-evens, and the line for vLLM that serves it.

# %%
assert busier.cost_usd_per_hour >= best.cost_usd_per_hour
