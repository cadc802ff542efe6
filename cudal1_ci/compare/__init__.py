"""Compare base with head: the same workloads on both trees, alarms measured again.

    pairs       which targets there are to compare, and as what programs
    loop        measures them, alarms again in new processes, within a budget
    helpers     which ran in calls that were measured, and have none of their own
    renamed     which of them had another name or place
    messages    why a target has no times, for the author of a change
    agreements  slowdowns that somebody has agreed to

What times are worth is slowdown.py's; where trees come from is github/trees.py's.
"""
