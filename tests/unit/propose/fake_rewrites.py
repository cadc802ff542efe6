"""Rewrites of a few words, for tests of what is done with rewrites."""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.editing.rewrite import Rewrite, Site, SourceEdit
from cudal1_ci.propose.editing.terms import code


def swapping(name: str, family: str, old: str, new: str) -> Rewrite:
    """Return a rewrite that replaces one text by another in all methods."""

    def apply(site: Site) -> SourceEdit | None:
        functions = {
            method: cst.ensure_type(
                cst.parse_statement(code(method).strip().replace(old, new)), cst.FunctionDef
            )
            for method in site.methods()
            if old in code(method)
        }
        return SourceEdit(functions, (f"`{old}`",), frozenset(("torch",))) if functions else None

    return Rewrite(name, family, f"`{old}` is there", f"`{new}` is faster.", apply)


FAKES = (
    swapping("silu", "operation fusion", "x * torch.sigmoid(x)", "torch.nn.functional.silu(x)"),
    swapping("needless_copy", "memory layout", ".clone()", ""),
    swapping("channels_last", "memory layout", "self.layer(x)", "self.layer(x.contiguous())"),
    swapping("waits", "host synchronization", "+ 1", "+ 1.0"),
    swapping("sdpa", "operation fusion", "softmax(x)", "attention(x)"),
)
