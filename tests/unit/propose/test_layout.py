"""Calls over several lines stay laid out as their authors laid them out."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest
import torch

from cudal1_ci.propose.rewrites.layout import with_argument, with_arguments
from cudal1_ci.propose.rewrites.terms import code
from tests.unit.propose.test_rewrites import HEADER, function, module, outputs, randn, rewritten

X = randn(4, 8)
MADE = [
    (
        """
        m = torch.tensor(
            [
                0.5, 2.0
            ],
        ).to(x.device)
        return x + m[1]
        """,
        """
        m = torch.tensor(
            [
                0.5, 2.0
            ],
            device=x.device,
        )
        return x + m[1]
        """,
    ),
    (
        """
        m = torch.tensor([
            0.5,
            2.0,
        ]).to(
            x.device
        )
        return x + m[1]
        """,
        """
        m = torch.tensor([
            0.5,
            2.0,
        ], device=x.device)
        return x + m[1]
        """,
    ),
    (
        """
        m = torch.ones(
            x.shape[0],  # rows
            8,  # columns
        ).to(x.device)
        return x + m
        """,
        """
        m = torch.ones(
            x.shape[0],  # rows
            8,  # columns
            device=x.device,
        )
        return x + m
        """,
    ),
    (
        """
        m = torch.ones(x.shape[0],
                       8).to(x.device)
        return x + m
        """,
        """
        m = torch.ones(x.shape[0],
                       8,
                       device=x.device)
        return x + m
        """,
    ),
    (
        """
        m = torch.ones(
            x.shape[0], 8
        ).to(x.device)
        return x + m
        """,
        """
        m = torch.ones(
            x.shape[0], 8, device=x.device
        )
        return x + m
        """,
    ),
    (
        """
        m = torch.ones(
            8
            # of all columns
        ).to(x.device)
        return x + m
        """,
        """
        m = torch.ones(
            8,
            # of all columns
            device=x.device
        )
        return x + m
        """,
    ),
    (
        """
        m = (
            torch.ones(
                x.shape[0],

                8,
            )
            .to(x.device)
        )
        return x + m
        """,
        """
        m = torch.ones(
            x.shape[0],

            8,
            device=x.device,
        )
        return x + m
        """,
    ),
    (
        """
        m = torch.ones( 8 ).to( x.device )
        return x + m
        """,
        """
        m = torch.ones( 8, device=x.device )
        return x + m
        """,
    ),
]


@pytest.mark.parametrize(("before", "after"), MADE)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_is_made_on_a_device_is_laid_out_as_it_was(before, after, line_end):
    source, expected = (
        function(textwrap.dedent(one).strip()).replace("\n", line_end) for one in (before, after)
    )
    assert rewritten(source, "create_on_device") == expected
    assert torch.equal(outputs(expected, [X])[0], outputs(source, [X])[0])


CHAIN = """
    rows = (
        torch.cat((x, x), dim=-1)
        .relu()
        .unsqueeze(0)
        .repeat(3, 1, 1)
    )
    return rows + 1
"""


def test_a_chain_over_several_lines_keeps_its_parentheses_and_its_lines():
    source = function(textwrap.dedent(CHAIN))
    new = rewritten(source, "repeat_to_expand")
    assert new == source.replace(".repeat(3, 1, 1)", ".expand(3, -1, -1)")
    assert torch.equal(outputs(new, [X])[0], outputs(source, [X])[0])


def test_an_indentation_by_tabs_stays_one():
    source = HEADER + (
        "\n\ndef Model(x):\n\tif True:\n\t\tm = (\n\t\t\ttorch.ones(\n\t\t\t\t8,\n\t\t\t)"
        "\n\t\t\t.to(x.device)\n\t\t)\n\treturn x + m\n"
    )
    new = rewritten(source, "create_on_device")
    assert new is not None
    assert "\t\tm = torch.ones(\n\t\t\t8,\n\t\t\tdevice=x.device,\n\t\t)\n" in new


def test_a_hoisted_table_loses_a_device_and_no_line_end():
    source = module(
        "self.fc = nn.Linear(8, 8)",
        """
        mask = torch.tril(
            torch.ones(
                8,
                8,
                dtype=torch.bool,
                device=x.device,
            )
        )
        return self.fc(x) @ mask.type_as(x)
        """,
    )
    new = rewritten(source, "hoist_table")
    assert new is not None
    assert (
        textwrap.indent(
            'self.register_buffer("_mask", torch.tril(\n'
            "    torch.ones(\n"
            "        8,\n"
            "        8,\n"
            "        dtype=torch.bool,\n"
            "    )\n"
            "), persistent=False)\n",
            "        ",
        )
        in new
    )
    torch.testing.assert_close(outputs(new, [X])[0], outputs(source, [X])[0])


@pytest.mark.parametrize(
    ("call", "longer"),
    [
        ("f()", "f(b=c)"),
        ("f(a)", "f(a, b=c)"),
        ("f(a, )", "f(a, b=c, )"),
        ("f(a,x)", "f(a,x,b=c)"),
        ("f(\n    a\n)", "f(\n    a,\n    b=c\n)"),
        ("f(a,  # one\n  x)  ", "f(a,  # one\n  x,\n  b=c)"),
        ("f(a, x,  # both\n)", "f(a, x, b=c,  # both\n)"),
    ],
)
def test_an_argument_comes_after_the_others(call, longer):
    node = cst.ensure_type(cst.parse_expression(call.strip()), cst.Call)
    assert code(with_argument(node, "b", cst.Name("c"))) == longer


@pytest.mark.parametrize(
    ("call", "kept", "shorter"),
    [
        ("f(a, b)", (0,), "f(a)"),
        ("f(a, b)", (1,), "f(b)"),
        ("f( a )", (), "f()"),
        ("f(\n    a,\n    b,\n)", (0,), "f(\n    a,\n)"),
        ("f(\n    a,\n    b\n)", (0,), "f(\n    a\n)"),
        ("f(\n    a,  # one\n    b,  # two\n)", (0,), "f(\n    a,  # one\n)"),
        ("f(a,\n  b)", (0,), "f(a)"),
    ],
)
def test_arguments_go_and_the_last_one_ends_as_the_last_one_did(call, kept, shorter):
    node = cst.ensure_type(cst.parse_expression(call), cst.Call)
    assert code(with_arguments(node, [node.args[place] for place in kept])) == shorter
