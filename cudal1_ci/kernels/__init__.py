"""Hold the files that a proposal may bring along: CUDA graphs, compilation, memory format.

Each module imports torch and triton alone and reads well by itself, so that a proposal can add it
to a user's repository as one file. Nothing here imports the rest of the package.
"""
