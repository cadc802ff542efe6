"""What functions of torch are in a Triton kernel; `A`, `B` and `C` are their arguments."""

TEMPLATES = {
    "exp": "tl.exp(A)",
    "log": "tl.log(A)",
    "sqrt": "tl.sqrt(A)",
    "rsqrt": "tl.rsqrt(A)",
    "abs": "tl.abs(A)",
    "sin": "tl.sin(A)",
    "cos": "tl.cos(A)",
    "erf": "tl.erf(A)",
    "sigmoid": "tl.sigmoid(A)",
    "tanh": "libdevice.tanh(A)",
    "relu": "tl.maximum(A, 0.0)",
    "silu": "A * tl.sigmoid(A)",
    "sign": "tl.where(A > 0, 1.0, 0.0) - tl.where(A < 0, 1.0, 0.0)",
    "square": "A * A",
    "maximum": "tl.maximum(A, B)",
    "minimum": "tl.minimum(A, B)",
    "where": "tl.where(A, B, C)",
    "zeros_like": "0.0",
}
REDUCTIONS = {
    "sum": "tl.sum(tl.where(inside, A, 0.0), axis=1, keep_dims=True)",
    "mean": "tl.sum(tl.where(inside, A, 0.0), axis=1, keep_dims=True) / width",
    "max": "tl.max(tl.where(inside, A, float('-inf')), axis=1, keep_dims=True)",
    "min": "tl.min(tl.where(inside, A, float('inf')), axis=1, keep_dims=True)",
    "norm": "tl.sqrt(tl.sum(tl.where(inside, A * A, 0.0), axis=1, keep_dims=True))",
}
REDUCTIONS |= {"amax": REDUCTIONS["max"], "amin": REDUCTIONS["min"]}
