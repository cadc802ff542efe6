"""Make models of their default configuration, and call them: where no text of the checkout does.

A class is made as a configuration file or a function of the checkout makes it (configured.py,
factories.py). Else it is made of its defaults, of a configuration class of the checkout whose
defaults suffice, or of small numbers that the names of its arguments suggest. Inputs are tried in
turn, by the names of forward's arguments. What neither raises nor takes long is called again, and
recorded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ..wire.harvest import CellRan, OpenHarvest, Outcome, RunScript
from .arguments import MAX_COMBINATIONS, CannotError, constructions, made
from .configured import Recipe, configured
from .factories import factories
from .stand_ins import imported

WIDTHS = ("in_features", "in_channels", "normalized_shape", "num_features", "num_channels")
"""Attributes of torch's modules that hold how many features their inputs have."""
MAX_PARAMETERS = 300_000_000
MAX_TRIALS = 24
MAX_REPAIRS = 24
"""Inputs with a size that an error asks for."""
WANTED = {
    re.compile(r"shapes cannot be multiplied \(\d+x(?P<got>\d+) and (?P<want>\d+)x"): -1,
    re.compile(r"to have (?P<want>\d+) channels, but got (?P<got>\d+) channels"): 1,
    re.compile(r"normalized_shape=\[(?P<want>\d+)\].*size\[(\d+, )*(?P<got>\d+)\]"): -1,
}
"""What torch says of an input's size, and which dimension has it."""
UNCALLED_S = 5.0
"""For one that a script made and did not call."""
MAX_SHOWN = 2
"""Objects of a class, made as the checkout shows it, for which inputs are sought."""
CLASS_S = 8.0
"""Time in which one class is tried."""
BUSY = 4
"""How much longer a class may take on a busy machine, in which it computes no more."""
IDS = frozenset(
    {"idx", "ids", "input_ids", "tokens", "token_ids", "src", "tgt", "input_tokens", "seq"}
    | {"src_tokens", "prev_output_tokens", "text", "indices", "decoder_input_ids", "labels"}
)
TIMES = frozenset({"t", "time", "timestep", "timesteps", "times", "noise_level", "sigma"})
EMBEDDINGS = frozenset({"emb", "temb", "t_emb", "time_emb", "time_embedding"})
"""A vector for each of a batch: residual blocks of diffusion models take one of the time."""
HEADS = frozenset({"heads", "num_heads", "n_heads", "n_head", "nhead"})
MASKS = ((2, 32), (2, 1, 32), (2, 32, 32), (32, 32))
"""Shapes of masks, for a batch of two and 32 positions."""
IMAGES = frozenset({"img", "image", "images", "imgs", "pixel_values", "video"})


def run(
    opened: OpenHarvest,
    request: RunScript,
    report: Any,
    tracer: Any,
    limited: Callable[..., Any],
    failure: Callable[[BaseException], tuple[Outcome, str]],
) -> None:
    """Try the classes that the cells name, in a time each."""
    deadline = time.monotonic() + request.script_s
    with contextlib.suppress(BaseException), limited(request.script_s / 2, request.script_s):
        imported(request.module, opened.own, report.note)
    for cell in request.cells:
        if f"{request.path}:{cell.text}" in tracer.log.num_signatures:
            continue  # another one that was made has called it
        left_s = deadline - time.monotonic()
        limit_s = min(CLASS_S, request.script_s / 8, left_s)
        start_s = time.monotonic()
        if left_s < 0.5:
            return
        most_s = min(max(limit_s, left_s / 3), BUSY * limit_s)
        failures: list[tuple[Outcome, str]] = []
        for recipes, most_made in ((shown, MAX_SHOWN), (guessed, MAX_COMBINATIONS)):
            tracer.source = f"{request.path}:{cell.line}"
            try:
                with limited(limit_s, most_s):
                    cls = class_of(request.module, cell.text)
                    call_class(recipes(cls, opened, request.path), tracer, most_made)
                failures = []
                break
            except CannotError as error:
                failures.append(("needs", str(error)))
            except BaseException as error:  # noqa: BLE001 - whatever it raises is its reason
                failures.append(failure(error))
        failures = [one for one in failures if one[1]] or [("ran", "")]
        report.cell(
            CellRan(
                line=cell.line,
                name=cell.text,
                outcome=failures[0][0],
                reason=failures[0][1],
                duration_s=time.monotonic() - start_s,
            )
        )


def class_of(module_name: str, qualname: str) -> Any:
    """Return a class of a module."""
    found: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def shown(cls: Any, opened: OpenHarvest, path: str) -> Iterator[Recipe]:
    """Yield ways to make an object of a class that the checkout shows."""
    yield from configured(cls, Path(opened.root), opened.configurations, path)
    yield from factories(cls, Path(opened.root), path)


def guessed(cls: Any, *_: Any) -> Iterator[Recipe]:
    """Yield ways to make an object of a class that its signature suggests."""
    for arguments in constructions(cls):
        yield Recipe("", functools.partial(made, cls, arguments), arguments)


def call_class(recipes: Iterable[Recipe], tracer: Any, most_made: int) -> None:
    """Make an object of a class, find inputs that it takes, and call it once, recorded.

    Raises:
        CannotError: None of its first objects takes any inputs. The reason is empty where there is
            no way to make one.
    """
    failed: list[str] = []
    for recipe in recipes:
        try:
            module = recipe.make()
        except Exception as error:  # noqa: BLE001 - other arguments may do
            failed.append(f"{type(error).__name__}: {error}")
            continue
        if sum(one.numel() for one in module.parameters()) > MAX_PARAMETERS:
            raise CannotError("its configuration is too large")
        tracer.source = recipe.source or tracer.source
        if called(module.eval(), recipe.arguments, tracer, failed):
            return
        most_made -= 1
        if not most_made:
            break
    # The likeliest arguments come first.
    text = " ".join(failed[0].split())[:160] if failed else ""
    raise CannotError(text and f"no inputs were found that it takes ({text})")


def called(module: Any, made_of: dict[str, Any], tracer: Any, failed: list[str]) -> bool:
    """Return whether inputs were found that a module takes; then it was called with them, recorded.
    Why others were not taken is appended."""
    import torch

    untried = itertools.islice(input_sets(module, made_of), MAX_TRIALS)
    repairs: deque[dict[str, Any]] = deque()
    seen: set[tuple[Any, ...]] = set()
    while (inputs := repairs.popleft() if repairs else next(untried, None)) is not None:
        try:
            tracer.local.is_busy = True
            with torch.no_grad():
                module(**inputs)
        except Exception as error:  # noqa: BLE001 - other inputs may do
            failed.append(f"{type(error).__name__}: {error}")
            for other in repaired(inputs, error):
                shapes = tuple(one.shape for one in other.values())
                if shapes not in seen and len(seen) < MAX_REPAIRS:
                    seen.add(shapes)
                    repairs.append(other)
            continue
        finally:
            tracer.local.is_busy = False
        with torch.no_grad():
            module(**inputs)
        return True
    return False


def repaired(inputs: dict[str, Any], error: Exception) -> Iterator[dict[str, Any]]:
    """Yield the same inputs with one size changed: torch says which one it wants of a product, a
    convolution or a normalization."""
    for pattern, place in WANTED.items():
        said = pattern.search(str(error))
        if said is None:
            continue
        got, want = int(said["got"]), int(said["want"])
        for name, one in inputs.items():
            if one.is_floating_point() and one.ndim > abs(place) and one.shape[place] == got:
                shape = list(one.shape)
                shape[place] = want
                yield {**inputs, name: one.new_empty(shape).normal_()}


def call_uncalled(names: dict[str, Any], tracer: Any, limited: Callable[[float], Any]) -> None:
    """Call the modules of the checkout that a script made and did not call: many a page ends
    there."""
    import torch

    for module in [one for one in names.values() if isinstance(one, torch.nn.Module)]:
        target = tracer.place(type(module))
        if target is None or target in tracer.log.num_signatures:
            continue
        was_training = module.training
        with contextlib.suppress(BaseException), limited(UNCALLED_S):
            called(module.eval(), {}, tracer, [])
        module.train(was_training)


def input_sets(module: Any, made_of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments of forward, by the names of its own: those that it needs, then also times."""
    optional = inspect.signature(module.forward).parameters
    names = [
        name
        for name, one in optional.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if not names:
        names = [name for name in optional if name in IDS | IMAGES][:1]
    if not names:
        raise CannotError("its forward takes no input")
    width = width_of(module, made_of)
    yield from inputs_of(names, width, made_of)
    if times := [name for name in optional if name in TIMES and name not in names]:
        yield from inputs_of([*names, *times], width, made_of)


def inputs_of(names: list[str], width: int, made_of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield inputs of those names. The first one varies, and the others follow it: they mostly have
    its shape. Times and embeddings are one for each of its batch."""
    import torch

    each = TIMES | EMBEDDINGS
    of_batch = [name for name in names if name in each] if not each.issuperset(names) else []
    own = {name: value for name, value in made_of.items() if type(value) is int}
    size = next((value for name, value in own.items() if "emb" in name), width)
    num_heads = next((value for name, value in own.items() if name in HEADS), 1)
    options = {
        name: list(tensors_for(name, width, num_heads)) for name in names if name not in of_batch
    }
    of_masks = [name for name in options if "mask" in name]
    others = [len(some) for name, some in options.items() if name not in of_masks]
    numbers = [(number, 0) for number in range(max(others, default=1))]
    numbers[1:1] = [(0, mask) for mask in range(1, len(MASKS)) if of_masks]
    for number, mask in numbers:
        chosen = {name: mask if name in of_masks else number for name in options}
        inputs = {name: some[min(chosen[name], len(some) - 1)]() for name, some in options.items()}
        batch = len(next(iter(inputs.values())))
        for name in of_batch:
            inputs[name] = torch.rand(batch) if name in TIMES else torch.randn(batch, size)
        yield inputs


def width_of(module: Any, made_of: dict[str, Any]) -> int:
    """Return the number of features that a module takes: of its first weight of two dimensions or
    more."""
    import torch

    for part in module.modules():
        for name in WIDTHS:
            value = getattr(part, name, None)
            if isinstance(value, tuple) and value:
                value = value[-1]
            if isinstance(value, int) and value > 0 and not isinstance(part, torch.nn.Embedding):
                return value
    return next((one for one in made_of.values() if isinstance(one, int)), 64)


def tensors_for(name: str, width: int, num_heads: int = 1) -> Iterator[Callable[[], Any]]:
    """Yield makers of an input of that name, the likeliest first. Queries, keys and values that are
    joined have a multiple of three times the heads."""
    import torch

    joined = 3 * num_heads * 32

    ids = [lambda: torch.randint(0, 16, (2, 32))]
    sequences = [lambda: torch.randn(2, 32, width), lambda: torch.randn(2, width)]
    images = [
        lambda: torch.randn(1, width, 32, 32),
        lambda: torch.randn(1, 3, 64, 64),
        lambda: torch.randn(1, 3, 224, 224),
        lambda: torch.randn(1, 3, 256, 256),
    ]
    side = math.isqrt(width // 3 if width % 3 == 0 else width)
    if side > 8 and width in (side**2, 3 * side**2):  # the pixels of an image
        images.append(lambda: torch.randn(2, width // side**2, side, side))
    signals = [
        lambda: torch.randn(2, width, 64),
        lambda: torch.randn(2, 1, 16384),
        lambda: torch.randn(1, width, 8, 32, 32),
        lambda: torch.randn(2, 32, 32, width),
        lambda: torch.randn(64, width),
    ]
    if name in TIMES:
        yield from [lambda: torch.rand(1), lambda: torch.rand(2)]
    elif name in IDS or name.endswith(("_seq", "_ids", "_tokens")):
        yield from [*ids, *sequences, *images, *signals]
    elif name in IMAGES:
        yield from [*images, *signals, *sequences]
    elif "mask" in name:
        for shape in MASKS:
            yield functools.partial(torch.ones, shape, dtype=torch.bool)
    elif "qkv" in name:
        yield from [lambda: torch.randn(2, joined, 64), lambda: torch.randn(2, 64, joined)]
        yield from sequences
    else:
        yield from [*sequences, *images, *signals, *ids]


__all__ = ["call_uncalled", "run"]
