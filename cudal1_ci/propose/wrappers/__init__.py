"""Wrap whole programs: torch.compile, CUDA graphs, memory format, cuDNN's choice of algorithms.

First the reference is wrapped. What was faster, by a rule or by a model, is then wrapped in turn:
fewer kernels and one launch for all of them are two gains, and the first is small next to the
launches that the second takes away. Programs and wrappers are ranked by what they gained on this
very problem, so that a few candidates are enough.
"""
