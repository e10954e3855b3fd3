"""Fleets whose prefill and decode are apart: pools of replicas, and what goes between them."""
