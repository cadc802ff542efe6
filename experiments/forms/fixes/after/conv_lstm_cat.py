"""ndrplz/ConvLSTM_pytorch convlstm.py: a convolution of input and state, joined by cat at each step."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, input_dim, hidden_dim):
        super().__init__()
        self.input_dim = input_dim
        self.hidden_dim = hidden_dim
        self.conv = nn.Conv2d(input_dim + hidden_dim, 4 * hidden_dim, 3, padding=1)

    def forward(self, x):
        b, steps, _, height, width = x.size()
        h = torch.zeros(b, self.hidden_dim, height, width, device=x.device)
        c = torch.zeros(b, self.hidden_dim, height, width, device=x.device)
        output = []
        on_input, on_state = self.conv.weight.split((self.input_dim, self.hidden_dim), dim=1)
        inputs = nn.functional.conv2d(x.flatten(0, 1), on_input, self.conv.bias, padding=1)
        for of_input in inputs.unflatten(0, (b, steps)).unbind(1):
            combined_conv = of_input + nn.functional.conv2d(h, on_state, padding=1)
            cc_i, cc_f, cc_o, cc_g = torch.split(combined_conv, self.hidden_dim, dim=1)
            c = torch.sigmoid(cc_f) * c + torch.sigmoid(cc_i) * torch.tanh(cc_g)
            h = torch.sigmoid(cc_o) * torch.tanh(c)
            output.append(h)
        return torch.stack(output, dim=1)


def get_inputs():
    return [torch.randn(1, 16, 32, 8, 8)]


def get_init_inputs():
    return [32, 8]
