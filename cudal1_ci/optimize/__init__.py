"""Optimize targets: propose, verify and record candidates, for one target or many."""
