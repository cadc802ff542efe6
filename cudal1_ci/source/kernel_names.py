"""Parse names of GPU kernels as profilers give them, and make them readable.

    brief("void at::native::vectorized_elementwise_kernel<4, at::native::AbsFunctor<float>, ...")
    # 'vectorized_elementwise_kernel<AbsFunctor>'

A library's kernel is a template: what it computes stands somewhere in its arguments, in up to
hundreds of characters that say nothing else. A name may have been cut anywhere.
"""

from __future__ import annotations

import re

__all__ = ["bare_name", "brief"]

MAX_CHARS = 80
_TEMPLATE = re.compile(r"<[^<>]*>")
_CONFIGURATION = re.compile(r"_(?:tilesize|stage\d|warpsize).*")
"""Of a matrix product's name, what is not its types and layouts."""
_WORK = re.compile(
    r"\b(?!(?:Binary|AUnary|BUnary|Unary)Functor\b)(?!gpu_)"
    r"(?:CUDAFunctor\w*|\w+Functor|\w+_functor|\w+Ops|\w+KernelImpl\w*|launch_\w+|\w+_cuda_out"
    r"|\w+_kernel(?:_cuda|_impl)?|cutlass_\w+|tensorop_\w+)\b"
)
"""In a template's arguments, that which says what is computed."""


def brief(name: str) -> str:
    """Return a kernel's own name, with its computation where the template's arguments name one.
    Names that are no C++ signature, such as Triton's, `aten::mm` and copies, stay unchanged.
    """
    text = name.replace("(anonymous namespace)::", "")
    if "<" not in text and ("(" not in text or text.startswith(("Memcpy", "Memset"))):
        return _CONFIGURATION.sub("", text)[:MAX_CHARS]
    own = bare_name(text)
    work = _WORK.search(text.partition("<")[2])
    found = own if work is None or work[0] == own else f"{own}<{work[0]}>"
    return found[:MAX_CHARS]


def bare_name(name: str) -> str:
    """Return `relu` for `void (anonymous namespace)::relu<float, 4>(float const*, float*, int)`."""
    text = name.replace("(anonymous namespace)", "")
    while (shorter := _TEMPLATE.sub("", text)) != text:
        text = shorter
    return re.split(r"\W+", re.split(r"[(<]", text)[0].strip())[-1]
