"""The playbook's rewrites in the order in which they are combined: algebra first, so that fusions
see the simpler code; layout and compilation last."""

from cudal1_ci.propose.playbook import (
    attention,
    channel_order,
    convolutions,
    elementwise,
    graphs,
    hoisting,
    loops,
    memory,
    normalization,
    products,
    reductions,
    repetition,
    tensor_cores,
)
from cudal1_ci.propose.playbook.rewrite import Rewrite

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
    *channel_order.REWRITES,
    *memory.COMPILATION,
    *graphs.REWRITES,
)
