"""Write work on rows: structured matrices, reductions, perceptrons, indexing, distances."""

from __future__ import annotations

from model_training.tasks.draft import Draft

# --- diagonal ------------------------------------------------------------------------------------


def diagonal_from_the_left(d: Draft) -> None:
    d.input("scale", f"torch.rand({d.dims[0]})")
    d.forward("x = torch.diag(scale) @ x")


def diagonal_from_the_right(d: Draft) -> None:
    weight = d.module("weight", f"nn.Parameter(torch.randn({d.parameter(d.dims[1])}))")
    d.forward(f"x = x @ torch.diag({weight})")


def diagonal_on_both_sides(d: Draft) -> None:
    d.input("left", f"torch.rand({d.dims[0]})")
    weight = d.module("right", f"nn.Parameter(torch.randn({d.parameter(d.dims[1])}))")
    d.forward(f"x = torch.diag(left) @ x @ torch.diag({weight})")


def identity_plus_low_rank(d: Draft) -> None:
    width, rank = d.parameter(d.dims[1]), d.parameter(d.size("rank", d.rng.choice((2, 4, 8))))
    down = d.module("down", f"nn.Parameter(torch.randn({width}, {rank}) / {width})")
    up = d.module("up", f"nn.Parameter(torch.randn({rank}, {width}) / {rank})")
    d.forward(
        f"matrix = torch.eye(x.shape[1], device=x.device, dtype=x.dtype) + {down} @ {up}",
        "x = x @ matrix",
    )


def product_with_an_outer_product(d: Draft) -> None:
    width = d.parameter(d.dims[1])
    left = d.module("left", f"nn.Parameter(torch.randn({width}))")
    right = d.module("right", f"nn.Parameter(torch.randn({width}))")
    d.forward(f"x = x @ torch.outer({left}, {right})")


def scaled_permutation(d: Draft) -> None:
    width = d.parameter(d.dims[1])
    order = d.module("order", f"nn.Buffer(torch.randperm({width}))")
    gain = d.module("gain", f"nn.Parameter(torch.rand({width}))")
    d.forward(
        f"matrix = torch.eye(x.shape[1], device=x.device, dtype=x.dtype)[{order}]",
        f"x = (x @ matrix.t()) * {gain}",
    )


def block_diagonal(d: Draft) -> None:
    width = d.parameter(d.dims[1])
    blocks = d.parameter(d.size("blocks", d.rng.choice((2, 4, 8))))
    weight = d.module(
        "blocks",
        f"nn.Parameter(torch.randn({blocks}, {width} // {blocks}, {width} // {blocks}) / {width})",
    )
    d.forward(f"x = x @ torch.block_diag(*{weight})")


DIAGONAL = {
    "a diagonal matrix from the left": diagonal_from_the_left,
    "a diagonal matrix from the right": diagonal_from_the_right,
    "diagonal matrices on both sides": diagonal_on_both_sides,
    "the identity plus a matrix of low rank": identity_plus_low_rank,
    "a product with an outer product": product_with_an_outer_product,
    "a scaled permutation as a matrix": scaled_permutation,
    "a block diagonal matrix": block_diagonal,
}

# --- reduction -----------------------------------------------------------------------------------


def hidden_of(d: Draft) -> str:
    width = d.value(d.dims[1])
    return d.parameter(d.size("hidden", width * d.rng.choice((1, 2, 4))))


def linear_then_sum(d: Draft) -> None:
    fc = d.module("fc", f"nn.Linear({d.parameter(d.dims[1])}, {hidden_of(d)})")
    keep = d.choice("True", "False")
    how = d.choice("sum", "mean")
    d.forward(f"x = {fc}(x).{how}(dim=1, keepdim={keep})")
    d.dims = (d.dims[0], "1") if keep == "True" else (d.dims[0],)


def product_then_sum_of_rows(d: Draft) -> None:
    width = d.parameter(d.dims[1])
    hidden = hidden_of(d)
    weight = d.module("weight", f"nn.Parameter(torch.randn({width}, {hidden}) / {width})")
    d.forward(f"x = (x @ {weight}).sum(dim=0)")
    d.dims = (hidden,)


def dot_of_rows_by_a_product(d: Draft) -> None:
    d.input("y", f"torch.randn({', '.join(d.dims)})")
    d.forward("x = torch.diagonal(x @ y.t())")
    d.dims = (d.dims[0],)


def trace_of_a_product(d: Draft) -> None:
    d.input("y", f"torch.randn({d.dims[1]}, {d.dims[0]})")
    d.forward("x = torch.trace(x @ y).reshape(1)")
    d.dims = ("1",)


def moments_in_many_passes(d: Draft) -> None:
    d.forward(
        "mean = x.mean(dim=1, keepdim=True)",
        "variance = (x - mean).pow(2).mean(dim=1, keepdim=True)",
        "third = (x - mean).pow(3).mean(dim=1, keepdim=True)",
        "x = torch.cat([mean, variance, third / (variance.pow(1.5) + 1e-5)], dim=1)",
    )
    d.dims = (d.dims[0], "3")


def norm_of_differences(d: Draft) -> None:
    d.input("y", f"torch.randn({', '.join(d.dims)})")
    d.forward("x = torch.sqrt(torch.sum(torch.pow(x - y, 2), dim=1) + 1e-6)")
    d.dims = (d.dims[0],)


REDUCTION = {
    "a linear layer and its sum": linear_then_sum,
    "a product and the sum of its rows": product_then_sum_of_rows,
    "dot products of rows from a whole product": dot_of_rows_by_a_product,
    "the trace of a product": trace_of_a_product,
    "three moments in as many passes": moments_in_many_passes,
    "norms of differences": norm_of_differences,
}

# --- mlp -----------------------------------------------------------------------------------------


def parallel_projections(d: Draft) -> None:
    width, hidden = d.parameter(d.dims[1]), hidden_of(d)
    names = [d.module(name, f"nn.Linear({width}, {hidden})") for name in ("first", "second")]
    third = d.module("third", f"nn.Linear({width}, {hidden})")
    d.forward(f"x = torch.cat([{names[0]}(x), {names[1]}(x), {third}(x)], dim=1)")
    d.dims = (d.dims[0], d.size("joined", 3 * d.value(hidden)))


def gated(d: Draft) -> None:
    width, hidden = d.parameter(d.dims[1]), hidden_of(d)
    gate = d.module("gate", f"nn.Linear({width}, {hidden}, bias=False)")
    up = d.module("up", f"nn.Linear({width}, {hidden}, bias=False)")
    down = d.module("down", f"nn.Linear({hidden}, {width}, bias=False)")
    act = d.choice("F.silu({})", "torch.sigmoid({})", "F.gelu({})").format(f"{gate}(x)")
    d.forward(f"x = {down}({act} * {up}(x))")


def two_linears_in_a_row(d: Draft) -> None:
    width = d.parameter(d.dims[1])
    rank = d.parameter(d.size("inner", 4 * d.value(width)))
    first = d.module("first", f"nn.Linear({width}, {rank}, bias=False)")
    second = d.module("second", f"nn.Linear({rank}, {width}, bias=False)")
    d.forward(f"x = {second}({first}(x))")


def residual_block(d: Draft) -> None:
    width, hidden = d.parameter(d.dims[1]), hidden_of(d)
    norm = d.module("norm", f"nn.LayerNorm({width})")
    fc1 = d.module("fc1", f"nn.Linear({width}, {hidden})")
    fc2 = d.module("fc2", f"nn.Linear({hidden}, {width})")
    d.forward(
        "residual = x.clone()", f"x = {fc2}(torch.relu({fc1}({norm}(x))))", "x = x + residual"
    )


def linear_and_manual_bias(d: Draft) -> None:
    width, hidden = d.parameter(d.dims[1]), hidden_of(d)
    weight = d.module("weight", f"nn.Parameter(torch.randn({hidden}, {width}) / {width})")
    bias = d.module("bias", f"nn.Parameter(torch.randn({hidden}))")
    d.forward(
        f"x = torch.matmul(x, {weight}.t().contiguous())",
        f"x = x + {bias}.unsqueeze(0).expand(x.shape[0], -1).contiguous()",
    )
    d.dims = (d.dims[0], hidden)


def experts_by_mask(d: Draft) -> None:
    width = d.parameter(d.dims[1])
    first = d.module("first", f"nn.Linear({width}, {width})")
    second = d.module("second", f"nn.Linear({width}, {width})")
    d.forward(
        "chosen = (x.mean(dim=1, keepdim=True) > 0).to(x.dtype)",
        f"x = chosen * {first}(x) + (1 - chosen) * {second}(x)",
    )


MLP = {
    "three projections of one input": parallel_projections,
    "a gated perceptron": gated,
    "two linear layers with nothing between": two_linears_in_a_row,
    "a residual block": residual_block,
    "a linear layer and its bias by hand": linear_and_manual_bias,
    "two experts and a mask": experts_by_mask,
}

# --- indexing ------------------------------------------------------------------------------------


def table_by_one_hot(d: Draft) -> None:
    width = d.parameter(d.dims[1])
    words = d.parameter(d.size("words", d.rng.choice((64, 256, 1000))))
    table = d.module("table", f"nn.Parameter(torch.randn({words}, {width}))")
    d.input("index", f"torch.randint(0, {words}, ({d.dims[0]},))")
    d.forward(f"hot = F.one_hot(index, {table}.shape[0]).to(x.dtype)", f"x = x + hot @ {table}")


def masked_mean(d: Draft) -> None:
    d.input("mask", f"torch.randint(0, 2, ({', '.join(d.dims)}))")
    d.forward(
        "mask = mask.to(x.dtype)",
        "total = torch.where(mask > 0, x, torch.zeros_like(x)).sum(dim=1)",
        "x = total / mask.sum(dim=1).clamp(min=1)",
    )
    d.dims = (d.dims[0],)


def picked_by_where(d: Draft) -> None:
    d.input("other", f"torch.randn({', '.join(d.dims)})")
    d.forward("is_larger = (x > other).to(x.dtype)", "x = is_larger * x + (1 - is_larger) * other")


def reversed_and_joined(d: Draft) -> None:
    d.forward(
        "turned = torch.stack([x[:, i] for i in range(x.shape[1] - 1, -1, -1)], dim=1)"
        if d.value(d.dims[1]) <= d.scale.max_loop
        else "turned = x[:, torch.arange(x.shape[1] - 1, -1, -1, device=x.device)]",
        "x = torch.cat([x, turned], dim=1)",
    )
    d.dims = (d.dims[0], d.size("doubled", 2 * d.value(d.dims[1])))


def segment_sum_by_one_hot(d: Draft) -> None:
    groups = d.parameter(d.size("groups", d.rng.choice((8, 32, 128))))
    d.init(f"self.groups = {groups}")
    d.input("segment", f"torch.randint(0, {groups}, ({d.dims[0]},))")
    d.forward("hot = F.one_hot(segment, self.groups).to(x.dtype)", "x = hot.t() @ x")
    d.dims = (groups, d.dims[1])


def strided_copies(d: Draft) -> None:
    d.forward("even = x[:, ::2].contiguous()", "odd = x[:, 1::2].contiguous()", "x = even - odd")
    d.dims = (d.dims[0], d.size("half", d.value(d.dims[1]) // 2))


INDEXING = {
    "rows of a table by one-hot vectors": table_by_one_hot,
    "a masked mean": masked_mean,
    "the larger of two by a mask": picked_by_where,
    "columns turned around and joined": reversed_and_joined,
    "sums of segments by one-hot vectors": segment_sum_by_one_hot,
    "differences of strided copies": strided_copies,
}

# --- distance ------------------------------------------------------------------------------------


def centers_of(d: Draft) -> str:
    width = d.parameter(d.dims[1])
    centers = d.parameter(d.size("centers", d.rng.choice((16, 32, 64))))
    name = d.module("centers", f"nn.Parameter(torch.randn({centers}, {width}))")
    d.dims = (d.dims[0], centers)
    return name


def squared_by_broadcasting(d: Draft) -> None:
    d.forward(f"x = ((x.unsqueeze(1) - {centers_of(d)}.unsqueeze(0)) ** 2).sum(dim=2)")


def absolute_by_broadcasting(d: Draft) -> None:
    d.forward(f"x = torch.abs(x[:, None, :] - {centers_of(d)}[None]).mean(dim=-1)")


def cosine_by_broadcasting(d: Draft) -> None:
    d.forward(
        f"x = F.cosine_similarity(x.unsqueeze(1), {centers_of(d)}.unsqueeze(0), dim=2, eps=1e-6)"
    )


def kernel_of_distances(d: Draft) -> None:
    centers = centers_of(d)
    d.forward(
        f"squared = (x.unsqueeze(1) - {centers}.unsqueeze(0)).pow(2).mean(dim=-1)",
        "x = torch.exp(-squared)",
    )


def nearest_center(d: Draft) -> None:
    centers = centers_of(d)
    d.forward(
        f"distances = torch.norm(x[:, None] - {centers}[None], dim=-1)",
        "x = distances.min(dim=1).values",
    )
    d.dims = (d.dims[0],)


def normalized_products(d: Draft) -> None:
    centers = centers_of(d)
    d.forward(
        "x = x / (x.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-6)",
        f"other = {centers} / ({centers}.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-6)",
        "x = torch.einsum('nd,md->nm', x, other)",
    )


DISTANCE = {
    "squared distances by broadcasting": squared_by_broadcasting,
    "absolute distances by broadcasting": absolute_by_broadcasting,
    "cosines by broadcasting": cosine_by_broadcasting,
    "a kernel of distances": kernel_of_distances,
    "the distance to the nearest center": nearest_center,
    "products of normalized rows": normalized_products,
}
