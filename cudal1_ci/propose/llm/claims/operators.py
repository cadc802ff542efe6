"""Operators as people call them, and the rows of a profile in which each could be hidden.

A row that could be the operator counts for it, also when it does something else too: fused kernels
and compiled ones are in every operator's time. So a share is never too small because of a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

OPERATORS = {
    "softmax": ("softmax",),
    "matmul": ("matmul", "matrix multiplication", "matrix multiply", "gemm", "mm", "bmm", "linear"),
    "convolution": ("convolution", "conv", "conv1d", "conv2d", "conv3d"),
    "layer norm": ("layer norm", "layernorm", "layer normalization"),
    "batch norm": ("batch norm", "batchnorm", "batch normalization"),
    "gelu": ("gelu",),
    "relu": ("relu",),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
    "dropout": ("dropout",),
    "embedding": ("embedding", "embedding lookup"),
    "concatenation": ("concatenation", "cat", "concat"),
}
"""By the name under which each is reported."""
_FUSED = r"triton|fused|compiled|inductor|jit|cutlass|fmha|flash|attention|graph"
ROWS = {
    "softmax": rf"soft_?max|{_FUSED}",
    "matmul": rf"mm|matmul|gemm|gemv|linear|einsum|dot|xmma|splitk|conv|cudnn|mkldnn|{_FUSED}",
    "convolution": (
        rf"conv|fprop|dgrad|wgrad|winograd|fft|cudnn|xmma|gemm|mm|mkldnn|im2col|{_FUSED}"
    ),
    "layer norm": rf"norm|rowwise|welford|{_FUSED}",
    "batch norm": rf"norm|bn_|_bn|cudnn|mkldnn|welford|{_FUSED}",
    "gelu": rf"gelu|elementwise|{_FUSED}",
    "relu": rf"relu|clamp|threshold|elementwise|{_FUSED}",
    "sigmoid": rf"sigmoid|elementwise|{_FUSED}",
    "tanh": rf"tanh|elementwise|{_FUSED}",
    "dropout": rf"drop|bernoulli|elementwise|{_FUSED}",
    "embedding": rf"embed|index|gather|{_FUSED}",
    "concatenation": rf"cat|copy|{_FUSED}",
}
_PATTERNS = {key: re.compile(pattern, re.IGNORECASE) for key, pattern in ROWS.items()}


def share_of(operator: str, rows: Iterable[tuple[str, float]]) -> float | None:
    """The largest share that an operator can have of the time of named rows; None where it is in
    none of them, since it may be there under a name that nobody knows."""
    total = own = 0.0
    is_seen = False
    for name, time_us in rows:
        total += time_us
        if _PATTERNS[operator].search(name):
            is_seen = True
            own += time_us
    return own / total if is_seen and total > 0 else None
