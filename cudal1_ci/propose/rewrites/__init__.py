"""Rewrite source by rules that need no model and no GPU.

In the first round each rewrite that matches is a candidate of its own, and all of them together are
one more; in later rounds those that passed and gained are combined, with each other and with the
best program that a model wrote. `table.py` lists the rewrites; docs/playbook.md is generated from
it.
"""
