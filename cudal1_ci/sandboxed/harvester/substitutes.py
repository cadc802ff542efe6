"""Replace what a sandbox cannot have: downloaded weights by random ones, a GPU by the CPU.

What cannot be replaced raises NeedsError (needs.py), the reason that a cell is left out with.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .pretrained import (
    RANDOM_WEIGHTS,
    at_import,
    name_downloads,
    read_fake_weights,
    replace_from_pretrained,
    replace_weights,
)
from .stand_ins import stand_ins

Note = Callable[[str], None]
ON_THE_CPU = "on the CPU instead of a GPU"
NUM_DRAWN = 2**17


class Rewriting(ast.NodeTransformer):
    """Rewrite a script: it is the main program, and it asks for no pretrained weights."""

    def __init__(self, note: Note = lambda _: None):
        self.note = note

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        names = {getattr(one, "id", getattr(one, "value", None)) for one in self.sides(node)}
        if names == {"__name__", "__main__"} and isinstance(node.ops[0], ast.Eq):
            return ast.copy_location(ast.Constant(True), node)
        return node

    def sides(self, node: ast.Compare) -> list[ast.expr]:
        return [node.left, *node.comparators]

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        value = node.value
        if node.arg == "pretrained" and isinstance(value, ast.Constant) and value.value:
            self.note(RANDOM_WEIGHTS)
            node.value = ast.copy_location(ast.Constant(False), value)
        return node


def apply(torch: Any, note: Note, *, has_gpu: bool, root: Path) -> None:
    """Replace downloads and, where there is no GPU, what moves to one."""
    replace_weights(torch, note, root)
    if not has_gpu:
        stay_on_cpu(torch, note)
    at_import(
        {
            "transformers.modeling_utils": functools.partial(replace_from_pretrained, note=note),
            "huggingface_hub.file_download": name_downloads,
            "safetensors.torch": functools.partial(read_fake_weights, note=note),
        }
    )
    stand_ins(("matplotlib", "wandb", "tensorboardX", "seaborn", "IPython", "tensorboard"))


def draw_quickly(torch: Any) -> None:
    """Fill large tensors with copies of the same random numbers: drawing the weights of a large
    model takes longer than a call of it."""
    normal, uniform = torch.Tensor.normal_, torch.Tensor.uniform_
    drawn = torch.randn(NUM_DRAWN), torch.rand(NUM_DRAWN)

    def filled(tensor: Any, numbers: Any, scale: float, offset: float) -> Any:
        flat = tensor.detach().view(-1)
        scaled = (numbers * scale + offset).to(tensor.dtype)
        for first in range(0, flat.numel(), NUM_DRAWN):
            part = flat[first : first + NUM_DRAWN]
            part.copy_(scaled[: part.numel()])
        return tensor

    def is_large(tensor: Any, more: dict[str, Any]) -> bool:
        return (
            not more.get("generator")
            and tensor.numel() > 2 * NUM_DRAWN
            and tensor.is_contiguous()
            and tensor.device.type == "cpu"
            and tensor.is_floating_point()
        )

    @functools.wraps(normal)
    def quick_normal(self: Any, mean: float = 0.0, std: float = 1.0, **more: Any) -> Any:
        if is_large(self, more):
            return filled(self, drawn[0], std, mean)
        return normal(self, mean, std, **more)

    @functools.wraps(uniform)
    def quick_uniform(self: Any, low: float = 0.0, high: float = 1.0, **more: Any) -> Any:
        low, high = more.pop("a", low), more.pop("b", high)
        if is_large(self, more):
            return filled(self, drawn[1], high - low, low)
        return uniform(self, low, high, **more)

    torch.Tensor.normal_, torch.Tensor.uniform_ = quick_normal, quick_uniform


def without_dropout(torch: Any) -> None:
    """Let dropout keep everything, also in fused attention: it draws no random numbers then."""
    functional = torch.nn.functional
    attention = functional.scaled_dot_product_attention

    def keep(values: Any = None, *_: Any, input: Any = None, **__: Any) -> Any:  # noqa: A002
        return input if values is None else values

    def attend(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, **more: Any
    ) -> Any:
        if not isinstance(dropout_p, int | float):
            return attention(query, key, value, attn_mask, dropout_p, **more)
        return attention(query, key, value, attn_mask, 0.0, **more)

    kinds = ("", "1d", "2d", "3d")
    for name in (*(f"dropout{one}" for one in kinds), "alpha_dropout", "feature_alpha_dropout"):
        setattr(functional, name, keep)
    torch.dropout = keep
    functional.scaled_dot_product_attention = attend


def stay_on_cpu(torch: Any, note: Note) -> None:
    """Let `.cuda()`, `.to("cuda")`, `device="cuda"` and autocast for a GPU stay on the CPU."""
    from torch.overrides import TorchFunctionMode

    def is_gpu(device: Any) -> bool:
        return (isinstance(device, str) and device.startswith("cuda")) or (
            isinstance(device, torch.device) and device.type == "cuda"
        )

    def on_cpu(value: Any) -> Any:
        if is_gpu(value):
            note(ON_THE_CPU)
            return "cpu" if isinstance(value, str) else torch.device("cpu")
        return value

    def stay(self: Any, *_: Any, **__: Any) -> Any:
        note(ON_THE_CPU)
        return self

    def moving(original: Any) -> Any:
        @functools.wraps(original)
        def to(self: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs = {name: on_cpu(value) for name, value in kwargs.items()}
            return original(self, *(on_cpu(arg) for arg in args), **kwargs)

        return to

    class OnCpu(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, _: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if is_gpu(kwargs.get("device")):
                kwargs = {**kwargs, "device": on_cpu(kwargs["device"])}
            return function(*args, **kwargs)

    own_init = torch.autocast.__init__

    @functools.wraps(own_init)
    def cast_on_cpu(
        self: Any, device_type: str, dtype: Any = None, *args: Any, **more: Any
    ) -> None:
        if device_type == "cuda":
            dtype = dtype or torch.get_autocast_dtype("cuda")
            device_type = on_cpu(device_type)
        own_init(self, device_type, dtype, *args, **more)

    torch.autocast.__init__ = cast_on_cpu
    torch.Tensor.cuda = torch.nn.Module.cuda = stay
    torch.Tensor.to = moving(torch.Tensor.to)
    torch.nn.Module.to = moving(torch.nn.Module.to)
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_, **__: None
    torch.cuda.set_device = lambda *_, **__: None
    mode: Any = OnCpu()
    mode.__enter__()


__all__ = ["Rewriting", "apply", "draw_quickly", "without_dropout"]
