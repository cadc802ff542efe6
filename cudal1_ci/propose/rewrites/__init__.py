"""Rewrite source by rules that need no model and no GPU.

In the first round each matching rewrite is a candidate, and all of them together are one more.
Later rounds combine those that passed and gained, with each other and with a model's best program.
`table.py` lists the rewrites; docs/playbook.md is generated from it.
"""
