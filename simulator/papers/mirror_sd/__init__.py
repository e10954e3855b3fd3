"""In Mirror-SD (mirror_sd) the draft works on the next window while the target ends this one."""

from simulator.papers.mirror_sd.laws import batching_rule, exposed_draft, relative_overhead
from simulator.papers.mirror_sd.strategy import MirrorSD

__all__ = ["MirrorSD", "batching_rule", "exposed_draft", "relative_overhead"]
