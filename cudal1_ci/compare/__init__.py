"""Compare base and head: the same workloads on both trees of a change, through the verifier.

    pairs       which targets there are to compare, and as what programs
    loop        measures them, alarms again in new processes, within a budget
    agreements  slowdowns that somebody has agreed to

What times are worth is slowdown.py's; where trees come from is github/trees.py's.
"""
