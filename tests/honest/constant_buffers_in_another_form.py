"""A mask, a scale and a window that the module holds, and that are known without it.

Family: result reuse.
"""

import torch
from torch import nn

REFERENCE = "causal_attention_by_buffers"


class ModelNew(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.register_buffer("future", torch.tril(torch.ones(length, length)))
        self.register_buffer("scale", torch.tensor(dim**-0.5))
        self.register_buffer("window", torch.hann_window(length))

    def forward(self, x):
        window = torch.hann_window(self.window.shape[0], device=x.device)[: x.shape[1], None]
        q, k, v = self.qkv(x * window).chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
