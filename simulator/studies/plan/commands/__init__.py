"""Commands that serve the answer of a plan, for the programs that know them."""
