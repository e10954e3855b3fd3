"""What a process keeps of hardware and strategies for further runs."""

from simulator.core.cost.hardware_cost import priced_layers
from simulator.core.serving import step_times


def forget() -> None:
    """Forget it, so that the next run prices everything itself."""
    priced_layers.cache_clear()
    step_times._kept_times.cache_clear()
    step_times._block.cache_clear()
