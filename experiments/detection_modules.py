"""Write what requests of detection.py change: modules, harmless edits, and more work."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """Widths and counts to draw from. On a GPU the first width leaves it waiting for the host."""

    widths: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of module. In its text COUNT, WIDTH and EXTRA are filled in."""

    entry: str
    text: str
    shapes: Callable[[int], Sequence[tuple[int, ...]]]
    """Of the inputs, by a width."""
    sizes: Mapping[str, Sizes]
    """By the kind of device."""
    extras: Mapping[str, str]
    """Statements that do more work, by their name."""


ALL_EXTRAS = {
    "clone": "y = y.clone()",
    "operation": "y = torch.where(y > 9.0, y.sign(), y)",
    "unused": "y.abs().mean()",
}
KINDS = {
    "elementwise": Kind(
        "Sway",
        """\
class Sway(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(COUNT):
            y = torch.sin(y) * 0.9
        EXTRA
        return bounded(y)
""",
        lambda width: [(width, 256)],
        {
            "cpu": Sizes((32, 64, 200), (6, 9)),
            "cuda": Sizes((256, 65536, 131072), (20, 40)),
        },
        ALL_EXTRAS,
    ),
    "norm": Kind(
        "Leveled",
        """\
class Leveled(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(256))

    def forward(self, x):
        y = x
        for _ in range(COUNT):
            y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * self.gain
        EXTRA
        return bounded(y)
""",
        lambda width: [(width, 256)],
        {
            "cpu": Sizes((32, 256, 900), (5, 9)),
            "cuda": Sizes((256, 65536, 131072), (15, 30)),
        },
        ALL_EXTRAS,
    ),
    "attention": Kind(
        "Regard",
        """\
class Regard(nn.Module):
    def __init__(self):
        super().__init__()
        self.asked = nn.Linear(64, 64)
        self.known = nn.Linear(64, 64)

    def forward(self, x):
        y = x
        for _ in range(COUNT):
            weights = torch.softmax(self.asked(y) @ self.known(y).transpose(-2, -1) / 8, -1)
            y = weights @ y
        EXTRA
        return bounded(y)
""",
        lambda width: [(2, width, 64)],
        {
            "cpu": Sizes((32, 96, 160), (4, 8)),
            "cuda": Sizes((64, 3072, 4096), (15, 30)),
        },
        {**ALL_EXTRAS, "product": "y = y + 0.0 * self.known(y)"},
    ),
    "convolution": Kind(
        "Stem",
        """\
class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(COUNT))
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        y = x
        for layer in self.layers:
            y = torch.relu(self.norm(layer(y)))
        EXTRA
        return bounded(y)
""",
        lambda width: [(2, 8, width, width)],
        {
            "cpu": Sizes((12, 24, 40), (5, 8)),
            "cuda": Sizes((32, 512, 1024), (5, 8)),
        },
        {**ALL_EXTRAS, "product": "y = y + 0.0 * self.layers[0](y)"},
    ),
    "loop": Kind(
        "Recalled",
        """\
class Recalled(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(64, 64)

    def forward(self, x):
        y = x[0]
        for place in range(COUNT):
            y = torch.tanh(self.mix(y) + x[place % 4])
        EXTRA
        return bounded(y)
""",
        lambda width: [(4, width, 64)],
        {
            "cpu": Sizes((8, 32, 128), (10, 40)),
            "cuda": Sizes((128, 131072, 262144), (30, 60)),
        },
        {**ALL_EXTRAS, "product": "y = y + 0.0 * self.mix(y)"},
    ),
    "optimizer": Kind(
        "turned",
        """\
def turned(weight, grad, average):
    average = average * 0.9 + grad * 0.1
    y = average / (average.norm() + 1e-6)
    for _ in range(COUNT):
        y = 1.5 * y - 0.5 * (y @ y.transpose(-2, -1)) @ y
    EXTRA
    return weight - 0.01 * bounded(y)
""",
        lambda width: [(width, 96)] * 3,
        {
            "cpu": Sizes((48, 96, 192), (5, 8)),
            "cuda": Sizes((96, 4096, 8192), (15, 30)),
        },
        {**ALL_EXTRAS, "product": "y = y + 0.0 * (y @ y.transpose(-2, -1)) @ y"},
    ),
}
HEADER = "import torch\nfrom torch import nn\n\n\n"
BOUNDED = "def bounded(y):\n    return torch.clamp(y, -4.0, 4.0)\n"
SPARE = "class Spare(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
Files = dict[str, str]
"""Texts by their path in the repository."""
MODEL, BOUNDS, SETTINGS = "pkg/model.py", "pkg/bounds.py", "pyproject.toml"


def edit(pattern: str, replacement: str) -> Callable[[Files], Files]:
    """Return an edit of the module's file."""
    return lambda files: files | {MODEL: re.sub(pattern, replacement, files[MODEL], flags=re.S)}


def moved_out(files: Files) -> Files:
    """Move the helper to a file of its own."""
    text = files[MODEL].replace(f"{BOUNDED}\n\n", "")
    imported = "import nn\n\nfrom pkg.bounds import bounded\n"
    text = text.replace("import nn\n", imported)
    return files | {MODEL: text, BOUNDS: f"import torch\n\n\n{BOUNDED}"}


EDITS: Mapping[str, Callable[[Files], Files]] = {
    "function moved": moved_out,
    "functions in another order": edit(r"(def bounded.*?\n)\n\n(.*)", r"\2\n\n\1"),
    "comment": edit(r"( +)(return [^\n]*bounded)", r"\1# Large values are cut.\n\1\2"),
    "docstring": edit(
        r"(?<=\n)( *)(def (?:forward|turned)[^\n]*\n)", r'\1\2\1    """Compute it."""\n'
    ),
    "type hints": edit(r"(self, x|grad, average)\)", r"\1: torch.Tensor) -> torch.Tensor"),
    "formatting": edit(r"bounded\(([^()\n]+)\)(?!:)", r"bounded(\n            \1,\n        )"),
    "helper": edit(
        r"(import nn\n.*?)(\n\n(?:class|def) (?!bounded).*)(return [^\n]*)bounded\(",
        r"\1\n\ndef finished(values):\n    return bounded(values)\n\2\3finished(",
    ),
    "unused module": edit(r"\Z", f"\n\n{SPARE}"),
    "locals renamed": edit(r"\by\b", "hidden"),
}
"""Edits that change no time, in the order in which they are made."""


def files_of(kind: Kind, width: int, count: int, extra: str = "pass") -> Files:
    """Return a repository with the module, which does something more."""
    text = kind.text.replace("COUNT", str(count))
    done = re.sub(r" +EXTRA\n", "", text) if extra == "pass" else text.replace("EXTRA", extra)
    inputs = ", ".join(f'"float32{list(shape)}"' for shape in kind.shapes(width))
    settings = f"""\
[[tool.cudal1-ci.workload]]
target = "{MODEL}:{kind.entry}"
inputs = [{inputs}]

"""
    return {
        "pkg/__init__.py": "",
        MODEL: f"{HEADER}{BOUNDED}\n\n{done}",
        SETTINGS: settings,
    }


def with_extra(kind: Kind, width: int, count: int, way: str, strength: int) -> Files:
    """Return the repository with so much more work."""
    if way == "layers":
        return files_of(kind, width, count + strength)
    indent = 4 if kind.entry == "turned" else 8
    line = kind.extras[way]
    if strength > 1:
        line = f"for _ in range({strength}):\n{' ' * (indent + 4)}{line}"
    return files_of(kind, width, count, line)


def placed(files: Files, place: int) -> Files:
    """Return the files in a package of that number, without the settings."""
    package = f"pkg{place}"
    return {
        path.replace("pkg/", f"{package}/"): text.replace("from pkg.", f"from {package}.")
        for path, text in files.items()
        if path != SETTINGS
    }


def tree(modules: Sequence[Mapping[str, Any]], which: int) -> Files:
    """Return a repository with all modules, as they are in one of both trees."""
    files: Files = {}
    settings = ""
    for place, one in enumerate(modules):
        text = one["trees"][which]
        files |= placed(text, place)
        settings += text[SETTINGS].replace("pkg/", f"pkg{place}/")
    names = ", ".join(f'"{target_of(one, place)}"' for place, one in enumerate(modules))
    # Helpers have no workload here; a gate that asks for all of them fails for that alone.
    return files | {SETTINGS: f"{settings}[tool.cudal1-ci.gate]\nrequired = [{names}]\n"}


def target_of(module: Mapping[str, Any], place: int) -> str:
    return f"pkg{place}/model.py:{KINDS[module['kind']].entry}"
