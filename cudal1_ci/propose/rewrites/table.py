"""List the playbook's rewrites in the order in which they are combined: algebra first, so that
fusions see the simpler code; layout last. Wrappers come after them (propose/wrappers).
"""

from cudal1_ci.propose.rewrites import (
    attention,
    channel_order,
    convolutions,
    elementwise,
    hoisting,
    long_rows,
    loops,
    memory,
    normalization,
    products,
    reductions,
    repetition,
    tensor_cores,
)
from cudal1_ci.propose.rewrites.rewrite import Rewrite

REWRITES: tuple[Rewrite, ...] = (
    *loops.REWRITES,
    *products.REWRITES,
    *convolutions.REWRITES,
    *reductions.REWRITES,
    *attention.REWRITES,
    *normalization.REWRITES,
    *elementwise.REWRITES,
    *memory.COPIES,
    *hoisting.REWRITES,
    *repetition.REWRITES,
    *tensor_cores.REWRITES,
    *long_rows.REWRITES,
    *channel_order.REWRITES,
)

NEED_TRITON = frozenset(one.name for one in (*tensor_cores.REWRITES, *long_rows.REWRITES))
"""Rewrites that add kernels to a file."""
