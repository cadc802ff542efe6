"""Hold tensors in memory that the verifier and a runner share, on the CPU or one GPU."""
