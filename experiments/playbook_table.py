"""Write docs/playbook.md from the table of rewrites: `python experiments/playbook_table.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudal1_ci.propose.recorded.rule import RecordedRule
from cudal1_ci.propose.recorded.strategy import RULES
from cudal1_ci.propose.rewrites.rewrite import Rewrite
from cudal1_ci.propose.rewrites.table import REWRITES
from cudal1_ci.propose.wrappers.table import WRAPPERS

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# The playbook

{count} rewrites of source, applied with the author's formatting and comments kept, and
[wrappers](#wrappers). Each is a candidate like any other: nothing it says is believed until the
verifier has passed it. Drawn from the tables of rules in `cudal1_ci/propose/` by
`experiments/playbook_table.py`.

A rewrite keeps the constructor and the keys of the state_dict; new buffers are not persistent.
Patterns are matched over the values of locals, not over text, so they span statements and do not
mind how a function is spelled (`F.softmax(x, -1)`, `x.softmax(dim=-1)`, `nn.Softmax(dim=-1)` held
in `self`). `fp32_tensor_cores` and `long_row_norm` bring kernels in Triton, and are proposed on a
GPU. A graph needs a GPU to be verified. What goes in and what comes out is copied by nodes of the
graph, which NVIDIA's bindings (`cuda.bindings`, installed with PyTorch for CUDA) address before
each replay; without them the copies are made around it. What rewrites gain on many tasks is in
[results.md](results.md).

Where a call of the target can be recorded, rules over its operations come first
(`cudal1_ci/propose/recorded/`). Of two candidates with the same edits, or where the recorded rule
covers the one here, the second is listed as not tried. The rewrites here stay: scripted modules and
compiled regions cannot be recorded, Python 3.10 has no columns of expressions, and a candidate
for them is verified all the same.

## Rules over recorded calls

One call is recorded as operations with their places in the source, so a rule sees what ran: not how
it is spelled, nor branches that were not taken, and through helpers and submodules. What the code
does not guarantee is guarded in the written code, or nothing is proposed. `explain` and
`scan --why` say which rule nearly matched, and which fact was missing.

| rule | family | precondition | why it is faster |
|---|---|---|---|
{recorded}
## Kernels

A Triton or CUDA kernel stays as it is, and is launched with other numbers (`launch_parameters`,
[launch_config/](../cudal1_ci/propose/launch_config)): sizes of blocks that are powers of two,
`num_warps` (Triton's own 4 where a launch does not say) and, of kernels with a loop, `num_stages`;
of CUDA the threads of a block. A number counts where the source has it as one, in the launch, in a
`dim3` or behind a name that is bound once, and the grid changes with it where that repeats it. What
is computed is left alone, and so is what an autotuner chooses. First each number is moved by
itself, one step and two, ten variants of a Triton kernel at most and four of a CUDA kernel, each of
which nvcc builds; what gained is put together then, and the best goes a step further. What is
proposed was measured for the calls of the workloads on the device of the report; where others count
too, `triton.autotune` chooses on each.

The same numbers are moved where a module, a function or a file with `Model` launches the kernel, as
the recorded call showed it: a small grid gets smaller blocks first, a block is not made longer than
all that the kernel is given, and no warp is added that a block has no elements for.

## Rewrites

| rewrite | family | precondition | why it is faster |
|---|---|---|---|
"""


WRAPPERS_HEAD = """
## Wrappers

A wrapper is one decorator on `forward`; what it needs comes along as a file beside the module, from
[kernels/](../cudal1_ci/kernels). Wrappers are tried on the reference, on one another, and on what
was faster. On a CPU `compile` is proposed alone, where a C++ compiler is installed;
`compile_reduce_overhead` and `compile_max_autotune` are proposed where they are asked for. Flags
and [settings](configuration.md#playbook) switch them on and off.

`compiled_region` compiles the smallest parts that gain, found in a recorded call: a helper or a
submodule by a decorator, or statements that become a function of their own. Elementwise operations,
reductions, norms and views in a row are such a part; products, sorts, random numbers, writes in
place, what the host waits for and small tables of positions stay outside. The best part is tried,
then all of them, then all of the fastest rewritten program. The first call of each process
compiles, and so does the first call with other shapes.

| wrapper | family | precondition | why it is faster |
|---|---|---|---|
"""


def page() -> str:
    """Return the text of docs/playbook.md."""
    head = HEAD.format(count=len(REWRITES), recorded=rows(RULES))
    return head + rows(REWRITES) + WRAPPERS_HEAD + rows(WRAPPERS)


def rows(rewrites: Sequence[Rewrite | RecordedRule]) -> str:
    """Return a line of a table for each."""
    return "".join(
        f"| `{r.name}` | {r.family} | {cell(r.precondition)} | {cell(r.why)} |\n" for r in rewrites
    )


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    path = ROOT / "docs" / "playbook.md"
    path.write_text(page(), encoding="utf-8")
