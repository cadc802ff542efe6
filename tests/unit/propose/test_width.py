"""Lines that a rewrite made too long are broken, and others are not."""

from __future__ import annotations

import ast

import pytest

from cudal1_ci.propose.editing.width import within_width

LONG = (
    "    y = F.attention(self.queries(x).view(x.size(0), -1, self.num_heads, self.head_dim), "
    "self.keys(x), scale=1.0 / math.sqrt(self.head_dim))\n"
)
BROKEN = """\
    y = F.attention(
        self.queries(x).view(x.size(0), -1, self.num_heads, self.head_dim),
        self.keys(x),
        scale=1.0 / math.sqrt(self.head_dim),
    )
"""
NORM = (
    "    return F.rms_norm(hidden_states, hidden_states.shape[-1:], "
    "eps=self.epsilon_of_norm).to(d)\n"
)


def body(line: str) -> str:
    return f"def f(self, x):\n    z = 1\n{line}    return y\n"


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        (LONG, BROKEN),
        (
            NORM,
            "    return F.rms_norm(\n"
            "        hidden_states, hidden_states.shape[-1:], eps=self.epsilon_of_norm\n"
            "    ).to(d)\n",
        ),
        (NORM.replace("\n", "  # why\n"), None),
        (
            LONG.replace("self.queries(x)", "self.projection_of_the_queries(x)"),
            BROKEN.replace(
                "        self.queries(x).view(x.size(0), -1, self.num_heads, self.head_dim),\n",
                "        self.projection_of_the_queries(x).view(\n"
                "            x.size(0), -1, self.num_heads, self.head_dim\n"
                "        ),\n",
            ),
        ),
        (f"    total = {' + '.join(['number_of_heads'] * 7)}\n", "as it was"),
        (f"    text = '''\n{LONG}'''\n", "as it was"),
    ],
)
def test_a_long_line_is_broken_inside_of_parentheses(line, broken):
    before, after = body(""), body(line)
    if broken is None:
        broken = NORM.partition("F.")[0] + (
            "F.rms_norm(\n        hidden_states, hidden_states.shape[-1:], "
            "eps=self.epsilon_of_norm\n    ).to(d)  # why\n"
        )
    found = within_width(before, after, "")
    assert found == body(line if broken == "as it was" else broken)
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(after))


def test_a_value_is_moved_where_all_calls_are_short():
    target = "    written[: rows.size(0)][positions, indices[: rows.size(0)][:, None]]"
    line = f"{target} = values[: rows.size(0)][:, None]\n"
    broken = f"{target} = (\n        values[: rows.size(0)][:, None]\n    )\n"
    assert within_width(body("    y = 1\n"), body(line), "") == body(broken)
    much = line.replace("values", "values_of_all_rows + values_of_all_rows * factors_of_all_rows")
    assert " = (" not in within_width(body("    y = 1\n"), body(much), "")


def test_a_comment_may_stand_out():
    line = f"    y = F.rms_norm(x, x.shape[-1:], eps=self.eps)  # {'(samples, channels) ' * 3}\n"
    assert len(line.rstrip()) > 88
    assert within_width(body(""), body(line), "") == body(line)


def test_what_the_author_wrote_stays():
    assert within_width(body(LONG), body(LONG) + "\n", "") == body(LONG) + "\n"


def test_an_author_of_wider_lines_gets_wider_ones():
    line = f"    y = F.rms_norm({'x' * 36}, shape, eps=self.epsilon_of_the_norm)\n"
    assert 88 < len(line.rstrip()) < 96
    wide = body("    # " + "x" * 90 + "\n")
    assert within_width(body(""), body(line), "") != body(line)
    assert within_width(wide, body(line), "") == body(line)


def test_definitions_that_a_rewrite_brings_stay():
    assert within_width("", LONG.strip() + "\n", LONG.strip() + "\n") == LONG.strip() + "\n"


@pytest.mark.parametrize("end", ["\r\n", ""])
def test_line_ends_are_those_of_the_line(end):
    before = "x = 1" + end
    found = within_width(before, LONG.strip() + end, "")
    assert found == "".join(
        f"{row[4:]}{(end or chr(10)) if row != '    )' else end}" for row in BROKEN.splitlines()
    )
