"""Decoding on this machine, held against its prediction (extra ``record``)."""
