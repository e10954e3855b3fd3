# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Planning a service
#
# **How many machines of which kind carry a chat service within its limits, and for how much?**
#
# Chat with Qwen3-32B, so many requests a second, a first token within 1.5 s and 50 ms for each one
# after it, for nine requests of ten. Which strategy on how many A100? The plan file holds the
# question; here with fewer requests than the shipped one, so that a cell takes seconds.

# %%
import simulator

plan = simulator.plan("chat_qwen3_32b", {"scenario.requests.count": 60}, draws=3)
plan

# %% [markdown]
# ## The search
#
# Fleets are examined from the cheapest on. A fleet is ruled out without a simulation only where a
# bound proves that it must miss a limit, so the answer is that of simulating all of them.

# %%
columns = ["replicas", "cost_usd_per_hour", "kept", "ruled_out_by", "missed", "tpot_ms"]
fleets = plan.to_frame().set_index("candidate")[columns]
fleets.head(20)

# %%
best = plan.chosen
print(f"{best.replicas} x {best.candidate.name}: {best.cost_usd_per_hour:.2f} USD an hour")

# %% [markdown]
# ## What if twice as many came?

# %%
changes = {"scenario.requests.count": 60, "scenario.requests.arrivals.rate_per_s": 12}
busier = simulator.plan("chat_qwen3_32b", changes, draws=3).chosen
assert busier.cost_usd_per_hour >= best.cost_usd_per_hour
print(f"{busier.replicas} x {busier.candidate.name}: {busier.cost_usd_per_hour:.2f} USD an hour")

# %% [markdown]
# `plan.save("plan")` writes the whole report, which stress-tests the answer: capacity, sensitivity
# to acceptance and links, the chance that the SLO is met, break-evens, and the line for vLLM that
# serves it.

# %%
plan.picture()
