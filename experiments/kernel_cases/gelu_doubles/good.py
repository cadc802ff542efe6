"""Apply GELU in a kernel for floats, in floats.

Source: ccsb-scripps/AutoDock-GPU pull request 123, acts-project/detray pull request 845.
"""

import torch
from torch.utils.cpp_extension import load_inline

N = 2**24

CUDA = r"""
#include <cuda_runtime.h>

__global__ void gelu(const float* __restrict__ x, float* __restrict__ out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    out[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

void launch(const float* x, float* out, int n, cudaStream_t stream) {
    gelu<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n);
}
"""
CPP = r"""
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

void launch(const float* x, float* out, int n, cudaStream_t stream);

torch::Tensor run(torch::Tensor x) {
    x = x.contiguous();
    auto out = torch::empty_like(x);
    launch(x.data_ptr<float>(), out.data_ptr<float>(), x.numel(),
           c10::cuda::getCurrentCUDAStream());
    return out;
}
"""
extension = load_inline("gelu_doubles_good", CPP, CUDA, functions=["run"], no_implicit_headers=True)


class Model(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
