"""specsim: speculative decoding, simulated beside its laws."""

__version__ = "0.1.0"
