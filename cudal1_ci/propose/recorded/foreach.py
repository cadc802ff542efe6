"""Do the same to many tensors in one call, where a loop launched its operations for each of them.

`torch._foreach_*` is what torch.optim and torch.nn.utils call for this. A list may be empty, and
`zip` may end early: the lists are made by the loop's own iterator, and an empty one does nothing.
No tensor may be in a list twice if the loop writes into it, as in torch.optim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.lifted import Refused, Swap, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.loop_text import JUMPS, for_in
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.tensor_lists import (
    Listed,
    TensorLists,
    is_arithmetic,
    is_harmless,
    negated,
    stored_in,
)

ROOTS = ("0.5", ".5", "(1/2)", "(1./2)", "(1.0/2)", "(1/2.0)", "(1.0/2.0)", "(1./2.)", "(0.5)")
Statement = cst.BaseSmallStatement | cst.If


def find_foreach(call: Call) -> Iterator[Change]:
    """Find loops and comprehensions that do the same to each of many tensors."""
    for loop in (*loops_in(call), *silent_loops(call)):
        try:
            change = Foreach(loop).change()
        except Refused:
            continue
        yield change


def silent_loops(call: Call) -> Iterator[Loop]:
    """Yield loops of `p *= 2` alone: statements are no expressions, and have no place."""
    files = {one.file for one in call.graph.recording.frames}
    placed = {one.node for one in loops_in(call)}
    for name in sorted(files):
        file = call.source.file(name)
        for node in file.ranges if file is not None else ():
            if not isinstance(node, cst.For) or node in placed or file is None:
                continue
            function = next((f for f in file.above(node) if isinstance(f, cst.FunctionDef)), None)
            if function is not None and any(isinstance(n, cst.AugAssign) for n in within(node)):
                yield Loop(name, file, node, function, {}, (), call)


@dataclass
class Foreach:
    """A loop over tensors, written for lists."""

    loop: Loop
    lists: TensorLists = field(init=False)
    conditions: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    """Lines for each turn, after everything is computed."""
    squared: tuple[str, str] | None = None
    """The sum of squares of norms, as a number, and the tensors."""

    def __post_init__(self) -> None:
        taken = names_anywhere(self.loop.function)
        targets = target_names(self.loop.target)
        if targets is None:
            raise Refused
        self.lists = TensorLists(self.loop, targets, taken)

    def change(self) -> Change:
        """Return the loop as calls for lists."""
        loop = self.loop
        if names_in(loop.over) & {*self.lists.targets} and not isinstance(loop.node, cst.For):
            raise Refused
        new = self.of_loop() if isinstance(loop.node, cst.For) else self.of_comprehension()
        first = loop.code(loop.node).strip().split("\n")[0]
        shown = first if len(first) <= 80 else f"{first[:77]}..."
        return Change(loop.name, new, shown, frozenset(("torch",)))

    # --- loops -----------------------------------------------------------------------------------

    def of_loop(self) -> dict[cst.CSTNode, str]:
        node = cst.ensure_type(self.loop.node, cst.For)
        if node.orelse is not None or node.asynchronous is not None:
            raise Refused
        body = self.plain_body(node)
        if any(type(one) in JUMPS for line in body for one in within(line)):
            raise Refused
        stored = stored_in(self.loop) | {*self.lists.targets}
        if self.loop.is_read_after(stored - self.sums(body)):
            raise Refused
        for number, line in enumerate(body):
            self.line(line, body[number + 1 :])
        if not self.lists.num_calls or len(self.lists.lines) + len(self.after) == 0:
            raise Refused
        total = self.total_norm(node)
        if total is not None:
            return total
        head, names = self.rows()
        lines = [*names, *self.lists.lines, *self.after]
        block = "".join(f"    {one}\n" for line in lines for one in line.split("\n"))
        return {node: f"{head}\nif {self.rows_name}:\n{block}"}

    def plain_body(self, node: cst.For) -> list[Statement]:
        """Return the statements of a turn, without the conditions that leave one out."""
        block: list[cst.BaseStatement] = list(node.body.body)  # type: ignore[arg-type]
        while block and isinstance(block[0], cst.If):
            first = block[0]
            inner = list(first.body.body)
            is_skip = len(inner) == 1 and is_continue(inner[0])
            if not is_skip and not self.lists.of_turn(first.test) and len(block) > 1:
                break
            if first.orelse is not None or not is_harmless(first.test):
                raise Refused
            condition = self.loop.code(first.test).strip()
            if is_skip:
                self.conditions.append(negated(condition))
                block = block[1:]
            elif len(block) == 1:
                self.conditions.append(condition)
                block = inner  # type: ignore[assignment]
            else:
                raise Refused
        found: list[Statement] = []
        for one in block:
            if isinstance(one, cst.If):
                found.append(one)
            elif isinstance(one, cst.SimpleStatementLine):
                found += one.body
            else:
                raise Refused
        return found

    def sums(self, body: list[Statement]) -> set[str]:
        """Return names that a turn adds to."""
        return {one[0] for line in body if (one := added(line)) is not None}

    def line(self, line: Statement, rest: list[Statement]) -> None:
        """Write a statement of a turn."""
        lists, before = self.lists, len(self.lists.lines)
        adding = added(line)
        if isinstance(line, cst.If):
            self.branch(line)
            return
        if adding is not None and adding[0] not in {*lists.env, *lists.targets}:
            self.sum(*adding, rest, is_augmented=isinstance(line, cst.AugAssign))
        elif isinstance(line, cst.AugAssign):
            self.augmented(line)
            return
        elif isinstance(line, cst.Assign) and len(line.targets) == 1:
            self.assign(line, rest)
            return
        elif isinstance(line, cst.Expr) and isinstance(line.value, cst.Call):
            function = line.value.func
            if isinstance(function, cst.Attribute) and function.attr.value == "append":
                self.append(function.value, line.value)
            else:
                listed = lists.lift(line.value)
                if listed.is_fresh:
                    raise Refused
                return
        else:
            raise Refused
        if len(lists.lines) > before + 1:
            raise Refused  # it also writes

    def branch(self, node: cst.If) -> None:
        """Write a branch that all turns take together: `if weight_decay: g = g + ...`."""
        lists, test = self.lists, node.test
        is_stored = names_in(test) & (stored_in(self.loop) - lists.numbers)
        if node.orelse is not None or lists.of_turn(test) or is_stored or not is_arithmetic(test):
            raise Refused
        for name in sorted(stored_names(node.body) & {*lists.env, *lists.targets}):
            current = lists.lift(cst.Name(name)).code
            held = lists.name(name)
            lists.lines.append(f"{held} = {current}")
            lists.env[name] = Listed(held, is_fresh=False)
        start = len(lists.lines)
        for one in node.body.body:
            small = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
            if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
                name = small.targets[0].target.value
                known = lists.env.get(name)
                if not isinstance(known, Listed) or len(small.targets) != 1:
                    raise Refused
                lists.lines.append(f"{known.code} = {lists.lift(small.value).code}")
            elif isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
                if lists.lift(small.value).is_fresh:
                    raise Refused
            else:
                raise Refused
        inner = [f"    {one}" for one in lists.lines[start:]]
        lists.lines[start:] = [f"if {self.loop.code(test)}:", *inner]

    def total_norm(self, node: cst.For) -> dict[cst.CSTNode, str] | None:
        """Return the norm of all tensors, where squares of norms are added as numbers and nothing
        but the root of the sum is read."""
        loop, lists = self.loop, self.lists
        block = loop.file.parents.get(node)
        if self.squared is None or len(lists.lines) != 1 or len(lists.leaves) != 1 or self.after:
            return None
        if not isinstance(block, cst.IndentedBlock):
            return None
        body = list(block.body)
        number = body.index(node)
        name, norms = self.squared
        line = body[number - 1] if number else None
        start = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        is_zero = isinstance(start, cst.Assign) and loop.code(start.value) in ("0", "0.0", "0.")
        if not isinstance(start, cst.Assign) or line is None or not is_zero:
            return None
        if not is_name(start.targets[0].target, name) or len(start.targets) != 1:
            return None
        reads = [
            one
            for later in body[number + 1 :]
            for one in within(later)
            if is_name(one, name)
            and not isinstance(loop.file.parents.get(one), cst.AssignTarget | cst.Attribute)
        ]
        root = loop.file.parents.get(reads[0]) if reads else None
        follower = body[number + 1] if number + 1 < len(body) else None
        if root is None or power_of(loop.code, root) not in ROOTS or follower is None:
            return None
        if root not in within(follower) or not is_name(root.left, name):  # type: ignore[attr-defined]
            return None
        small = follower.body[0] if isinstance(follower, cst.SimpleStatementLine) else None
        is_again = isinstance(small, cst.Assign) and is_name(small.targets[0].target, name)
        if len(reads) > 1 and not is_again:
            return None
        head, _ = self.rows()
        return {
            line: "",
            node: head,
            root: f"torch.nn.utils.get_total_norm({norms}).item()",
        }

    def append(self, receiver: cst.BaseExpression, call: cst.Call) -> None:
        """Write `out.append(...)`."""
        if len(call.args) != 1 or call.args[0].star or call.args[0].keyword is not None:
            raise Refused
        if not isinstance(receiver, cst.Name | cst.Attribute) or self.lists.of_turn(receiver):
            raise Refused
        if self.loop.code(receiver) in self.loop.code(self.loop.over):
            raise Refused
        listed = self.lists.lift(call.args[0].value)
        if not listed.is_fresh:
            raise Refused
        self.lists.lines.append(f"{self.loop.code(receiver)}.extend({listed.code})")
        self.lists.is_stored = True

    def sum(
        self,
        name: str,
        value: cst.BaseExpression,
        sign: str,
        rest: list[Statement],
        *,
        is_augmented: bool,
    ) -> None:
        """Write `total = total + ...` of tensors without dimensions, or of their numbers."""
        if any(name in names_in(one) for one in rest) or name in names_in(value):
            raise Refused
        power, inner = "", value
        if power_of(self.loop.code, inner) == "2" and isinstance(inner, cst.BinaryOperation):
            power, inner = " ** 2", inner.left
        called = inner.func if isinstance(inner, cst.Call) else None
        if isinstance(called, cst.Attribute) and called.attr.value == "item":
            listed = self.lists.lift(called.value)
            one = base_of(called.value)
            code = f"sum({one}.item(){power} for {one} in {listed.code})"
            argument = listed.code.removeprefix("torch._foreach_norm(").removesuffix(")")
            if power and argument.isidentifier() and sign == "+":
                self.squared = name, argument
        else:
            listed = self.lists.lift(value)
            code = f"torch.stack({listed.code}).sum()"
        if not listed.is_number or not listed.is_fresh:
            raise Refused
        start = f"{name} {sign}=" if is_augmented else f"{name} = {name} {sign}"
        self.lists.lines.append(f"{start} {code}")

    def augmented(self, line: cst.AugAssign) -> None:
        """Write `p *= ...` into tensors that exist."""
        name = {
            cst.AddAssign: "add",
            cst.SubtractAssign: "sub",
            cst.MultiplyAssign: "mul",
            cst.DivideAssign: "div",
        }.get(type(line.operator))
        if name is None:
            raise Refused
        if self.lists.is_stored:
            raise Refused
        self.lists.written(line, name)

    def assign(self, line: cst.Assign, rest: list[Statement]) -> None:
        """Write a turn's own name, or what each turn stores."""
        target, lists = line.targets[0].target, self.lists
        if not isinstance(target, cst.Name):
            self.store(target, line.value)
            return
        if not lists.of_turn(line.value):
            if not is_arithmetic(line.value) or target.value in lists.numbers:
                raise Refused
            if names_in(line.value) & (stored_in(self.loop) - lists.numbers):
                raise Refused
            lists.numbers.add(target.value)
            lists.lines.append(f"{target.value} = {self.loop.code(line.value)}")
            return
        resolved = lists.resolved(line.value)
        if resolved is not None:
            lists.env[target.value] = resolved
            return
        listed = lists.lift(line.value)
        reads = [n for one in rest for n in within(one) if is_name(n, target.value)]
        follower = rest[0] if rest else None
        is_next = follower is not None and any(is_name(n, target.value) for n in within(follower))
        is_read_once = len(reads) == 1 and is_next and not writes(follower)
        if is_read_once or listed.code.isidentifier():
            lists.env[target.value] = listed
        else:
            name = lists.name(target.value)
            lists.lines.append(f"{name} = {listed.code}")
            lists.env[target.value] = Listed(name, is_fresh=False, is_number=listed.is_number)

    def store(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        """Write `shadow[name] = ...` and `p.data = ...` as a loop that only stores."""
        lists, loop = self.lists, self.loop
        if loop.operations.get(target):
            raise Refused  # it writes into a tensor
        if isinstance(target, cst.Attribute):
            if target.attr.value not in ("data", "grad"):
                raise Refused
            if not isinstance(target.value, cst.Name) or target.value.value not in lists.targets:
                raise Refused
        elif isinstance(target, cst.Subscript):
            part = target.slice[0].slice
            is_first = isinstance(part, cst.Index) and is_name(part.value, lists.targets[0])
            if not is_first or not self.has_keys() or lists.of_turn(target.value):
                raise Refused
        else:
            raise Refused
        listed = lists.lift(value)
        if not listed.is_fresh:
            raise Refused
        fresh = "new"
        while fresh in lists.taken:
            fresh += "_"
        names = loop.code(loop.target).strip()
        made = lists.name("new")
        lists.lines.append(f"{made} = {listed.code}")
        self.after += [
            f"for {bracketed_names(names)}, {fresh} in zip(ROWS, {made}):",
            f"    {loop.code(target)} = {fresh}",
        ]
        lists.is_stored = True

    def has_keys(self) -> bool:
        """Return whether the first name of each turn is another key."""
        over = self.loop.over
        if len(self.lists.targets) < 2 or not isinstance(over, cst.Call):
            return False
        function = over.func
        name = function.attr.value if isinstance(function, cst.Attribute) else ""
        name = function.value if isinstance(function, cst.Name) else name
        return name in ("enumerate", "named_parameters", "named_buffers", "items")

    # --- comprehensions --------------------------------------------------------------------------

    def of_comprehension(self) -> dict[cst.CSTNode, str]:
        loop, lists = self.loop, self.lists
        node = loop.node
        if not isinstance(node, cst.ListComp | cst.GeneratorExp):
            raise Refused
        inner = for_in(node)
        if inner.inner_for_in is not None or inner.asynchronous is not None:
            raise Refused
        for one in inner.ifs:
            if not is_harmless(one.test):
                raise Refused
            self.conditions.append(loop.code(one.test).strip())
        statement = next(
            (one for one in loop.file.above(node) if isinstance(one, cst.SimpleStatementLine)), None
        )
        around = []
        for above in loop.file.above(node):
            if above is statement:
                break
            around.append(above)
        refused = cst.IfExp | cst.BooleanOperation | cst.Lambda | cst.BaseComp | cst.FunctionDef
        if statement is None or any(isinstance(one, refused) for one in around):
            raise Refused
        listed = lists.lift(node.elt)
        if lists.lines or not lists.num_calls or not listed.is_fresh:
            raise Refused
        replaced: cst.CSTNode = node
        parent = around[1] if len(around) > 1 and isinstance(around[0], cst.Arg) else None
        called = loop.code(parent.func) if isinstance(parent, cst.Call) else ""
        is_only = isinstance(parent, cst.Call) and len(parent.args) == 1
        head, names = self.rows(with_if=False)
        rows = self.rows_name
        if called == "sum" and is_only and listed.is_number and parent is not None:
            replaced = parent
            code = f"torch.stack({listed.code}).sum() if {rows} else 0"
            is_free = is_free_in(around[2:])
        elif called in ("torch.stack", "torch.cat") and parent is not None:
            code = listed.code  # which refuses an empty list too
            code, is_free = f"{code} if {rows} else []", True
        else:
            is_list = isinstance(node, cst.ListComp)
            code = f"{'list(' if is_list else ''}{listed.code}{')' if is_list else ''}"
            code, is_free = f"{code} if {rows} else []", is_free_in(around)
        code = code if is_free else f"({code})"
        changed = statement.visit(Swap({replaced: code}))
        line = cst.ensure_type(changed, cst.SimpleStatementLine).with_changes(leading_lines=[])
        text = cst.Module([line]).code.strip()
        return {statement: "\n".join([head, *names, text])}

    # --- lists -----------------------------------------------------------------------------------

    rows_name: str = ""

    def rows(self, *, with_if: bool = True) -> tuple[str, list[str]]:
        """Return the line that lists what the loop is over, and those that take it apart."""
        loop, lists = self.loop, self.lists
        over, target = loop.code(loop.over).strip(), loop.code(loop.target).strip()
        if not lists.leaves:
            raise Refused
        kept = " and ".join(
            one if len(self.conditions) == 1 else bracketed(one) for one in self.conditions
        )
        leaves = [*lists.leaves.values()]
        single = isinstance(loop.target, cst.Name)
        has_rows = bool(self.after)
        if len(leaves) == 1 and not has_rows:
            name, leaf = leaves[0]
            self.rows_name = name
            code = loop.code(leaf)
            shown = unused(loop.target, names_in(leaf) | self.read_by_conditions())
            condition = f" if {kept}" if kept else ""
            if code == target and not kept:
                return f"{name} = list({over})", []
            return f"{name} = [{code} for {shown} in {over}{condition}]", []
        named = {loop.code(leaf): name for name, leaf in leaves}
        rows = named.pop(target, "") if single else ""
        rows = rows or lists.name({2: "pair", 3: "triple"}.get(len(lists.targets), "row"))
        if single and target not in {loop.code(leaf) for _, leaf in leaves}:
            rows = lists.name(target)
        self.rows_name = rows
        self.after = [one.replace("ROWS", rows) for one in self.after]
        row = f"({target})" if not single and not target.startswith("(") else target
        head = (
            f"{rows} = [{row} for {target} in {over} if {kept}]"
            if kept
            else f"{rows} = list({over})"
        )
        lines: list[str] = []
        plain = {one: named[one] for one in lists.targets if one in named}
        if with_if and not single and len(plain) == len(lists.targets):
            lines.append(f"{', '.join(plain.values())} = zip(*{rows})")
            named = {code: name for code, name in named.items() if code not in plain}
        for code, name in named.items():
            read = names_in(cst.parse_expression(code))
            lines.append(f"{name} = [{code} for {unused(loop.target, read)} in {rows}]")
        return head, lines

    def read_by_conditions(self) -> set[str]:
        found: set[str] = set()
        for one in self.conditions:
            found |= names_in(cst.parse_expression(one))
        return found


def target_names(target: cst.BaseExpression) -> tuple[str, ...] | None:
    """Return the names that a turn binds; None for nested ones."""
    if isinstance(target, cst.Name):
        return (target.value,)
    if not isinstance(target, cst.Tuple):
        return None
    names = [one.value.value for one in target.elements if isinstance(one.value, cst.Name)]
    return tuple(names) if len(names) == len(target.elements) else None


def unused(target: cst.BaseExpression, read: set[str]) -> str:
    """Return a loop's target with `_` for the names that are not read."""
    names = target_names(target) or ()
    return ", ".join(one if one in read else "_" for one in names)


def bracketed_names(names: str) -> str:
    """Return a target as one item of a longer one."""
    return names if names.startswith("(") or "," not in names else f"({names})"


def added(line: Statement) -> tuple[str, cst.BaseExpression, str] | None:
    """Return name, value and sign of `total = total + value` and `total += value`."""
    if isinstance(line, cst.AugAssign) and isinstance(line.target, cst.Name):
        signs: dict[type[cst.CSTNode], str] = {cst.AddAssign: "+", cst.SubtractAssign: "-"}
        sign = signs.get(type(line.operator))
        return None if sign is None else (line.target.value, line.value, sign)
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    target, value = line.targets[0].target, line.value
    if not isinstance(target, cst.Name) or not isinstance(value, cst.BinaryOperation):
        return None
    is_sum = isinstance(value.operator, cst.Add | cst.Subtract)
    if not is_sum or not is_name(value.left, target.value):
        return None
    return target.value, value.right, "+" if isinstance(value.operator, cst.Add) else "-"


def is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def is_continue(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and len(node.body) == 1
        and isinstance(node.body[0], cst.Continue)
    )


def writes(node: cst.CSTNode | None) -> bool:
    """Return whether a statement calls a method that changes a tensor."""
    return node is not None and any(
        isinstance(one, cst.Attribute) and one.attr.value.endswith("_") for one in within(node)
    )


def power_of(code: Callable[[cst.CSTNode], str], node: cst.CSTNode) -> str:
    """Return the code of an exponent; "" if an expression is no power."""
    is_power = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Power)
    return code(node.right).replace(" ", "") if is_power else ""  # type: ignore[attr-defined]


def is_free_in(around: list[cst.CSTNode]) -> bool:
    """Return whether an expression needs no brackets where it is."""
    return not around or isinstance(around[0], cst.Assign | cst.Return | cst.Arg | cst.Expr)


def base_of(node: cst.BaseExpression) -> str:
    """Return a name for one of a list's items."""
    return node.value if isinstance(node, cst.Name) else "one"


RULES = (
    RecordedRule(
        name="foreach",
        family="foreach",
        why="one kernel for all tensors runs where the loop launched one for each; torch.optim and "
        "torch.nn.utils use the same functions",
        precondition="each iteration does the same to its own tensors; all of them are kept until "
        "the end",
        find=find_foreach,
    ),
)
