"""The lazy batch: steps at the same cost for any batch, and what it keeps of them."""
