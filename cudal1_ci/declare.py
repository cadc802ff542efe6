"""Declare workloads in a project by the `@workload` decorator.

Discovery reads the decorator from the source text and never imports this file, so a project that
does not want the dependency can write the same thing as a comment above the definition:

    # cudal1: workload(init=["dim=256"], inputs=["float32[8, 128, 256]"], mode="infer")

The forms of the strings are described in docs/workloads.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

Definition = TypeVar("Definition", bound=Callable[..., object])


def workload(
    *,
    init: Sequence[str] = (),  # noqa: ARG001
    inputs: Sequence[str] = (),  # noqa: ARG001
    mode: Literal["infer", "train"] = "infer",  # noqa: ARG001
    autocast: Literal["float16", "bfloat16"] | None = None,  # noqa: ARG001
    name: str | None = None,  # noqa: ARG001
) -> Callable[[Definition], Definition]:
    """Declare a workload of the class or function below; returns it unchanged.

    `inputs` and `init` hold one string per argument: `"float32[8, 128]"` is a tensor,
    `"int64[8, 128] in 0..999"` one of integers in a range, `"mask=bool[8, 128]"` a keyword
    argument, `"dim=256"` any Python literal. `autocast` is the dtype of `torch.autocast` at the
    call.
    """

    def unchanged(definition: Definition) -> Definition:
        return definition

    return unchanged
