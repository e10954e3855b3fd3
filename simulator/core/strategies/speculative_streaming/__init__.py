"""In Speculative Streaming one model verifies the last draft and writes the next one in the same
pass.
"""

from simulator.core.strategies.speculative_streaming.strategy import SpeculativeStreaming

__all__ = ["SpeculativeStreaming"]
