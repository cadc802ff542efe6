from __future__ import annotations

import pytest

from cudal1_ci.discover import Discovery, DiscoveryConfig, discover
from cudal1_ci.records import Target

from .conftest import WriteTree


def found(discovery: Discovery, kind: str = "torch_module") -> list[str]:
    return [f"{t.path}:{t.qualname}" for t in discovery.targets if t.kind == kind]


FORWARD = "\n    def forward(self, x):\n        return x * 2\n"


@pytest.mark.parametrize(
    ("imports", "base"),
    [
        ("import torch", "torch.nn.Module"),
        ("import torch.nn as nn", "nn.Module"),
        ("from torch import nn", "nn.Module"),
        ("from torch import nn as layers", "layers.Module"),
        ("from torch.nn import Module", "Module"),
        ("from torch.nn import Module as M", "M"),
        ("from torch.nn import *", "nn.Module"),
        ("import torch.nn as nn", "nn.Linear"),
        ("from torch.nn.modules.conv import _ConvNd", "_ConvNd"),
        ("from torch import nn\nBase = nn.Module", "Base"),
        ("from torch import nn\nBase = nn.Module if FAST else object", "Base"),
        ("from torch import nn\nfrom typing import Generic", "Generic[T], nn.Module"),
        ("from torch import nn\nfrom abc import ABC", "nn.Module, ABC"),
        ("import torch\nfrom six import with_metaclass", "with_metaclass(Meta, torch.nn.Module)"),
        ("try:\n    from torch import nn\nexcept ImportError:\n    nn = None", "nn.Module"),
        ("from transformers import PreTrainedModel", "PreTrainedModel"),
        ("from transformers.models.bert.modeling_bert import BertModel", "BertModel"),
        ("import lightning as L", "L.LightningModule"),
        ("import pytorch_lightning as pl", "pl.LightningModule"),
        ("from torchvision.models import resnet", "resnet.ResNet"),
        ("from diffusers import ModelMixin", "ModelMixin"),
        ("import torch", "torch.jit.ScriptModule"),
    ],
)
def test_a_class_that_derives_from_a_module_is_found_however_the_base_is_spelled(
    write_tree: WriteTree, imports: str, base: str
) -> None:
    if base == "nn.Module" and "*" in imports:
        imports += "\nfrom torch import nn"
    root = write_tree({"model.py": f"{imports}\n\nclass Net({base}):{FORWARD}"})
    assert found(discover(root)) == ["model.py:Net"]


@pytest.mark.parametrize(
    ("imports", "base"),
    [
        ("import flax.linen as nn\nimport torch", "nn.Module"),
        ("import mlx.nn as nn\nimport torch", "nn.Module"),
        ("import torch", "torch.autograd.Function"),
        ("import torch", "torch.utils.data.Dataset"),
        ("from torch.nn import Parameter", "Parameter"),
        ("import torch", "object"),
        ("from transformers import TFBertModel, PretrainedConfig\nimport torch", "TFBertModel"),
    ],
)
def test_classes_of_other_kinds_are_not_modules(
    write_tree: WriteTree, imports: str, base: str
) -> None:
    root = write_tree({"model.py": f"{imports}\n\nclass Net({base}):{FORWARD}"})
    assert found(discover(root)) == []


def test_bases_are_followed_through_files_aliases_reexports_and_mixins(
    write_tree: WriteTree,
) -> None:
    root = write_tree(
        {
            "src/pkg/__init__.py": "from .base import *\nfrom .deep import Renamed as Public\n",
            "src/pkg/base.py": f"import torch.nn as nn\n\nclass Base(nn.Module):{FORWARD}",
            "src/pkg/deep/__init__.py": "from ._impl import Inner as Renamed\n",
            "src/pkg/deep/_impl.py": f"from ..base import Base\n\nclass Inner(Base):{FORWARD}",
            "src/pkg/mixin.py": "class Mixin:\n    def helper(self):\n        return 1\n",
            "src/pkg/user.py": "from pkg import Public\nfrom .mixin import Mixin\n\n"
            f"class User(Mixin, Public):{FORWARD}",
            "src/pkg/dotted.py": f"import pkg.base\n\nclass Dotted(pkg.base.Base):{FORWARD}",
            "src/pkg/starred.py": f"from pkg import *\n\nclass Starred(Base):{FORWARD}",
            "src/pkg/plain.py": f"class Plain:{FORWARD}",
        }
    )
    assert found(discover(root)) == [
        "src/pkg/base.py:Base",
        "src/pkg/deep/_impl.py:Inner",
        "src/pkg/dotted.py:Dotted",
        "src/pkg/starred.py:Starred",
        "src/pkg/user.py:User",
    ]


def test_a_circle_of_imports_and_bases_ends(write_tree: WriteTree) -> None:
    root = write_tree(
        {
            "a.py": f"import torch\nfrom b import B\n\nclass A(B):{FORWARD}",
            "b.py": f"import torch\nfrom a import A\n\nclass B(A):{FORWARD}",
            "c.py": "import torch\nfrom c import X\nX = X\nclass D(X): pass\n",
        }
    )
    assert found(discover(root)) == []


def test_nested_and_conditional_classes_are_found_and_local_ones_are_not(
    write_tree: WriteTree,
) -> None:
    root = write_tree(
        {
            "m.py": """
            from torch import nn
            class Outer(nn.Module):
                class Block(nn.Module):
                    def forward(self, x):
                        return x
                class Twice(Block):
                    def forward(self, x):
                        return x
                def forward(self, x):
                    return x
            try:
                import apex
            except ImportError:
                class Fallback(nn.Module):
                    def forward(self, x):
                        return x
            def make():
                class Local(nn.Module):
                    def forward(self, x):
                        return x
                return Local
            if __name__ == "__main__":
                class OfTheScript(nn.Module):
                    def forward(self, x):
                        return x
                def scaled(x):
                    return nn.functional.relu(x) * 2
            else:
                class Imported(nn.Module):
                    def forward(self, x):
                        return x
            """
        }
    )
    discovery = discover(root)
    assert found(discovery, "torch_function") == []
    assert found(discovery) == [
        "m.py:Outer",
        "m.py:Outer.Block",
        "m.py:Outer.Twice",
        "m.py:Fallback",
        "m.py:Imported",
    ]


def test_lines_hold_the_decorators_and_the_whole_class(write_tree: WriteTree) -> None:
    source = "import torch\n\n@torch.jit.script\n@other\nclass A(torch.nn.Module):" + FORWARD
    root = write_tree({"m.py": source + "\n\n# a comment\nx = 1\n"})
    assert discover(root).targets == (
        Target(path="m.py", qualname="A", kind="torch_module", first_line=3, last_line=7),
    )


INHERITING = """
from torch import nn

class Base(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
    def forward(self, x):
        return self.mix(self.proj(x))
    def mix(self, x):
        return x
    def unused(self):
        return 1
"""


@pytest.mark.parametrize(
    ("body", "is_target"),
    [
        ("pass", False),
        ("def __init__(self): super().__init__(dim=128)", False),
        ("def extra_repr(self): return ''", False),
        ("def unused(self): return 2", False),
        ("def mix(self, x): return x + 1", True),
        (
            "def __init__(self):\n        super().__init__(8)\n        self.proj = nn.Identity()",
            True,
        ),
        ("def forward(self, x): return x", True),
        ("def forward(self, x): raise NotImplementedError", False),
        ("forward = Base.mix", True),
    ],
)
def test_a_subclass_that_inherits_forward_is_a_target_when_it_changes_what_is_computed(
    write_tree: WriteTree, body: str, is_target: bool
) -> None:
    root = write_tree({"m.py": f"{INHERITING}\nclass Sub(Base):\n    {body}\n"})
    assert found(discover(root)) == ["m.py:Base", *["m.py:Sub"] * is_target]


@pytest.mark.parametrize(
    ("text", "is_target"),
    [
        ("class A(nn.Sequential):\n    def __init__(self): super().__init__(nn.ReLU())", True),
        ("class A(nn.Conv2d):\n    def __init__(self): super().__init__(1, 1, 1)", False),
        ("class A(nn.Conv2d):\n    def _conv_forward(self, x, w, b): return x", True),
        ("class A(nn.Module):\n    def helper(self, x): return x", False),
        ("class A(nn.ModuleList):\n    def __init__(self): self.x = 1", False),
        ("class F:\n    def forward(self, x): return x\nclass A(F, nn.Module): pass", True),
        ("class A(nn.Module):\n    def forward(self, x):\n        '''Doc.'''\n        ...", False),
    ],
)
def test_a_class_without_a_forward_of_the_tree(
    write_tree: WriteTree, text: str, is_target: bool
) -> None:
    root = write_tree({"m.py": f"from torch import nn\n{text}\n"})
    assert found(discover(root)) == ["m.py:A"] * is_target


def test_an_unknown_base_is_a_module_when_the_class_looks_like_one(write_tree: WriteTree) -> None:
    root = write_tree(
        {
            "m.py": """
            import torch
            from torch import nn
            from somewhere import Thing
            class Layer(Thing):
                def __init__(self):
                    super().__init__()
                    self.fc = nn.Linear(1, 1)
                def forward(self, x):
                    return self.fc(x)
            class Op(Thing):
                @staticmethod
                def forward(ctx, x):
                    return torch.relu(x)
            class Router(Thing):
                def forward(self, request):
                    return request.url
            """
        }
    )
    assert found(discover(root)) == ["m.py:Layer"]


def test_tests_own_modules_are_found_only_on_request(write_tree: WriteTree) -> None:
    text = f"from torch import nn\n\nclass Dummy(nn.Module):{FORWARD}"
    root = write_tree({"tests/test_a.py": text})
    assert discover(root).targets == ()
    assert found(discover(root, DiscoveryConfig(tests=True))) == ["tests/test_a.py:Dummy"]


def test_a_triton_kernel_is_found_with_its_launchers(write_tree: WriteTree) -> None:
    root = write_tree(
        {
            "ops/__init__.py": "from .kernels import scale_kernel as exported\n",
            "ops/kernels.py": """
            import triton
            import triton.language as tl
            from triton import jit as compiled

            @triton.jit
            def load(x):
                return tl.load(x)

            @triton.autotune(configs=[], key=["n"])
            @triton.heuristics({"EVEN": lambda a: True})
            @triton.jit(do_not_specialize=["n"])
            def scale_kernel(x, n, BLOCK: tl.constexpr):
                tl.store(x, load(x) * 2)

            @compiled
            def lonely_kernel(x):
                tl.store(x, 1)

            class Scale:
                def forward(self, x):
                    def inner():
                        scale_kernel[(1,)](x, 1, BLOCK=4)
                    inner()

            def scale(x):
                grid = lambda meta: (1,)
                scale_kernel[
                    grid
                ](x, 1, BLOCK=4)
            """,
            "use.py": """
            import ops
            from ops import exported
            def apply(x):
                exported[(1,)](x, 1, BLOCK=8)
            def dotted(x):
                ops.exported[(1,)](x, 1, BLOCK=8)
            """,
        }
    )
    kernels = {t.qualname: t for t in discover(root).targets if t.kind == "triton_kernel"}
    assert set(kernels) == {"scale_kernel", "lonely_kernel"}
    assert kernels["scale_kernel"].first_line == 10
    assert kernels["scale_kernel"].last_line == 14
    assert kernels["lonely_kernel"].launchers == ()
    assert kernels["scale_kernel"].launchers == (
        "ops/kernels.py:Scale.forward",
        "ops/kernels.py:scale",
        "use.py:apply",
        "use.py:dotted",
    )


def test_a_kernel_that_is_handed_on_is_launched_by_what_does_that(write_tree: WriteTree) -> None:
    root = write_tree(
        {
            "ops.py": """
            import triton
            import triton.language as tl

            @triton.jit
            def add(a, b):
                return a + b

            @triton.jit
            def wide_kernel(x):
                tl.store(x, tl.reduce(tl.load(x), 0, add))

            @triton.jit
            def narrow_kernel(x):
                tl.store(x, tl.reduce(tl.load(x), 0, combine_fn=add))

            @triton.jit
            def row_kernel(x):
                tl.store(x, 1)

            @triton.jit
            def last_kernel(x):
                tl.store(x, 2)

            def launch(kernel, n, **arguments):
                kernel[(n,)](**arguments)

            def chosen(x):
                kernel = wide_kernel if x.shape[-1] > 64 else narrow_kernel
                kernel[(1,)](x)

            class Rows:
                def forward(self, x):
                    launch(row_kernel, 4, x=x)
                    last = last_kernel
                    last[(1,)](x)
            """,
        }
    )
    launchers = {t.qualname: t.launchers for t in discover(root).targets if t.is_kernel}
    assert launchers == {
        "wide_kernel": ("ops.py:chosen",),
        "narrow_kernel": ("ops.py:chosen",),
        "row_kernel": ("ops.py:Rows.forward",),
        "last_kernel": ("ops.py:Rows.forward",),
    }


def test_what_only_kernels_call_is_a_part_of_them_however_they_name_it(
    write_tree: WriteTree,
) -> None:
    root = write_tree(
        {
            "maths.py": """
            import triton

            @triton.jit
            def by_name(x):
                return x * 2

            @triton.jit
            def by_module(x):
                return deeper(x)

            @triton.jit
            def deeper(x):
                return x * 2

            @triton.jit
            def by_launch(x):
                return x * 2

            @triton.jit
            def by_launch_of_module(x):
                return x * 2

            @triton.jit
            def by_nobody(x):
                return x * 2
            """,
            "ops.py": """
            import maths
            import triton
            import triton.language as tl
            from maths import by_launch, by_name

            class Steps:
                @staticmethod
                @triton.jit
                def by_class(x):
                    return x * 2

            @triton.jit
            def kernel(x, FIRST: tl.constexpr, SECOND: tl.constexpr):
                y = by_name(tl.load(x)) + maths.by_module(x) + Steps.by_class(x)
                tl.store(x, SECOND(FIRST(y)))

            def run(x):
                kernel[(1,)](x, by_launch, SECOND=maths.by_launch_of_module)
            """,
        }
    )
    launchers = {t.qualname: t.launchers for t in discover(root).targets if t.is_kernel}
    assert launchers == {"kernel": ("ops.py:run",), "by_nobody": ()}


def test_other_jits_are_no_triton_kernels(write_tree: WriteTree) -> None:
    root = write_tree(
        {
            "m.py": """
            import numba, torch, triton
            from jax import jit
            @numba.jit
            def a(x): return x
            @jit
            def b(x): return x
            @torch.jit.script
            def c(x): return torch.relu(x)
            """
        }
    )
    discovery = discover(root)
    assert found(discovery, "triton_kernel") == []
    assert found(discovery, "torch_function") == ["m.py:c"]
