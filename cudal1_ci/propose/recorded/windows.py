"""Write windows that slide over a tensor as one view, for all turns of a loop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in, portable
from cudal1_ci.propose.recorded.bounds import plus
from cudal1_ci.propose.recorded.lifted import size_of, within
from cudal1_ci.propose.recorded.source import bracketed

Locals: TypeAlias = Mapping[str, cst.BaseExpression | tuple[str, int]]
"""Locals that are bound once before a loop: what they are bound to, or the tensor and the
dimension whose size they are."""


@dataclass(frozen=True)
class Moving:
    """A number that grows with the index of a turn."""

    step: str
    """Code of what it grows by."""
    terms: tuple[str, ...] = ()
    """Code of what is added."""


@dataclass(frozen=True)
class Starts:
    """The positions of `range(0, high, step)`."""

    high: cst.BaseExpression
    locals: Locals

    def more(self, size: str, of: tuple[str, int, int]) -> int | None:
        """Return how far beyond the last whole window positions may begin, below 0 where they end
        earlier; None if that depends on sizes.

        Args:
            size: Code of a window's positions.
            of: The tensor, the dimension that windows slide over, and the tensor's dimensions.
        """
        tensor, dim, rank = of
        terms = terms_of(self.high, self.locals)
        terms.update(terms_of(cst.parse_expression(size), self.locals))
        whole = sum(terms.pop(f"{tensor}.size({one})", 0) for one in {dim, dim - rank})
        number = terms.pop("", 0)
        return number - 1 if whole == 1 and not any(terms.values()) else None


def fits(count: str, step: str, size: str, of: tuple[str, int, int], locals_: Locals) -> bool:
    """Return whether the last of several windows is certain to end within a tensor.

    Args:
        count: Code of the number of windows.
        step: Code of how far a window is from the next one, which is at least 1.
        size: Code of a window's positions.
        of: The tensor, the dimension that windows slide over, and the tensor's dimensions.
        locals_: What locals are.
    """
    tensor, dim, rank = of
    end = terms_of(cst.parse_expression(count), locals_)
    end.subtract({"": 1})
    if step != "1":
        quotient = next(
            (one for one, n in end.items() if n == 1 and one.endswith(f"// {step}")), ""
        )
        node = cst.parse_expression(quotient) if quotient else None
        is_plain = not any(n for one, n in end.items() if one not in ("", quotient))
        if not isinstance(node, cst.BinaryOperation) or code_of(node.right) != step or not is_plain:
            return False
        more = terms_of(cst.parse_expression(step), locals_)
        times, end = end[""], terms_of(node.left, locals_)
        end.update({one: n * times for one, n in more.items()})
    end.update(terms_of(cst.parse_expression(size), locals_))
    for one in [one for one in end if re.fullmatch(rf"\w+\.size\({dim % rank - rank}\)", one)]:
        end[f"{one.partition('(')[0]}({dim % rank})"] += end.pop(one)
    end.subtract(size_terms(tensor, dim % rank, rank, locals_))
    number = end.pop("", 0)
    return number <= 0 and not any(end.values())


def size_terms(tensor: str, dim: int, rank: int, locals_: Locals) -> Counter[str]:
    """Return the terms of a tensor's size, also of one that was padded."""
    made = locals_.get(tensor)
    if isinstance(made, cst.Call) and code_of(made.func).endswith(".pad") and len(made.args) > 1:
        padded, widths = (one.value for one in made.args[:2])
        if isinstance(padded, cst.Name) and isinstance(widths, cst.Tuple | cst.List):
            at = 2 * (rank - 1 - dim)
            found = size_terms(padded.value, dim, rank, locals_)
            for one in widths.elements[at : at + 2]:
                found.update(terms_of(one.value, locals_))
            return found
    return Counter({f"{tensor}.size({dim})": 1})


def last_end(count: str, step: str, size: str) -> str:
    """Return code of where the last of several windows ends."""
    if step == "1":
        terms = terms_of(cst.parse_expression(count), {})
        terms.update(terms_of(cst.parse_expression(size), {}))
        terms.update({"": -1})
        return sum_code(terms)
    return f"{bracketed(plus(count, -1))} * {bracketed(step)} + {bracketed(size)}"


def moving(
    node: cst.BaseExpression, index: str, known: dict[str, Moving], changing: set[str]
) -> Moving | None:
    """Return how a number of the host depends on the index of a turn; None if not so, or if it
    is not written with sums and one product.

    Args:
        node: The number.
        index: The name that counts from 0.
        known: Locals of a turn that are such numbers.
        changing: Names that turns bind.
    """
    if isinstance(node, cst.Name):
        return Moving("1") if node.value == index else known.get(node.value)
    if not isinstance(node, cst.BinaryOperation):
        return None
    left, right = node.left, node.right
    if isinstance(node.operator, cst.Multiply):
        for one, other in ((left, right), (right, left)):
            found = moving(one, index, known, changing)
            if found is not None and found.step == "1" and is_fixed(other, changing):
                factor = code_of(other)
                if found.terms in ((), ("1",)):  # (i + 1) * hop
                    return Moving(factor, (factor,) * len(found.terms))
        return None
    if not isinstance(node.operator, cst.Add):
        return None
    for one, other in ((left, right), (right, left)):
        found = moving(one, index, known, changing)
        if found is not None and is_fixed(other, changing):
            return Moving(found.step, (*found.terms, code_of(other)))
    return None


def width(lower: Moving | None, upper: Moving | None) -> str | None:
    """Return code of how many positions a window has; None if windows do not begin at the first
    position, or are not of one size."""
    if lower is None or upper is None or lower.terms or lower.step != upper.step:
        return None
    return " + ".join(upper.terms) or None


def terms_of(node: cst.BaseExpression, locals_: Locals) -> Counter[str]:
    """Return how often each term is added in a sum of whole numbers; the number itself under ""."""
    found: Counter[str] = Counter()
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        found.update(terms_of(node.left, locals_))
        right = terms_of(node.right, locals_)
        (found.update if isinstance(node.operator, cst.Add) else found.subtract)(right)
    elif isinstance(node, cst.Integer):
        found[""] = node.evaluated_value
    elif isinstance(node, cst.Name) and node.value in locals_:
        known = locals_[node.value]
        if isinstance(known, cst.BaseExpression):
            return terms_of(known, locals_)
        found["{}.size({})".format(*known)] = 1
    elif (size := size_of(node)) is not None:
        found["{}.size({})".format(*size)] = 1
    else:
        found[code_of(node)] = 1
    return found


def clipped(
    part: cst.Slice,
    index: str,
    ends: Collection[str],
    edges: Mapping[str, cst.BaseExpression],
    changing: set[str],
) -> tuple[str, str, str] | None:
    """Return how far a window reaches before the position of its turn, and behind it, where the
    ends of the tensor cut it, and both together: `max(0, t - 2) : t + 1` is 2, 1 and 3. None for
    another slice.

    Args:
        part: The slice.
        index: The name that counts the positions.
        ends: Code of the size of the dimension.
        edges: Numbers of the host that locals of a turn are.
        changing: Names that turns bind.
    """
    lower, upper = (
        edges.get(one.value, one) if isinstance(one, cst.Name) else one
        for one in (part.lower, part.upper)
    )
    first = other_than("max", lower, ("0",))
    last = other_than("min", upper, ends) or upper
    if part.step is not None or first is None or last is None:
        return None
    codes, size = [], Counter[str]()
    for node, sign in ((first, -1), (last, 1)):
        terms = terms_of(node, {})
        fixed = [cst.parse_expression(one) for one in terms if one not in ("", index)]
        if terms[index] != 1 or not all(is_fixed(one, changing) for one in fixed):
            return None
        reach = {one: n * sign for one, n in terms.items() if one != index}
        size.update(reach)
        codes.append(sum_code(reach))
    return codes[0], codes[1], sum_code(size)


def other_than(
    function: str, node: cst.BaseExpression | None, known: Collection[str]
) -> cst.BaseExpression | None:
    """Return the argument of `max(0, x)` that is not the known one; None for another call."""
    if not isinstance(node, cst.Call) or len(node.args) != 2 or code_of(node.func) != function:
        return None
    others = [one.value for one in node.args if code_of(one.value) not in known]
    is_plain = not any(one.star or one.keyword for one in node.args)
    return others[0] if len(others) == 1 and is_plain else None


def sum_code(terms: Mapping[str, int]) -> str:
    """Return code of a sum of terms, each of them as often as its number says."""
    number = terms.get("", 0)
    found = [(n, one) for one, n in terms.items() if one and n]
    parts = [
        (n, one if n == 1 and is_product(one) else bracketed(one))
        for n, one in sorted(found, reverse=True)
    ]
    parts += [(number, "")] * bool(number or not parts)
    code = ""
    for n, one in parts:
        term = one if abs(n) == 1 and one else f"{abs(n)} * {one}".removesuffix(" * ")
        code += (f" {'-' if n < 0 else '+'} " if code else "-" * (n < 0)) + term
    return code


def is_product(code: str) -> bool:
    """Return whether code binds closer than a sum."""
    node = cst.parse_expression(code)
    operators = cst.Multiply | cst.FloorDivide
    return isinstance(node, cst.BinaryOperation) and isinstance(node.operator, operators)


def is_fixed(node: cst.BaseExpression, changing: set[str]) -> bool:
    """Return whether a number is the same in all turns, and costs nothing to compute."""
    if names_in(node) & changing:
        return False
    allowed = cst.Name | cst.Attribute | cst.Integer | cst.BinaryOperation | cst.BaseBinaryOp
    ignored = cst.BaseParenthesizableWhitespace | cst.LeftParen | cst.RightParen | cst.Dot
    return all(isinstance(one, allowed | ignored) for one in within(node))


def code_of(node: cst.BaseExpression) -> str:
    return portable(node)


def reduced_windows(
    base: str,
    dim: int,
    rank: int,
    reach: tuple[str, str, str],
    name: str,
    keep: Callable[[str, str], str],
) -> str:
    """Return a reduction of the windows around each position that the ends of a tensor cut.

    Args:
        base: Code of the tensor.
        dim: The dimension that windows slide over.
        rank: Dimensions of the tensor.
        reach: Code of the positions before and behind, and of both.
        name: `sum`, `mean`, `amax` or `amin`.
        keep: Returns a name for code.
    """
    before, after, size = reach
    pads = "0, 0, " * (rank - 1 - dim)
    fill = {"amax": ', value=float("-inf")', "amin": ', value=float("inf")'}.get(name, "")
    padded = keep(f"torch.nn.functional.pad({base}, ({pads}{before}, {after}){fill})", "padded")
    whole = f"{base}.size({dim})"
    code = f"{padded}.unfold({dim}, {size}, 1).narrow({dim}, 0, {whole})"
    code += f".{'sum' if name == 'mean' else name}(-1)"
    if name != "mean":
        return code
    steps = keep(f"torch.arange({whole}, device={base}.device)", "steps")
    counts = keep(cut_lengths(steps, reach, whole), "counts")
    nones = ", None" * (rank - 1 - dim)
    return f"{code} / {bracketed(counts)}" + (f"[:{nones}]" if nones else "")


def cut_lengths(steps: str, reach: tuple[str, str, str], whole: str) -> str:
    """Return how many positions the windows around each position have.

    Args:
        steps: Code of the positions.
        reach: Code of the positions before and behind, and of both.
        whole: Code of the number of positions.
    """
    before, after, _ = reach
    low = f"({steps} - {bracketed(before)}).clamp(min=0)"
    return f"({steps} + {bracketed(after)}).clamp(max={whole}) - {low}"


def unfolded(base: str, dim: int, size: str, step: str, count: str, rank: int) -> str:
    """Return a view with windows after their number.

    Args:
        base: Code of the tensor.
        dim: The dimension that windows slide over, where their number will be.
        size: Code of a window's positions.
        step: Code of how far a window is from the next one.
        count: Code of the number of windows; "" if it is that of all windows.
        rank: Dimensions of the tensor.
    """
    code = f"{bracketed(base)}.unfold({dim}, {size}, {step})"
    code = f"{code}.narrow({dim}, 0, {count})" if count else code
    return code if dim == rank - 1 else f"{code}.movedim(-1, {dim + 1})"
