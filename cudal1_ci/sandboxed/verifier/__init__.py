"""Decide whether a candidate computes what the reference computes: inputs, oracle, comparison."""
