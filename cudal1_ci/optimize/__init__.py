"""Run the one loop: propose, verify and record candidates, for one target or for many."""
