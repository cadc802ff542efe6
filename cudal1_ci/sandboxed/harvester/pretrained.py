"""Give random weights and default configurations where pretrained ones are asked for."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .needs import NOT_DOWNLOADED, NeedsError

Note = Callable[[str], None]
RANDOM_WEIGHTS = "random weights instead of pretrained ones"


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
