"""Find reductions that torch has as one operation, or that reduce nothing."""

from __future__ import annotations

from collections.abc import Iterator

from cudal1_ci.propose.recorded.patterns import Form, Match, is_float, rule

ONE_PASS = "one routine keeps the row in cache and writes the result once, where the formula writes"
ONE_PASS += " every intermediate to memory"
KEPT = "dim=K, keepdim=True"
LARGEST = (f"amax(X, {KEPT})", f"max(X, {KEPT})", "max(X)", "amax(X)")
SHIFTED = [f"sub(X, {one})" for one in LARGEST]


def softmax_forms() -> Iterator[Form]:
    """Yield exp(x) / sum(exp(x)), with or without the largest value subtracted first."""
    for exponent in (*SHIFTED, "X"):
        above = f"exp({exponent})"
        yield Form(f"div({above}, sum({above}, {KEPT}))", "torch.softmax(X, dim=K)")


def log_softmax_forms() -> Iterator[Form]:
    """Yield log(softmax(x)) and x - log(sum(exp(x)))."""
    new = "F.log_softmax(X, dim=K)"
    yield Form("log(softmax(X, dim=K))", new)
    yield Form(f"sub(X, logsumexp(X, {KEPT}))", new)
    for one in (*SHIFTED, "X"):
        yield Form(f"sub({one}, log(sum(exp({one}), {KEPT})))", new)


def cross_entropy_forms() -> Iterator[Form]:
    """Yield the mean negative log-probability of the target class."""
    for one in (
        "log_softmax(X, dim=-1)",
        "log_softmax(X, dim=1)",
        "log(softmax(X, dim=-1))",
        "log(softmax(X, dim=1))",
    ):
        yield Form(f"nll_loss({one}, Y)", "F.cross_entropy(X, Y)", has_classes)
        picked = f"gather({one}, dim=1, index=unsqueeze(Y, dim=1))"
        for values in (picked, f"squeeze({picked}, dim=1)"):
            for mean in (f"neg(mean({values}))", f"mean(neg({values}))"):
                yield Form(mean, "F.cross_entropy(X, Y.long())", has_classes)


def has_classes(found: Match) -> bool:
    """Return whether there is a row of logits for each target."""
    targets = found.graph.of(found.value("Y"))
    return found.rank("X") == 2 and targets is not None and targets.dtype == "int64"


def normalize_forms() -> Iterator[Form]:
    """Yield x divided by its 2-norm, with a lower bound."""
    for length in (f"norm(X, {KEPT})", f"sqrt(sum(pow(X, 2), {KEPT}))"):
        yield Form(f"div(X, clamp({length}, min=KE))", "F.normalize(X, dim=K, eps=KE)")


def norm_forms() -> Iterator[Form]:
    """Yield sums of absolute values, and roots of sums of squares."""
    norm = "torch.linalg.vector_norm"
    for rest in ("dim=K", KEPT):
        yield Form(f"sum(abs(X), {rest})", f"{norm}(X, 1, {rest})", is_float)
        for square in ("pow(X, 2)", "square(X)", "mul(X, X)"):
            yield Form(f"sqrt(sum({square}, {rest}))", f"{norm}(X, {rest})", is_float)
            new = f"({norm}(X, {rest}) / X.shape[K] ** 0.5).square()"
            yield Form(f"mean({square}, {rest})", new, is_inner_mean)


def is_inner_mean(found: Match) -> bool:
    """Return whether a mean is over one dimension that is not the last one: a normalization over
    the last one is one operation in torch."""
    dim = found.literal("K")
    is_last = found.graph.dims(dim, found.value("X")) == (found.rank("X") - 1,)
    return isinstance(dim, int) and not is_last and found.is_alike("X")


def loss_forms() -> Iterator[Form]:
    """Yield the mean square of a difference."""
    apart = "sub(X, Y)"
    for square in (f"pow({apart}, 2)", f"square({apart})", f"mul({apart}, {apart})"):
        yield Form(f"mean({square})", "F.mse_loss(X, Y)", are_pairs)


def are_pairs(found: Match) -> bool:
    shapes = [known.shape for n in "XY" if (known := found.graph.of(found.value(n)))]
    return shapes[0] == shapes[1] and found.is_alike("X", "Y")


def position_forms() -> Iterator[Form]:
    """Yield positions of the largest probability."""
    for made in ("softmax(X, dim=K)", "log_softmax(X, dim=K)", "sigmoid(X)"):
        for kept in ("", ", keepdim=True"):
            yield Form(f"argmax({made}, dim=K{kept})", f"torch.argmax(X, dim=K{kept})", is_float)


FUSION = "operation fusion"
RULES = (
    rule(
        "softmax",
        FUSION,
        f"softmax by hand makes four passes over memory; {ONE_PASS}",
        "one dimension, kept; softmax also stays finite where exp(x) overflows",
        softmax_forms(),
    ),
    rule(
        "log_softmax",
        FUSION,
        ONE_PASS,
        "one dimension; log_softmax stays finite where the softmax underflows to 0",
        log_softmax_forms(),
    ),
    rule(
        "positions_of_logits",
        "algebra",
        "a softmax and a sigmoid keep the order, so that the logits have the same position",
        "only the position is read; logits whose probabilities are rounded to one number stay "
        "apart",
        position_forms(),
    ),
    rule(
        "logsumexp",
        FUSION,
        ONE_PASS,
        "one dimension; logsumexp stays finite where exp(x) overflows",
        iter(
            [
                Form(f"log(sum(exp(X), {rest}))", f"torch.logsumexp(X, {rest})")
                for rest in (KEPT, "dim=K")
            ]
        ),
    ),
    rule(
        "cross_entropy",
        FUSION,
        "cross entropy reads the logits once and needs no gather over a written log-softmax",
        "the mean over (N, C) logits",
        cross_entropy_forms(),
    ),
    rule(
        "normalize",
        FUSION,
        "the norm is taken without a separate square and sum",
        "the norm has a lower bound",
        normalize_forms(),
    ),
    rule(
        "vector_norm",
        FUSION,
        "a norm reads its input once and writes one number a row, where absolute values or "
        "squares are written and read again",
        "a sum of absolute values, the root of a sum of squares, or a mean of squares over a "
        "dimension that is not the last one",
        norm_forms(),
    ),
    rule(
        "mse_loss",
        FUSION,
        "the loss makes one pass where the difference is written and read again",
        "the mean over all; both tensors have the same shape",
        loss_forms(),
    ),
)
