"""Writes docs/playbook.md from the table of rewrites: `python benchmarks/playbook_table.py`."""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.propose.playbook.table import REWRITES

HEAD = """\
# The playbook

{count} rewrites of source, applied with the author's formatting and comments kept. Each is a
candidate like any other: nothing it says is believed until the judge has passed it. Drawn from
`cudal1_ci/propose/playbook/table.py` by `benchmarks/playbook_table.py`.

A rewrite keeps the constructor and the keys of the state_dict; new buffers are not persistent.
Patterns are matched over the values of locals, not over text, so they span statements and do not
mind how a function is spelled (`F.softmax(x, -1)`, `x.softmax(dim=-1)`, `nn.Softmax(dim=-1)` held
in `self`). `compile` is only proposed with `--compile`, `cuda_graph` with `--cuda-graph`: a
graph needs a GPU to be judged: on an H200 a module of eight small layers passed as one, more than
1.5 times as fast ([raw](../benchmarks/results/graphs-h200.json), 2026-11-22).

| rewrite | family | precondition | why it is faster |
|---|---|---|---|
"""


def page() -> str:
    """The text of docs/playbook.md."""
    rows = [
        f"| `{r.name}` | {r.family} | {cell(r.precondition)} | {cell(r.why)} |\n" for r in REWRITES
    ]
    return HEAD.format(count=len(REWRITES)) + "".join(rows)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    path = Path(__file__).resolve().parent.parent / "docs" / "playbook.md"
    path.write_text(page(), encoding="utf-8")
