"""Strategy: write outside of every allocation.

Family: resources and exits.
Surface: the CUDA context. Source: own; a kernel with a wrong index.
Caught by: it costs one runner and one verdict.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

NEEDS = "cuda"
EXPECT_ANY = (
    ("runtime_error", "program.raised"),
    ("runtime_error", "runner.died"),
    ("compile_error", "program.import"),
)

SOURCE = """
#include <torch/extension.h>
__global__ void kernel(float *x) { x[(1ll << 40) + threadIdx.x] = 1.0f; }
void touch(torch::Tensor x) { kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""
EXTENSION = load_inline(
    "illegal_address",
    cpp_sources="void touch(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["touch"],
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        EXTENSION.touch(x)
        torch.cuda.synchronize()
        return x
