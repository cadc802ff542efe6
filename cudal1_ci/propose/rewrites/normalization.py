"""Rewrite normalizations and losses that torch has as one operation."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.rewrites.patterns import match, pattern
from cudal1_ci.propose.rewrites.rewrite import Replacement, Rewrite, Rule, expressions, rule
from cudal1_ci.propose.rewrites.scales import number
from cudal1_ci.propose.rewrites.terms import Term, code

ONE_PASS = "one routine keeps the row in cache and writes the result once, where the formula writes"
ONE_PASS += " every intermediate to memory"


def layer_norm_rules() -> Iterator[Rule]:
    """Yield rules for (x - mean) / sqrt(var + eps), with or without scale and shift, in the usual
    spellings.
    """
    for normalized in normalized_over(-1):
        yield rule(f"add(mul({normalized}, W), B)", "F.layer_norm(X, W.shape, W, B, E)")
        yield rule(f"mul({normalized}, W)", "F.layer_norm(X, W.shape, W, None, E)")
        yield rule(normalized, "F.layer_norm(X, X.shape[-1:], eps=E)")
    for normalized in normalized_over(1):
        yield channel_norm(pattern(f"add(mul({normalized}, W), B)"))


def normalized_over(dim: int) -> Iterator[str]:
    """Yield patterns of values with mean 0 and variance 1 over a dimension."""
    centered = f"sub(X, mean(X, dim={dim}, keepdim=True))"
    variances = (
        f"var(X, dim={dim}, keepdim=True, unbiased=False)",
        f"var(X, correction=0, dim={dim}, keepdim=True)",
        f"mean(pow({centered}, 2), dim={dim}, keepdim=True)",
        f"mean(square({centered}), dim={dim}, keepdim=True)",
        f"mean(mul({centered}, {centered}), dim={dim}, keepdim=True)",
    )
    for variance in variances:
        yield f"div({centered}, sqrt(add({variance}, E)))"
        yield f"mul({centered}, rsqrt(add({variance}, E)))"
        yield f"div({centered}, pow(add({variance}, E), 0.5))"


def channel_norm(wanted: Term) -> Rule:
    """Return a rule for a normalization over the second dimension, with `weight[:, None, None]`.
    The dimensions of the weight give those of the input.
    """

    def applied(term: Term) -> Replacement | None:
        bound = match(wanted, term)
        if bound is None:
            return None
        spread = [spread_over(bound[name]) for name in ("W", "B")]
        if spread[0] is None or spread[1] is None or spread[0][1] != spread[1][1]:
            return None
        (weight, num_more), (bias, _) = spread[0], spread[1]
        dims = [str(dim) for dim in range(2, 2 + num_more)]
        last, second = ", ".join(["0", *dims, "1"]), f"0, {1 + num_more}"
        second = ", ".join([second, *(str(dim) for dim in range(1, 1 + num_more))])
        return Replacement(
            f"F.layer_norm(X.permute({last}), W.shape, W, B, E).permute({second}).contiguous()",
            {**bound, "W": weight, "B": bias},
        )

    return applied


def spread_over(term: Term) -> tuple[Term, int] | None:
    """Return a vector and the number of size-1 dimensions after it: `w[:, None, None]` and
    `w.view(1, -1, 1, 1)`.
    """
    if term.op in ("view", "reshape") and not term.named:
        sizes = [number(one) for one in term.args[1:]]
        is_spread = len(sizes) > 2 and sizes == [1, -1] + [1] * (len(sizes) - 2)
        return (term.args[0], len(sizes) - 2) if is_spread else None
    if not isinstance(term.node, cst.Subscript):
        return None
    indices = [code(one.slice) for one in term.node.slice]
    if indices[:1] == ["None"]:
        indices = indices[1:]
    if len(indices) < 2 or indices != [":"] + ["None"] * (len(indices) - 1):
        return None
    return Term("opaque", node=term.node.value, env=term.env), len(indices) - 1


def rms_norm_rules() -> Iterator[Rule]:
    """Yield rules for x * rsqrt(mean(x ** 2) + eps), with or without a scale."""
    for square in ("pow(X, 2)", "square(X)", "mul(X, X)"):
        mean = f"add(mean({square}, dim=-1, keepdim=True), E)"
        yield rule(f"mul(mul(X, rsqrt({mean})), W)", "F.rms_norm(X, W.shape, W, E)")
        for normalized in (f"mul(X, rsqrt({mean}))", f"div(X, sqrt({mean}))"):
            yield rule(f"mul({normalized}, W)", "F.rms_norm(X, W.shape, W, E)")
            yield rule(normalized, "F.rms_norm(X, X.shape[-1:], eps=E)")


def softmax(term: Term) -> Replacement | None:
    """Match exp(x) / sum(exp(x)), with or without the largest value subtracted first."""
    if term.op != "div" or len(term.args) != 2 or term.args[1].op != "sum":
        return None
    above, total = term.args
    dim, keeps = total.get("dim"), total.get("keepdim")
    if above.op != "exp" or total.args != (above,) or dim is None or keeps is None:
        return None
    if keeps.value is not True:
        return None
    inner = above.args[0]
    if inner.op == "sub" and is_largest(inner.args[1], inner.args[0], dim):
        inner = inner.args[0]
    return Replacement("torch.softmax(X, dim=K)", {"X": inner, "K": dim})


def is_largest(term: Term, of: Term, dim: Term) -> bool:
    """Return whether a term is the largest value of another over a dimension (or over all)."""
    if term.op not in ("amax", "max") or term.args != (of,):
        return False
    return term.get("dim") in (dim, None)


LOG_SOFTMAX = ("log_softmax(X, dim=-1)", "log_softmax(X, dim=1)")

REWRITES = (
    Rewrite(
        name="layer_norm",
        family="operation fusion",
        precondition="mean and biased variance over the last dimension, or over the second "
        "one with a weight of as many dimensions; epsilon inside of the root",
        why=f"layer normalization by hand makes some six passes over memory; {ONE_PASS}.",
        apply=expressions(*layer_norm_rules()),
    ),
    Rewrite(
        name="rms_norm",
        family="operation fusion",
        precondition="mean of squares over the last dimension, epsilon inside of the root",
        why=f"RMS normalization by hand makes some four passes over memory; {ONE_PASS}.",
        apply=expressions(*rms_norm_rules()),
    ),
    Rewrite(
        name="softmax",
        family="operation fusion",
        precondition="exp(x) / sum(exp(x)) over one dimension, kept; softmax also stays finite "
        "where exp(x) overflows",
        why=f"softmax by hand makes four passes over memory; {ONE_PASS}.",
        apply=expressions(softmax),
    ),
    Rewrite(
        name="log_softmax",
        family="operation fusion",
        precondition="log of a softmax over one dimension; log_softmax stays finite where the "
        "softmax underflows to 0",
        why=f"{ONE_PASS}.",
        apply=expressions(
            rule("log(softmax(X, dim=K))", "F.log_softmax(X, dim=K)"),
            rule("sub(X, logsumexp(X, dim=K, keepdim=True))", "F.log_softmax(X, dim=K)"),
        ),
    ),
    Rewrite(
        name="logsumexp",
        family="operation fusion",
        precondition="log(sum(exp(x))) over one dimension; logsumexp stays finite where exp(x) "
        "overflows",
        why=f"{ONE_PASS}.",
        apply=expressions(
            rule("log(sum(exp(X), dim=K))", "torch.logsumexp(X, dim=K)"),
            rule(
                "log(sum(exp(X), dim=K, keepdim=True))", "torch.logsumexp(X, dim=K, keepdim=True)"
            ),
        ),
    ),
    Rewrite(
        name="cross_entropy",
        family="operation fusion",
        precondition="the mean negative log-probability of the target class of (N, C) logits",
        why="cross entropy reads the logits once and needs no gather over a written log-softmax.",
        apply=expressions(
            *(
                one
                for log_probability in (*LOG_SOFTMAX, "log(softmax(X, dim=-1))")
                for one in (
                    rule(
                        f"neg(mean(gather({log_probability}, dim=1, index=unsqueeze(Y, dim=1))))",
                        "F.cross_entropy(X, Y.long())",
                    ),
                    rule(
                        f"neg(mean(squeeze(gather({log_probability}, dim=1, "
                        "index=unsqueeze(Y, dim=1)), dim=1)))",
                        "F.cross_entropy(X, Y.long())",
                    ),
                    rule(
                        f"mean(neg(gather({log_probability}, dim=1, index=unsqueeze(Y, dim=1))))",
                        "F.cross_entropy(X, Y.long())",
                    ),
                    rule(f"nll_loss({log_probability}, Y)", "F.cross_entropy(X, Y)"),
                )
            )
        ),
    ),
    Rewrite(
        name="normalize",
        family="operation fusion",
        precondition="x divided by its 2-norm, with a lower bound for the norm",
        why="F.normalize says it in one call; the norm is taken without a separate square and sum.",
        apply=expressions(
            rule(
                "div(X, clamp(norm(X, dim=K, keepdim=True), min=E))",
                "F.normalize(X, dim=K, eps=E)",
            ),
            rule(
                "div(X, clamp(norm(X, dim=K, keepdim=True, p=2), min=E))",
                "F.normalize(X, dim=K, eps=E)",
            ),
            rule(
                "div(X, clamp(sqrt(sum(pow(X, 2), dim=K, keepdim=True)), min=E))",
                "F.normalize(X, dim=K, eps=E)",
            ),
        ),
    ),
)
