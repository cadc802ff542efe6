"""harvardnlp/annotated-transformer: attention() and MultiHeadedAttention, in a separate function."""

import torch
import torch.nn as nn


def attention(query, key, value, mask=None, dropout=None):
    keep = None if mask is None else mask != 0
    p = dropout.p if dropout is not None and dropout.training else 0.0
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=keep, dropout_p=p
    )


class ModelNew(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.d_k = d_model // h
        self.h = h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
        self.dropout = nn.Dropout(p=0.1)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x = attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


def get_inputs():
    x = torch.randn(2, 256, 128)
    return [x, torch.randn(2, 256, 128), torch.randn(2, 256, 128), torch.ones(2, 256, 256).tril()]


def get_init_inputs():
    return [8, 128]
