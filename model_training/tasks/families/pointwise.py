"""Write work that keeps the shape: activations, normalizations and softmaxes by hand."""

from __future__ import annotations

from collections.abc import Callable

from model_training.tasks.draft import Draft

Step = Callable[[Draft], None]


def written(*lines: str) -> Step:
    """Make a step of statements that need nothing but `x`."""

    def step(d: Draft) -> None:
        d.forward(*lines)

    return step


# --- activations ---------------------------------------------------------------------------------


def gelu_by_its_formula(d: Draft) -> None:
    d.needs("math")
    d.forward(
        "x = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) "
        "* (x + 0.044715 * torch.pow(x, 3.0))))"
    )


def gelu_by_the_error_function(d: Draft) -> None:
    d.needs("math")
    d.forward("x = x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))")


def learned_slope(d: Draft) -> None:
    slope = d.module("slope", f"nn.Parameter(torch.rand({d.parameter(d.dims[-1])}))")
    d.forward(f"x = torch.clamp(x, min=0) + {slope} * torch.clamp(x, max=0)")


def snake(d: Draft) -> None:
    rate = d.module("rate", f"nn.Parameter(torch.rand({d.parameter(d.dims[-1])}) + 0.5)")
    d.forward(f"x = x + (1.0 / {rate}) * torch.pow(torch.sin({rate} * x), 2)")


def polynomial(d: Draft) -> None:
    degree = d.rng.choice((3, 4, 5))
    terms = " + ".join(f"{d.rng.choice((0.5, 0.25, 0.1))} * x**{n}" for n in range(1, degree + 1))
    d.forward("x = torch.tanh(x)", f"x = {terms}")


ACTIVATION: dict[str, Step] = {
    "GELU by its formula": gelu_by_its_formula,
    "GELU by the error function": gelu_by_the_error_function,
    "Mish by hand": written(
        "x = x * torch.tanh(torch.log(1 + torch.exp(-torch.abs(x))) + torch.clamp(x, min=0) * 1.0)"
    ),
    "Swish by hand": written("x = x * (1.0 / (1.0 + torch.exp(-x)))"),
    "a hard swish by hand": written("x = x * torch.clamp(x + 3.0, min=0.0, max=6.0) / 6.0"),
    "ELU with masks": written(
        "positive = (x > 0).to(x.dtype)",
        "x = positive * x + (1 - positive) * (torch.exp(torch.clamp(x, max=0)) - 1)",
    ),
    "a learned slope": learned_slope,
    "a snake": snake,
    "a polynomial": polynomial,
    "a soft shrinkage by hand": written(
        "x = torch.sign(x) * torch.clamp(torch.abs(x) - 0.5, min=0.0)"
    ),
    "a long chain": written(
        "x = torch.sigmoid(x) + torch.tanh(x)",
        "x = x * 2.0",
        "x = x - 0.5",
        "x = torch.relu(x)",
        "x = x / (1.0 + x)",
    ),
}

LEARNED = ("a learned slope", "a snake")
"""With a parameter for each place of the last dimension."""

# --- normalizations ------------------------------------------------------------------------------


def layer_norm_by_hand(d: Draft) -> None:
    width = d.parameter(d.dims[-1])
    gain = d.module("gain", f"nn.Parameter(torch.ones({width}))")
    bias = d.module("bias", f"nn.Parameter(torch.zeros({width}))")
    d.forward(
        "mean = x.mean(dim=-1, keepdim=True)",
        "variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)",
        f"x = {gain} * (x - mean) / torch.sqrt(variance + 1e-5) + {bias}",
    )


def rms_norm_by_hand(d: Draft) -> None:
    gain = d.module("gain", f"nn.Parameter(torch.ones({d.parameter(d.dims[-1])}))")
    d.forward(
        "rms = torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-6)", f"x = {gain} * (x / rms)"
    )


def norm_of_groups(d: Draft) -> None:
    groups = d.parameter(d.size("groups", 4))
    d.init(f"self.groups = {groups}")
    d.forward(
        "shape = x.shape",
        "x = x.reshape(*shape[:-1], self.groups, -1)",
        "x = (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-5)",
        "x = x.reshape(shape)",
    )


def two_norms(d: Draft) -> None:
    width = d.parameter(d.dims[-1])
    first = d.module("first_norm", f"nn.LayerNorm({width}, elementwise_affine=False)")
    second = d.module("second_norm", f"nn.LayerNorm({width})")
    d.forward(f"x = {second}(torch.relu({first}(x)) + x)")


NORMALIZATION: dict[str, Step] = {
    "a layer norm by hand": layer_norm_by_hand,
    "an RMS norm by hand": rms_norm_by_hand,
    "a norm of groups of columns": norm_of_groups,
    "rows of length one": written(
        "x = x / torch.clamp(torch.sqrt(torch.sum(x * x, dim=-1, keepdim=True)), min=1e-6)"
    ),
    "columns standardized": written(
        "center = x.mean(dim=0, keepdim=True)",
        "spread = torch.sqrt(((x - center) ** 2).mean(dim=0, keepdim=True) + 1e-5)",
        "x = (x - center) / spread",
    ),
    "rows scaled to [0, 1]": written(
        "low = x.min(dim=-1, keepdim=True)[0]",
        "high = x.max(dim=-1, keepdim=True)[0]",
        "x = (x - low) / (high - low + 1e-6)",
    ),
    "two norms and a residual": two_norms,
}

# --- softmaxes -----------------------------------------------------------------------------------


def with_a_temperature(d: Draft) -> None:
    log_t = d.module("log_temperature", "nn.Parameter(torch.zeros(()))")
    d.forward(
        f"x = x / torch.exp({log_t})",
        "shifted = torch.exp(x - x.max(dim=-1, keepdim=True)[0])",
        "x = shifted / shifted.sum(dim=-1, keepdim=True)",
    )


def masked(d: Draft) -> None:
    d.input("mask", f"torch.randint(0, 2, ({', '.join(d.dims)}))")
    d.forward(
        "x = x * mask + (1 - mask) * -1e4",
        "shifted = torch.exp(x - torch.max(x, dim=-1, keepdim=True).values)",
        "x = shifted / torch.sum(shifted, dim=-1, keepdim=True)",
    )


SOFTMAX: dict[str, Step] = {
    "softmax by hand": written(
        "shifted = torch.exp(x - x.max(dim=-1, keepdim=True)[0])",
        "x = shifted / shifted.sum(dim=-1, keepdim=True)",
    ),
    "the logarithm of softmax": written("x = torch.log(torch.softmax(x, dim=-1) + 1e-9)"),
    "a log-sum-exp by hand, subtracted": written(
        "high = x.max(dim=-1, keepdim=True)[0]",
        "total = high + torch.log(torch.exp(x - high).sum(dim=-1, keepdim=True))",
        "x = x - total",
    ),
    "softmax with a temperature": with_a_temperature,
    "a masked softmax": masked,
    "entropies of softmax, as a gate": written(
        "p = torch.softmax(x, dim=-1)",
        "entropy = -(p * torch.log(p + 1e-9)).sum(dim=-1, keepdim=True)",
        "x = p * entropy",
    ),
    "softmax twice over": written(
        "x = torch.softmax(x, dim=-1) * torch.softmax(-x, dim=-1) * x.shape[-1]"
    ),
}
