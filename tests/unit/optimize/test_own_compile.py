"""Whether a project compiles a model itself."""

from __future__ import annotations

import pytest

from cudal1_ci.optimize.own_compile import own_compilation


@pytest.mark.parametrize(
    ("text", "decorator"),
    [
        ("m = torch.compile(Model(3))", "torch.compile"),
        ("m = torch.compile(Model(3).cuda().eval(), dynamic=True)", "torch.compile(dynamic=True)"),
        ("m = Model()\nm = torch.compile(m, mode='max-autotune')",
         "torch.compile(mode='max-autotune')"),
        ("m = pkg.Model()\nm.compile(fullgraph=True)", "torch.compile(fullgraph=True)"),
        ("f = torch.compile(Model)", "torch.compile"),
        ("m = torch.compile(Other(3))\nn = Model()", None),
        ("m = Model()\nre.compile('Model')", None),
        ("Model = torch.compile(", None),
        ("", None),
    ],
)  # fmt: skip
def test_how_a_model_is_compiled(text, decorator):
    assert own_compilation(["x = 1", text], "Model") == decorator
