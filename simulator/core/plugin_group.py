"""How strategies and policies of other packages announce themselves."""

STRATEGIES = "specsim.strategies"
"""Group of entry points: each is called like its strategy, and names the class of it."""
POLICIES = "specsim.policies"
"""Group of entry points: each is called like its scheduling policy, and names the class of it."""
