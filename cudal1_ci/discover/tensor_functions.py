"""Decide from its syntax tree whether a free function computes with tensors.

Yes when a value derived from its parameters passes through an operation of torch, or through a
method that only tensors have. The result must be returned, or written in place. No for functions
that only make or move tensors, that train, load, save, plot or set up, and for those that take no
tensor at all. Only the function's own body counts: its calls in the repository are not followed.

    def rotate_half(x):                      # yes: torch.cat of parts of x is returned
        a, b = x.chunk(2, dim=-1)
        return torch.cat((-b, a), dim=-1)
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable

from cudal1_ci.discover.syntax import Function, children, walk
from cudal1_ci.discover.torch_names import (
    GLUE_METHODS,
    NOT_COMPUTE_METHODS,
    UNMISTAKABLE_METHODS,
    is_compute,
    is_creation,
    is_glue,
)

Canonical = Callable[[ast.expr], str | None]
"""The canonical dotted name of an expression, None when it is not a name."""

# A call that may compute, `@`, an index that adds a dimension, an annotation.
_MAY_COMPUTE = re.compile(
    rb"\b(?:torch|F|functional|nnf?|TF|einops|linalg|fft|ops)\.(?:\w+\.)*[a-z]\w*\("
    rb"|@ ?[\w(]|[\[,] ?(?:\.\.\.|None)[,\]]|\b(?:Tensor|Float|Int|Bool)\b"
    rb"|\b(?:rearrange|einsum|softmax|cat|stack|matmul|where|repeat|reduce|contract)\("
    rb"|\.(?:" + "|".join(sorted(UNMISTAKABLE_METHODS)).encode() + rb")_?\("
)

_IMPORTS = re.compile(
    rb"from[ \t]+(?:torch|einops|kornia|opt_einsum|flash_attn|xformers)[\w.]*[ \t]+import"
    rb"[ \t]*(\([^)]*\)|[^\n]*)"
)
_NOT_FUNCTIONS = frozenset({b"as", b"nn", b"functional", b"optim", b"distributed", b"utils"})
_LOWER_NAME = re.compile(rb"\b[a-z_]\w*\b")

_TENSOR_ANNOTATION = re.compile(
    r"Tensor(?:Like\w*)?\b|\b(?:Float|Int|Bool|Shaped|Complex|Num|Real)\d*\["
)
_OTHER_ANNOTATION = re.compile(
    r"Module\b|Model\b|Config\b|Optimizer\b|Loader\b|Dataset\b|Tokenizer|Callable|ndarray|Image"
    r"|Path|Namespace|Logger|Parser|Generator|dtype|device"
)
_PLAIN_ANNOTATION = re.compile(
    r"(?:\W|\b(?:int|float|bool|str|bytes|None|list|tuple|dict|set|List|Tuple|Dict|Set|Optional"
    r"|Union|Sequence|Iterable|Literal|typing|Any|object)\b)*"
)
BUILTINS = frozenset(dir(builtins))
_NOT_TENSOR_NAMES = frozenset(
    {"device", "dtype", "config", "cfg", "args", "kwargs", "opt", "optimizer", "scheduler"}
    | {"model", "net", "loader", "data_loader", "dataloader", "dataset", "path", "logger", "self"}
    | {"cls", "tokenizer", "epoch", "filename", "name", "writer", "criterion"}
)
_CHECKPOINT_NAME = re.compile(r"state_?dict|checkpoint|ckpt")
_NOT_CALLED_BY_USERS = re.compile(
    r"(?:^|\.)(?:fixture|overload|contextmanager|command|group|register_fake|register_meta"
    r"|impl_abstract|hookimpl|property|parametrize)$"
)


def imported_calls(source: bytes) -> frozenset[bytes]:
    """Return calls of functions that a file imports from computing libraries: `b"softmax("`."""
    return frozenset(
        name + b"("
        for match in _IMPORTS.findall(source)
        for name in _LOWER_NAME.findall(match)
        if name not in _NOT_FUNCTIONS
    )


def may_compute(text: bytes, imported: frozenset[bytes]) -> bool:
    """Return whether a function's text may compute, before its tree is walked."""
    return _MAY_COMPUTE.search(text) is not None or any(call in text for call in imported)


def computes_tensors(function: Function, canonical: Canonical) -> bool:
    """Return whether a free function takes tensors, computes with them and returns a result."""
    if isinstance(function, ast.AsyncFunctionDef) or function.name.startswith("test_"):
        return False
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _NOT_CALLED_BY_USERS.search(canonical(called) or ""):
            return False
    if function.returns is not None and returns_no_tensor(function.returns):
        return False
    inputs, tensors = parameters(function)
    if not inputs:
        return False
    nodes = own_nodes(function)
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(is_script(call, canonical) for call in calls):
        return False
    operations = [call for call in calls if may_be_operation(call, canonical)]
    if not operations and not tensors and not any(map(is_arithmetic_on_arrays, nodes)):
        return False
    returns_tensor = function.returns is not None and is_tensor_annotation(function.returns)
    flow = Flow(inputs, tensors, canonical, trusts_calls=bool(tensors) and returns_tensor)
    flow.follow(nodes)
    return any(map(flow.gives_back, nodes)) and any(map(flow.computes, nodes))


def may_be_operation(call: ast.Call, canonical: Canonical) -> bool:
    """Return whether a call is one of torch's, or of a method that only tensors have."""
    if isinstance(call.func, ast.Attribute):
        method = call.func.attr.rstrip("_")
        if method in UNMISTAKABLE_METHODS:
            return True
    dotted = canonical(call.func)
    return dotted is not None and (is_compute(dotted) or is_creation(dotted))


def is_arithmetic_on_arrays(node: ast.AST) -> bool:
    """Return whether a node alone shows array arithmetic: `a @ b`, `a[..., None]`."""
    match node:
        case ast.BinOp(op=ast.MatMult()):
            return True
        case ast.Subscript(slice=ast.Tuple(elts=indices)):
            return adds_dimension(indices)
    return False


def own_nodes(function: Function) -> list[ast.AST]:
    """Return all nodes of the body in order, except those of nested functions and classes."""
    pending: list[ast.AST] = list(reversed(function.body))
    nodes: list[ast.AST] = []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        nodes.append(node)
        pending.extend(reversed(children(node)))
    return nodes


def returns_no_tensor(annotation: ast.expr) -> bool:
    """Return whether the annotated result is a plain value; `None` may still write in place."""
    text = ast.unparse(annotation)
    return text in {"int", "float", "bool", "str", "bytes", "dict", "list[str]", "list[int]"}


def is_tensor_annotation(annotation: ast.expr) -> bool:
    return _TENSOR_ANNOTATION.search(ast.unparse(annotation)) is not None


def parameters(function: Function) -> tuple[set[str], set[str]]:
    """Return names that may hold tensors, and those of them that are annotated as tensors.

    Return nothing for a function that takes a checkpoint: it converts weights, once.
    """
    inputs: set[str] = set()
    tensors: set[str] = set()
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if arguments.vararg is not None:
        every.append(arguments.vararg)
    for argument in every:
        text = "" if argument.annotation is None else ast.unparse(argument.annotation)
        if _CHECKPOINT_NAME.search(argument.arg):
            return set(), set()
        if _TENSOR_ANNOTATION.search(text):
            inputs.add(argument.arg)
            tensors.add(argument.arg)
        elif argument.arg in _NOT_TENSOR_NAMES or _OTHER_ANNOTATION.search(text):
            continue
        elif not text or _PLAIN_ANNOTATION.fullmatch(text.strip("'\"")) is None:
            inputs.add(argument.arg)
    return inputs, tensors


def is_script(node: ast.Call, canonical: Canonical) -> bool:
    """Return whether a call belongs to the script around a computation."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in GLUE_METHODS:
        return True
    dotted = canonical(node.func)
    return dotted is not None and is_glue(dotted)


def adds_dimension(indices: list[ast.expr]) -> bool:
    """Return whether an index holds `None` or `...`, as only indices of arrays do."""
    return any(
        isinstance(index, ast.Constant) and (index.value is None or index.value is Ellipsis)
        for index in indices
    )


class Flow:
    """Track which local names derive from the parameters, and which names are surely tensors."""

    def __init__(
        self, inputs: set[str], tensors: set[str], canonical: Canonical, *, trusts_calls: bool
    ) -> None:
        self.inputs = set(inputs)
        self.tensors = set(tensors)
        self.canonical = canonical
        self.trusts_calls = trusts_calls
        """Whether the annotations say that it is all about tensors, so that what an unknown
        function makes of a tensor is one too."""
        self.has_numpy = False

    def follow(self, nodes: list[ast.AST]) -> None:
        """Carry the parameters through assignments, twice, to cover what a loop carries over."""
        assignments: list[tuple[ast.expr, ast.expr]] = []
        for node in nodes:
            match node:
                case ast.Name(id="np" | "numpy" | "jnp" | "tf"):
                    self.has_numpy = True
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size")):
                    self.tensors |= {name} & self.inputs  # numpy and PIL have no such method
                case ast.Call(
                    func=ast.Attribute(value=ast.Name() as kept, attr="append"), args=[value]
                ):
                    assignments.append((kept, value))
                case ast.Assign(targets=targets, value=value):
                    assignments.extend((target, value) for target in targets)
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.AugAssign(target=target, value=value)
                    | ast.NamedExpr(target=target, value=value)
                    | ast.For(target=target, iter=value)
                    | ast.comprehension(target=target, iter=value)
                ):
                    assignments.append((target, value))
        for _ in range(2):
            for target, value in assignments:
                self.assign(target, value)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        names = {node.id for node in walk(target) if isinstance(node, ast.Name)}
        if self.is_derived(value):
            self.inputs |= names
        if self.is_tensor(value):
            self.tensors |= names

    def is_derived(self, expression: ast.expr) -> bool:
        """Return whether an expression uses a parameter's value, not only its shape or type."""
        pending: list[ast.AST] = [expression]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Name) and node.id in self.inputs:
                return True
            if isinstance(node, ast.Attribute) and node.attr in {
                "shape",
                "device",
                "dtype",
                "ndim",
            }:
                continue
            pending.extend(children(node))
        return False

    def is_tensor(self, expression: ast.expr) -> bool:
        """Return whether an expression is surely a tensor (or a few tensors)."""
        match expression:
            case ast.Name(id=name):
                return name in self.tensors
            case ast.Call(func=function, args=args):
                dotted = self.canonical(function)
                if dotted is not None and (is_compute(dotted) or is_creation(dotted)):
                    return True
                if isinstance(function, ast.Name) and self.trusts_calls:
                    return function.id not in BUILTINS and any(map(self.is_tensor, args))
                if isinstance(function, ast.Attribute):
                    asks = function.attr in {"size", "dim", "item", "tolist", "numpy", "numel"}
                    return not asks and self.is_tensor(function.value)
                return False
            case ast.Attribute(value=value, attr=attribute):
                return attribute in {"T", "mT", "H", "real", "imag", "data"} and self.is_tensor(
                    value
                )
            case ast.BinOp(left=left, right=right):
                return self.is_tensor(left) or self.is_tensor(right)
            case ast.Compare(left=left, comparators=comparators):
                return any(map(self.is_tensor, [left, *comparators]))
            case ast.Subscript(value=value, slice=ast.Tuple(elts=indices)) if adds_dimension(
                indices
            ):
                # `mask[:, :, None]` of a parameter: an array, and this file has no other kind.
                return not self.has_numpy and self.is_derived(value)
            case ast.UnaryOp(operand=value) | ast.Subscript(value=value) | ast.Starred(value=value):
                return self.is_tensor(value)
            case ast.IfExp(body=left, orelse=right):
                return self.is_tensor(left) or self.is_tensor(right)
        return False

    def computes(self, node: ast.AST) -> bool:
        """Return whether a node is an operation on tensors that derive from the parameters."""
        match node:
            case ast.Call(func=function, args=args, keywords=keywords):
                dotted = self.canonical(function)
                if dotted is not None and is_compute(dotted):
                    return any(map(self.is_derived, [*args, *(word.value for word in keywords)]))
                if not isinstance(function, ast.Attribute) or not self.is_derived(function.value):
                    return False
                if function.attr.rstrip("_") in UNMISTAKABLE_METHODS:
                    return True
                return function.attr not in NOT_COMPUTE_METHODS and self.is_tensor(function.value)
            case ast.BinOp(op=ast.MatMult()):
                return self.is_derived(node)
            case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right):
                return (self.is_tensor(left) or self.is_tensor(right)) and (
                    self.is_derived(left) or self.is_derived(right)
                )
            case ast.Compare() | ast.UnaryOp(op=ast.USub()):
                return self.is_tensor(node) and self.is_derived(node)
        return False

    def gives_back(self, node: ast.AST) -> bool:
        """Return whether a node returns a value from the parameters, or writes into them."""
        match node:
            case ast.Return(value=ast.expr() as value):
                return self.is_derived(value) or self.is_tensor(value)
            case ast.Assign(targets=[ast.Subscript(value=written)]):
                return self.is_tensor(written) and self.is_derived(written)
            case ast.Call(func=ast.Attribute(value=written, attr=method)):
                return (
                    method.endswith("_") and not method.endswith("__") and self.is_derived(written)
                )
        return False
