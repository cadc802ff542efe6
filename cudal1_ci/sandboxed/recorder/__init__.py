"""Watch the operations of one call of a program, as torch dispatches them.

operations  what an operation does to the precision of its result
rounding    a mode that rounds each result up or down at random
"""
