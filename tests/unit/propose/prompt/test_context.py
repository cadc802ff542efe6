"""What of a checkout is shown with a reference."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import PromptError
from cudal1_ci.propose.llm.context import (
    BASE,
    CONSTANTS,
    ESSENTIAL,
    FAR_HELPER,
    HELPER,
    MAX_FILE_CHARS,
    MAX_LENT,
    MAX_LENT_CHARS,
    OTHER_FILE,
    context_of,
)
from cudal1_ci.propose.llm.modules import MAX_FILE_BYTES
from cudal1_ci.records import OverlayFile, Problem
from tests.unit.propose.prompt.samples import (
    BLOCKS,
    TEXT,
    block_problem,
    target,
    text_task,
    tree,
    workload,
    write_checkout,
)


def parts_of(root, import_path, about=None, **fields):
    program = tree(root, import_path, **fields)
    return context_of(Problem(reference=program, workloads=(workload("w", 1),), target=about))


def shown(root, source, name="Model", **others):
    """All that is shown of a file with that source."""
    files = {"src/pkg/__init__.py": "", "src/pkg/mod.py": source}
    files |= {f"src/pkg/{path}.py": text for path, text in others.items()}
    write_checkout(root, files)
    return {part.title: part for part in parts_of(root, f"pkg.mod:{name}")}


def test_a_text_program_is_its_source():
    (part,) = context_of(text_task().problem)
    assert (part.text, part.priority) == (TEXT, ESSENTIAL)


def test_a_class_is_shown_verbatim_with_what_it_uses(root):
    parts = context_of(block_problem(root))
    assert [(part.title, part.priority) for part in parts] == [
        ("The reference, `Block` of `src/pkg/blocks.py`", ESSENTIAL),
        ("Imports of `src/pkg/blocks.py` that it uses", ESSENTIAL),
        ("Base class `Normed`", BASE),
        ("Constants of `src/pkg/blocks.py` that it uses", CONSTANTS),
        ("Helper `frequencies`", HELPER),
        ("Helper `inverse`", FAR_HELPER),
        ("`ops.rotate`, from `src/pkg/ops.py`", OTHER_FILE),
        ("`split_heads`, from `src/pkg/shapes.py`", OTHER_FILE),
    ]
    assert parts[0].text.strip() == BLOCKS[BLOCKS.index("@torch.compiler") :].strip()
    everything = "\n".join(part.text for part in parts)
    assert "unused" not in everything
    assert "UNUSED" not in everything
    assert "import os" not in everything
    assert "def other" not in everything


def test_the_author_s_indentation_and_comments_are_kept(root):
    code = "# why\nclass Model(torch.nn.Module):\n  def forward(self, x):\n    return x  # so"
    source = f"import torch\n\n\n{code}\n"
    parts = shown(root, source)
    (first, *_) = parts.values()
    assert first.text == code


def test_what_is_defined_under_a_condition_is_found(root):
    source = (
        "try:\n    import fast\nexcept ImportError:\n    fast = None\n\n"
        "if fast is not None:\n    LIMIT = 4\n    def helper(x):\n        return fast.f(x, LIMIT)\n"
        "else:\n    def helper(x):\n        return x\n\n"
        "def Model(x):\n    return helper(x)\n"
    )
    parts = shown(root, source)
    assert [part.text for part in parts.values() if part.priority == CONSTANTS] == ["LIMIT = 4"]
    helpers = [p.text for p in context_of_helpers(root)]
    assert helpers == [
        "def helper(x):\n    return fast.f(x, LIMIT)",
        "def helper(x):\n    return x",
    ]
    assert "except ImportError:" in parts["Imports of `src/pkg/mod.py` that it uses"].text


def context_of_helpers(root):
    return [part for part in parts_of(root, "pkg.mod:Model") if part.priority == HELPER]


def test_a_nested_class_is_shown_with_what_holds_it(root):
    parts = shown(root, "class Outer:\n    class Inner:\n        pass\n", "Outer.Inner")
    assert list(parts) == ["The reference, `Outer.Inner` of `src/pkg/mod.py`"]
    assert next(iter(parts.values())).text.startswith("class Outer:")


def test_re_exports_and_aliases_are_followed(root):
    parts = shown(
        root,
        "import pkg.api as api\nfrom pkg.api import turn as t\n"
        "def Model(x):\n    return t(x) + api.spin(x)\n",
        api="from .deep import turn, spin\n",
        deep="STEP = 2\ndef turn(x):\n    return x * STEP\n\ndef spin(x):\n    return x\n",
    )
    assert (
        parts["`t`, from `src/pkg/deep.py`"].text == "STEP = 2\n\ndef turn(x):\n    return x * STEP"
    )
    assert "`api.spin`, from `src/pkg/deep.py`" in parts


def test_relative_imports_of_parents_are_followed(root):
    files = {
        "src/pkg/__init__.py": "def top(x):\n    return x\n",
        "src/pkg/sub/__init__.py": "",
        "src/pkg/sub/mod.py": "from .. import top\nfrom ..ops import f\nfrom ......far import g\n\n"
        "def Model(x):\n    return top(f(g(x)))\n",
        "src/pkg/ops.py": "def f(x):\n    return x\n",
    }
    write_checkout(root, files)
    titles = [part.title for part in parts_of(root, "pkg.sub.mod:Model")]
    assert titles[2:] == ["`top`, from `src/pkg/__init__.py`", "`f`, from `src/pkg/ops.py`"]


def test_circles_of_imports_end(root):
    source = "from .other import f\ndef Model(x):\n    return f(x)\n"
    assert (
        len(shown(root, source, other="from .third import f\n", third="from .other import f\n"))
        == 2
    )


def test_the_name_of_a_module_draws_in_nothing(root):
    source = "from .ops import rotate\nops = 7\n\ndef Model(x):\n    return rotate(x)\n"
    assert not any("ops = 7" in part.text for part in shown(root, source).values())


def test_a_few_definitions_of_other_files_are_enough(root):
    names = [f"f{i}" for i in range(12)]
    parts = shown(
        root,
        f"from .other import {', '.join(names)}\ndef Model(x):\n    return {' + '.join(names)}\n",
        other="".join(f"def {name}(x):\n    return x\n\n" for name in names),
    )
    lent = [part for part in parts.values() if part.priority == OTHER_FILE]
    assert len(lent) == MAX_LENT


def test_a_file_that_nobody_wrote_is_not_read(root):
    other = "def f(x):\n    return x\n" + "#" * MAX_FILE_BYTES
    source = "from .other import f\ndef Model(x):\n    return f(x)\n"
    assert len(shown(root, source, other=other)) == 2


def test_what_is_large_is_left_out_whole(root):
    long = "    # " + "x" * MAX_LENT_CHARS + "\n    return x\n"
    parts = shown(
        root,
        f"from .other import lent\n\ndef near(x):\n{long}\n\n"
        "def Model(x):\n    return near(lent(x))\n",
        other=f"def lent(x):\n{long}",
    )
    assert "Helper `near`" in parts
    assert not any("lent`, from" in title for title in parts)
    huge = "    # " + "x" * MAX_FILE_CHARS + "\n    return x\n"
    parts = shown(root, f"def near(x):\n{huge}\n\ndef Model(x):\n    return near(x)\n")
    assert list(parts) == ["The reference, `Model` of `src/pkg/mod.py`"]


def test_the_overlay_is_what_is_read(root):
    overlay = (
        OverlayFile(path="src/pkg/blocks.py", text=BLOCKS.replace("# heads first", "# changed")),
        OverlayFile(path="src/pkg/shapes.py", text="def split(x, n):\n    return 'changed'\n"),
    )
    parts = parts_of(root, "pkg.blocks:Block", overlay=overlay)
    assert "# changed" in parts[0].text
    assert "'changed'" in parts[-1].text


def test_no_link_leads_out_of_the_checkout(root, tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("def key():\n    return 'hunter2'\n")
    parts = shown(root, "from .keys import key\ndef Model():\n    return key()\n")
    (root / "src/pkg/keys.py").symlink_to(secret)
    parts = parts_of(root, "pkg.mod:Model")
    assert "hunter2" not in "".join(part.text for part in parts)
    with pytest.raises(PromptError, match="expected the text of a kernel"):
        parts_of(root, "pkg.mod:Model", target("../secret.py", "key", "triton_kernel"))


def test_what_launches_a_kernel_is_shown_where_something_farther_is_called(root):
    kernels = "import triton\n\n@triton.jit\ndef k(x):\n    pass\n\ndef near(x):\n    k[(7,)](x)\n"
    source = (
        "from .kernels import k, near\n\ndef beside(x):\n    k[(9,)](x)\n\n"
        "def Model(x):\n    return near(x)\n"
    )
    write_checkout(root, {"src/pkg/kernels.py": kernels, "src/pkg/mod.py": source})
    places = ("src/pkg/mod.py:beside", "src/pkg/kernels.py:near", "src/pkg/gone.py:x")
    parts = parts_of(
        root, "pkg.mod:Model", target("src/pkg/kernels.py", "k", "triton_kernel", 3, *places)
    )
    assert [part.title for part in parts if part.priority == ESSENTIAL][:4] == [
        "The reference, `Model` of `src/pkg/mod.py`",
        "The kernel, `k` of `src/pkg/kernels.py`",
        "What launches it, `near` of `src/pkg/kernels.py`",
        "What launches it, `beside` of `src/pkg/mod.py`",
    ]
    text = "\n".join(part.text for part in parts)
    assert text.count("k[(7,)](x)") == text.count("k[(9,)](x)") == 1, "each is shown once"


def test_of_a_kernel_in_a_header_the_file_that_launches_it_is_shown(root):
    files = {
        "csrc/k.cuh": "__global__ void k() {}\n",
        "csrc/run.cu": "void run() { k<<<1, 2>>>(); }",
    }
    write_checkout(root, files)
    about = target("csrc/k.cuh", "k", "cuda_kernel", 1, "csrc/run.cu:run", "src/pkg/scale.py:E")
    parts = {part.title: part for part in parts_of(root, "pkg.scale:scale", about)}
    launching = parts["The file that launches it, `csrc/run.cu`"]
    assert (launching.text, launching.language) == (files["csrc/run.cu"], "cuda")
    assert launching.priority == BASE


def test_a_kernel_in_a_string_is_found_by_its_line(root):
    source = (
        'from build import load\n\nSOURCE = r"""\n__global__ void add(float* x) {}\n"""\n\n'
        "EXTENSION = load(SOURCE)\n\ndef Model(x):\n    return x\n"
    )
    write_checkout(root, {"src/pkg/mod.py": source})
    about = target("src/pkg/mod.py", "add", "cuda_kernel", 4)
    kernel = parts_of(root, "pkg.mod:Model", about)[1]
    assert kernel.title == "The kernel, `add` of `src/pkg/mod.py`"
    assert "__global__ void add" in kernel.text
    assert kernel.priority == ESSENTIAL


@pytest.mark.parametrize(
    ("import_path", "message"),
    [
        ("pkg.absent:Model", "found no such file"),
        ("pkg.broken:Model", "does not parse"),
        ("pkg.blocks:Absent", "expected a definition of Absent"),
    ],
)
def test_a_reference_without_text_is_an_error(root, import_path, message):
    write_checkout(root, {"src/pkg/broken.py": "def ("})
    with pytest.raises(PromptError, match=message):
        parts_of(root, import_path)
