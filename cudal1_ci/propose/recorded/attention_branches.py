"""Know that every operation of an attention runs in each call, and that nothing else uses it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.attention_match import Step, beta
from cudal1_ci.propose.recorded.attention_occurrence import Mask, Occurrence, Refused
from cudal1_ci.propose.recorded.attention_text import Body, Site, is_none_test
from cudal1_ci.propose.recorded.near import line_of, where

SCATTERED = "its lines do not follow each other, and a branch reads the weights"


@dataclass(frozen=True)
class Uses:
    """What else reads scores or weights."""

    sizes: dict[cst.CSTNode, str] = field(default_factory=dict)
    """Code for expressions that ask for their dtype or shape."""
    checks: list[cst.CSTNode] = field(default_factory=list)
    """Statements that only raise if they have another shape."""
    guards: list[tuple[cst.If, str]] = field(default_factory=list)
    """Branches that were not taken and use the weights, with when they are not."""


def read(one: Occurrence) -> tuple[list[Mask], dict[cst.CSTNode, Site]]:
    """Return the masks, and the statements that only compute scores or weights, once every
    operation is known to run in each call."""
    found = one.found
    masks: list[Mask] = []
    statements: dict[cst.CSTNode, Site] = {}
    space = one.rank
    if found.product.name == "baddbmm" and beta(found.product) != 0:
        site = one.own_site(found.product, "the mask is added in a helper")
        step = Step("baddbmm", found.product)
        masks.append(Mask(step, site, one.inner(site.node), space))
    steps = {step.operation.index: step for step in found.steps}
    operations = [*one.chain, *found.extra]
    for operation in operations:
        sites = one.sites(operation)
        for (helper, inner), (caller, outer) in itertools.pairwise(sites):
            check_helper(helper, inner, caller, outer)
        _, site = sites[-1]
        known = steps.get(operation.index)
        if known is not None and known.kind == "view":
            space = one.graph.num_dims(operation.output)
        if known is not None and known.kind in ("add", "sub", "fill", "keep"):
            own = one.own_site(operation, f"the mask {where(operation)} is applied in a helper")
            masks.append(Mask(known, own, one.inner(site.node), space))
        if site.statement is not one.place.statement:
            if site.target is None:
                fact = f"line {line_of(operation)} does more than give a name to the scores"
                raise Refused(fact)
            statements[site.statement] = site
    masked = {mask.step.operation.index for mask in masks}
    with_masks = {mask.branches for mask in masks}
    for operation in operations:
        _, site = one.sites(operation)[-1]
        branches = one.inner(site.node)
        known = steps.get(operation.index)
        is_free = operation in found.extra or (known is not None and known.kind in ("view", "none"))
        if not branches or operation.index in masked or (is_free and branches in with_masks):
            continue
        is_single = len(branches) == 1
        if is_single and operation.name == "dropout" and is_none_test(branches[0]):
            continue
        twin = one.body.twin(site.statement, branches[-1]) if is_single else None
        if twin is None or twin.target is None:
            raise Refused(f"line {line_of(operation)} runs in one branch only")
        statements[twin.statement] = twin
    for mask, (node, taken) in [(each, branch) for each in masks for branch in each.branches]:
        if not isinstance(node, cst.If):
            raise Refused(f"the mask {where(mask.step.operation)} is applied in a loop")
        other = node.orelse if taken else node.body
        if other is not None and not one.body.only(other, statements):
            raise Refused(f"the branch at line {one.body.start(node)[0]} does more than mask")
    return masks, statements


def check_helper(helper: Body, inner: Site, caller: Body, outer: Site) -> None:
    """Refuse a function that has other effects, or takes another branch in another call."""
    call = outer.node
    if not helper.is_plain() or not isinstance(call, cst.Call):
        raise Refused(f"the helper called at line {caller.start(call)[0]} has other effects")
    if not all(helper.is_decided(branch, call) for branch in helper.branches(inner.node)):
        line = helper.start(inner.node)[0]
        raise Refused(f"line {line} is in a branch that may not be taken")


def check_stay(one: Occurrence, names: Iterable[str]) -> None:
    """Refuse if queries or keys may be bound again after their product."""
    body = one.body
    for mention in (mention for name in names for mention in body.mentions(name)):
        statement = body.statement(mention)
        is_between = one.first < body.start(statement) < one.last
        if body.is_stored(mention) and is_between and statement not in one.statements:
            raise Refused(f"`{mention.value}` is bound again at line {body.start(mention)[0]}")


def uses(one: Occurrence, q: str, k: str, dropped: Iterable[cst.CSTNode]) -> Uses:
    """Return what else reads scores or weights; refuse if they are written, or read for their
    numbers."""
    body, found = one.body, Uses()
    final_target = body.site_of(one.place.node).target
    allowed = {*one.statements, one.place.statement, *dropped}
    for name in one.chain_names(one.final.recorded.frame):
        is_over = final_target == name
        for mention in body.mentions(name):
            statement = body.statement(mention)
            if statement in allowed or body.start(statement) < one.first:
                continue
            if body.start(statement) > one.last:
                if is_over:
                    continue
                if body.is_stored(mention) and not body.reads(statement, name):
                    is_over = True
                    continue
            size = body.size_code(mention, q, k)
            check = body.size_check(mention)
            if size is not None:
                found.sizes[size[0]] = size[1]
            elif check is not None and body.branches(check) == one.base:
                found.checks.append(check)
            else:
                found.guards.append(guard_of(one, mention))
    for number in {o.recorded.frame for o in one.chain} - {one.final.recorded.frame}:
        check_helper_uses(one, number)
    return found


def check_helper_uses(one: Occurrence, frame: int | None) -> None:
    """Refuse if a helper may use its scores or weights for more than its result."""
    inside = [operation for operation in one.chain if operation.recorded.frame == frame]
    (helper, _), (_, outer), *_ = one.sites(inside[0])
    call = outer.node
    own = {
        site.statement
        for operation in [*inside, *one.found.extra]
        for other, site in one.sites(operation)
        if other.function is helper.function
    }
    for mention in (m for name in one.chain_names(frame) for m in helper.mentions(name)):
        statement = helper.statement(mention)
        is_known = (
            statement in own
            or helper.is_parameter(mention)
            or helper.is_return(statement)
            or helper.size_code(mention, "q", "k") is not None
        )
        if not is_known and not any(
            isinstance(call, cst.Call) and helper.is_decided((node, not taken), call)
            for node, taken in helper.branches(mention)
        ):
            raise Refused(read_again(one, helper, mention))


def read_again(one: Occurrence, body: Body, mention: cst.Name) -> str:
    """Return that scores or weights are read by other code, for people."""
    returned = " (returned to the caller)" if body.is_return(body.statement(mention)) else ""
    weights = {made.output for made in (one.found.softmax, *one.found.after)}
    scopes = (one.source.scope(made) for made in one.graph.operations)
    held = (scope[mention.value] for scope in scopes if mention.value in scope)
    what = "the softmax output" if any(h.value in weights for h in held) else "the scores"
    return f"{what}, `{mention.value}`, is read again at line {body.start(mention)[0]}{returned}"


def guard_of(one: Occurrence, mention: cst.Name) -> tuple[cst.If, str]:
    """Return the branch next to the result that uses scores or weights, with a test that holds
    where it is not taken, as in this call."""
    body = one.body
    branches = one.inner(mention)
    node, taken = branches[-1] if branches else (mention, False)
    if not isinstance(node, cst.If) or node.orelse is not None or not taken:
        raise Refused(read_again(one, body, mention))
    own = [*one.statements, *body.returns()]
    is_beside = node in body.siblings(one.place.statement)
    if not is_beside or any(body.is_inside(line, node) for line in own):
        raise Refused(read_again(one, body, mention))
    name = is_none_test((node, True))
    held = one.source.scope(one.final).get(name) if name is not None else None
    if held is None or held.kind != "literal" or held.text != "None":
        raise Refused(read_again(one, body, mention))
    return node, f"{name} is None"


def guarded(
    one: Occurrence, code: str, own: Iterable[cst.CSTNode], guards: Sequence[tuple[cst.If, str]]
) -> dict[cst.CSTNode, str]:
    """Return the old lines in a branch of their own, next to the new call."""
    body, line = one.body, one.place.statement
    siblings = body.siblings(line)
    extra = [node for node, _ in guards]
    gone = [*body.without(own), *extra, line]
    if not all(node in siblings for node in gone):
        raise Refused(SCATTERED)
    numbers = sorted({siblings.index(node) for node in gone})
    lines = [siblings[number] for number in numbers]
    ahead = [one for one in siblings[numbers[0] : numbers[-1]] if one not in lines]
    if lines[-1] is not line or not all(
        may_go_ahead(one, siblings[numbers[0] : siblings.index(one)]) for one in ahead
    ):
        raise Refused(SCATTERED)
    tests = dict.fromkeys(test for _, test in guards)
    kept = [node for node in lines if node not in extra]
    for mention in (m for test in tests for m in body.mentions(test.partition(" ")[0])):
        if body.is_stored(mention) and any(body.is_inside(mention, node) for node in kept):
            name = mention.value
            raise Refused(f"`{name}`, which decides whether the weights are read, is bound again")
    new_line = line.deep_replace(one.place.node, cst.parse_expression(code))
    assert isinstance(new_line, cst.CSTNode)
    old: list[cst.CSTNode] = []
    for node in lines:  # the branch is known to be taken there
        only = node if len(tests) == 1 and node in extra else None
        block = only.body if isinstance(only, cst.If) else None
        old += [*block.body] if isinstance(block, cst.IndentedBlock) else [node]
    text = f"if {' and '.join(tests)}:\n{body.indented([new_line])}else:\n{body.indented(old)}"
    text = "".join(map(cst.Module([]).code_for_node, ahead)) + text
    return {lines[0]: text, **dict.fromkeys((*lines[1:], *ahead), "")}


def may_go_ahead(line: cst.CSTNode, others: Iterable[cst.CSTNode]) -> bool:
    """Return whether an assignment may as well stand before other lines, which it follows."""
    stored = stored_names(line)
    if not isinstance(line, cst.SimpleStatementLine) or not stored:
        return False
    return not any(
        names_in(one) & stored or stored_names(one) & (stored | names_in(line)) for one in others
    )
