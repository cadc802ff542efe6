"""Read Python and CUDA text. Runs nothing."""
