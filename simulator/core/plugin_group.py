"""How strategies of other packages announce themselves."""

GROUP = "specsim.strategies"
"""Group of entry points: each is called like its strategy, and names the class of it."""
