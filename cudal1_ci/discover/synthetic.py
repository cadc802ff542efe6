"""Guess workloads from the constructor of a module.

Guesses are made only where the text leaves little choice. Every constructor argument has a default.
`forward` takes one required argument. The first layer determines that argument: nn.Linear and
nn.LayerNorm take a sequence of their width, nn.Conv1d/2d/3d an image of their channels, and
nn.Embedding indices below its size. Such a workload is labeled synthetic and never decides
anything.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from cudal1_ci.records import Call, Target, TensorSpec, Workload

BATCH = 8
LENGTH = 128
IMAGE = {"Conv1d": (1024,), "Conv2d": (64, 64), "Conv3d": (16, 32, 32)}
"""Sizes besides batch and channels, such that one call takes some milliseconds on a CPU."""
FIRST_SIZE = {
    "Linear": "in_features",
    "LayerNorm": "normalized_shape",
    "RMSNorm": "normalized_shape",
    "Embedding": "num_embeddings",
    "Conv1d": "in_channels",
    "Conv2d": "in_channels",
    "Conv3d": "in_channels",
}

_CONSTRUCTOR = re.compile(r"def __init__\(([^)]*)")
_LAYER = re.compile(rf"\b(?:{'|'.join(FIRST_SIZE)})\(")


def synthetic_workload(target: Target, source: str) -> Workload | None:
    """Return a guessed workload, or None where the text leaves a choice."""
    if target.kind != "torch_module":
        return None
    text = "".join(source.splitlines(keepends=True)[target.first_line - 1 : target.last_line])
    if not may_be_guessed(text):
        return None
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):
        return None
    definition = find_class(tree, target.qualname.rpartition(".")[2])
    if definition is None:
        return None
    methods = {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}
    constructor, forward = methods.get("__init__"), methods.get("forward")
    if constructor is None or forward is None or not takes_one_input(forward):
        return None
    defaults = defaults_of(constructor)
    if defaults is None:
        return None
    spec = first_input(constructor, forward, defaults)
    if spec is None:
        return None
    return Workload(
        name=f"guess {'x'.join(map(str, spec.shape))}",
        provenance="synthetic",
        source=f"{target.path}:{target.first_line + constructor.lineno - 1}",
        init=Call(),
        call=Call(args=(spec,)),
    )


def may_be_guessed(text: str) -> bool:
    """Return whether a class may be guessed, before it is parsed.

    It needs a known layer, and no constructor argument that plainly lacks a default.
    """
    signature = _CONSTRUCTOR.search(text)
    if signature is None or _LAYER.search(text) is None:
        return False
    first, *others = signature[1].split(",")
    return "=" not in first and (not others or "=" in others[0] or others[0].strip() in ("*", ""))


def find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
    return classes[-1] if classes else None


def takes_one_input(forward: ast.FunctionDef) -> bool:
    """Return whether exactly one argument is required, and is positional."""
    arguments = forward.args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    required_by_name = any(default is None for default in arguments.kw_defaults)
    return required == 2 and not required_by_name


def defaults_of(constructor: ast.FunctionDef) -> dict[str, object] | None:
    """Return the value of each constructor argument; None when one has no default."""
    arguments = constructor.args
    named = [*arguments.posonlyargs, *arguments.args][1:]
    if len(arguments.defaults) < len(named) or None in arguments.kw_defaults:
        return None
    pairs = [
        *zip(named[::-1], arguments.defaults[::-1], strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    values: dict[str, object] = {}
    for argument, default in pairs:
        try:
            values[argument.arg] = ast.literal_eval(default) if default else None
        except ValueError:
            values[argument.arg] = None
    return values


def first_input(
    constructor: ast.FunctionDef, forward: ast.FunctionDef, defaults: dict[str, object]
) -> TensorSpec | None:
    """Return the input of the layer that receives forward's argument."""
    x = [*forward.args.posonlyargs, *forward.args.args][1].arg
    layers = dict(layers_of(constructor))
    for node in ast.walk(forward):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        is_on_self = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
        given = node.args[0] if node.args else None
        if is_on_self and isinstance(given, ast.Name) and given.id == x:
            layer = layers.get(node.func.attr)
            return None if layer is None else input_of(layer, defaults)
    return None


def layers_of(constructor: ast.FunctionDef) -> Iterator[tuple[str, ast.Call]]:
    """Yield each `self.x = nn.Layer(...)`."""
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, ast.Attribute):
                    yield target.attr, node.value


def input_of(layer: ast.Call, defaults: dict[str, object]) -> TensorSpec | None:
    """Return the input of a layer whose first size is a number or a constructor argument."""
    function = layer.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    keyword = FIRST_SIZE.get(name)
    if keyword is None:
        return None
    written = layer.args[0] if layer.args else None
    for given in layer.keywords:
        if given.arg == keyword:
            written = given.value
    size: object = None
    if isinstance(written, ast.Constant):
        size = written.value
    elif isinstance(written, ast.Name):
        size = defaults.get(written.id)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return None
    if name == "Embedding":
        return TensorSpec(shape=(BATCH, LENGTH), dtype="int64", low=0, high=size - 1)
    if name in IMAGE:
        return TensorSpec(shape=(BATCH, size, *IMAGE[name]), dtype="float32")
    return TensorSpec(shape=(BATCH, LENGTH, size), dtype="float32")
