"""MineDraft (arXiv 2603.18016): the draft writes for one half of a batch while the target verifies
the other.
"""
