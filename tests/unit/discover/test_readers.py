from __future__ import annotations

import pytest

from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.readers import Reader, Readers

from .conftest import WriteTree

MODEL = """\
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = dim ** -0.5
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, dim * 3)

    def forward(self, x):
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        attn = self.attend(q @ k.transpose(-1, -2) * self.scale)
        return attn @ v


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.block = Attention(dim)

    def forward(self, x):
        return self.block(x)
"""
OLD = """\
        attn = self.attend(q @ k.transpose(-1, -2) * self.scale)
        return attn @ v
"""
FUSED = """\
        return F.scaled_dot_product_attention(q, k, v, scale=self.scale)
"""
GUARDED = """\
        if self.attend._forward_hooks:
            attn = self.attend(q @ k.transpose(-1, -2) * self.scale)
            return attn @ v
        return F.scaled_dot_product_attention(q, k, v, scale=self.scale)
"""
ON_A_GPU = GUARDED.replace("self.attend._forward_hooks", "not x.is_cuda")
COMPILED = """\
    @torch.compile
    def forward(self, x):
        q, k"""
HOOK = """\
from pkg.model import Attention

def record(model, hook):
    for module in model.modules():
        if isinstance(module, Attention):
            module.attend.register_forward_hook(hook)
"""


def found(write_tree: WriteTree, before: str, after: str, **others: str) -> tuple[Reader, ...]:
    """Return the readers of a patch of `pkg/model.py`, among other files of its package."""
    files = {f"pkg/{name}.py": text for name, text in others.items()}
    root = write_tree({"pkg/__init__.py": "", "pkg/model.py": before, **files})
    readers = Readers(discover(root, DiscoveryConfig(tests=True)))
    return readers.of("pkg/model.py", before, after)


def refusals(write_tree: WriteTree, new: str, **others: str) -> list[tuple[str, int, str]]:
    """Return what refuses the attention with its last lines replaced."""
    after = MODEL.replace(OLD, new)
    assert after != MODEL
    return [
        (one.path, one.line, one.how)
        for one in found(write_tree, MODEL, after, **others)
        if one.refuses
    ]


def test_a_hook_on_what_the_patch_leaves_out_is_named_with_its_line(write_tree: WriteTree) -> None:
    after = MODEL.replace(OLD, FUSED)
    [one] = found(write_tree, MODEL, after, recorder=HOOK)
    assert (one.path, one.line, one.how, one.name) == ("pkg/recorder.py", 6, "hook", "attend")
    assert one.said == "hooks `attend`, which the patch no longer calls"


def test_without_a_reader_the_submodule_that_is_left_is_named_alone(
    write_tree: WriteTree,
) -> None:
    [one] = found(write_tree, MODEL, MODEL.replace(OLD, FUSED))
    assert (one.how, one.line, one.refuses) == ("unused", 10, False)
    assert one.said == "`self.attend` is still made in the constructor, and nothing reads it"


def test_a_condition_on_the_hooks_keeps_them(write_tree: WriteTree) -> None:
    assert refusals(write_tree, GUARDED, recorder=HOOK) == []


def test_another_condition_does_not_keep_them(write_tree: WriteTree) -> None:
    assert refusals(write_tree, ON_A_GPU, recorder=HOOK) == [("pkg/recorder.py", 6, "hook")]


def test_a_compiled_forward_leaves_out_the_hooks_of_what_it_calls(write_tree: WriteTree) -> None:
    after = MODEL.replace("    def forward(self, x):\n        q, k", COMPILED)
    assert after != MODEL
    [one] = found(write_tree, MODEL, after, recorder=HOOK)
    assert one.said == "hooks `attend`, whose hooks a compiled forward leaves out"


def test_a_compiled_root_leaves_out_the_hooks_of_its_parts_parts(write_tree: WriteTree) -> None:
    root = "    def forward(self, x):\n        return self.block(x)"
    after = MODEL.replace(root, f"    @torch.compile\n{root}")
    assert after != MODEL
    [one] = found(write_tree, MODEL, after, recorder=HOOK)
    assert (one.line, one.how, one.name) == (6, "hook", "attend")


OTHER_ATTENTION = """\
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.Sigmoid()

    def forward(self, x):
        return self.attend(x)
"""


def test_the_same_name_of_another_class_is_not_concerned(write_tree: WriteTree) -> None:
    hook = HOOK.replace("pkg.model", "pkg.other")
    assert refusals(write_tree, FUSED, other=OTHER_ATTENTION, recorder=hook) == []


@pytest.mark.parametrize(
    ("text", "line", "how"),
    [
        pytest.param(
            "def hook_all(model, f):\n"
            "    for name, module in model.named_modules():\n"
            "        if name.endswith('.attend'):\n"
            "            module.register_forward_hook(f)\n",
            4,
            "hook",
            id="by the end of its name, in a file that names no class",
        ),
        pytest.param(
            "from torch import nn\n"
            "from pkg.model import Model\n"
            "def hook_all(f):\n"
            "    for module in Model(4).modules():\n"
            "        if isinstance(module, nn.Softmax):\n"
            "            module.register_full_backward_hook(f)\n",
            6,
            "hook",
            id="by its class",
        ),
        pytest.param(
            "from pkg.model import Model\n"
            "def watch(f):\n"
            "    part = Model(4).block.attend\n"
            "    part.register_forward_pre_hook(f)\n",
            4,
            "hook",
            id="through a local name",
        ),
        pytest.param(
            "from pkg.model import Model\nM = Model(4)\nM.get_submodule('block.attend')\n",
            3,
            "path",
            id="by its path",
        ),
        pytest.param(
            "from pkg.model import Model\nM = Model(4)\nM.block.attend = lambda x: x\n",
            3,
            "replaced",
            id="replaced",
        ),
        pytest.param(
            "from pkg.model import Attention\n"
            "def sparse(model, other):\n"
            "    setattr(model.block, 'attend', other)\n",
            3,
            "replaced",
            id="replaced by name",
        ),
        pytest.param(
            "from torch import nn\n"
            "from pkg.model import Attention\n"
            "class Sparse(Attention):\n"
            "    def __init__(self, dim):\n"
            "        super().__init__(dim)\n"
            "        self.attend = nn.Sigmoid()\n",
            6,
            "override",
            id="replaced in a subclass",
        ),
    ],
)
def test_what_relies_on_a_submodule(write_tree: WriteTree, text: str, line: int, how: str) -> None:
    assert refusals(write_tree, FUSED, user=text) == [("pkg/user.py", line, how)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "from pkg.model import Attention\n"
            "class Own(Attention):\n"
            "    def __init__(self, dim):\n"
            "        super().__init__(dim)\n"
            "        self.attend = None\n"
            "    def forward(self, x):\n"
            "        return x\n",
            id="a subclass with its own forward",
        ),
        pytest.param(
            "from pkg.model import Model\nprint(Model(4).block.attend)\n", id="an attribute read"
        ),
        pytest.param(
            "from torch import nn\n"
            "from pkg.model import Model\n"
            "class Other(nn.Module):\n"
            "    def set(self, x):\n"
            "        self.attend = x\n",
            id="another class's own attribute",
        ),
        pytest.param(
            "from pkg.model import Model\nModel(4).block.to_qkv.register_forward_hook(print)\n",
            id="a hook on what is still called",
        ),
    ],
)
def test_what_is_not_concerned(write_tree: WriteTree, text: str) -> None:
    assert refusals(write_tree, FUSED, user=text) == []


def test_hooks_on_every_module_are_stated_and_refuse_nothing(write_tree: WriteTree) -> None:
    count = (
        "def count(model, hook):\n"
        "    for module in model.modules():\n"
        "        module.register_forward_hook(hook)\n"
    )
    found_all = found(write_tree, MODEL, MODEL.replace(OLD, FUSED), count=count)
    assert [(one.path, one.line, one.how) for one in found_all if one.how == "every"] == [
        ("pkg/count.py", 3, "every")
    ]
    assert not any(one.refuses for one in found_all)


HELPERS = """\
import torch
from torch import nn

def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 1.41421356))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.zeros(4))

    def scores(self, x):
        return x @ x.T

    def forward(self, x):
        self.last = self.scores(x)
        return gelu(self.last) + self.bias
"""


@pytest.mark.parametrize(
    ("old", "new", "text", "how"),
    [
        pytest.param(
            "return gelu(self.last)",
            "return torch.nn.functional.gelu(self.last)",
            "import pkg.model as model\nmodel.gelu = abs\n",
            "replaced",
            id="a function that is replaced",
        ),
        pytest.param(
            "self.last = self.scores(x)",
            "self.last = x @ x.T",
            "from pkg.model import Block\n"
            "class Cosine(Block):\n"
            "    def scores(self, x):\n"
            "        return x\n",
            "override",
            id="a method that a subclass overrides",
        ),
        pytest.param(
            "        self.last = self.scores(x)\n        return gelu(self.last)",
            "        return gelu(self.scores(x))",
            "from pkg.model import Block\nblock = Block()\nprint(block.last)\n",
            "read",
            id="an attribute that a call leaves behind",
        ),
        pytest.param(
            '        self.register_buffer("bias", torch.zeros(4))\n',
            "        self.shift = 0\n",
            "from pkg.model import Block\nprint(Block().state_dict()['bias'])\n",
            "state_dict",
            id="a key of the state_dict",
        ),
    ],
)
def test_what_relies_on_other_parts(
    write_tree: WriteTree, old: str, new: str, text: str, how: str
) -> None:
    after = HELPERS.replace(old, new)
    assert after != HELPERS
    if "shift" in new:
        after = after.replace("self.bias", "self.shift")
    refused = [one for one in found(write_tree, HELPERS, after, user=text) if one.refuses]
    assert [(one.path, one.how) for one in refused] == [("pkg/user.py", how)]


def test_a_hook_in_the_readme_is_found(write_tree: WriteTree) -> None:
    readme = "# Model\n\n    model.block.attend.register_forward_hook(print)\n"
    root = write_tree({"pkg/__init__.py": "", "pkg/model.py": MODEL, "README.md": readme})
    [one] = Readers(discover(root)).of("pkg/model.py", MODEL, MODEL.replace(OLD, FUSED))[:1]
    assert (one.path, one.line, one.how) == ("README.md", 3, "hook")


def test_a_comment_bypasses_nothing(write_tree: WriteTree) -> None:
    after = MODEL.replace("        q, k, v", "        # three\n        q, k, v")
    assert found(write_tree, MODEL, after, recorder=HOOK) == ()
