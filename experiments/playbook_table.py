"""Write docs/playbook.md from the tables of rules: `python experiments/playbook_table.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudal1_ci.propose.editing.rewrite import Rewrite
from cudal1_ci.propose.recorded.rule import RecordedRule
from cudal1_ci.propose.recorded.table import RULES
from cudal1_ci.propose.wrappers.table import WRAPPERS

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# The playbook

{count} rules over recorded calls, and [wrappers](#wrappers) around a module. The verifier must
pass each of them like any other candidate. `experiments/playbook_table.py` writes this page from
the tables of rules in `cudal1_ci/propose/`. What they gain on many tasks is in
[results.md](results.md).

A rule keeps formatting, comments, the constructor and the keys of the state_dict. It finds every
spelling (`F.softmax(x, -1)`, `x.softmax(dim=-1)`, `nn.Softmax(dim=-1)` in `self`), in one statement
or several.
`fp32_tensor_cores`, `long_row_norm` and `scan_kernel` contain Triton kernels and are proposed on a
GPU. What cannot be recorded, such as a scripted module, has no such proposals. Python 3.10 knows
lines without columns, so there only the expressions that are alone of their kind on a line count.

## Rules over recorded calls

One call is recorded as operations with their places in the source. A rule therefore sees what ran,
through helpers and submodules, however it is spelled. What the code does not guarantee becomes a
guard in the written code, or the rule proposes nothing. `explain` and `scan --why` name near misses
and the missing fact.

| rule | family | precondition | why it is faster |
|---|---|---|---|
{recorded}
## Kernels

A Triton or CUDA kernel keeps its code and gets other launch parameters (`launch_parameters`,
[launch_config/](../cudal1_ci/propose/launch_config)):

- Triton: block sizes that are powers of two, `num_warps` (4 unless the launch says otherwise) and,
  with a loop, `num_stages`.
- CUDA: the threads of a block.

A parameter counts if the source has it as a number: in the launch, in a `dim3`, or behind a name
that is bound once. A grid that repeats the number changes with it. What is computed, and what an
autotuner chooses, stays unchanged. First each parameter moves alone by one step and two, at most
ten variants of a Triton kernel and four of a CUDA kernel, which nvcc must build. Gains are then
combined, and the best goes one step further. A proposal was measured for the workloads on the
report's device; `triton.autotune` can choose for others.

A module, function or `Model` file that launches the kernel is tuned too. The recorded call decides:
a small grid gets smaller blocks first, no block is longer than the kernel's data, and no warp is
added without elements.
"""


WRAPPERS_HEAD = """
## Wrappers

A wrapper is one decorator on `forward`. Its code comes along as a file next to the module, from
[kernels/](../cudal1_ci/kernels). Wrappers are tried on the reference, on each other, and on faster
programs. On a CPU only `compile` is proposed, with a C++ compiler. `compile_reduce_overhead` and
`compile_max_autotune` must be requested. Flags and [settings](configuration.md#playbook) turn
wrappers on and off.

A CUDA graph is verified on a GPU. Nodes of the graph copy inputs and outputs. NVIDIA's bindings
(`cuda.bindings`, installed with PyTorch for CUDA) set their addresses before each replay; without
the bindings, copies surround the graph.

`compiled_region` compiles the smallest parts that gain in a recorded call: a helper or a submodule
by a decorator, or statements that become a function. A part is a row of elementwise operations,
reductions, norms and views. Products, sorts, random numbers, writes in place, synchronizations and
small position tables stay outside. The best part is tried, then all parts, then all parts of the
fastest rewritten program. The first call of each process compiles, as does the first call with
other shapes.

| wrapper | family | precondition | why it is faster |
|---|---|---|---|
"""


def page() -> str:
    """Return the text of docs/playbook.md."""
    head = HEAD.format(count=len(RULES), recorded=rows(RULES))
    return head + WRAPPERS_HEAD + rows(WRAPPERS)


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
