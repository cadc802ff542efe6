"""Starts, limits and kills workers. Knows processes, nothing of what they compute.

One implementation, `local.Worker`, for workers on this machine. The seam is what trial uses of it:
`ask(request, timeout_s) -> reply` inside of a `with`.
"""
