"""Rewrite the activations of `families/pointwise.py`."""

from __future__ import annotations

from model_training.variants.rule import Form, Rule

ONE_KERNEL = "The formula is a kernel for each of its operators."


def known(before: str, *forms: tuple[str, str]) -> Rule:
    """Rewrite an activation that has a kernel of its own."""
    return Rule(
        technique="operation fusion",
        why=ONE_KERNEL,
        before=before,
        forms=tuple(Form(text=text, design=design) for text, design in forms),
    )


def polynomial(degree: int) -> Rule:
    letters = list("ABCDE"[:degree])
    nested = letters[-1]
    for one in reversed(letters[:-1]):
        nested = f"{one} + x * {nested}" if nested in letters else f"{one} + x * ({nested})"
    odd = [letters[0], *powers(letters[2::2])]
    return Rule(
        technique="algebra",
        why="Each power is taken from the start by `pow`, and each term is a tensor.",
        before="x = " + " + ".join(f"{one} * x**{n}" for n, one in enumerate(letters, 1)),
        forms=(
            Form(text=f"x = x * ({nested})", design="Horner's scheme: products and sums alone."),
            Form(
                text="square = x * x\n"
                f"x = x * ({' + '.join(odd)}) + ({' + '.join(powers(letters[1::2]))})",
                design="Even and odd powers share the square.",
            ),
        ),
    )


def powers(letters: list[str]) -> list[str]:
    """Return `A * square`, `B * square**2`."""
    return [f"{one} * square" + (f"**{n}" if n > 1 else "") for n, one in enumerate(letters, 1)]


RULES = (
    known(
        "x = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) "
        "* (x + 0.044715 * torch.pow(x, 3.0))))",
        ("x = F.gelu(x, approximate='tanh')", "GELU in one kernel, by the same formula."),
        (
            "inner = x * (1.0 + 0.044715 * x * x) * math.sqrt(2.0 / math.pi)\n"
            "x = 0.5 * x * (1.0 + inner.tanh_())",
            "The cube as products, and the tangent in place.",
        ),
    ),
    known(
        "x = x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))",
        ("x = F.gelu(x)", "GELU in one kernel, by the same formula."),
        (
            "x = torch.erf(x * math.sqrt(0.5)).add_(1.0).mul_(x).mul_(0.5)",
            "The same operators, in place on a tensor of our own.",
        ),
    ),
    known(
        "x = x * torch.tanh(torch.log(1 + torch.exp(-torch.abs(x))) + torch.clamp(x, min=0) * 1.0)",
        ("x = F.mish(x)", "Mish in one kernel."),
        ("x = x * torch.tanh(F.softplus(x))", "The inner part is softplus, one kernel."),
    ),
    known(
        "x = x * (1.0 / (1.0 + torch.exp(-x)))",
        ("x = F.silu(x)", "Swish in one kernel."),
        ("x = torch.sigmoid(x).mul_(x)", "A sigmoid, multiplied in place."),
    ),
    known(
        "x = x * torch.clamp(x + 3.0, min=0.0, max=6.0) / 6.0",
        ("x = F.hardswish(x)", "The hard swish in one kernel."),
        ("x = F.hardsigmoid(x) * x", "The factor is a hard sigmoid, one kernel."),
    ),
    known(
        "positive = (x > 0).to(x.dtype)\n"
        "x = positive * x + (1 - positive) * (torch.exp(torch.clamp(x, max=0)) - 1)",
        ("x = F.elu(x)", "ELU in one kernel."),
        (
            "x = torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))",
            "Choose between the sides instead of mixing them by masks.",
        ),
    ),
    known(
        "x = torch.clamp(x, min=0) + S * torch.clamp(x, max=0)",
        ("x = torch.where(x > 0, x, S * x)", "Choose between `x` and its multiple."),
        (
            "x = torch.addcmul(F.relu(x), S, x.clamp(max=0))",
            "The product and the sum in one kernel.",
        ),
    ),
    known(
        "x = x + (1.0 / R) * torch.pow(torch.sin(R * x), 2)",
        (
            "x = torch.addcdiv(x, torch.sin(R * x).square_(), R)",
            "Square in place; quotient and sum are one kernel.",
        ),
        ("x = x + torch.sin(R * x).square() / R", "One division, and a square without `pow`."),
        (
            "x = x + (1.0 - torch.cos(2.0 * R * x)) / (2.0 * R)",
            "The square of a sine is half of one minus the cosine of twice the angle.",
        ),
    ),
    polynomial(3),
    polynomial(4),
    polynomial(5),
    known(
        "x = torch.sign(x) * torch.clamp(torch.abs(x) - 0.5, min=0.0)",
        ("x = F.softshrink(x, 0.5)", "A soft shrinkage in one kernel."),
        ("x = x - x.clamp(-0.5, 0.5)", "What is left beyond the clamp."),
    ),
    Rule(
        technique="memory reuse",
        why="Each step of the chain writes a new tensor.",
        before="x = torch.sigmoid(x) + torch.tanh(x)\n"
        "x = x * 2.0\nx = x - 0.5\nx = torch.relu(x)\nx = x / (1.0 + x)",
        forms=(
            Form(
                text="x = torch.sigmoid(x).add_(torch.tanh(x)).mul_(2.0).sub_(0.5).relu_()\n"
                "x = x / (1.0 + x)",
                design="The chain in place, on the first tensor that it makes.",
            ),
            Form(
                text="x = torch.add(2.0 * torch.sigmoid(x) - 0.5, torch.tanh(x), alpha=2.0)"
                ".relu_()\n"
                "x = x.div_(x + 1.0)",
                design="Scale and shift while adding; the rest in place.",
            ),
        ),
    ),
)
