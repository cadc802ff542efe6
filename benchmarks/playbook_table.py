"""Writes docs/playbook.md from the table of rewrites: `python benchmarks/playbook_table.py`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudal1_ci.propose.rewrites.rewrite import Rewrite
from cudal1_ci.propose.rewrites.table import REWRITES
from cudal1_ci.propose.wrappers.table import WRAPPERS

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# The playbook

{count} rewrites of source, applied with the author's formatting and comments kept, and
[wrappers](#wrappers). Each is a candidate like any other: nothing it says is believed until the
judge has passed it. Drawn from `cudal1_ci/propose/rewrites/table.py` and
`cudal1_ci/propose/wrappers/table.py` by `benchmarks/playbook_table.py`.

A rewrite keeps the constructor and the keys of the state_dict; new buffers are not persistent.
Patterns are matched over the values of locals, not over text, so they span statements and do not
mind how a function is spelled (`F.softmax(x, -1)`, `x.softmax(dim=-1)`, `nn.Softmax(dim=-1)` held
in `self`). `fp32_tensor_cores` and `long_row_norm` bring kernels in Triton, and are proposed on a
GPU. A graph needs a GPU to be judged: on an H200 a module of eight small layers passed as one, more
than 1.5 times as fast ([raw](../benchmarks/results/graphs-h200.json), 2026-11-22). What goes in and
what comes out is copied by nodes of the graph, which NVIDIA's bindings (`cuda.bindings`, installed
with PyTorch for CUDA) tell from and to where before each replay; without them the copies are made
around it. A `gelu` of 16 x 1,024 then takes 14.2 us a call instead of 27.1 us, where it takes 8.0
us without a graph: one kernel alone is no case for one. Ten small kernels in a row take 35 us
instead of 101 us ([raw](../benchmarks/results/graph-call-h200.json), `benchmarks/graph_call.py`,
one H200, commit `312576a`, 2026-11-24).

`transposed_convolution` passed on five of CUDA-L1's references before a CPU's judge: level2/42
2.94x [2.31, 3.74], level1/74 1.54x [1.21, 1.96], no gain on level1/57, 64 and 65; a sixth did not
fit into memory ([raw](../benchmarks/results/transposed-convolution.json.gz): `cudal1-ci bench
h100.json --solvers playbook --device cpu`, one launch each; AMD EPYC, 1 thread, torch 2.13,
2026-11-24). On an H100 ([raw](../benchmarks/results/report-card-h100.json.gz), 2026-11-26, one
launch each, counted by `benchmarks/results_counts.py`) it passed on 42 of 43, and was less precise
than the reference on level1/64: level1/58 5.94x [5.39, 6.54], level1/61 4.00x [3.53, 4.53],
level1/68 2.80x [2.55, 3.09], level1/70 2.97x [2.70, 3.27], level2/77 2.31x [1.98, 2.71], level2/61
1.40x [1.26, 1.55] (all of three dimensions), no gain on the others (0.97x in the geometric mean,
level1/69 0.57x).

`long_row_norm` was right wherever it was tried there, and gains where one block for each row leaves
the GPU idle: a LayerNorm over whole images, level1/40, 14.3x [12.9, 15.8], and GroupNorm,
level1/35, 1.87x [1.70, 2.06]; InstanceNorm, level1/34, 1.21x [1.09, 1.34]. Compiled by torch the
three are 13.8x [10.9, 17.3], 1.94x [1.29, 2.91] and 1.21x [1.10, 1.34]
([raw](../benchmarks/results/report-card-long-rows-h100.json.gz): `benchmarks/report_card.py
h100.json --task level1/34 --task level1/35 --task level1/40 --solvers eager,compile,playbook,best
--few 3`, one H100, one launch each, commit `bbbf438`, 2026-11-26).

On the {num_targets:,} modules and tensor functions of {num_trees} repositories ({trees})
{failures} failed, or changed anything but its target, an import and functions of its own
([raw](../benchmarks/results/playbook-corpus.json), `benchmarks/playbook_corpus.py`, {date}).
The most frequent were {frequent}.{gone}
Whether they are faster there was not measured.

Of the {num_matching} references among CUDA-L1's 250 that a rewrite matches, {num_examined} were
drawn and put before the judge on a CPU, with all that matches: of {num_candidates} candidates
{num_passed} were right, {others}, and none was wrong
([raw](../benchmarks/results/playbook-examined.json), `benchmarks/playbook_examined.py`,
{examined_date}).

On an H200, outside of the judge (torch 2.11.0+cu130, triton 3.6, `d0dd8b3`, 2026-11-23,
[raw](../benchmarks/results/rewrite-ratios-h200.json), `benchmarks/rewrite_ratios.py`):

- `attention_weights` gained 1.04x to 1.70x on eight calls of nn.MultiheadAttention.
- `fp32_tensor_cores` took 1/1.65 to 1/2.55 of torch's time for products of 2048 x 2048 x 2048 to
  8205 x 2949 x 5921, but its errors were not those of float32: the largest was 2.5 times torch's
  for sums of 64 products, 9 times for 2048, 15 times for 8192; its tests on a GPU allow 4 times.
  Tensor cores cut sums off where float32 rounds: a model of that on the CPU errs as much, within a
  factor of 2 (`tests/unit/propose/test_tensor_cores.py`). The kernel's sums are made otherwise
  since: at `87ea80b` its tests passed on an H200
  ([raw](../benchmarks/results/tensor-cores-tests-h200.txt)), and the judge found it right on all
  twelve tasks of a [report card](results.md) that it matches and could write (`9f5fd24`,
  2026-11-24): from 1.25x [1.14, 1.38] to 1.72x [1.56, 1.89] on the four with large products, and
  0.63x to 0.82x on eight with small ones, most of them linear layers, of which it had made a
  product and a sum. What that run says of calls of small ones is not to be relied on: a profiler
  had been in the processes that were timed ([results.md](results.md)). On an H100
  ([raw](../benchmarks/results/report-card-h100.json.gz), counted by
  `benchmarks/results_counts.py`, 2026-11-26) all of its 70 candidates were right: from
  1.16x [1.05, 1.28] to 2.00x [1.81, 2.22] as fast on twelve tasks with large products, and 0.99x in
  the geometric mean of the 57 on others.
  Products of 1024 x 1024 x 1024, which took 2.9 times as long as torch's, are left to torch.
  Many products at once (`bmm`) are made in one launch since: its tests passed on an H100 at
  `2faef71` (2026-11-26).
- Tried, and out again: batch normalizations folded at every call into the convolution before them
  (`folded_batch_norm`). Six layers ran at 0.52x to 0.94x of eager's speed; two whose weights are
  larger than their input, which it left alone, at 0.95x and 0.96x. To keep what was folded would be
  wrong as soon as somebody changes the weights.

## Kernels

A Triton or CUDA kernel stays as it is, and is launched with other numbers (`launch_parameters`,
[launches/](../cudal1_ci/propose/launches)): sizes of blocks that are powers of two, `num_warps`
(Triton's own 4 where a launch does not say) and, of kernels with a loop, `num_stages`; of CUDA the
threads of a block. A number counts where the source has it as one, in the launch, in a `dim3` or
behind a name that is bound once, and the grid changes with it where that repeats it. What is
computed is left alone, and so is what an autotuner chooses. First each number is moved by itself,
one step and two, ten variants of a Triton kernel at most and four of a CUDA kernel, each of which
nvcc builds; what gained is put together then, and the best goes a step further. What is proposed
was measured for the calls of the workloads on the device of the report; where others count too,
`triton.autotune` chooses on each.

On an H100 (commit `9f3e37f`, 2026-11-25, `python -m benchmarks.scan_kernels --by playbook`,
[raw](../benchmarks/results/scan-kernels-h100.json)) the example's kernels, which a copy of it
launches in blocks of a warp, become 2.42x [2.28, 2.57] faster (Triton, 387 -> 160 us a call, nine
variants, 82 s, `BLOCK=256`) and 1.85x [1.80, 1.91] (CUDA, 695 -> 375 us, 143 s, where the time that
was given was over after one variant, `threads=64`: nvcc builds each).

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

| wrapper | family | precondition | why it is faster |
|---|---|---|---|
"""


def page() -> str:
    """The text of docs/playbook.md."""
    head = HEAD.format(count=len(REWRITES), **corpus(), **examined())
    return head + rows(REWRITES) + WRAPPERS_HEAD + rows(WRAPPERS)


def rows(rewrites: Sequence[Rewrite]) -> str:
    """One line of a table for each."""
    return "".join(
        f"| `{r.name}` | {r.family} | {cell(r.precondition)} | {cell(r.why)} |\n" for r in rewrites
    )


def examined() -> dict[str, Any]:
    """What is said of the references that the judge was given."""
    told = json.loads((ROOT / "benchmarks/results/playbook-examined.json").read_text("utf-8"))
    found = Counter(one["status"] for row in told["rows"] for one in row["candidates"])
    num_passed = found.pop("passed")
    words = {"precision": "less precise than the reference"}
    assert found.keys() <= words.keys(), "a rewrite was wrong"
    return {
        "num_matching": told["num_matching"],
        "num_examined": told["references"]["passed"],
        "num_candidates": num_passed + found.total(),
        "num_passed": num_passed,
        "others": ", ".join(f"{n} {words[status]}" for status, n in found.items()),
        "examined_date": told["date"][:10],
    }


def corpus() -> dict[str, Any]:
    """What is said of other people's repositories."""
    told = json.loads((ROOT / "benchmarks/results/playbook-corpus.json").read_text("utf-8"))
    matches = {name.removeprefix("playbook:"): n for name, n in told["matches"].items()}
    gone = [f"`{name}`" for name in matches.keys() - {r.name for r in REWRITES}]
    assert told["num_targets"]
    return {
        "num_targets": told["num_targets"],
        "num_trees": len(told["trees"]),
        "trees": ", ".join(told["trees"]),
        "failures": len(told["failures"]) or "no rewrite",
        "date": told["date"][:10],
        "frequent": ", ".join(f"`{name}` ({n})" for name, n in list(matches.items())[:5]),
        "gone": f" Out again since: {', '.join(sorted(gone))}." if gone else "",
    }


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    path = ROOT / "docs" / "playbook.md"
    path.write_text(page(), encoding="utf-8")
