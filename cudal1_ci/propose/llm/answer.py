"""Parse a model's answer into analysis, design and one piece of code.

    parsed = parse(text, wanted=("ModelNew", "Model"))

The wanted form has three parts, `## Performance analysis`, `## Algorithm design` and `## Code`, and
one fenced block. Small models write similar forms, so headings may have any style, and headings and
fences may be missing. Code is never guessed: one of several blocks is used unchanged, and a cut
answer is refused. The messages address the model and appear in a repair turn. This module runs no
code; splice and then the verifier check it.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Literal

from cudal1_ci.propose.llm.answer_prose import parts, prose_of
from cudal1_ci.propose.llm.fences import Block, blocks_in, cleaned, printable, without_thoughts
from cudal1_ci.records import Record

Language = Literal["python", "cuda"]
UnusableKind = Literal[
    "empty",
    "too_long",
    "no_code",
    "truncated",
    "syntax",
    "no_entry",  # no definition of what was asked for
    "placeholder",  # the code says "as before" where it should say something
    "unchanged",
    "wrong_language",
    "signature",
    "state_keys",
    "name_clash",
    "imports",
    "unsupported",  # the file cannot be spliced, whatever the answer
]

LONGEST_ANSWER = 1_000_000
"""The most characters of an answer; a tenth of a model's longest context."""
LONGEST_CODE = 200_000
"""The most characters of an answer without its thinking."""
DEEPEST_CODE = 100
"""The most levels of nested syntax: libcst and its visitors recurse, and people stop at twenty."""
_STARTS_PYTHON = re.compile(
    r"import \w|from [\w.]+ import |class \w+.*:|(?:async )?def \w+\(|@\w", re.ASCII
)
_DEFINES = re.compile(r"^\s*(?:class|def|async\s+def)\s+\w+", re.MULTILINE)
_CUDA = re.compile(
    r"__global__|__device__|^\s*#\s*include\b|^\s*(?:PYBIND11_MODULE|TORCH_LIBRARY)", re.MULTILINE
)
_PYTHON = re.compile(r"^(?:import|from)\s+\w|^\s*(?:class|def)\b.*:\s*$", re.MULTILINE)
_QUIET = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL
)
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


class Parsed(Record, frozen=True, kw_only=True):
    """A usable answer."""

    analysis: str
    design: str
    code: str
    language: Language


class Unusable(Record, frozen=True, kw_only=True):
    """The reason why an answer gave no candidate, in words for the model."""

    kind: UnusableKind
    message: str


def parse(
    text: str, wanted: Sequence[str] = ("ModelNew", "Model"), *, is_cut: bool = False
) -> Parsed | Unusable:
    """Return the parts of an answer. `wanted` are the names that the code may define, best first;
    they decide between several blocks. `is_cut` says that the server stopped at its limit: code
    without fences then has no end.
    """
    if len(text) > LONGEST_ANSWER:
        return too_long(text)
    answer = without_thoughts(cleaned(text))
    if answer is None:
        return Unusable(
            kind="truncated",
            message="The answer ends inside of its thinking. Think less, and write the code.",
        )
    if not answer.strip():
        return Unusable(kind="empty", message="The answer is empty. Write the code.")
    if len(answer) > LONGEST_CODE:
        return too_long(answer)
    blocks = blocks_in(answer, is_whole)
    chosen = chosen_block(blocks, wanted)
    if chosen is None and not any(block.code.strip() for block in blocks):
        chosen = unfenced(answer)
        if chosen is not None and is_cut:
            return cut_off()
    if chosen is None:
        return refusal(blocks, answer)
    analysis, design = parts(prose_of(answer, [*blocks, chosen]), chosen.first_line)
    return Parsed(
        analysis=analysis,
        design=design,
        code=chosen.code,
        language="python" if isinstance(tree_of(chosen.code), ast.Module) else "cuda",
    )


def too_long(text: str) -> Unusable:
    return Unusable(
        kind="too_long",
        message=f"The answer has {len(text):,} characters; write the code once, and little beside "
        "it.",
    )


def cut_off() -> Unusable:
    return Unusable(
        kind="truncated",
        message="The code block is not closed: the answer was cut off. Write less prose and the "
        "whole code, and close the block with ```.",
    )


# --- which code ---------------------------------------------------------------------------------


def chosen_block(blocks: Sequence[Block], wanted: Sequence[str]) -> Block | None:
    """Return the last block that defines the first wanted name; else the last block that defines
    anything.
    """
    closed = [block for block in blocks if block.is_closed]
    usable = [(block, names) for block in closed if (names := names_defined(block.code))]
    for name in wanted:
        for block, names in reversed(usable):
            if name in names:
                return block
    # The last block is the final version, unless it tests what an earlier block defines.
    for block, _ in reversed(usable):
        if re.search(r"^class \w|__global__", block.code, re.MULTILINE):
            return block
    return usable[-1][0] if usable else None


def names_defined(code: str) -> frozenset[str]:
    """Return what code defines: Python classes and functions, CUDA functions."""
    tree = tree_of(code)
    if isinstance(tree, ast.Module):
        return frozenset(definition_names(tree))
    if is_cuda(code) and is_balanced(code):
        return frozenset(re.findall(r"\b([A-Za-z_]\w*)\s*\(", code))
    return frozenset()


def definition_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module's classes and functions, including conditional ones."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            pending += [
                child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)
            ]


def is_whole(code: str) -> bool:
    """Return whether code is complete by itself."""
    return isinstance(tree_of(code), ast.Module) or (is_cuda(code) and is_balanced(code))


def is_cuda(code: str) -> bool:
    """Return whether code is CUDA or C++, and not Python with such code in a string."""
    return _CUDA.search(code) is not None and _PYTHON.search(code) is None


def is_balanced(code: str) -> bool:
    """Return whether the brackets of a CUDA text close; strings and comments are ignored."""
    plain = _QUIET.sub(" ", code)
    return all(plain.count(one) == plain.count(other) for one, other in ("{}", "()"))


@functools.lru_cache(maxsize=16)
def tree_of(code: str) -> ast.Module | str:
    """Return the tree of Python code, or its syntax error with the line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the model's
            tree = ast.parse(code)
            if not depth_is_sane(tree):
                return "the code is nested too deeply to be read"
            # Nothing is run: the compiler finds misplaced `return`s and duplicate parameters.
            compile(tree, "<answer>", "exec", dont_inherit=True)
    except SyntaxError as error:
        lines = code.split("\n")
        number = min(error.lineno or 1, len(lines))
        return f"line {number}: {error.msg}: `{printable(lines[number - 1].strip())}`"
    except _PARSE_ERRORS:
        return "the code is nested too deeply to be read"
    return tree


def depth_is_sane(tree: ast.Module) -> bool:
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST_CODE):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return True
    return False


def unfenced(text: str) -> Block | None:
    """Return code from a text without fences: all of it, or from its first line of code to where
    prose begins again.
    """
    lines = [
        ("" if re.fullmatch(r"\s*(?:`{3,}|~{3,})\s*", line) else line) for line in text.split("\n")
    ]
    start = next((i for i, line in enumerate(lines) if _STARTS_PYTHON.match(line)), None)
    if start is None:
        return None
    end = len(lines)
    try:
        ast.parse("\n".join(lines[start:]))
    except SyntaxError as error:
        end = start + (error.lineno or 1) - 1
        # Prose begins at the margin after an empty line; anything else is broken or cut code.
        if (
            not 0 < end < len(lines)
            or lines[end - 1].strip()
            or not re.match(r"[A-Z#*>-]", lines[end])
        ):
            return None
    except _PARSE_ERRORS:
        return None
    code = "\n".join(lines[start:end]).strip("\n") + "\n"
    return Block("", code, start, end - 1, True) if names_defined(code) else None


def refusal(blocks: Sequence[Block], text: str) -> Unusable:
    """Return why no block was accepted."""
    if blocks and not blocks[-1].is_closed and blocks[-1].code.strip():
        return cut_off()
    for block in reversed(blocks):
        if _DEFINES.search(block.code) or is_cuda(block.code):
            problem = tree_of(block.code)
            if is_cuda(block.code) and not _DEFINES.search(block.code):
                problem = "brackets and braces of the CUDA code do not match"
            return Unusable(kind="syntax", message=f"The code does not parse: {problem}")
    for block in reversed(blocks):
        if isinstance(tree := tree_of(block.code), ast.Module) and tree.body:
            return Unusable(
                kind="no_entry",
                message="The code defines no class and no function. Write the whole definition.",
            )
    if not blocks and re.search(r"^\s*(?:class|def)\s+\w+.*:\s*$", text, re.MULTILINE):
        return Unusable(
            kind="syntax",
            message="There is code, but in no fenced block, and it does not parse as it stands. "
            "Put the whole code into one block between ```python and ```.",
        )
    return Unusable(
        kind="no_code",
        message="There is no code in the answer. Put the whole code into one block between "
        "```python and ```.",
    )
