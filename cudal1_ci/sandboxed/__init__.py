"""Run programs beyond the process wall: verifier, runners, tracer. The only torch of the product.

`processes` starts this package. The host never imports it except `wire`, the messages that both
sides exchange. It needs only the standard library and torch. None of the tool's own dependencies
must be installed with the user's code, so the folder is loaded as its own package
(`cudal1_sandboxed`).

    verifier  owns seeds, inputs, expected outputs, tolerances and the clock that counts
    template  a warm process (torch imported, nothing run) from which runners are forked
    runner    loads one program, takes tensors, returns tensors; does not know which program it is
"""
