"""Run programs beyond the process wall: verifier, runners, tracer. The only torch of the product.

Started by `processes`, never imported by the host but for `wire`, the messages that both sides
exchange. Needs the standard library and torch, nothing else: none of the tool's own dependencies
has to be installed beside the user's code, so the folder is loaded as a package of its own
(`cudal1_sandboxed`).

    judge     owns seeds, inputs, expected outputs, tolerances and the clock that counts
    template  a warm process (torch imported, nothing run) from which runners are forked
    runner    loads one program, is given tensors, returns tensors; is not told which program it is
"""
