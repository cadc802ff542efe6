"""A decoder-only text model."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn as nn

from ..layers.attention import CausalSelfAttention
from ..layers.mlp import MLP
from ..layers.norm import RMSNorm
from ..layers.positions import SinusoidalPositions


@dataclass
class TextConfig:
    vocab_size: int = 512
    dim: int = 128
    num_heads: int = 4
    num_layers: int = 2


class TextOutput(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


class Block(nn.Module):
    """Attention and feed-forward network with residuals."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.norm1 = RMSNorm(config.dim)
        self.attn = CausalSelfAttention(config.dim, config.num_heads)
        self.norm2 = RMSNorm(config.dim)
        self.mlp = MLP(config.dim, 4 * config.dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TextModel(nn.Module):
    """Embeddings, blocks, and the logits of the next token."""

    def __init__(self, config: TextConfig):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        self.positions = SinusoidalPositions(config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)

    def forward(self, tokens, *, return_hidden=False):
        x = self.positions(self.embed(tokens))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return TextOutput(self.head(x), x if return_hidden else None)
