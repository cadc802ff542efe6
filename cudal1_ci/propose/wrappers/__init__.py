"""Wrap programs and parts of them: torch.compile, CUDA graphs, memory format, cuDNN's choices.

The reference is wrapped first. Then faster programs, by a rule or by a model, are wrapped in turn.
Fewer kernels are one gain, and one launch for all of them is another; the second gain is far
larger. Programs and wrappers are ranked by their gain on this very problem, so that a few
candidates are enough. Parts that are worth compiling by themselves are found in a recorded call.
"""
