"""georgeyiasemis/Recurrent-Neural-Networks-from-scratch-using-PyTorch rnnmodels.py: GRUCell in a time loop."""

import torch
import torch.nn as nn


class GRUCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.x2h = nn.Linear(input_size, 3 * hidden_size)
        self.h2h = nn.Linear(hidden_size, 3 * hidden_size)

    def forward(self, x, hx):
        x_t = self.x2h(x)
        h_t = self.h2h(hx)
        x_reset, x_upd, x_new = x_t.chunk(3, 1)
        h_reset, h_upd, h_new = h_t.chunk(3, 1)
        reset_gate = torch.sigmoid(x_reset + h_reset)
        update_gate = torch.sigmoid(x_upd + h_upd)
        new_gate = torch.tanh(x_new + (reset_gate * h_new))
        return update_gate * hx + (1 - update_gate) * new_gate


class Model(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.cell = GRUCell(input_size, hidden_size)
        self.fc = nn.Linear(hidden_size, output_size)

    def forward(self, inputs):
        hidden = torch.zeros(inputs.size(0), self.hidden_size, device=inputs.device)
        outs = []
        for t in range(inputs.size(1)):
            hidden = self.cell(inputs[:, t], hidden)
            outs.append(hidden)
        return self.fc(outs[-1])


def get_inputs():
    return [torch.randn(16, 40, 32)]


def get_init_inputs():
    return [32, 64, 10]
