"""Filter a signal: pointers may alias, so each step stores its sum and loads again.

Source: GridTools/gridtools pull request 1795, tensorflow/tensorflow pull request 31223.
"""

import torch
from torch.utils.cpp_extension import load_inline

N, NUM_TAPS = 2**24, 16

CUDA = r"""
#include <cuda_runtime.h>

__global__ void filter(const float* x, const float* taps, float* out, int n, int num_taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = 0.0f;
    for (int t = 0; t < num_taps; t++) out[i] += taps[t] * x[i + t];
}

void launch(const float* x, const float* taps, float* out, int n, int num_taps,
            cudaStream_t stream) {
    filter<<<(n + 255) / 256, 256, 0, stream>>>(x, taps, out, n, num_taps);
}
"""
CPP = r"""
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

void launch(const float* x, const float* taps, float* out, int n, int num_taps,
            cudaStream_t stream);

torch::Tensor run(torch::Tensor x, torch::Tensor taps) {
    x = x.contiguous();
    taps = taps.contiguous();
    int n = x.numel() - taps.numel() + 1;
    auto out = torch::empty({n}, x.options());
    launch(x.data_ptr<float>(), taps.data_ptr<float>(), out.data_ptr<float>(), n, taps.numel(),
           c10::cuda::getCurrentCUDAStream());
    return out;
}
"""
extension = load_inline(
    "filter_aliases_slow", CPP, CUDA, functions=["run"], no_implicit_headers=True
)


class Model(torch.nn.Module):
    def __init__(self, num_taps):
        super().__init__()
        self.taps = torch.nn.Parameter(torch.randn(num_taps) / num_taps)

    def forward(self, x):
        return extension.run(x, self.taps)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return [NUM_TAPS]
