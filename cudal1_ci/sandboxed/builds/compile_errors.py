"""Cut a compiler's output down to what helps to fix the text.

This module knows the output of g++, clang, nvcc's front end, NVRTC, ptxas, linkers and ninja. It
also knows that of torch.utils.cpp_extension and torch.compile, and Triton's exceptions. It keeps
the first errors with file and line, the excerpt and the caret. For an error in a template it keeps
the place that used it. It drops command lines, stacks of includes and of templates, notes, warnings
and Python's traceback. The functions are pure, and linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_CHARS = 2000
"""Most characters that are shown."""
MAX_OUTPUT_CHARS = 200_000
"""Most characters that are read: the first errors come first."""
MAX_BLOCK_LINES = 8
MAX_LINE_CHARS = 300

MARKS = (
    "Error building extension",  # torch.utils.cpp_extension
    "Kernel compilation failed",  # torch.cuda, through NVRTC
    "C++ compile error",  # torch.compile
    "CUDA compile error",
)
COMPILER_EXCEPTIONS = {"CppCompileError", "CUDACompileError", "CompileException", "NVRTCError"}
TRITON_EXCEPTIONS = {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
}

_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GNU = re.compile(
    r"(?P<where>[^\s:|][^:|]{0,400}:\d+(?::\d+)?):\s+"
    r"(?P<kind>fatal error|error|warning|note|remark):\s+(?P<text>.+)"
)
_EDG = re.compile(
    r"(?P<where>[^\s(][^(]{0,400}\(\d+\)):\s+"
    r"(?P<kind>catastrophic error|error|warning|note|remark)(?: #[\w-]+)?:\s+(?P<text>.+)"
)
_TOOL = re.compile(
    r"(?P<where>ptxas|nvlink|nvcc|cicc|cc1plus|cc1|c\+\+|g\+\+|gcc|clang\+\+)\b[^:]{0,200}?\s*"
    r"(?P<kind>fatal error|fatal|error|warning|info)\s*:\s+(?P<text>.+)"
)
_LINKER = re.compile(
    r"(?:\S*\bld(?:\.\w+)?: )?(?P<where>[^\s:]{1,400}):(?:[^:\s]{0,400}:)? "
    r"(?P<kind>undefined reference to|multiple definition of)(?P<text>.+)"
)
_NOISE = re.compile(
    r"\[\d+/\d+\] |FAILED: |ninja: |In file included from |\s+from \S+[:,]|compilation terminated"
    r"|\d+ errors? (?:and \d+ warnings? )?detected in|\d+ (?:errors?|warnings?) generated"
    r"|Remark: The warnings can be suppressed|Error limit reached|collect2: error: ld returned"
    r"|Error building extension|Kernel compilation failed|C\+\+ compile error|CUDA compile error"
    r"|(?:Command|Output):?\s*$|Traceback \(most recent call last\)|subprocess\.CalledProcessError"
)
_COMMAND = re.compile(r"\S*(?:c\+\+|g\+\+|gcc|cc|clang|clang\+\+|nvcc|ld)(?:-[\d.]+)?\s.*\s-[co]\s")
_SCOPE = re.compile(
    r"\S.*: (?:[Ii]n|At) .*:$|\S.*:\s+(?:required|recursively required|in .*expansion of)"
    r"|\S.*: skipp"
)
_GNU_HERE = re.compile(r"(?P<where>\S[^\n]{0,400}?:\d+(?::\d+)?):\s+(?:required )?from here")
_EDG_STACK = re.compile(r"\s+detected during(?::| )")
_EDG_HERE = re.compile(r" at line (?P<line>\d+) of (?P<file>\S+)\s*$")
_TRITON_PLACE = re.compile(r"at (?P<line>\d+):(?P<column>\d+):\s*$")


@dataclass
class Diagnostic:
    """An error with the lines that show it."""

    head: str
    text: str
    excerpt: list[str] = field(default_factory=list)
    used_at: str | None = None
    """For an error in a template: the place in the text that led to it."""

    def shown(self) -> str:
        lines = [self.head, *self.excerpt[:MAX_BLOCK_LINES]]
        if self.used_at is not None and not self.head.startswith(self.used_at):
            lines.append(f"  from {self.used_at}")
        return "\n".join(line.rstrip()[:MAX_LINE_CHARS] for line in lines)


@dataclass(frozen=True)
class CompileError:
    """A failed compilation in words."""

    message: str
    """The first errors, at most `MAX_CHARS`. Its first line names the first error."""
    output: str
    """The compiler's whole output, without command lines."""


def compile_error(
    error: BaseException, folders: Iterable[str] = (), root: str | None = None
) -> CompileError | None:
    """Return the error that a compiler's exception reports; None for other exceptions. A path in
    `folders` is cut to the file's name, a path in `root` to the part below it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & TRITON_EXCEPTIONS:
        found = triton_error(error)
        return CompileError(found[:MAX_CHARS], found)
    text = str(error)
    if not (names & COMPILER_EXCEPTIONS or any(mark in text[:20_000] for mark in MARKS)):
        return None
    clean = without_paths(_COLOR.sub("", text[:MAX_OUTPUT_CHARS]), folders)
    if root is not None:
        clean = clean.replace(root.rstrip("/") + "/", "")
    output = "\n".join(line for line in clean.splitlines() if not is_noise(line))
    return CompileError(trimmed(clean), output.strip())


def trimmed(output: str, max_chars: int = MAX_CHARS) -> str:
    """Return the errors in a compiler's output, the first ones where not all fit. Return the end
    of the output where no error is recognized."""
    found: dict[tuple[str, str | None], Diagnostic] = {}
    for one in diagnostics(output.splitlines()):
        found.setdefault((one.text, one.used_at), one)
    if not found:
        kept = [line for line in output.splitlines() if line.strip() and not is_noise(line)]
        return "\n".join(line[:MAX_LINE_CHARS] for line in kept)[-max_chars:].strip()
    return first_that_fit([one.shown() for one in found.values()], max_chars)


def first_that_fit(blocks: list[str], max_chars: int) -> str:
    """Return as many errors as fit, at least the beginning of one, and how many more there are."""
    room = max_chars - len("\n... and 1000 more errors")
    shown = [blocks[0][:room]]
    size = len(shown[0])
    for block in blocks[1:]:
        size += len(block) + 1
        if size > room:
            break
        shown.append(block)
    left = len(blocks) - len(shown)
    more = f"\n... and {left} more error{'s' if left > 1 else ''}" if left else ""
    return "\n".join(shown) + more


def diagnostics(lines: Iterable[str]) -> Iterator[Diagnostic]:
    """Yield the errors in the order of the output."""
    current: Diagnostic | None = None
    is_open = in_stack = False
    used_at: str | None = None
    for line in lines:
        found = diagnostic_of(line)
        if found is not None:
            kind, head, text = found
            is_open, in_stack = kind not in ("warning", "note", "remark", "info"), False
            if is_open:
                if current is not None:
                    yield current
                current = Diagnostic(head, text, used_at=used_at)
                used_at = None
            continue
        if current is not None and (in_stack or _EDG_STACK.match(line)):
            in_stack = bool(line.strip())
            is_open = False
            place = _EDG_HERE.search(line)
            if place is not None:  # the last one is the outermost
                current.used_at = f"{place['file']}({place['line']})"
            continue
        here = _GNU_HERE.match(line)
        if here is not None:
            used_at, is_open = here["where"], False
        elif is_noise(line) or _SCOPE.match(line):
            is_open = False
        elif is_open and current is not None and line.strip():
            current.excerpt.append(line)
    if current is not None:
        yield current


def diagnostic_of(line: str) -> tuple[str, str, str] | None:
    """Return kind, whole line and text of a line that begins a diagnostic."""
    short = line[:2000]
    for pattern in (_GNU, _EDG, _TOOL, _LINKER):
        found = pattern.match(short)
        if found is not None and not short.startswith("collect2:"):
            return found["kind"], short, found["text"]
    return None


def is_noise(line: str) -> bool:
    """Return whether a line does not help to find the error."""
    return bool(_NOISE.match(line) or _COMMAND.match(line[:400_000]))


def without_paths(text: str, folders: Iterable[str]) -> str:
    """Replace paths of files in these folders by the files' names."""
    for folder in sorted(set(folders), key=len, reverse=True):
        if len(folder) > 1:
            text = re.sub(re.escape(folder.rstrip("/")) + r"/(?:[^\s:()'\"/,]+/)*", "", text)
    return text


def triton_error(error: BaseException) -> str:
    """Return `kernel:4: error: why`, and the lines before the caret. For an error in a function
    that a kernel calls, the innermost position counts."""
    inner = error
    while inner.__cause__ is not None and type(inner.__cause__).__name__ in TRITON_EXCEPTIONS:
        inner = inner.__cause__
    lines = str(inner)[:MAX_OUTPUT_CHARS].splitlines()
    place = _TRITON_PLACE.match(lines[0]) if lines else None
    if place is None:
        return str(inner)[:MAX_CHARS] or type(inner).__name__
    carets = [i for i, line in enumerate(lines) if line.strip() == "^"]
    last = carets[-1] if carets else 0
    reason = " ".join(" ".join(lines[last + 1 :]).split())
    if not reason and inner.__cause__ is not None:
        reason = f"{type(inner.__cause__).__name__}: {inner.__cause__}"
    name = next((m[1] for line in lines if (m := re.match(r"\s*def (\w+)", line))), "kernel")
    where = f"{name}:{place['line']}:{place['column']}"
    excerpt = [line[:MAX_LINE_CHARS] for line in lines[1 : last + 1]]
    return "\n".join([f"{where}: error: {reason or type(inner).__name__}", *excerpt[-6:]])


def line_in(source: str, message: str) -> int | None:
    """Return the 1-based line of a program's text that a message shows, where only one line
    matches. Compilers count from the beginning of the string that they were given."""
    for shown in message.splitlines()[1:]:
        text = shown.partition("|")[2] if re.match(r"\s*\d+ \|", shown) else shown
        if len(text.strip()) < 4:
            continue
        same = [i for i, line in enumerate(source.splitlines(), 1) if line.strip() == text.strip()]
        return same[0] if len(same) == 1 else None
    return None
