"""A common form, no one source: nodes of all graphs are split by graph and padded for attention."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, nodes, num_nodes):
        counts = num_nodes.tolist()
        parts = torch.split(nodes, counts, dim=0)
        dense = torch.zeros(
            (len(counts), max(counts), nodes.size(-1)), dtype=nodes.dtype, device=nodes.device
        )
        key_padding_mask = torch.ones(
            (len(counts), max(counts)), dtype=torch.bool, device=nodes.device
        )
        for idx, (part, length) in enumerate(zip(parts, counts)):
            dense[idx, :length] = part
            key_padding_mask[idx, :length] = False
        return dense, key_padding_mask


def get_inputs():
    num_nodes = torch.arange(48) * 5 % 23 + 2
    return [torch.randn(int(num_nodes.sum()), 24), num_nodes]


def get_init_inputs():
    return []
