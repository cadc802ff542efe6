"""Optimize a whole repository for hours at a time: choose the next target, keep what is known.

    order    which targets come first: new ones, changed ones, then the oldest; the dearest first
    memory   what became of a target when it was done, and its entry without measuring again
    loop     one sweep: what is known from the archive, the rest by the pipeline within a budget

A sweep is a scan that remembers where it was: its report has every target each time, and only what
is not known takes time. One machine and one device.
"""
