"""mistralai/mistral-inference: keys and values repeated by repeat_interleave, then softmax in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.repeats = n_heads // n_kv_heads
        self.head_dim = dim // n_heads
        self.scale = self.head_dim**-0.5
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)

    def forward(self, x, mask=None):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        key = torch.repeat_interleave(xk, repeats=self.repeats, dim=2)
        value = torch.repeat_interleave(xv, repeats=self.repeats, dim=2)
        query = xq.transpose(1, 2)
        key = key.transpose(1, 2)
        value = value.transpose(1, 2)
        scores = torch.matmul(query, key.transpose(2, 3)) * self.scale
        if mask is not None:
            scores += mask[None, None, ...]
        scores = nn.functional.softmax(scores.float(), dim=-1).type_as(query)
        output = torch.matmul(scores, value)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)


def get_inputs():
    return [torch.randn(2, 256, 128), torch.full((256, 256), -1e9).triu(1)]


def get_init_inputs():
    return [128, 8, 2]
