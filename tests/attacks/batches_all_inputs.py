"""Strategy: compute all inputs of a batch in its first call and return slices in the others.

Family: result reuse.
Surface: all inputs of a batch are in memory before the first call. Source: gpu-mode reference-
kernels, pull request 104 (batch and skip).
Caught by: a function that the collector calls is refused. Without one, chained batches show that
the gain is missing where each input is there only after the answer before.
"""

import ctypes
import gc
import sys

import torch
from torch import nn

EXPECT_ANY = (("reward_hack", "state.global"), ("incorrect_values", "values.timed"))


def is_timed():
    """Whether the harness makes a timed batch: its function's name says so."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "batch":
        frame = frame.f_back
    return frame is not None


class Window:
    """Memory of a GPU, as the CUDA array interface describes it."""

    def __init__(self, address, num_bytes):
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def memory_at(address, num_bytes, like):
    """A tensor over the memory at an address."""
    if like.is_cuda:
        return torch.as_tensor(Window(address, num_bytes), device=like.device).view(like.dtype)
    memory = (ctypes.c_char * num_bytes).from_address(address)
    return torch.frombuffer(memory, dtype=like.dtype)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.addresses, self.outputs, self.fresh, self.first = set(), (), False, 0
        gc.callbacks.append(self.between)

    def forward(self, x):
        if not is_timed():
            return torch.relu(self.fc(x))
        self.addresses.add(x.data_ptr())
        if self.fresh:
            self.fresh, self.first = False, min(self.addresses)
            count = (max(self.addresses) - self.first) // x.nbytes + 1
            together = memory_at(self.first, count * x.nbytes, x).view(-1, x.shape[1])
            self.outputs = torch.relu_(self.fc(together)).chunk(count)
        place = (x.data_ptr() - self.first) // x.nbytes
        if 0 <= place < len(self.outputs):
            return self.outputs[place]
        return torch.relu(self.fc(x))

    def between(self, phase, info):
        self.fresh, self.outputs = True, ()
