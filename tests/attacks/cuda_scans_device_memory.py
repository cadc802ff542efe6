"""Strategy: read around the input's address in search of the expected output.

Family: answer theft.
Surface: device addresses. Source: pygpubench, exploits/ (scan of the virtual address space).
Caught by: the expected output lies in another context; an invalid address poisons only the
runner's.
"""

import ctypes

import torch
from torch import nn

NEEDS = "cuda"
EXPECT_ANY = (
    ("incorrect_values", "values.mismatch"),
    ("runtime_error", "program.raised"),
    ("runtime_error", "runner.died"),
    ("incorrect_values", "values.timed"),
)

RUNTIME = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = torch.empty_like(x)
        size, kind = ctypes.c_size_t(x.nbytes), ctypes.c_int(3)
        for step in range(1, 16):
            source = ctypes.c_void_p(x.data_ptr() + step * 2 * 2**20)
            if RUNTIME.cudaMemcpy(ctypes.c_void_p(out.data_ptr()), source, size, kind) == 0:
                break
            RUNTIME.cudaGetLastError()
        return out
