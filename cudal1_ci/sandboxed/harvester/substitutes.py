"""Replace what a sandbox cannot have: downloaded weights by random ones, a GPU by the CPU.

What cannot be replaced raises NeedsError, whose text is the reason that a cell is left out with.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Note = Callable[[str], None]
RANDOM_WEIGHTS = "random weights instead of pretrained ones"
ON_THE_CPU = "on the CPU instead of a GPU"
NUM_DRAWN = 2**17
NOT_DOWNLOADED = "/not-downloaded/"
"""Where the files of a hub would be."""

MISSING = {
    "needs a download": (
        *("Temporary failure in name resolution", "Name or service not known", "ConnectionError"),
        *("OfflineModeIsEnabled", "LocalEntryNotFoundError", "Network is unreachable"),
        *("Max retries exceeded", "URLError", "couldn't connect to", "outgoing traffic has been"),
        *("Can't load", "offline mode"),
    ),
    "needs a GPU": (
        *("not compiled with CUDA", "No CUDA GPUs", "NVIDIA driver", "CUDA is not available"),
        *("requires CUDA", "CUDA must be available", "0 active drivers", "must be a CUDA tensor"),
    ),
    "needs a package": ("No module named", "requires the", "is not installed", "pip install"),
    "needs several processes": ("init_process_group", "environment variable RANK"),
    "needs arguments": ("the following arguments are required",),
}
"""What a message says when something is missing."""


class NeedsError(Exception):
    """A script needs what the sandbox does not have."""


def missing(text: str) -> str:
    """Return what a message says is missing; empty where it says something else."""
    for what, words in MISSING.items():
        if any(word in text for word in words):
            return what
    return ""


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


class FakeWeights(dict[str, Any]):
    """A state dict of any names, which `load_state_dict` takes for what the module has."""

    def __missing__(self, name: str) -> Any:
        return self

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, _: Any = None) -> Any:
        return dict.get(self, name, self)

    def eval(self) -> Any:
        return self


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


def replace_weights(torch: Any, note: Note, root: Path) -> None:
    """Let modules take fake weights, and give them where a file or an address is asked for."""
    load_state_dict, load = torch.nn.Module.load_state_dict, torch.load

    @functools.wraps(load_state_dict)
    def take(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state_dict, FakeWeights):
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return load_state_dict(self, state_dict, *args, **kwargs)

    @functools.wraps(load)
    def read(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | os.PathLike) and not os.path.exists(file):  # noqa: PTH110
            note(RANDOM_WEIGHTS)
            return FakeWeights()
        return load(file, *args, **kwargs)

    def fetch(*_: Any, **__: Any) -> FakeWeights:
        note(RANDOM_WEIGHTS)
        return FakeWeights()

    def hub(repo: Any, model: str, *args: Any, **kwargs: Any) -> Any:
        if (root / "hubconf.py").is_file() and kwargs.get("source", "github") != "local":
            name = str(repo).partition(":")[0].rpartition("/")[2]
            if name and name.lower().replace("-", "_") in str(root).lower().replace("-", "_"):
                kwargs["source"] = "local"
                note(RANDOM_WEIGHTS)
                return original_hub(str(root), model, *args, **{**kwargs, "pretrained": False})
        raise NeedsError(f"needs a download: torch.hub.load({repo!r}, {model!r})"[:200])

    torch.nn.Module.load_state_dict = take
    torch.load = torch.serialization.load = read
    import torch.hub

    original_hub = torch.hub.load
    torch.hub.load = hub
    torch.hub.load_state_dict_from_url = fetch
    torch.hub.download_url_to_file = lambda *_, **__: None
    zoo = sys.modules.get("torch.utils.model_zoo")
    if zoo is not None:
        zoo.__dict__["load_url"] = fetch


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
    """Let `.cuda()`, `.to("cuda")` and `device="cuda"` stay on the CPU."""
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

    torch.Tensor.cuda = torch.nn.Module.cuda = stay
    torch.Tensor.to = moving(torch.Tensor.to)
    torch.nn.Module.to = moving(torch.nn.Module.to)
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_, **__: None
    torch.cuda.set_device = lambda *_, **__: None
    mode: Any = OnCpu()
    mode.__enter__()


def replace_from_pretrained(module: types.ModuleType, *, note: Note) -> None:
    """Make models of their default configuration where pretrained ones are asked for."""
    models: Any = module.__dict__.get("PreTrainedModel")
    if models is None:
        return

    def made(cls: Any, /, name: Any = None, *_: Any, config: Any = None, **__: Any) -> Any:
        config = config or default_config(cls, str(name))
        note(RANDOM_WEIGHTS)
        return cls(config).eval()

    models.from_pretrained = classmethod(made)
    factory = sys.modules.get("transformers.models.auto.auto_factory")
    if factory is None:
        at_import(
            {"transformers.models.auto.auto_factory": functools.partial(auto_models, note=note)}
        )
    else:
        auto_models(factory, note=note)


def default_config(cls: Any, name: str) -> Any:
    """Return the default configuration of a class, with few layers where it has many."""
    kind = getattr(cls, "config_class", None)
    if kind is None:
        raise NeedsError(f"needs a download: {cls.__name__}.from_pretrained({name!r})")
    return few_layers(kind())


def few_layers(config: Any) -> Any:
    """Return a configuration with at most four layers, where it says how many there are."""
    for key in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"):
        value = getattr(config, key, None)
        if isinstance(value, int) and value > 4:
            setattr(config, key, 4)
    return config


def auto_models(module: types.ModuleType, *, note: Note) -> None:
    """Choose the configuration of an automatic class by the name of the model."""
    base: Any = module.__dict__.get("_BaseAutoModelClass")
    if base is None:
        return

    def made(cls: Any, /, name: Any = None, *_: Any, config: Any = None, **__: Any) -> Any:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        if config is None:
            kinds = [kind for kind in CONFIG_MAPPING if kind in str(name).lower()]
            if not kinds:
                raise NeedsError(f"needs a download: {cls.__name__}.from_pretrained({name!r})")
            config = few_layers(CONFIG_MAPPING[max(kinds, key=len)]())
        note(RANDOM_WEIGHTS)
        return cls.from_config(config).eval()

    base.from_pretrained = classmethod(made)


def name_downloads(module: types.ModuleType) -> None:
    """Name a file that is not there where a hub is asked for one. Weights read from it are fake;
    who reads it otherwise needs a download."""

    def name(repo_id: str, filename: str = "", *_: Any, **__: Any) -> str:
        return f"{NOT_DOWNLOADED}{repo_id}/{filename}"

    module.__dict__["hf_hub_download"] = name
    hub = sys.modules.get("huggingface_hub")
    if hub is not None:
        hub.__dict__.update({"hf_hub_download": name, "snapshot_download": name})


def read_fake_weights(module: types.ModuleType, *, note: Note) -> None:
    """Give fake weights where a file of safetensors is not there."""
    load_file = module.__dict__["load_file"]

    def read(filename: Any, *args: Any, **kwargs: Any) -> Any:
        if not os.path.exists(filename):  # noqa: PTH110
            note(RANDOM_WEIGHTS)
            return FakeWeights()
        return load_file(filename, *args, **kwargs)

    module.__dict__["load_file"] = read


class Import(importlib.abc.MetaPathFinder):
    """Call back after some modules were executed."""

    def __init__(self, callbacks: dict[str, Callable[[types.ModuleType], None]]):
        self.callbacks = callbacks

    def find_spec(
        self, fullname: str, _: Sequence[str] | None, __: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        callback = self.callbacks.pop(fullname, None)
        if callback is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            from ..tracer.install import After

            spec.loader = After(spec.loader, callback)
        return spec


def at_import(callbacks: dict[str, Callable[[types.ModuleType], None]]) -> None:
    """Call back once a module is imported, or now where it is."""
    for name in [*callbacks]:
        if name in sys.modules:
            callbacks.pop(name)(sys.modules[name])
    if callbacks:
        sys.meta_path.insert(0, Import(callbacks))


class StandIn(types.ModuleType):
    """A module that only draws or logs, and is not installed: whatever is called does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Nothing:
    """Take every call, attribute and item, and give itself; as a decorator, what it decorates."""

    def __call__(self, *args: Any, **more: Any) -> Any:
        decorates = len(args) == 1 and not more and isinstance(args[0], types.FunctionType | type)
        return args[0] if decorates else self

    def __lt__(self, _: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> Any:
        return self

    def __setitem__(self, _: Any, __: Any) -> None:
        return

    def __iter__(self) -> Any:
        return iter((self, self))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        return

    def __or__(self, _: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return ()


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find stand-ins, after all other finders."""

    def __init__(self, names: Sequence[str]):
        self.names = set(names)

    def find_spec(
        self, fullname: str, _: Sequence[str] | None, __: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, _: types.ModuleType) -> None:
        return


standing = StandInFinder(())


def stand_ins(names: Sequence[str]) -> None:
    """Let packages that only draw or log be absent."""
    standing.names.update(names)
    if standing not in sys.meta_path:
        sys.meta_path.append(standing)


def stand_in_for(error: BaseException, own: Sequence[str]) -> str | None:
    """Let the package whose absence an exception reports be absent from now on, and return its
    name; None where it is of the checkout, stands in already, or something else is wrong."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    name = error.name.partition(".")[0]
    if name in {*own, *standing.names, "torch"} or name in sys.modules:
        return None
    stand_ins((name,))
    return name


def imported(module: str, own: Sequence[str], note: Note) -> types.ModuleType:
    """Import a module, with stand-ins for packages that are not installed."""
    while True:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            name = stand_in_for(error, own)
            if name is None:
                raise
            note(f"without the package `{name}`")


__all__ = ["NeedsError", "Rewriting", "apply", "imported", "missing", "stand_in_for"]
