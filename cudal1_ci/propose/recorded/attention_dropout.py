"""Write the probability of dropout, so that it holds in training too."""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.editing.rewrite import names_of
from cudal1_ci.propose.recorded.attention_occurrence import Occurrence, Refused, needed
from cudal1_ci.propose.recorded.attention_text import is_none_test
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.near import line_of, where


def dropout(one: Occurrence) -> str | None:
    """Return the probability of dropout; None if there is none."""
    operation = next((made for made in one.found.after if made.name == "dropout"), None)
    if operation is None:
        return None
    if operation.literal(1, "p") != 0.0 and operation.literal(2, "training") is not False:
        raise Refused(f"the dropout {where(operation)} was at work in the recorded call")
    fact = f"the dropout {where(operation)} is not written as a call"
    node = needed(one.source.place(operation), fact).node
    if not isinstance(node, cst.Call):
        raise Refused(fact)
    if operation.recorded.frame != one.final.recorded.frame:
        raise Refused(f"the dropout {where(operation)} is in another function")
    root = node.func
    while isinstance(root, cst.Attribute | cst.Subscript):
        root = root.value
    scope = one.source.scope(operation)
    held = scope.get(root.value) if isinstance(root, cst.Name) else None
    if held is not None and held.kind == "module":
        return of_module(one, operation, node.func)
    return of_function(one, operation, node)


def of_module(one: Occurrence, operation: Operation, function: cst.BaseExpression) -> str:
    """Return the probability of a submodule, in training."""
    code = needed(one.repeated(function, operation, one.final), changed(operation))
    code += index_in_sequence(one, function)
    owner = "self" if code.startswith("self.") else code
    branches = one.inner(one.sites(operation)[-1][1].node)
    if not branches:
        return f"{code}.p if {owner}.training else 0.0"
    if is_none_test(branches[0]) != code:
        raise Refused(f"the dropout {where(operation)} runs in one branch only")
    return f"{code}.p if {code} is not None and {owner}.training else 0.0"


def of_function(one: Occurrence, operation: Operation, node: cst.Call) -> str | None:
    """Return the probability that `F.dropout` is called with."""
    named = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
    plain = [a.value for a in node.args if a.keyword is None]
    given = (
        named.get("p", plain[1] if len(plain) > 1 else None),
        named.get("training", plain[2] if len(plain) > 2 else None),
    )
    fact = f"line {line_of(operation)} does not state when dropout is active (`training=`)"
    p, training = (
        needed(
            one.bound(one.repeated(needed(argument, fact), operation, one.final)),
            changed(operation),
        )
        for argument in given
    )
    return None if p in ("0", "0.0") else f"{p} if {training} else 0.0"


def changed(operation: Operation) -> str:
    """Return that a dropout cannot be repeated, for people."""
    return f"the dropout {where(operation)} has another meaning where the result is made"


def index_in_sequence(one: Occurrence, function: cst.BaseExpression) -> str:
    """Return the index of the dropout if a submodule is nn.Sequential(Softmax, Dropout)."""
    if not isinstance(function, cst.Attribute):
        return ""
    names = names_of(one.body.file.module, one.body.class_name())
    made = names.attributes.get(function.attr.value)
    kind = None if made is None else names.dotted(made.func)
    if made is None or kind == "torch.nn.Dropout":
        return ""
    kinds = [
        names.dotted(part.value.func) if isinstance(part.value, cst.Call) else None
        for part in made.args
    ]
    name = function.attr.value
    if kind != "torch.nn.Sequential":
        raise Refused(f"`{name}` is made in a way that does not show a dropout")
    if kinds != ["torch.nn.Softmax", "torch.nn.Dropout"]:
        raise Refused(f"`{name}` is a sequence of more than a softmax and a dropout")
    return "[1]"
