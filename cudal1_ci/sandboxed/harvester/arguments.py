"""Suggest arguments to make an object of a class of, by their names and annotations.

Defaults come first, then configuration classes of the checkout whose defaults suffice, modules of
the checkout by an argument's name, and small numbers.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

MAX_COMBINATIONS = 8
MAX_ALIKE = 2
"""Classes of an argument's name that are tried as its value."""
NUMBERS: dict[str, Any] = {
    **dict.fromkeys(("dim", "d_model", "hidden_size", "embed_dim", "hidden_dim", "width"), 64),
    **dict.fromkeys(("n_embd", "model_dim", "emb_dim", "embedding_dim", "dim_model"), 64),
    **dict.fromkeys(("dim_in", "dim_out", "in_features", "out_features", "input_dim"), 64),
    **dict.fromkeys(("in_channels", "out_channels", "in_dim", "out_dim", "output_dim"), 64),
    **dict.fromkeys(("in_ch", "out_ch", "in_c", "out_c", "inp_dim", "features", "planes"), 64),
    **dict.fromkeys(("in_chs", "out_chs", "inner_dim", "d_in", "d_out", "d"), 64),
    **dict.fromkeys(("d_input", "d_output", "d_hidden", "d_inner", "d_emb", "d_embed"), 64),
    **dict.fromkeys(("spatial_dims", "ndim", "conv_dim", "n_dims"), 2),
    **dict.fromkeys(("in_planes", "inplanes", "channels_in", "channels_out", "inp", "oup"), 64),
    **dict.fromkeys(("chan", "chan_in", "chan_out", "c_s", "c_z", "dim_pairwise", "dims"), 64),
    **dict.fromkeys(("heads", "num_heads", "n_heads", "n_head", "nhead", "num_head"), 4),
    **dict.fromkeys(("dim_head", "head_dim", "d_head", "dim_key", "dim_value"), 16),
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
    **dict.fromkeys(("temperature", "temp", "tau", "alpha", "gamma", "sigma"), 1.0),
    **dict.fromkeys(("d_k", "d_v", "d_q", "d_qk"), 16),
    **dict.fromkeys(("pad_idx", "padding_idx", "pad_id", "pad_token_id"), 0),
    **dict.fromkeys(("expansion", "expansion_factor", "mult", "scale_factor", "scale"), 2),
    **dict.fromkeys(("mlp_ratio", "reduction", "reduction_ratio", "expand_ratio", "frames"), 4),
    **dict.fromkeys(("enc_depth", "dec_depth", "num_res_blocks", "n_blocks"), 2),
    **dict.fromkeys(("normalized_shape",), 64),
    **dict.fromkeys(("num_quantizers", "num_experts", "n_experts", "num_codebooks"), 4),
    **dict.fromkeys(("activation_fn", "activation", "hidden_act", "act"), "gelu"),
    "levels": (8, 5, 5, 5),
    "attention_resolutions": (2, 4),
}
ALIKE: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r".*vocab.*"), 256),
    (re.compile(r".*_(pad_idx|padding_idx|pad_id)"), 0),
    (re.compile(r"(num|n)_.*|.*_(index|idx)"), 4),
    (re.compile(r"(d|c|dim|ch)_.*|.*_(dim|size|channels|features|ch|dims|width|hid|hidden)"), 64),
)
"""Numbers for names that are like others, the first that fits."""
DEPTHS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")
MAX_DEPTH = 4
"""Layers that a configuration keeps at most."""
PARTS = frozenset(
    {"net", "fn", "module", "layer", "block", "sublayer", "func", "branch", "f", "submodule"}
    | {"norm", "ff", "mlp", "to_q", "to_k", "to_v", "proj", "head", "backbone", "wrapped"}
)
CONFIGS = frozenset(
    {"config", "cfg", "args", "hparams", "configuration", "conf", "opt"}
    | {"configs", "options", "opts", "params", "flags", "hps"}
)


class CannotError(Exception):
    """A class cannot be made, or called, of what is known."""


def made(cls: Any, arguments: dict[str, Any]) -> Any:
    """Return an object of a class. What it or one inside says is missing is added, once."""
    try:
        return cls(**arguments)
    except TypeError as error:
        names = re.findall(r"'(\w+)'", str(error).partition("missing ")[2])
        missing = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        options = {one.name: [*itertools.islice(options_for(one, cls), 1)] for one in missing}
        if not options or not all(options.values()):
            raise
        return cls(**arguments, **{name: some[0] for name, some in options.items()})


def constructions(cls: Any, known: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yield arguments to make an object of a class of, those that are known among them."""
    known = known or {}
    parameters = inspect.signature(cls.__init__).parameters.values()
    needed = [
        one
        for one in list(parameters)[1:]
        if one.default is one.empty
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and one.name not in known
    ]
    if not needed:
        yield {**known}
        return
    values: dict[str, list[Any]] = {}
    for one in needed:
        options = list(options_for(one, cls))
        if not options:
            raise CannotError(f"its argument `{one.name}` is unknown")
        values[one.name] = options
    for combination in itertools.islice(itertools.product(*values.values()), MAX_COMBINATIONS):
        yield {**known, **dict(zip(values, combination, strict=True))}


def options_for(parameter: inspect.Parameter, cls: Any) -> Iterator[Any]:
    """Yield values of a constructor's argument, the likeliest first."""
    name = parameter.name
    if name in NUMBERS:
        yield NUMBERS[name]
        if NUMBERS[name] == 64 and "chan" in name:
            yield 3
        return
    kind = str(getattr(parameter.annotation, "__name__", parameter.annotation))
    if name in CONFIGS or name.endswith("config") or "onfig" in kind:
        yield from configurations(cls, parameter.annotation)
    elif name in PARTS or "Module" in kind or kind.startswith("Callable"):
        yield from parts_for(name, parameter.annotation, cls)
    elif kind == "bool" or name.startswith(("use_", "is_", "with_", "has_")):
        yield False
    elif kind == "float":
        yield 0.5
    elif found := [value for pattern, value in ALIKE if pattern.fullmatch(name)]:
        yield found[0]
    elif kind == "int":
        yield from (4, 64)
    else:
        yield from parts_for(name, parameter.annotation, cls)


def parts_for(name: str, annotation: Any, cls: Any) -> Iterator[Any]:
    """Yield modules to put into a module: of the checkout's class of that name, or a small one."""
    import torch

    word = name.replace("_", "").lower()
    annotated = getattr(annotation, "__name__", "").lower()
    alike = {
        value.__name__.lower(): value
        for source in same_package(cls)
        for value in list(vars(source).values())
        if inspect.isclass(value) and issubclass(value, torch.nn.Module) and value is not cls
    }
    ends = [one for one in alike if one.endswith(word) and len(word) > 3]
    for one in sorted({annotated, word, *ends} & alike.keys(), key=len)[:MAX_ALIKE]:
        with contextlib.suppress(Exception):
            yield made(alike[one], next(constructions(alike[one])))
            return
    if name in PARTS:
        yield from (torch.nn.Linear(64, 64), torch.nn.Conv2d(64, 64, 3, padding=1))


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
                if isinstance(getattr(config, key, None), int) and getattr(config, key) > MAX_DEPTH:
                    setattr(config, key, MAX_DEPTH)
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


__all__ = ["NUMBERS", "CannotError", "constructions", "made"]
