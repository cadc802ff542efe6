"""Compute speedups with their intervals, decide regressions, and say when to stop measuring."""
