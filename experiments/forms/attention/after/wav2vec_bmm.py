"""fairseq/modules/multihead_attention.py: time first, bmm of 3-D tensors, key padding mask."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key_padding_mask):
        tgt_len, bsz, embed_dim = query.size()
        q = self.q_proj(query)
        k = self.k_proj(query)
        v = self.v_proj(query)
        q = q.view(tgt_len, bsz, self.num_heads, self.head_dim).permute(1, 2, 0, 3)
        k = k.view(-1, bsz, self.num_heads, self.head_dim).permute(1, 2, 0, 3)
        v = v.view(-1, bsz, self.num_heads, self.head_dim).permute(1, 2, 0, 3)
        keep = None
        if key_padding_mask is not None:
            keep = ~key_padding_mask.unsqueeze(1).unsqueeze(2).to(torch.bool)
        attn = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        attn = attn.permute(2, 0, 1, 3).reshape(tgt_len, bsz, embed_dim)
        return self.out_proj(attn)


def get_inputs():
    lengths = torch.randint(150, 201, (2,))
    return [torch.randn(200, 2, 128), torch.arange(200)[None, :] >= lengths[:, None]]


def get_init_inputs():
    return [128, 8]
