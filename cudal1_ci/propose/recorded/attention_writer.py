"""Write one attention that was matched, where the text guarantees that it is one in every call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.recorded.attention_code import (
    computes,
    inverted,
    is_default,
    letters,
    names_of_code,
    ordered,
)
from cudal1_ci.propose.recorded.attention_match import (
    SIZES,
    VIEWS,
    Attention,
    Step,
    einsum_values,
    is_number,
    untransposed,
)
from cudal1_ci.propose.recorded.attention_text import (
    Body,
    Site,
    bare,
    is_none_test,
)
from cudal1_ci.propose.recorded.graph import CASTS, Operation
from cudal1_ci.propose.recorded.near import line_of, where
from cudal1_ci.propose.recorded.rule import Call, Change, shown
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.rewrites.rewrite import names_of
from cudal1_ci.propose.rewrites.terms import names_in

MASKED_BELOW = -1e4
"""Weights of scores like this are zero, whatever is added to them."""
LOWEST_HALF = -65504.0


class Refused(Exception):
    """Raised where the text does not guarantee the rewrite, with the fact that is missing."""


@dataclass(frozen=True)
class Operand:
    """Code of queries, keys or values."""

    code: str
    value: int
    factors: tuple[tuple[str, str], ...] = ()
    """`mul` or `div`, with code: what the operand still has to be scaled by."""
    dropped: tuple[Site, ...] = ()
    """Statements that scaled it."""


@dataclass(frozen=True)
class Mask:
    """A mask, with the branches that it is applied in."""

    step: Step
    site: Site
    branches: tuple[tuple[cst.CSTNode, bool], ...]
    space: int
    """How many dimensions the scores have where it is applied."""


class Writer:
    """Write one attention."""

    def __init__(self, call: Call, found: Attention):
        self.call, self.graph, self.source, self.found = call, call.graph, call.source, found
        self.final = found.final
        place = self.source.place(self.final)
        file = None if place is None else self.source.file(place.file)
        if place is None or file is None or place.function is None:
            raise Refused
        self.place, self.file = place, file
        self.body = Body(file, place.function)
        self.base = self.body.branches(place.node)
        self.chain = [
            found.product,
            *(one.operation for one in found.steps),
            found.softmax,
            *found.after,
        ]
        self.new: dict[cst.CSTNode, str] = {}
        self.statements: dict[cst.CSTNode, Site] = {}
        """Statements that only compute scores or weights, by node."""
        self.rank = self.graph.num_dims(found.product.output)
        self.guards: list[tuple[cst.If, str]] = []
        """Branches that were not taken and use the weights, with when they are not."""
        self.checks: list[cst.CSTNode] = []
        """Statements that only raise if scores or weights have another shape."""
        self.written: Change | None = None
        self.folded: Operation | None = None
        """The view of 3-D scores that gives them their heads."""

    def change(self) -> Change:
        """Return the change."""
        masks = self.read_text()
        self.read_views(masks)
        q, k = self.queries_and_keys()
        v, after_v = self.values()
        self.names_stay(names_of_code(q.code, k.code))
        dropped = {one.statement: one for one in (*q.dropped, *k.dropped)}
        self.check_names(q, k, dropped)
        argument, build = self.mask_code(masks, q)
        code = self.call_code(q, k, v, argument) + after_v
        if self.guards:
            new = self.guarded(code, [*self.statements, *dropped, *self.checks], build)
            return self.change_of(new)
        gone = [one for one in (*self.statements, *self.checks) if one not in build]
        self.new.update(dict.fromkeys(self.body.without(gone), ""))
        for node, site in dropped.items():
            self.new[node] = f"{site.target} = {site.target}"
        self.new.update(build)
        self.new[self.place.node] = code
        return self.change_of(self.new)

    def change_of(self, new: dict[cst.CSTNode, str]) -> Change:
        return Change(
            file=self.place.file,
            new=new,
            found=shown(self.final, self.source),
            modules=self.source.functional(self.place.file)[1],
        )

    def call_code(self, q: Operand, k: Operand, v: str, mask: str | None) -> str:
        """Return the call, in the shape of the old result."""
        rank, codes, after = self.rank, [q.code, k.code, v], ""
        if self.folded is not None:
            sizes = self.unflattened(self.final)
            codes = [f"{bracketed(one)}.unflatten(0, {sizes})" for one in codes]
            after = ".flatten(0, 1)"
            if self.graph.num_dims(self.final.output) == 4:
                after = ""
        elif rank == 3:
            codes = [f"{bracketed(one)}[None]" for one in codes]
            after = "[0]"
        given = []
        if mask is not None:
            given.append(f"attn_mask={mask}")
        dropout = self.dropout()
        if dropout is not None:
            given.append(f"dropout_p={dropout}")
        scale = self.scale(q, k)
        if scale is not None:
            given.append(f"scale={scale}")
        prefix, _ = self.source.functional(self.place.file)
        code = f"{prefix}.scaled_dot_product_attention({', '.join([*codes, *given])}){after}"
        return code + self.contiguous()

    def packed(self, code: str, value: int | None, is_transposed: bool) -> str:
        """Return code of a tensor whose last dimension has no gaps: fused kernels need it."""
        known = self.graph.of(value)
        if known is None or len(known.stride) < 2:
            return code
        is_packed = known.stride[-2 if is_transposed else -1] == 1
        return code if is_packed else f"{bracketed(code)}.contiguous()"

    def contiguous(self) -> str:
        """Return a copy if the result is viewed with dimensions merged: SDPA's may not be in
        order."""
        for one in self.graph.readers.get(self.final.output or 0, []):
            if one.name == "view":
                before, after = self.graph.of(one.value(0)), self.graph.of(one.output)
                if before is None or after is None or len(after.shape) <= len(before.shape):
                    return ".contiguous()"
        return ""

    # --- text ------------------------------------------------------------------------------------

    def sites(self, operation: Operation) -> list[tuple[Body, Site]]:
        """Return where an operation is written: in its own function, then where that is called,
        up to the function of the result."""
        number = operation.recorded.frame
        span = operation.recorded.span
        found: list[tuple[Body, Site]] = []
        while number is not None:
            frame = self.graph.recording.frames[number]
            file = self.source.file(frame.file)
            site = None if file is None or span is None else Body.site(file, span)
            if file is None or site is None or frame.function.endswith(">"):
                raise Refused("part of it is not in a function of this checkout")
            if number == self.final.recorded.frame:
                if site.function is not self.body.function:
                    raise Refused("part of it is in another function of the same name")
                return [*found, (self.body, site)]
            if site.function is None:
                raise Refused("part of it is outside of any function")
            found.append((Body(file, site.function), site))
            number, span = frame.caller, frame.call
        raise Refused("part of it is computed before the function of the result is called")

    def read_text(self) -> list[Mask]:
        """Return the masks, once every operation is known to run in each call."""
        masks = []
        space = self.rank
        for one in [*self.chain, *self.found.extra]:
            sites = self.sites(one)
            for (helper, inner), (_, outer) in itertools.pairwise(sites):
                self.check_helper(helper, inner, outer)
            _, site = sites[-1]
            step = next((s for s in self.found.steps if s.operation is one), None)
            branches = tuple(b for b in self.body.branches(site.node) if b not in self.base)
            if step is not None and step.kind == "view":
                space = self.graph.num_dims(one.output)
            if step is not None and step.kind in ("add", "sub", "fill", "keep"):
                if len(sites) > 1:
                    raise Refused(
                        f"the mask {where(one)} is applied in a helper"
                    )  # a mask of a helper
                masks.append(Mask(step, site, branches, space))
            if one is not self.final and site.statement is not self.place.statement:
                if site.target is None:
                    raise Refused(f"line {line_of(one)} does more than give a name to the scores")
                self.statements[site.statement] = site
        if self.found.product.name == "baddbmm" and self.beta() != 0:
            sites = self.sites(self.found.product)
            if len(sites) > 1:
                raise Refused("the mask is added in a helper")
            branches = tuple(b for b in self.body.branches(sites[0][1].node) if b not in self.base)
            masks.insert(
                0, Mask(Step("baddbmm", self.found.product), sites[0][1], branches, self.rank)
            )
        known = {one.branches for one in masks}
        for one in [*self.chain, *self.found.extra]:
            _, site = self.sites(one)[-1]
            branches = tuple(b for b in self.body.branches(site.node) if b not in self.base)
            step = next((s for s in self.found.steps if s.operation is one), None)
            is_mask = any(m.step.operation is one for m in masks)
            if not branches or is_mask:
                continue
            is_free = one in self.found.extra or (
                step is not None and step.kind in ("view", "none")
            )
            if is_free and branches in known:
                continue
            if one.name == "dropout" and len(branches) == 1 and is_none_test(branches[0]):
                continue
            twin = self.body.twin(site.statement, branches[-1]) if len(branches) == 1 else None
            if twin is None or twin.target is None:
                raise Refused(f"line {line_of(one)} runs in one branch only")
            self.statements[twin.statement] = twin
        for mask in masks:
            if any(not isinstance(node, cst.If) for node, _ in mask.branches):
                raise Refused(f"the mask {where(mask.step.operation)} is applied in a loop")
            for node, taken in mask.branches:
                other = node.orelse if taken else node.body  # type: ignore[attr-defined]
                allowed = {*self.statements}
                if other is not None and not self.body.only(other, allowed):
                    raise Refused(
                        f"the branch at line {self.body.start(node)[0]} does more than mask"
                    )
        return masks

    def check_helper(self, helper: Body, inner: Site, outer: Site) -> None:
        """Refuse a function that has other effects, or takes another branch in another call."""
        if not helper.is_plain() or not isinstance(outer.node, cst.Call):
            raise Refused(
                f"the helper called at line {self.body.start(outer.node)[0]} has other effects"
            )
        for branch in helper.branches(inner.node):
            if not helper.is_decided(branch, outer.node):
                raise Refused(
                    f"line {helper.start(inner.node)[0]} is in a branch that may not be taken"
                )

    def chain_names(self, frame: int | None) -> set[str]:
        """Return the names that scores and weights have in a frame."""
        values = {one.output for one in self.chain}
        found = set()
        for one in self.graph.operations:
            if one.recorded.frame == frame:
                scope = self.source.scope(one)
                found |= {name for name, held in scope.items() if held.value in values}
        return {one for one in found if not one.startswith(".")} | {
            site.target
            for site in self.statements.values()
            if frame == self.final.recorded.frame and site.target is not None
        }

    def check_names(self, q: Operand, k: Operand, dropped: dict[cst.CSTNode, Site]) -> None:
        """Refuse if scores or weights are read or written by other code; give what asks for their
        dtype or shape the same of queries and keys."""
        body = self.body
        names = self.chain_names(self.final.recorded.frame)
        first = min(body.start(one) for one in [*self.statements, self.place.statement])
        last = body.start(self.place.statement)
        final_target = body.site_of(self.place.node).target
        allowed = {*self.statements, self.place.statement, *dropped}
        for name in names:
            is_over = final_target == name
            for mention in body.mentions(name):
                statement = body.statement(mention)
                if statement in allowed or body.start(statement) < first:
                    continue
                if body.start(statement) > last:
                    if is_over:
                        continue
                    if body.is_stored(mention) and not body.reads(statement, name):
                        is_over = True
                        continue
                size = body.size_code(mention, q.code, k.code)
                if size is not None:
                    self.new[size[0]] = size[1]
                    continue
                check = body.size_check(mention)
                if check is not None and body.branches(check) == self.base:
                    self.checks.append(check)
                    continue
                self.guards.append(self.guard_of(mention))
        for number in {one.recorded.frame for one in self.chain} - {self.final.recorded.frame}:
            inside = [one for one in self.chain if one.recorded.frame == number]
            (helper, _), (_, outer), *_ = self.sites(inside[0])
            own = {
                site.statement
                for one in [*inside, *self.found.extra]
                for other, site in self.sites(one)
                if other.function is helper.function
            }
            for name in self.chain_names(number):
                for mention in helper.mentions(name):
                    statement = helper.statement(mention)
                    is_known = (
                        statement in own
                        or helper.is_parameter(mention)
                        or helper.is_return(statement)
                        or helper.size_code(mention, "q", "k") is not None
                    )
                    if not is_known and not any(
                        isinstance(outer.node, cst.Call)
                        and helper.is_decided((node, not taken), outer.node)
                        for node, taken in helper.branches(mention)
                    ):
                        raise Refused(self.read_again(helper, mention))

    def read_again(self, body: Body, mention: cst.Name) -> str:
        """Return that scores or weights are read by other code, for people."""
        returned = " (returned to the caller)" if body.is_return(body.statement(mention)) else ""
        is_weights = any(
            held.value in {one.output for one in (self.found.softmax, *self.found.after)}
            for one in self.graph.operations
            for name, held in self.source.scope(one).items()
            if name == mention.value
        )
        what = "the softmax output" if is_weights else "the scores"
        line = body.start(mention)[0]
        return f"{what}, `{mention.value}`, is read again at line {line}{returned}"

    def guard_of(self, mention: cst.Name) -> tuple[cst.If, str]:
        """Return the branch beside the result that uses scores or weights, with a test that holds
        where it is not taken, as in this call."""
        branches = [b for b in self.body.branches(mention) if b not in self.base]
        if not branches:
            raise Refused(self.read_again(self.body, mention))
        node, taken = branches[-1]
        siblings = self.body.siblings(self.place.statement)
        if not isinstance(node, cst.If) or node not in siblings or node.orelse is not None:
            raise Refused(self.read_again(self.body, mention))
        own = [*self.statements, *self.body.returns()]
        if not taken or any(self.body.is_inside(one, node) for one in own):
            raise Refused(self.read_again(self.body, mention))
        name = is_none_test((node, False)) or is_none_test((node, True))
        held = self.source.scope(self.final).get(name) if name is not None else None
        is_absent = held is not None and held.kind == "literal" and held.text == "None"
        if not is_absent or is_none_test((node, True)) is None:
            raise Refused(self.read_again(self.body, mention))
        return node, f"{name} is None"

    def guarded(
        self, code: str, own: Sequence[cst.CSTNode], build: dict[cst.CSTNode, str]
    ) -> dict[cst.CSTNode, str]:
        """Return the old lines in a branch of their own, beside the new call."""
        siblings = self.body.siblings(self.place.statement)
        extra = [node for node, _ in self.guards]
        gone = [*self.body.without(own), *extra, self.place.statement]
        if build or not all(one in siblings for one in gone):
            raise Refused("its lines do not follow each other, and a branch reads the weights")
        numbers = sorted({siblings.index(one) for one in gone})
        lines = [siblings[number] for number in numbers]
        if numbers != [*range(numbers[0], numbers[-1] + 1)] or lines[-1] is not gone[-1]:
            raise Refused("its lines do not follow each other, and a branch reads the weights")
        tests = dict.fromkeys(test for _, test in self.guards)
        for test in tests:
            name = test.partition(" ")[0]
            stored = [one for one in self.body.mentions(name) if self.body.is_stored(one)]
            if any(
                self.body.is_inside(one, line)
                for one in stored
                for line in lines
                if line not in extra
            ):
                raise Refused(
                    f"`{name}`, which decides whether the weights are read, is bound again"
                )
        line = self.place.statement
        new_line = line.deep_replace(self.place.node, cst.parse_expression(code))
        assert isinstance(new_line, cst.CSTNode)
        text = f"if {' and '.join(tests)}:\n{self.body.indented([new_line])}"
        old: list[cst.CSTNode] = []
        for one in lines:  # the branch is known to be taken there
            only = one if len(tests) == 1 and one in extra else None
            block = only.body if isinstance(only, cst.If) else None
            old += [*block.body] if isinstance(block, cst.IndentedBlock) else [one]
        text += f"else:\n{self.body.indented(old)}"
        return {lines[0]: text, **dict.fromkeys(lines[1:], "")}

    def names_stay(self, names: set[str]) -> None:
        """Refuse if queries or keys may be bound again after their product."""
        first = min(self.body.start(one) for one in [*self.statements, self.place.statement])
        last = self.body.start(self.place.statement)
        for name in names:
            for mention in self.body.mentions(name):
                statement = self.body.statement(mention)
                if (
                    self.body.is_stored(mention)
                    and first < self.body.start(statement) < last
                    and statement not in self.statements
                ):
                    raise Refused(f"`{name}` is bound again at line {self.body.start(mention)[0]}")

    def code(self, value: int | None, at: Operation, guard: Sequence[object] = ()) -> str | None:
        """Return code of a value that is bound wherever the result is computed."""
        code = self.source.expression(value, at=at)
        return None if code is None else self.bound(bare(code), guard)

    def bound(self, code: str | None, guard: Sequence[object] = ()) -> str | None:
        """Return code if all its names are bound whenever the result is computed."""
        if code is None:
            return None
        for name in names_of_code(code):
            if not self.body.is_bound(name, [*self.base, *guard]):
                return None
        return code

    def repeated(self, node: cst.BaseExpression, made: Operation, at: Operation) -> str | None:
        """Return an expression's code if it means the same at another place of its function."""
        if made.recorded.frame != at.recorded.frame:
            return None
        before, after = self.source.scope(made), self.source.scope(at)
        if any(before.get(name) != after.get(name) for name in names_in(node)):
            return None
        return bare(cst.Module([]).code_for_node(node))

    def argument_node(
        self, operation: Operation, position: int, name: str
    ) -> cst.BaseExpression | None:
        """Return an argument's expression."""
        if position < len(operation.recorded.args):
            span = operation.recorded.span
            frame = self.source.frame(operation)
            file = None if frame is None else self.source.file(frame.file)
            site = None if file is None or span is None else Body.site(file, span)
            if site is not None and isinstance(site.node, cst.AugAssign):
                return (site.node.target, site.node.value)[position] if position < 2 else None
            found = self.source.operands(operation)
            return found[position] if position < len(found) else None
        place = self.source.place(operation)
        if place is None or not isinstance(place.node, cst.Call):
            return None
        for one in place.node.args:
            if one.keyword is not None and one.keyword.value == name:
                return one.value
        return None

    def argument_code(
        self, operation: Operation, position: int, name: str, at: Operation
    ) -> str | None:
        """Return an argument's code at another place, perhaps in the function that calls it."""
        node = self.argument_node(operation, position, name)
        if node is None:
            return None
        if operation.recorded.frame == at.recorded.frame:
            return self.repeated(node, operation, at)
        before, after = self.source.scope(operation), self.source.scope(at)
        for one in names_in(node):
            held = before.get(one)
            if held != after.get(one) or (
                held is not None and held.kind not in ("module", "value")
            ):
                return None
        return cst.Module([]).code_for_node(node)

    # --- queries, keys, values -------------------------------------------------------------------

    def queries_and_keys(self) -> tuple[Operand, Operand]:
        """Return queries and keys, both with the last dimension that they are multiplied over."""
        product = self.found.product
        if product.name == "einsum":
            equation = letters(product)
            if equation is None:
                raise Refused(f"the einsum {where(product)} is no product of queries and keys")
            left, right, out = equation
            batch, i, j = out[:-2], out[-2], out[-1]
            shared = [one for one in left if one in right and one not in out]
            values = einsum_values(product)
            if len(shared) != 1 or i not in left or j not in right:
                raise Refused(f"the einsum {where(product)} is no product of queries and keys")
            d = shared[0]
            if {*left} != {*batch, i, d} or {*right} != {*batch, j, d}:
                raise Refused(f"the einsum {where(product)} is no product of queries and keys")
            q = self.operand(values[0], False, ordered(left, [*batch, i, d]))
            k = self.operand(values[1], False, ordered(right, [*batch, j, d]))
        else:
            start = 1 if product.name == "baddbmm" else 0
            names = ("batch1", "batch2") if start else ("input", "mat2")
            queries = product.value(start, names[0])
            keys = product.value(start + 1, names[1])
            if keys is None:
                keys = product.value(start + 1, "other")
            if queries is None or keys is None:
                raise Refused(f"the product {where(product)} has an operand that is not known")
            left_shape, right_shape = self.graph.of(queries), self.graph.of(keys)
            assert left_shape is not None and right_shape is not None
            if left_shape.shape[:-2] != right_shape.shape[:-2]:
                raise Refused(
                    "queries and keys have other leading dimensions, such as numbers of heads"
                )
            q, k = self.operand(queries, False, ""), self.operand(keys, True, "")
        return q, k

    def operand(self, value: int, is_transposed: bool, suffix: str) -> Operand:
        """Return the best code for queries or keys."""
        choices = []
        for choice in self.choices(value, is_transposed, (), ()):
            current, still, factors, made = choice
            dropped: tuple[Site, ...] = ()
            rebound = self.rebound(made) if made else None
            code = self.code(current, self.final)
            if rebound is not None:
                code, dropped = rebound
            if code is None or (factors and computes(code)):
                continue
            more = ".transpose(-2, -1)" if still else ""
            whole = f"{bracketed(code)}{more}{suffix}" if more or suffix else code
            if not suffix:
                whole = self.packed(whole, current, bool(still))
            choices.append((still, Operand(whole, current, factors, dropped)))
        if not choices:
            raise Refused(
                f"queries or keys have no code {where(self.final)}, where the result is made"
            )
        plain = [one for still, one in choices if not still]
        return (plain or [one for _, one in choices])[-1]

    def choices(
        self,
        value: int,
        is_transposed: bool,
        factors: tuple[tuple[str, str], ...],
        made: tuple[Operation, ...],
    ) -> Iterator[tuple[int, bool, tuple[tuple[str, str], ...], tuple[Operation, ...]]]:
        """Yield values that an operand is made of, with what is left to do: is it still
        transposed, by what is it scaled."""
        yield value, is_transposed, factors, made
        maker = self.graph.maker.get(value)
        if maker is None or len(factors) > 2:
            return
        before = untransposed(self.call, maker) if is_transposed else None
        if before is not None:
            yield from self.choices(before, False, factors, made)
            return
        name = maker.name.removesuffix("_")
        for position in (1, 0):
            scaled = maker.value(1 - position)
            if name not in ("mul", "div") or (name == "div" and position == 0) or scaled is None:
                continue
            if not is_number(self.call, maker, position):
                continue
            factor = self.factor(maker, position)
            if factor is not None:
                yield from self.choices(
                    scaled, is_transposed, ((name, factor), *factors), (maker, *made)
                )
                return

    def rebound(self, made: tuple[Operation, ...]) -> tuple[str, tuple[Site, ...]] | None:
        """Return the name that was bound again when it was scaled (`q = q * scale`), with the
        statement to leave out."""
        if len(made) != 1:
            return None
        maker = made[0]
        sites = self.sites_or_none(maker)
        if sites is None or len(sites) != 1:
            return None
        site = sites[0][1]
        name = site.target
        is_free = all(b in self.base for b in self.body.branches(site.node))
        readers = self.graph.readers.get(maker.output or 0, [])
        readers = [one for one in readers if one.name not in SIZES]
        if name is None or len(readers) != 1 or not is_free or self.body.whole(site) is None:
            return None
        operands = [self.argument_node(maker, n, "other") for n in (0, 1)]
        if not any(isinstance(one, cst.Name) and one.value == name for one in operands):
            return None
        start = self.body.start(site.statement)
        for mention in self.body.mentions(name):
            statement = self.body.statement(mention)
            if self.body.start(statement) <= start or statement in self.statements:
                continue
            if statement is self.place.statement and self.body.is_inside(mention, self.place.node):
                continue
            reader = self.sites_or_none(readers[0])
            if reader is not None and self.body.is_inside(mention, reader[-1][1].node):
                continue
            if self.body.size_code(mention, name, name) is None:
                return None
        return name, (site,)

    def sites_or_none(self, operation: Operation) -> list[tuple[Body, Site]] | None:
        try:
            return self.sites(operation)
        except Refused:
            return None

    def factor(self, operation: Operation, position: int) -> str | None:
        """Return the code of a number that an operation scales by."""
        value = operation.value(position, "other")
        if value is not None:
            maker = self.graph.made_by(value, "full", "tensor")
            if maker is None:
                return None
            position = 1 if maker.name == "full" else 0
            code = self.argument_code(maker, position, "fill_value", self.final)
        else:
            code = self.argument_code(operation, position, "other", self.final)
        code = self.bound(code)
        names = self.chain_names(operation.recorded.frame)
        return None if code is None or names_of_code(code) & names else bare(code)

    def values(self) -> tuple[str, str]:
        """Return the code of the values, and what brings the result to its old form."""
        final = self.final
        after = ""
        suffix = ""
        if final.name == "einsum":
            equation = letters(final)
            shape = self.graph.num_dims(self.found.softmax.output)
            if equation is None or len(equation[0]) != shape:
                raise Refused(f"the einsum {where(final)} is no product of weights and values")
            left, right, out = equation
            batch, i, j = left[:-2], left[-2], left[-1]
            free = [one for one in right if one not in left]
            if len(free) != 1 or {*right} != {*batch, j, *free} or {*out} != {*batch, i, *free}:
                raise Refused(f"the einsum {where(final)} is no product of weights and values")
            suffix = ordered(right, [*batch, j, *free])
            after = ordered([*batch, i, *free], out)
            value: int | None = einsum_values(final)[1]
        elif self.found.is_transposed:
            value = final.value(0)
            suffix, after = ".transpose(-2, -1)", ".transpose(-2, -1)"
        else:
            value = final.value(1, "mat2")
            value = final.value(1, "other") if value is None else value
        code = self.code(value, self.final)
        known, weights = self.graph.of(value), self.graph.of(self.found.product.output)
        if code is None or known is None or weights is None:
            raise Refused(f"the values have no code {where(final)}")
        if not suffix and known.shape[:-2] != weights.shape[:-2]:
            raise Refused(
                "weights and values have other leading dimensions, such as numbers of heads"
            )
        maker = untransposed(self.call, self.graph.maker.get(value or 0))
        if suffix == ".transpose(-2, -1)" and maker is not None:
            before = self.code(maker, self.final)
            if before is not None:
                return self.packed(before, maker, False), after
        is_turned = suffix == ".transpose(-2, -1)"
        if is_turned or not suffix:
            return self.packed(
                f"{bracketed(code)}{suffix}" if suffix else code, value, is_turned
            ), after
        return (f"{bracketed(code)}{suffix}" if suffix else code), after

    def scale(self, q: Operand, k: Operand) -> str | None:
        """Return the scale; None if it is the one that SDPA has by default."""
        factors = [*q.factors, *k.factors]
        product = self.found.product
        if product.name == "baddbmm" and self.argument_node(product, 4, "alpha") is not None:
            code = self.bound(self.argument_code(product, 4, "alpha", self.final))
            if code is None:
                raise Refused(f"the factor {where(product)} is not known {where(self.final)}")
            factors.append(("mul", bare(code)))
        for step in self.found.steps:
            if step.kind in ("mul", "div"):
                factor = self.factor(step.operation, step.position)
                if factor is None:
                    raise Refused(
                        f"the factor {where(step.operation)} is not known {where(self.final)}"
                    )
                factors.append((step.kind, factor))
        if any(step.kind in ("mul", "div") for step in self.found.steps):
            first = next(n for n, s in enumerate(self.found.steps) if s.kind in ("mul", "div"))
            if any(s.kind in ("add", "sub") for s in self.found.steps[:first]):
                raise Refused(
                    "the mask is scaled too: it is added before the scores are"
                )  # the mask is scaled too
        if not factors:
            return "1.0"
        if len(factors) == 1 and is_default(factors[0], q.code, k.code):
            return None
        code = ""
        for kind, one in factors:
            if not code:
                code = one if kind == "mul" else f"1.0 / {bracketed(one)}"
                continue
            first_code = code if "1.0 / " in code[:6] else bracketed(code)
            code = f"{first_code} {'*' if kind == 'mul' else '/'} {bracketed(one)}"
        return code

    def dropout(self) -> str | None:
        """Return the probability of dropout."""
        for one in self.found.after:
            if one.name != "dropout":
                continue
            p, training = one.literal(1, "p"), one.literal(2, "training")
            if p != 0.0 and training is not False:
                raise Refused(f"the dropout {where(one)} was at work in the recorded call")
            place = self.source.place(one)
            if place is None or not isinstance(place.node, cst.Call):
                raise Refused(f"the dropout {where(one)} is not written as a call")
            if one.recorded.frame != self.final.recorded.frame:
                raise Refused(f"the dropout {where(one)} is in another function")
            return self.dropout_code(one, place.node)
        return None

    def dropout_code(self, operation: Operation, node: cst.Call) -> str | None:
        scope = self.source.scope(operation)
        function = node.func
        root = function
        while isinstance(root, cst.Attribute | cst.Subscript):
            root = root.value
        held = scope.get(root.value) if isinstance(root, cst.Name) else None
        if held is not None and held.kind == "module":
            code = self.repeated(function, operation, self.final)
            if code is None:
                raise Refused(
                    f"the dropout {where(operation)} has another meaning where the result is made"
                )
            code += self.index_in_sequence(function)
            owner = "self" if code.startswith("self.") else code
            _, site = self.sites(operation)[-1]
            branches = [b for b in self.body.branches(site.node) if b not in self.base]
            if branches:
                name = is_none_test(branches[0])
                if name != code:
                    raise Refused(f"the dropout {where(operation)} runs in one branch only")
                return f"{code}.p if {code} is not None and {owner}.training else 0.0"
            return f"{code}.p if {owner}.training else 0.0"
        arguments = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
        plain = [a.value for a in node.args if a.keyword is None]
        p = arguments.get("p", plain[1] if len(plain) > 1 else None)
        training = arguments.get("training", plain[2] if len(plain) > 2 else None)
        if p is None or training is None:
            raise Refused(
                f"line {line_of(operation)} does not say when dropout is at work (`training=`)"
            )
        codes = [self.bound(self.repeated(x, operation, self.final)) for x in (p, training)]
        if None in codes:
            raise Refused(
                f"the dropout {where(operation)} has another meaning where the result is made"
            )
        if codes[0] in ("0", "0.0"):
            return None
        return f"{codes[0]} if {codes[1]} else 0.0"

    def index_in_sequence(self, function: cst.BaseExpression) -> str:
        """Return the index of the dropout if a submodule is nn.Sequential(Softmax, Dropout)."""
        if not isinstance(function, cst.Attribute):
            return ""
        names = names_of(self.file.module, self.body.class_name())
        made = names.attributes.get(function.attr.value)
        if made is None:
            return ""
        kind = names.dotted(made.func)
        if kind == "torch.nn.Sequential":
            kinds = [
                names.dotted(one.value.func) if isinstance(one.value, cst.Call) else None
                for one in made.args
            ]
            if kinds == ["torch.nn.Softmax", "torch.nn.Dropout"]:
                return "[1]"
            raise Refused(
                f"`{function.attr.value}` is a sequence of more than a softmax and a dropout"
            )
        if kind != "torch.nn.Dropout":
            raise Refused(f"`{function.attr.value}` is made in a way that does not show a dropout")
        return ""

    # --- masks -----------------------------------------------------------------------------------

    def beta(self) -> object:
        """Return how much of its first argument `baddbmm` adds."""
        found = self.found.product.literal(3, "beta")
        return 1 if found is None else found

    def read_views(self, masks: Sequence[Mask]) -> None:
        """Refuse views that change more than the leading dimensions."""
        shape = self.graph.of(self.found.product.output)
        assert shape is not None
        spaces = [self.rank]
        views = [s.operation for s in self.found.steps if s.kind == "view"]
        views += [one for one in self.found.after if one.name in VIEWS]
        for one in views:
            after = self.graph.of(one.output)
            if after is None or after.shape[-2:] != shape.shape[-2:]:
                raise Refused(f"the view {where(one)} changes rows or columns of the scores")
            spaces.append(len(after.shape))
            if self.rank == 3 and len(after.shape) == 4 and self.folded is None:
                self.folded = one
        if any(not (3 <= one <= 5) for one in spaces):
            raise Refused("the scores have less than three or more than five dimensions")
        if self.rank == 3 and 5 in spaces:
            raise Refused("the scores have less than three or more than five dimensions")
        if self.folded is not None:
            if self.found.is_transposed or self.final.name == "einsum":
                raise Refused("the result is transposed, and so are the heads of the mask")
        elif len(views) % 2 or (spaces[-1] != self.rank):
            raise Refused(
                "the scores are viewed in another shape when they are multiplied with the values"
            )
        if self.folded is not None and spaces[-1] == 4:
            raise Refused(
                "the scores are viewed in another shape when they are multiplied with the values"
            )
        if not masks and views and self.folded is None:
            raise Refused("the scores are viewed in another shape, though no mask needs it")

    def unflattened(self, at: Operation) -> str:
        """Return the two sizes that the first dimension is made of."""
        assert self.folded is not None
        sizes = self.view_sizes(self.folded, at)
        if sizes is None or len(sizes) != 4:
            raise Refused("the number of heads has no code where the result is made")
        return f"({sizes[0]}, {sizes[1]})"

    def view_sizes(self, operation: Operation, at: Operation) -> list[str] | None:
        """Return the sizes of a view as code, if they are the same at another place."""
        place = self.source.place(operation)
        if place is None or not isinstance(place.node, cst.Call):
            return None
        arguments = place.node.args
        if isinstance(place.node.func, cst.Attribute) and any(a.keyword for a in arguments):
            return None
        nodes = [one.value for one in arguments]
        if len(nodes) == 1 and isinstance(nodes[0], cst.Tuple | cst.List):
            nodes = [one.value for one in nodes[0].elements]
        codes = [self.repeated(one, operation, at) for one in nodes]
        branches = self.body.branches(place.node)
        for one in codes:
            if one is None or (at is self.final and self.bound(one) is None):
                return None
            if at is not self.final and not all(
                self.body.is_bound(name, branches) for name in names_of_code(one)
            ):
                return None
        return [one for one in codes if one is not None]

    def mask_code(self, masks: list[Mask], q: Operand) -> tuple[str | None, dict[cst.CSTNode, str]]:
        """Return the argument for all masks, and statements that make it."""
        if not masks:
            return None, {}
        if len(masks) == 1:
            inline = self.inline_mask(masks[0], q)
            if inline is not None:
                return inline, {}
        elif all(not one.branches for one in masks):
            codes = [self.inline_mask(one, q) for one in masks]
            if all(one.step.kind in ("add", "baddbmm", "sub") for one in masks):
                known = [one for one in codes if one is not None]
                if len(known) == len(codes):
                    return " + ".join(known), {}
        return self.built_mask(masks, q)

    def inline_mask(self, mask: Mask, q: Operand) -> str | None:
        """Return code for one mask that can stand in the call."""
        step = mask.step
        if len(mask.branches) > 1:
            return None
        guard = is_none_test(mask.branches[0]) if mask.branches else None
        if mask.branches and guard is None:
            return None
        if step.kind in ("add", "sub"):
            value = step.operation.value(step.position, "other")
            code = self.given_code(step.operation, step.position, value, self.final)
            code = self.bound(code, mask.branches)
            if code is None:
                return None
            suffix = self.mask_suffix(mask, value, self.final)
            if suffix is None:
                return None
            if step.kind == "sub":
                code = f"-{bracketed(code)}"
            code = f"{bracketed(code)}{suffix}" if suffix else code
        elif step.kind == "baddbmm":
            return None
        else:
            condition = self.condition(step, self.final)
            fill = self.fill_code(step, self.final)
            value = self.condition_value(step)
            suffix = self.mask_suffix(mask, value, self.final)
            if condition is None or fill is None or suffix is None:
                return None
            whole = [self.bound(one, mask.branches) for one in (condition, fill)]
            if None in whole:
                return None
            if self.fill_number(step) == -math.inf:
                is_kept = step.kind == "keep"
                code = condition if is_kept else inverted(condition)
                code = f"{bracketed(code)}{suffix}" if suffix else code
            else:
                hidden = inverted(condition) if step.kind == "keep" else condition
                code = f"{bracketed(q.code)}.new_zeros(()).masked_fill({hidden}, {fill}){suffix}"
        if guard is None or code == guard:
            return code
        before, after = self.source.scope(step.operation), self.source.scope(self.final)
        root = guard.split(".")[0]
        if before.get(root) != after.get(root):
            return None
        return f"None if {guard} is None else {code}"

    def condition_value(self, step: Step) -> int | None:
        position = 1 if step.operation.name.startswith("masked_fill") else 0
        return step.operation.value(position, "mask")

    def condition(self, step: Step, at: Operation) -> str | None:
        """Return the code of the boolean mask."""
        value = self.condition_value(step)
        known = self.graph.of(value)
        if known is None or known.dtype != "bool":
            return None
        position = 1 if step.operation.name.startswith("masked_fill") else 0
        return self.given_code(step.operation, position, value, at)

    def given_code(
        self, operation: Operation, position: int, value: int | None, at: Operation
    ) -> str | None:
        """Return a tensor argument's code at another place: as it is written if it can be, so
        that no cast is lost that did nothing in this call."""
        node = self.argument_node(operation, position, "mask")
        code = None if node is None else self.repeated(node, operation, at)
        return self.source.expression(value, at=at) if code is None else code

    def fill_position(self, step: Step) -> int:
        if step.operation.name.startswith("masked_fill"):
            return 2
        return 2 if step.kind == "keep" else 1

    def fill_number(self, step: Step) -> float | None:
        """Return what the masked scores are."""
        operation, position = step.operation, self.fill_position(step)
        value = operation.value(position, "value")
        if value is not None:
            maker = self.graph.made_by(value, "full", "tensor")
            if maker is None or self.graph.num_dims(value) != 0:
                return None
            found = maker.literal(1 if maker.name == "full" else 0, "fill_value")
        else:
            found = operation.literal(position, "value")
        return float(found) if isinstance(found, int | float) else None

    def fill_code(self, step: Step, at: Operation) -> str | None:
        number = self.fill_number(step)
        if number is None or not number <= MASKED_BELOW:
            raise Refused(
                f"the masked scores {where(step.operation)} are not low enough to count for nothing"
            )
        position = self.fill_position(step)
        value = step.operation.value(position, "value")
        if value is not None:
            return self.source.expression(value, at=at)
        casts = [
            one
            for one in (*self.found.extra, *(s.operation for s in self.found.steps))
            if one.name in CASTS and one.index < step.operation.index
        ]
        if casts and -math.inf < number < LOWEST_HALF:
            raise Refused(
                "half-precision scores are cast so that they can hold the number of masked ones"
            )  # half-precision scores were cast to hold the number
        if at is step.operation:
            node = self.argument_node(step.operation, position, "value")
            return None if node is None else cst.Module([]).code_for_node(node)
        return self.argument_code(step.operation, position, "value", at)

    def mask_suffix(self, mask: Mask, value: int | None, at: Operation) -> str | None:
        """Return what gives a mask the shape of the scores that SDPA makes."""
        known = self.graph.of(value)
        product = self.graph.of(self.found.product.output)
        if known is None or product is None:
            return None
        rank = len(known.shape)
        if self.folded is not None:
            if mask.space == 4 or rank < 3:
                return ""
            if known.shape[0] == product.shape[0] > 1:
                return f".unflatten(0, {self.unflattened(at)})"
            return None
        if self.rank == 3:
            return "[None]" if rank == 3 else ""
        if mask.space == self.rank:
            is_known = rank == 3 and known.origin in ("operation", "parameter", "buffer")
            return "[None]" if is_known and self.rank == 4 else ""
        views = [s.operation for s in self.found.steps if s.kind == "view"]
        index = mask.step.operation.index
        before = [one for one in views if one.index < index]
        after = [one for one in views if one.index > index]
        if not before or not after:
            return None
        sizes = [self.view_sizes(one, at) for one in (before[-1], after[0])]
        if sizes[0] is None or sizes[1] is None or "-1" in sizes[0]:
            return None
        return f".expand({', '.join(sizes[0])}).reshape({', '.join(sizes[1])})"

    def built_mask(self, masks: list[Mask], q: Operand) -> tuple[str, dict[cst.CSTNode, str]]:
        """Return a name for all masks, with the statements that make it where the scores were
        masked."""
        name = self.body.free_name("attn_mask")
        new: dict[cst.CSTNode, str] = {}
        zeros = f"{bracketed(q.code)}.new_zeros(())"
        earlier: list[Mask] = []
        for mask in masks:
            site, step = mask.site, mask.step
            if site.statement is self.place.statement or site.target is None:
                raise Refused(f"line {line_of(step.operation)} does more than mask the scores")
            is_set = any({*one.branches} <= {*mask.branches} for one in earlier)
            is_unset = not earlier
            code = self.mask_there(mask)
            if step.kind in ("add", "sub", "baddbmm"):
                sign = "-" if step.kind == "sub" else "+"
                alone = f"-{bracketed(code)}" if step.kind == "sub" else code
                if is_unset:
                    right = alone
                elif is_set:
                    right = f"{name} {sign} {code}"
                else:
                    right = f"{alone} if {name} is None else {name} {sign} {code}"
            else:
                base = name
                if is_unset:
                    base = zeros
                elif not is_set:
                    base = f"({zeros} if {name} is None else {name})"
                right = f"{base}.{code}"
            line = f"{name} = {right}"
            new[site.statement] = (
                f"{new[site.statement]}\n{line}" if site.statement in new else line
            )
            earlier.append(mask)
        if masks[0].branches:
            sites = self.sites(self.found.product)
            statement = sites[-1][1].statement
            if statement in new or statement is self.place.statement or len(sites) > 1:
                raise Refused("masks are applied in branches, and so is the product")
            if any(b not in self.base for b in self.body.branches(statement)):
                raise Refused("masks are applied in branches, and so is the product")
            new[statement] = f"{name} = None"
        return name, new

    def mask_there(self, mask: Mask) -> str:
        """Return a mask's code where it is applied."""
        step, operation = mask.step, mask.step.operation
        names = self.chain_names(self.final.recorded.frame)
        if step.kind in ("fill", "keep"):
            condition, fill = self.condition(step, operation), self.fill_code(step, operation)
            if condition is None or fill is None:
                raise Refused(f"the mask {where(operation)} is not boolean, or has no code there")
            suffix = self.mask_suffix(mask, self.condition_value(step), operation)
            if suffix is None:
                raise Refused(f"the mask {where(operation)} has another shape than the scores")
            hidden = inverted(condition) if step.kind == "keep" else condition
            code = (
                f"masked_fill({bracketed(hidden)}{suffix}, {fill})"
                if suffix
                else (f"masked_fill({hidden}, {fill})")
            )
        else:
            position = 0 if step.kind == "baddbmm" else step.position
            value = operation.value(position, "other")
            node = self.argument_node(operation, position, "other")
            if node is None:
                raise Refused(f"the mask {where(operation)} has no code")
            code = bare(self.file.code(node))
            if step.kind == "baddbmm":
                beta = self.argument_node(operation, 3, "beta")
                if beta is not None:
                    code = f"{bracketed(self.file.code(beta))} * {bracketed(code)}"
            suffix = self.mask_suffix(mask, value, operation)
            if suffix is None:
                raise Refused(f"the mask {where(operation)} has another shape than the scores")
            if suffix or not isinstance(cst.parse_expression(code), cst.Name):
                code = f"{bracketed(code)}{suffix}"
        code_names = names_of_code(code if step.kind not in ("fill", "keep") else f"x.{code}")
        if code_names & names:
            raise Refused(f"the mask {where(operation)} is computed from the scores")
        return code
