"""Arguments of a class in configuration files, and functions that make one."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import sys
import textwrap
import types

import pytest
import torch

from cudal1_ci.sandboxed.harvester import configured, factories
from cudal1_ci.sandboxed.harvester.arguments import constructions, made


class Block(torch.nn.Module):
    def __init__(self, dim, heads, act=None):
        super().__init__()
        self.dim, self.heads, self.act = dim, heads, act


class Vit(torch.nn.Module):
    def __init__(self, dim, depth, block=None, rate=0.1):
        super().__init__()
        self.dim, self.depth, self.block, self.rate = dim, depth, block, rate


class Open(torch.nn.Module):
    def __init__(self, *, width, extra=1, **ignored):
        super().__init__()


class OfSettings(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.fc = torch.nn.Linear(cfg.dim, cfg.head.dim)
        self.rate = getattr(cfg, "rate", 0.0)


@dataclasses.dataclass
class Settings:
    dim: int
    heads: int
    rate: float = 0.5


class Known:
    """As configurations of transformers: it takes whatever it is given."""

    def __init__(self, dim=1, heads=1, **more):
        self.dim, self.heads, self.rate = dim, heads, 0.5


class OfDataclass(torch.nn.Module):
    def __init__(self, config: Settings):
        super().__init__()
        self.dim, self.heads = config.dim, config.heads


class OfTransformers(torch.nn.Module):
    config_class = Known

    def __init__(self, config):
        super().__init__()
        self.dim, self.heads = config.dim, config.heads


class OfAnything(torch.nn.Module):
    def __init__(self, config: int):
        super().__init__()
        self.dim, self.heads = config.dim, config.heads


class OfItems(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc = torch.nn.Linear(config["dim"], config["out"], bias=config.get("bias", True))


class Tabled(torch.nn.Module):
    def __init__(self, side, steps, act=torch.nn.GELU):
        super().__init__()


TABLE = {
    "large": {"side": 8, "steps": 2},
    "small": {"side": 4, "steps": 2, "act": torch.nn.SiLU},
    "other": {"side": torch.ones(2), "stride": 2},
}


def shown(tmp_path, cls, **files):
    """Return the sources and arguments that files show, given by their stems."""
    paths = []
    for stem, text in files.items():
        path = f"configs/model/{stem}.yaml"
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(textwrap.dedent(text), encoding="utf-8")
        paths.append(path)
    recipes = configured.configured(cls, tmp_path, paths, "m.py")
    return [(one.source.removeprefix("configs/model/"), one.arguments) for one in recipes]


SPELLINGS = {
    "_target_": "model:\n  _target_: {path}\n  dim: 8\n  depth: 2\n  unused: 1\n",
    "target": "model:\n  target: {path}\n  params:\n    dim: 8\n    depth: 2\n",
    "class_path": "model:\n  class_path: {path}\n  init_args: {{dim: 8, depth: 2}}\n",
    "name": "model: {{name: vit, dim: 8, depth: 2, lr: 0.1}}\n",
    "json": '{{"model": {{"type": "Vit", "args": {{"dim": 8, "depth": 2}}}}}}',
    "keys alone": "model: {{dim: 8, depth: 2}}\n",
    "interpolated": "size: 8\nmodel: {{_target_: {path}, dim: '${{size}}', depth: 2}}\n",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_file_shows_arguments_in_each_usual_spelling(tmp_path, spelling):
    text = SPELLINGS[spelling].format(path=f"{__name__}.Vit")
    assert shown(tmp_path, Vit, a=text) == [("a.yaml: model", {"dim": 8, "depth": 2})]


def test_a_key_of_the_name_of_the_class_names_it(tmp_path):
    assert shown(tmp_path, Vit, a="vit: {dim: 8, depth: 2, lr: 1e-3}") == [
        ("a.yaml: vit", {"dim": 8, "depth": 2})
    ]


def test_json_is_read_as_json(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"dim": 8, "depth": 2}))
    (found,) = configured.configured(Vit, tmp_path, ["a.json"], "m.py")
    assert (found.source, found.make().dim) == ("a.json", 8)


def test_objects_inside_are_made_and_their_classes_may_be_partial(tmp_path):
    text = f"""
        _target_: {__name__}.Vit
        dim: 8
        depth: 1
        block:
          _target_: {__name__}.Block
          dim: ${{model.dim}}
          heads: 2
          act: {{_target_: torch.nn.LeakyReLU, _partial_: true, negative_slope: 1e-1}}
        """
    ((source, arguments),) = shown(tmp_path, Vit, a=text)
    block = arguments["block"]
    assert (source, type(block), block.dim) == ("a.yaml", Block, 8)
    assert isinstance(block.act, functools.partial)
    assert block.act.keywords == {"negative_slope": 0.1}


def test_what_another_file_gives_is_guessed(tmp_path):
    text = f"_target_: {__name__}.Vit\ndim: ${{data.width}}\ndepth: ???\nrate: 0.5\n"
    assert shown(tmp_path, Vit, a=text) == [("a.yaml", {"dim": 64, "depth": 2, "rate": 0.5})]
    endless = f"a: ${{b}}\nb: ${{a}}\n_target_: {__name__}.Vit\ndim: ${{a}}\nrate: 0.5\n"
    assert shown(tmp_path, Vit, b=endless) == [("b.yaml", {"dim": 64, "depth": 2, "rate": 0.5})]


@pytest.fixture
def hydra(tmp_path):
    """Writes files, and returns the arguments that the last one shows of a class."""

    def arguments(cls, **files):
        for place, text in files.items():
            path = tmp_path / "conf" / f"{place.replace('__', '/')}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        last = path.relative_to(tmp_path).as_posix()
        return [one.arguments for one in configured.configured(cls, tmp_path, [last], "m.py")]

    return arguments


def test_a_configuration_has_what_its_defaults_name(hydra):
    """A group below its key, a file of the same folder in its place, and its own values last."""
    found = hydra(
        Vit,
        model__base=f"_target_: {__name__}.Vit\ndim: 64\ndepth: 1\nrate: 0.5\n",
        model__small="defaults: [base]\ndim: 8\n",
        config="defaults:\n  - model: small\n  - optimizer: adam\nmodel: {rate: 0.2}\n",
    )
    assert found == [{"dim": 8, "depth": 1, "rate": 0.2}]


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        ("[_self_, {model: small}]", {"dim": 8, "depth": 1}),
        ("[{model: small}]", {"dim": 16, "depth": 1}),
        ("[{override /model: small}]", {"dim": 16, "depth": 1}),
        ("[{optional model@model: [small]}]", {"dim": 16, "depth": 1}),
        ("[{model: none}]", None),
        ("[{model: null}, {model: '???'}, {model: '${size}'}]", None),
        ("[{sizes@model: small}]", {"dim": 16, "depth": 1}),
        ("[experiment/one]", {"dim": 16, "depth": 1}),
        ("[../../model/small]", None),
    ],
)
def test_defaults_in_each_usual_spelling(hydra, defaults, expected):
    path = f"{__name__}.Vit"
    small = f"_target_: {path}\ndim: 8\ndepth: 1\n"
    found = hydra(
        Vit,
        model__small=small,
        sizes__small=small,
        experiment__one=f"# @package _global_\nmodel: {{_target_: {path}, dim: 8, depth: 1}}",
        config=f"defaults: {defaults}\nmodel: {{dim: 16}}\n",
    )
    assert found == ([] if expected is None else [expected])


def test_defaults_that_name_each_other_end(hydra):
    others = ", ".join("abcdefgh")
    files = dict.fromkeys("abcdefg", f"defaults: [{others}]\ndim: 8\n")
    found = hydra(Vit, **files, h=f"defaults: [{others}]\nvit: {{dim: 8, depth: 1}}\n")
    assert found == [{"dim": 8, "depth": 1}]


def test_few_layers_are_tried_first_and_the_smallest_variants(tmp_path):
    text = "{{name: Vit, dim: {}, depth: 12}}"
    files = {f"vit_{name}": text.format(dim) for name, dim in [("large", 32), ("tiny", 8)]}
    found = shown(tmp_path, Vit, **files)
    assert found[:3] == [
        ("vit_tiny.yaml (smaller: depth 12 -> 4)", {"dim": 8, "depth": 4}),
        ("vit_tiny.yaml", {"dim": 8, "depth": 12}),
        ("vit_large.yaml (smaller: depth 12 -> 4)", {"dim": 32, "depth": 4}),
    ]
    unnamed = {f"cfg{dim}": f"{{dim: {dim}, depth: 1}}" for dim in (128, 64)}
    found = shown(tmp_path, Vit, **unnamed)
    assert [source for source, _ in found] == ["cfg64.yaml", "cfg128.yaml"]


LEFT_ALONE = {
    "another class's": "{_target_: other.package.Vit, dim: 8, depth: 2}",
    "a key that is no argument": "{dim: 8, depth: 2, lr: 0.1}",
    "an argument is missing": "{dim: 8, rate: 0.1}",
    "an argument of its name is missing": "vit: {dim: 8, rate: 0.1}",
    "a tag that makes objects": "!!python/object/apply:os.system ['touch made']\n# dim depth",
    "no YAML": "{dim: 8, depth: [",
    "a document that holds itself": "&a {dim: 8, lr: 0.1, rate: *a}\n# depth",
    "a text": "dim and depth",
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_mappings_are_left_alone(tmp_path, what):
    assert shown(tmp_path, Vit, a=LEFT_ALONE[what]) == []


def test_a_constructor_that_ignores_names_takes_those_it_knows(tmp_path):
    assert shown(tmp_path, Open, a="{width: 8, extra: 2, more: 3}") == [
        ("a.yaml", {"width": 8, "extra": 2})
    ]


def test_a_configuration_has_what_the_constructor_reads_of_it(tmp_path):
    text = "model: {dim: 8, head: {dim: 3}, num_layers: 9}\nother: {dim: 8}\n"
    (few, all_), *_ = [shown(tmp_path, OfSettings, a=text)]
    assert few[0] == "a.yaml: model (smaller: num_layers 9 -> 4)"
    assert (few[1]["cfg"].num_layers, all_[1]["cfg"].num_layers) == (4, 9)
    assert OfSettings(**all_[1]).fc.out_features == 3


@pytest.mark.parametrize("cls", ["OfDataclass", "OfTransformers"])
def test_a_configuration_is_of_the_class_that_the_constructor_names(tmp_path, cls):
    """Whose defaults are there too."""
    text = "model: {dim: 8, heads: 2, architectures: [OfTransformers]}\n"
    ((_, arguments),) = shown(tmp_path, globals()[cls], a=text)
    assert type(arguments["config"]).__name__ == ("Settings" if cls == "OfDataclass" else "Known")
    assert (arguments["config"].dim, arguments["config"].rate) == (8, 0.5)


def test_a_class_that_takes_no_such_values_is_not_taken(tmp_path):
    ((_, arguments),) = shown(tmp_path, OfAnything, a="model: {dim: 8, heads: 2}\n")
    assert (type(arguments["config"]).__name__, arguments["config"].heads) == ("Namespace", 2)


def test_a_configuration_whose_items_are_read_is_a_dictionary(tmp_path):
    held = {"dim": 8, "out": 3, "more": [1]}
    assert shown(tmp_path, OfItems, a=json.dumps(held)) == [("a.yaml", {"config": held})]
    target = {"_target_": f"{__name__}.OfItems", "config": held}
    assert shown(tmp_path, OfItems, a=json.dumps(target)) == [
        ("a.yaml", {"config": held}),
    ]


def test_a_table_of_arguments_in_the_module_shows_its_variants(tmp_path):
    assert shown(tmp_path, Tabled) == [
        ("m.py: TABLE.small", {"side": 4, "steps": 2, "act": torch.nn.SiLU}),
        ("m.py: TABLE.large", {"side": 8, "steps": 2}),
    ]


MODELS = """
    import functools, torch
    def register_model(function): return function
    class Net(torch.nn.Module):
        def __init__(self, dim, layers):
            super().__init__()
            self.dim = dim
    class Other(Net):
        pass
    def _create(name, pretrained=False, **args):
        model = Net(**args)
        if pretrained:
            raise OSError("a download")
        return model
    @register_model
    def net_base(pretrained=False, **kwargs):
        return _create("net_base", pretrained=pretrained, dim=32, layers=[1], **kwargs)
    @register_model
    def net_tiny(pretrained=True, **kwargs):
        model = _create("net_tiny", pretrained=pretrained, dim=8, layers=[1], **kwargs)
        return model
    def net_of(dim): return Net(dim, [1])
    def other(): return Other(8, [1])
    def net_or_other(): return Other(1, [1]) if True else Net(1, [1])
    def main():
        print(Net(8, [1]))
    def train(): return Net(8, [1])
    def test_net(): return Net(8, [1])
    ALL = {"tiny": net_tiny, "micro": functools.partial(Net, dim=4, layers=[1])}
    LAMBDAS = {"nano": lambda: Net(2, [1]), "other": lambda: Other(2, [1])}
    """


@pytest.fixture
def models(tmp_path, monkeypatch):
    file = tmp_path / "models_of_a_test.py"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, file.stem, module)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module.__dict__)
    return module


def test_functions_that_need_nothing_make_a_class_the_smallest_first(models, monkeypatch, tmp_path):
    monkeypatch.setattr(factories, "MAX_FACTORIES", 10)
    found = list(factories.factories(models.Net, tmp_path, "m.py"))
    assert [one.source for one in found] == [
        "m.py:LAMBDAS['nano']",
        "m.py:ALL['micro']",
        "m.py:net_tiny",
        "m.py:net_base",
        "m.py:net_or_other",
    ]
    assert [one.make().dim for one in found[:-1]] == [2, 4, 8, 32]
    with pytest.raises(TypeError, match="returns `Other`"):
        found[-1].make()


ZOO = {
    "nets.py": "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self, dim):\n"
    "        super().__init__()\n        self.dim = dim\n",
    "zoo/__init__.py": "",
    "zoo/sizes.py": "from ..nets import (\n    Net,\n)\n\ndef net_large():\n    return Net(8)\n\n"
    "def net_tiny():\n    net = Net(2)\n    return net\n\ndef net_of(dim):\n    return Net(dim)\n",
    "broken.py": "from .nets import Net\nimport no_such_module\n\ndef net():\n    return Net(1)\n",
    "others.py": "raise SystemExit('it is imported')\nNet = 1\n\ndef net():\n    return Net(1)\n",
    "uses.py": "from .nets import Net\nraise SystemExit('it is imported')\n",
}


def test_functions_of_other_modules_of_a_package_make_its_classes(tmp_path, monkeypatch):
    """Only those are imported whose text shows that they return one."""
    package = tmp_path / "package_of_a_test"
    for place, text in {"__init__.py": "", **ZOO}.items():
        (package / place).parent.mkdir(parents=True, exist_ok=True)
        (package / place).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("package_of_a_test.nets")
    found = list(factories.factories(module.Net, tmp_path, "package_of_a_test/nets.py"))
    assert [(one.source.partition("/")[2], one.make().dim) for one in found] == [
        ("zoo/sizes.py:net_tiny", 2),
        ("zoo/sizes.py:net_large", 8),
    ]


def test_variants_are_ordered_by_words_then_numbers():
    names = ["s36", "net_large", "net_s24", "net_s12", "net_tiny_12", "net", "net_tiny_5"]
    assert sorted(names, key=configured.variant) == [
        *("net_tiny_5", "net_tiny_12", "net_s12", "net_s24", "s36", "net_large", "net"),
    ]


def test_a_unet_of_diffusion_models_is_made_without_a_file_that_shows_how():
    class UNet(torch.nn.Module):
        def __init__(self, in_channels, attention_resolutions, num_heads):
            super().__init__()

    found = next(constructions(UNet))
    assert found == {"in_channels": 64, "attention_resolutions": (2, 4), "num_heads": 4}


def test_what_a_base_class_needs_is_added():
    class Base(torch.nn.Module):
        def __init__(self, dim, num_blocks, attention_resolutions):
            super().__init__()
            self.found = dim, num_blocks, attention_resolutions

    class Derived(Base):
        def __init__(self, dim, *args, **kwargs):
            super().__init__(2 * dim, *args, **kwargs)

    class Unknown(Base):
        def __init__(self, dim, **kwargs):
            self.weights = kwargs["weights"]

    assert made(Derived, {"dim": 8}).found == (16, 2, (2, 4))
    with pytest.raises(KeyError, match="weights"):
        made(Unknown, {"dim": 8})
