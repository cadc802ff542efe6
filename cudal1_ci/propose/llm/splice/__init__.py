"""Splice a model's answer into the program that is verified: what is measured is what is proposed.

    program = splice(problem, parsed)

A KernelBench-form problem gets a file with `ModelNew`. A problem of a checkout gets the user's file
with the answer as a drop-in. The public name, signatures, docstrings and comments remain. Imports
are merged, helpers go before the definition, and the repository's formatter runs. No other byte
changes. Python replaces Python, including Triton kernels and inline extensions; CUDA replaces the
kernel of a CUDA file or of a string. For a kernel only its own file changes. An answer that cannot
be spliced safely is refused with a reason that the model can fix.
"""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.propose.llm.answer import Parsed, Unusable, tree_of
from cudal1_ci.propose.llm.splice.cuda import with_kernel
from cudal1_ci.propose.llm.splice.cuda_strings import with_kernel_in_string
from cudal1_ci.propose.llm.splice.formatter import formatted
from cudal1_ci.propose.llm.splice.text_form import as_text_program
from cudal1_ci.propose.llm.splice.tree_form import unsupported, with_answer
from cudal1_ci.propose.target_file import file_of, file_text, with_file
from cudal1_ci.records import Problem, Program, Target, TextProgram, TreeProgram

__all__ = ["splice"]


def splice(problem: Problem, parsed: Parsed) -> Program | Unusable:
    """Return the program that an answer proposes instead of the reference."""
    reference, target = problem.reference, problem.target
    if parsed.language == "cuda":
        if isinstance(reference, TextProgram) or target is None or target.kind != "cuda_kernel":
            return Unusable(
                kind="wrong_language",
                message="The code is CUDA, and Python is wanted. Put CUDA into a string of the "
                "Python code and build it with torch.utils.cpp_extension.load_inline.",
            )
        return with_cuda(reference, target, parsed.code)
    if isinstance(reference, TextProgram):
        return as_text_program(reference, parsed.code)
    return with_python(reference, target, parsed.code)


def with_python(program: TreeProgram, target: Target | None, code: str) -> Program | Unusable:
    """Return the checkout with a Python answer in the file of the kernel, or else of the called
    target.
    """
    path = file_of(program)
    if target is not None and target.is_kernel:
        if not target.path.endswith(".py"):
            return Unusable(
                kind="wrong_language",
                message=f"The code is Python, and `{target.last_name}` is a kernel of a CUDA file. "
                "Write the kernel in CUDA.",
            )
        path = target.path
    text = file_text(program, path) if path is not None else None
    if path is None or text is None:
        return unsupported("the file of the target cannot be read")
    module, _, qualname = program.import_path.partition(":")
    names = [qualname] if path == file_of(program) else []
    is_launched_elsewhere = False
    if target is not None:
        at_home = [target.qualname] if target.path == path and target.kind != "cuda_kernel" else []
        launchers = [one.partition(":") for one in target.launchers]
        here = [name.partition(".")[0] for where, _, name in launchers if where == path]
        names = [*at_home, *names, *(name for name in here if name.isidentifier())]
        is_launched_elsewhere = any(where != path for where, _, _ in launchers)
    if not names:
        return unsupported("nothing in the file of the kernel launches it")
    first, *others = dict.fromkeys(names)
    spliced = with_answer(
        text,
        first,
        code,
        others=others,
        own=module.partition(".")[0],
        is_launched_elsewhere=is_launched_elsewhere,
    )
    if isinstance(spliced, Unusable):
        return spliced
    problem = tree_of(spliced)
    if isinstance(problem, str):
        return unsupported(f"with it the file does not parse, {problem}")
    return with_file(program, path, text, formatted(text, spliced, Path(program.root), path))


def with_cuda(program: TreeProgram, target: Target, code: str) -> Program | Unusable:
    """Return the checkout with a CUDA answer in the file of the kernel."""
    text = file_text(program, target.path)
    if text is None:
        return unsupported("the file of the kernel cannot be read")
    replace = with_kernel_in_string if target.path.endswith(".py") else with_kernel
    spliced = replace(text, target.qualname, code)
    if isinstance(spliced, Unusable):
        return spliced
    return with_file(program, target.path, text, spliced)
