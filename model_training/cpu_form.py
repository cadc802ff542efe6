"""What of a program a CPU may try (rehearsal.py).

    cpu_form(program)         # a program that fails on a CPU only where this one fails on a GPU

A program in plain PyTorch is tried as it is. Of one that records itself as a CUDA graph, word for
word as stage 1's examples do (variants/whole.py), what is recorded is tried: a GPU calls the same
method before it records it, and raises what a CPU does for a reason of the text. (But for a method
that raises at a later call alone, which a recording does not make.)
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

import msgspec

from cudal1_ci.records import Program, TextProgram
from model_training.variants.whole import RECORD, REPLAY, REPLAYED

LEFT = frozenset({"record", "inputs", "out", "__dict__"})
"""Attributes that recording makes or is, and by which they are found, besides `graph`, which is
made before."""
_NOT_PLAIN = re.compile(
    r"cuda|triton|compile\(|torch\.compile|load_inline|cpp_extension|nvrtc|nvcc|cudnn|cublas|cutlass"
    r"|cupy|numba|ctypes|inductor|dynamo|accelerator|autocast|get_device|mkldnn|\bcpu\b|is_cpu",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def cpu_form(program: Program) -> TextProgram | None:
    """None of a program that only a GPU can say something of. Asked when programs are chosen, and
    again when they are tried."""
    if not isinstance(program, TextProgram):
        return None
    if is_plain(program.source):
        return program
    try:
        tree = ast.parse(program.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return program  # nothing of it is run anywhere
    if not unrecorded(tree, program.entry):
        return None
    source = ast.unparse(tree)
    return msgspec.structs.replace(program, source=source) if is_plain(source) else None


def is_plain(source: str) -> bool:
    """Whether a text says nothing of a GPU, of a compiler, or of the device that it is on."""
    return _NOT_PLAIN.search(source) is None


def unrecorded(tree: ast.Module, entry: str) -> bool:
    """Let a class call what it would record, in place; False where it does not do so as the
    examples do."""
    found = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == entry]
    if len(found) != 1:
        return False
    methods = [one for one in found[0].body if isinstance(one, ast.FunctionDef)]
    by_name = {one.name: one for one in methods}
    if len(by_name) != len(methods) or not {"forward", "record", "compute"} <= by_name.keys():
        return False
    forward, record = by_name["forward"], by_name["record"]
    names = [one.arg for one in forward.args.args[1:]]
    arguments = ", ".join(names)
    replay = f"{REPLAY.format(arguments=arguments)}\nreturn {REPLAYED}"
    if not names or not is_same(forward.body, replay) or not is_same([record], RECORD):
        return False
    found[0].body.remove(record)
    forward.body = ast.parse(f"return self.compute({arguments})").body
    return not uses_what_is_left(tree)


def uses_what_is_left(tree: ast.Module) -> bool:
    """Whether something else looks at what recording leaves, or may."""
    return any(
        (
            isinstance(one, ast.Attribute)
            and (one.attr in LEFT or (one.attr == "graph" and not isinstance(one.ctx, ast.Store)))
        )
        or (isinstance(one, ast.Name) and one.id in ("getattr", "hasattr", "vars"))
        for one in ast.walk(tree)
    )


def is_same(body: list[ast.stmt], text: str) -> bool:
    """But for layout and comments."""
    # `return` stands outside of a function in the text, which only compiling would mind.
    return [ast.dump(one) for one in body] == [ast.dump(one) for one in ast.parse(text).body]
