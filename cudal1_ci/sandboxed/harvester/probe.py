"""Make models of their default configuration, and call them: where no text of the checkout does.

A class is made of its defaults, of a configuration class of the checkout whose defaults suffice, or
of small numbers that the names of its arguments suggest. Inputs are tried in turn, by the names of
forward's arguments. What neither raises nor takes long is called again, and recorded.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..wire.harvest import CellRan, OpenHarvest, RunScript
from . import substitutes

MAX_PARAMETERS = 300_000_000
MAX_TRIALS = 24
MAX_COMBINATIONS = 8
UNCALLED_S = 5.0
"""For one that a script made and did not call."""
CLASS_S = 8.0
"""Time in which one class is tried."""
NUMBERS: dict[str, Any] = {
    **dict.fromkeys(("dim", "d_model", "hidden_size", "embed_dim", "hidden_dim", "width"), 64),
    **dict.fromkeys(("n_embd", "model_dim", "emb_dim", "embedding_dim", "dim_model"), 64),
    **dict.fromkeys(("dim_in", "dim_out", "in_features", "out_features", "input_dim"), 64),
    **dict.fromkeys(("in_channels", "out_channels", "in_dim", "out_dim", "output_dim"), 64),
    **dict.fromkeys(("in_ch", "out_ch", "in_c", "out_c", "inp_dim", "features", "planes"), 64),
    **dict.fromkeys(("in_planes", "inplanes", "channels_in", "channels_out", "inp", "oup"), 64),
    **dict.fromkeys(("chan", "chan_in", "chan_out", "c_s", "c_z", "dim_pairwise", "dims"), 64),
    **dict.fromkeys(("heads", "num_heads", "n_heads", "n_head", "nhead", "num_head"), 4),
    **dict.fromkeys(("dim_head", "head_dim", "dim_key", "dim_value"), 16),
    **dict.fromkeys(("mlp_dim", "ff_dim", "d_ff", "intermediate_size", "dim_inner"), 128),
    **dict.fromkeys(("depth", "num_layers", "n_layers", "n_layer", "layers", "num_blocks"), 2),
    **dict.fromkeys(("num_classes", "num_class", "classes", "num_labels", "n_classes"), 10),
    **dict.fromkeys(("vocab_size", "num_tokens", "num_embeddings", "n_vocab", "ntoken"), 256),
    **dict.fromkeys(("max_seq_len", "max_len", "seq_len", "block_size", "num_patches"), 64),
    **dict.fromkeys(("image_size", "img_size", "input_size", "size"), 64),
    **dict.fromkeys(("patch_size", "window_size", "patch_height", "patch_width"), 8),
    **dict.fromkeys(("channels", "in_chans", "num_channels", "channel", "ch"), 64),
    **dict.fromkeys(("kernel_size", "kernel", "k"), 3),
    **dict.fromkeys(("stride", "dilation", "groups", "padding"), 1),
    **dict.fromkeys(("dropout", "drop", "p", "attn_dropout", "drop_prob", "rate"), 0.0),
    **dict.fromkeys(("codebook_size", "num_codes", "n_embed"), 64),
    **dict.fromkeys(("eps", "epsilon"), 1e-5),
    **dict.fromkeys(("expansion", "expansion_factor", "mult", "scale_factor", "scale"), 2),
    **dict.fromkeys(("normalized_shape",), 64),
    **dict.fromkeys(("num_quantizers", "num_experts", "n_experts", "num_codebooks"), 4),
    **dict.fromkeys(("activation_fn", "activation", "hidden_act", "act"), "gelu"),
    "levels": (8, 5, 5, 5),
}
IDS = frozenset(
    {"idx", "ids", "input_ids", "tokens", "token_ids", "src", "tgt", "input_tokens", "seq"}
    | {"src_tokens", "prev_output_tokens", "text", "indices", "decoder_input_ids", "labels"}
)
TIMES = frozenset({"t", "time", "timestep", "timesteps", "times", "noise_level", "sigma"})
IMAGES = frozenset({"img", "image", "images", "imgs", "pixel_values", "video"})
DEPTHS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")
CONFIGS = frozenset({"config", "cfg", "args", "hparams", "configuration", "conf", "opt"})


class CannotError(Exception):
    """A class cannot be made, or called, of what is known."""


def run(
    opened: OpenHarvest,
    request: RunScript,
    report: Any,
    tracer: Any,
    limited: Callable[[float], Any],
    failure: Callable[[BaseException], tuple[Any, str]],
) -> None:
    """Try the classes that the cells name, in a time each."""
    deadline = time.monotonic() + request.script_s
    with contextlib.suppress(BaseException), limited(request.script_s / 2):
        imported(request.module, opened, report)
    for cell in request.cells:
        if f"{request.path}:{cell.text}" in tracer.log.num_signatures:
            continue  # another one that was made has called it
        left_s = min(CLASS_S, request.script_s / 8, deadline - time.monotonic())
        start_s = time.monotonic()
        if left_s < 0.5:
            return
        tracer.source = f"{request.path}:{cell.line}"
        outcome, reason = "ran", ""
        try:
            with limited(left_s):
                call_class(request.module, cell.text, tracer)
        except CannotError as error:
            outcome, reason = "needs", str(error)
        except BaseException as error:  # noqa: BLE001 - whatever it raises is its reason
            outcome, reason = failure(error)
        report.cell(
            CellRan(
                line=cell.line,
                name=cell.text,
                outcome=outcome,  # type: ignore[arg-type]
                reason=reason,
                duration_s=time.monotonic() - start_s,
            )
        )


def imported(module: str, opened: OpenHarvest, report: Any) -> None:
    """Import a module, with stand-ins for packages that are not installed."""
    while True:
        try:
            importlib.import_module(module)
            return
        except ModuleNotFoundError as error:
            name = substitutes.stand_in_for(error, opened.own)
            if name is None:
                raise
            report.note(f"without the package `{name}`")


def call_class(module_name: str, qualname: str, tracer: Any) -> None:
    """Make an object of a class, find inputs that it takes, and call it once, recorded."""
    found: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        found = getattr(found, part)
    failed: list[str] = []
    for arguments in constructions(found):
        try:
            module = made(found, arguments)
        except Exception as error:  # noqa: BLE001 - other arguments may do
            failed.append(f"{type(error).__name__}: {error}")
            continue
        if sum(one.numel() for one in module.parameters()) > MAX_PARAMETERS:
            raise CannotError("its default configuration is too large")
        if called(module.eval(), arguments, tracer, failed):
            return
    text = " ".join(failed[-1].split())[:160] if failed else "no values suggest themselves"
    raise CannotError(f"no inputs were found that it takes ({text})")


def made(cls: Any, arguments: dict[str, Any]) -> Any:
    """Return an object of a class. What it or one inside says is missing is added, once."""
    try:
        return cls(**arguments)
    except TypeError as error:
        names = re.findall(r"'(\w+)'", str(error).partition("missing ")[2])
        if not names or not all(name in NUMBERS for name in names):
            raise
        return cls(**arguments, **{name: NUMBERS[name] for name in names})


def called(module: Any, made_of: dict[str, Any], tracer: Any, failed: list[str]) -> bool:
    """Return whether inputs were found that a module takes; then it was called with them, recorded.
    Why others were not taken is appended."""
    import torch

    for inputs in itertools.islice(input_sets(module, made_of), MAX_TRIALS):
        try:
            tracer.local.is_busy = True
            with torch.no_grad():
                module(**inputs)
        except Exception as error:  # noqa: BLE001 - other inputs may do
            failed.append(f"{type(error).__name__}: {error}")
            continue
        finally:
            tracer.local.is_busy = False
        with torch.no_grad():
            module(**inputs)
        return True
    return False


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


def constructions(cls: Any) -> Iterator[dict[str, Any]]:
    """Yield arguments to make an object of a class of."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    needed = [
        one
        for one in list(parameters)[1:]
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if not needed:
        yield {}
        return
    values: dict[str, list[Any]] = {}
    for one in needed:
        options = list(options_for(one, cls))
        if not options:
            raise CannotError(f"its argument `{one.name}` is unknown")
        values[one.name] = options
    for combination in itertools.islice(itertools.product(*values.values()), MAX_COMBINATIONS):
        yield dict(zip(values, combination, strict=True))


def options_for(parameter: inspect.Parameter, cls: Any) -> Iterator[Any]:
    """Yield values of a constructor's argument, the likeliest first."""
    name = parameter.name
    if name in NUMBERS:
        yield NUMBERS[name]
        if NUMBERS[name] == 64 and "chan" in name:
            yield 3
        return
    kind = parameter.annotation
    if name in CONFIGS or name.endswith("config") or "onfig" in str(kind):
        yield from configurations(cls, kind)
    elif kind in (bool, "bool"):
        yield False
    elif name.startswith(("num_", "n_")) and kind in (int, "int", parameter.empty):
        yield 4
    elif name.endswith(("_dim", "_size", "_channels", "_features")) or name.startswith("dim_"):
        yield 64


def configurations(cls: Any, kind: Any) -> Iterator[Any]:
    """Yield configurations of their defaults: of the annotated class, then of those that the
    checkout has, with the likest name first."""
    found: dict[str, Any] = {}
    if inspect.isclass(kind) and kind is not inspect.Parameter.empty:
        found[kind.__name__] = kind
    module = sys.modules.get(cls.__module__)
    for source in filter(None, [module, *same_package(cls)]):
        for name, value in list(vars(source).items()):
            if inspect.isclass(value) and name.endswith(("Config", "Args", "Configuration")):
                found.setdefault(name, value)
    stem = cls.__name__.lower()
    for name in sorted(found, key=lambda one: -shared(one.lower(), stem)):
        with contextlib.suppress(Exception):
            config = found[name](**numbers_for(found[name]))
            for key in DEPTHS:
                if isinstance(getattr(config, key, None), int) and getattr(config, key) > 4:
                    setattr(config, key, 4)
            yield config


def numbers_for(kind: Any) -> dict[str, Any]:
    """Return small numbers for what a configuration has no default of."""
    parameters = inspect.signature(kind).parameters.values()
    found = {
        one.name: NUMBERS[one.name]
        for one in parameters
        if one.default is one.empty and one.name in NUMBERS
    }
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        found["vocab_size"] = NUMBERS["vocab_size"]
    return found


def same_package(cls: Any) -> list[Any]:
    """Return the imported modules of a class's packages, and those of configurations there."""
    parts = cls.__module__.split(".")
    packages = [".".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1)]
    for package in packages:
        for name in ("config", "configuration", "configs", "args", "architecture.config"):
            with contextlib.suppress(Exception):
                importlib.import_module(f"{package}.{name}")
    tops = tuple(f"{package}." for package in packages[-1:])
    return [value for name, value in list(sys.modules.items()) if tops and name.startswith(tops)]


def shared(one: str, other: str) -> int:
    """Return how long a beginning two names share."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def input_sets(module: Any, made_of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments of forward, by the names of its own."""
    parameters = [
        one
        for one in inspect.signature(module.forward).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    optional = inspect.signature(module.forward).parameters
    if not parameters:
        parameters = [one for name, one in optional.items() if name in IDS | IMAGES][:1]
    if not parameters:
        raise CannotError("its forward takes no input")
    width = width_of(module, made_of)
    options = [list(tensors_for(one.name, width)) for one in parameters]
    # The first input varies, and the others follow it: they mostly have its shape.
    for number in range(max(map(len, options))):
        yield {
            one.name: made[min(number, len(made) - 1)]()
            for one, made in zip(parameters, options, strict=True)
        }


def width_of(module: Any, made_of: dict[str, Any]) -> int:
    """Return the number of features that a module takes: of its first weight of two dimensions or
    more."""
    import torch

    for part in module.modules():
        for name in ("in_features", "in_channels", "normalized_shape", "num_features"):
            value = getattr(part, name, None)
            if isinstance(value, tuple) and value:
                value = value[-1]
            if isinstance(value, int) and value > 0 and not isinstance(part, torch.nn.Embedding):
                return value
    return next((one for one in made_of.values() if isinstance(one, int)), 64)


def tensors_for(name: str, width: int) -> Iterator[Callable[[], Any]]:
    """Yield makers of an input of that name, the likeliest first."""
    import torch

    ids = [lambda: torch.randint(0, 16, (2, 32))]
    sequences = [lambda: torch.randn(2, 32, width), lambda: torch.randn(2, width)]
    images = [
        lambda: torch.randn(1, width, 32, 32),
        lambda: torch.randn(1, 3, 64, 64),
        lambda: torch.randn(1, 3, 224, 224),
        lambda: torch.randn(1, 3, 256, 256),
    ]
    signals = [
        lambda: torch.randn(2, width, 64),
        lambda: torch.randn(2, 1, 16384),
        lambda: torch.randn(1, width, 8, 32, 32),
        lambda: torch.randn(2, 32, 32, width),
        lambda: torch.randn(64, width),
    ]
    if name in TIMES:
        yield from [lambda: torch.rand(1), lambda: torch.rand(2)]
    elif name in IDS:
        yield from [*ids, *sequences, *images, *signals]
    elif name in IMAGES:
        yield from [*images, *signals, *sequences]
    elif "mask" in name:
        yield from [lambda: torch.ones(2, 32, dtype=torch.bool)]
    else:
        yield from [*sequences, *images, *signals, *ids]


__all__ = ["CannotError", "run"]
