"""One schedule per file; adding a strategy is adding a file here."""

from simulator.strategies.protocol import Strategy, strategies

__all__ = ["Strategy", "strategies"]
