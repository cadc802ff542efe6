"""Write loops in Python: over columns, chunks and experts, and along time."""

from __future__ import annotations

from model_training.tasks.draft import Draft

# --- loops ---------------------------------------------------------------------------------------


def parts_of(d: Draft) -> str:
    """Add a number of parts, which divides the width."""
    parts = min(d.rng.choice((4, 8, 16)), d.scale.max_loop)
    name = d.parameter(d.size("parts", parts))
    d.init(f"self.parts = {name}")
    return name


def chunks_of_rows(d: Draft) -> None:
    parts = parts_of(d)
    act = d.choice(
        "torch.tanh(part) * 2.0", "torch.relu(part) + part", "part * torch.sigmoid(part)"
    )
    d.forward(
        "rows = []",
        "for part in torch.chunk(x, self.parts, dim=0):",
        f"    rows.append({act})",
        "x = torch.cat(rows, dim=0)",
    )
    del parts


def heads_one_by_one(d: Draft) -> None:
    width, parts = d.parameter(d.dims[1]), parts_of(d)
    weights = d.module(
        "weights", f"nn.Parameter(torch.randn({parts}, {width} // {parts}, {width} // {parts}))"
    )
    d.forward(
        "outputs = []",
        "for i, part in enumerate(x.chunk(self.parts, dim=1)):",
        f"    outputs.append(part @ {weights}[i])",
        "x = torch.cat(outputs, dim=1) / x.shape[1]",
    )


def list_of_layers_on_one_input(d: Draft) -> None:
    width, parts = d.parameter(d.dims[1]), parts_of(d)
    layers = d.module(
        "layers", f"nn.ModuleList([nn.Linear({width}, {width}) for _ in range({parts})])"
    )
    d.forward(f"x = torch.stack([layer(x) for layer in {layers}], dim=0).mean(dim=0)")


def sums_of_shifts(d: Draft) -> None:
    parts_of(d)
    d.forward(
        "total = torch.zeros_like(x)",
        "for i in range(self.parts):",
        "    total = total + torch.roll(x, shifts=i, dims=1)",
        "x = total / self.parts",
    )


def experts_in_turn(d: Draft) -> None:
    width, parts = d.parameter(d.dims[1]), parts_of(d)
    experts = d.module("experts", f"nn.Parameter(torch.randn({parts}, {width}))")
    router = d.module("router", f"nn.Linear({width}, {parts})")
    d.forward(
        f"shares = torch.softmax({router}(x), dim=1)",
        "mixed = torch.zeros_like(x)",
        "for i in range(self.parts):",
        f"    mixed = mixed + shares[:, i : i + 1] * (x * {experts}[i])",
        "x = mixed",
    )


LOOP = {
    "chunks of rows one by one": chunks_of_rows,
    "heads one by one": heads_one_by_one,
    "layers on one input, averaged": list_of_layers_on_one_input,
    "a sum of shifts": sums_of_shifts,
    "experts in turn": experts_in_turn,
}

# --- recurrences ---------------------------------------------------------------------------------


def running_mean(d: Draft) -> None:
    d.forward(
        "state = torch.zeros_like(x[:, 0])",
        "states = []",
        "for t in range(x.shape[1]):",
        "    state = 0.9 * state + 0.1 * x[:, t]",
        "    states.append(state)",
        "x = torch.stack(states, dim=1)",
    )


def prefix_sums(d: Draft) -> None:
    d.forward(
        "total = torch.zeros_like(x[:, 0])",
        "sums = []",
        "for t in range(x.shape[1]):",
        "    total = total + x[:, t]",
        "    sums.append(total / (t + 1))",
        "x = torch.stack(sums, dim=1)",
    )


def prefix_maxima(d: Draft) -> None:
    d.forward(
        "best = x[:, 0]",
        "maxima = [best]",
        "for t in range(1, x.shape[1]):",
        "    best = torch.maximum(best, x[:, t])",
        "    maxima.append(best)",
        "x = torch.stack(maxima, dim=1)",
    )


def projections_in_the_loop(d: Draft) -> None:
    width = d.parameter(d.dims[2])
    project = d.module("project", f"nn.Linear({width}, {width})")
    d.forward(
        "state = torch.zeros_like(x[:, 0])",
        "for t in range(x.shape[1]):",
        f"    state = torch.tanh({project}(x[:, t]) + state)",
        "x = state",
    )
    d.dims = (d.dims[0], d.dims[2])


def gates_in_the_loop(d: Draft) -> None:
    width = d.parameter(d.dims[2])
    forget = d.module("forget", f"nn.Linear({width}, {width})")
    update = d.module("update", f"nn.Linear({width}, {width})")
    d.forward(
        "state = torch.zeros_like(x[:, 0])",
        "states = []",
        "for t in range(x.shape[1]):",
        f"    gate = torch.sigmoid({forget}(x[:, t]))",
        f"    state = gate * state + (1 - gate) * torch.tanh({update}(x[:, t]))",
        "    states.append(state)",
        "x = torch.stack(states, dim=1)",
    )


def differences_along_time(d: Draft) -> None:
    d.forward(
        "steps = [x[:, 0]]",
        "for t in range(1, x.shape[1]):",
        "    steps.append(x[:, t] - x[:, t - 1])",
        "x = torch.stack(steps, dim=1)",
    )


RECURRENCE = {
    "a running mean": running_mean,
    "means of prefixes": prefix_sums,
    "maxima of prefixes": prefix_maxima,
    "a recurrence with a projection in its loop": projections_in_the_loop,
    "a gated recurrence": gates_in_the_loop,
    "differences along time": differences_along_time,
}
