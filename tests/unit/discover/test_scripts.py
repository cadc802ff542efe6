"""Which programs of a tree are found, from what texts, and which blocks continue each other."""

from __future__ import annotations

import json
import textwrap
import time

import pytest

from cudal1_ci.discover.scripts import Cell, scripts_of
from cudal1_ci.discover.scripts.continued import continued, names_of
from cudal1_ci.discover.scripts.pages import (
    blocks_of_markdown,
    blocks_of_rst,
    cells_of_notebook,
    docstring_cells,
)


def write(root, files):
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))


def test_fences_are_read_where_they_say_python_or_import_something():
    page = textwrap.dedent(
        """\
        ```python
        import pkg
        ```
        ```bash
        rm -rf /
        ```
        - in a list
          ```py
          x = 1
          ```
        ~~~
        import torch
        y = torch.ones(2)
        ~~~
        ```
        just text
        ```
        """
    )
    found = [(cell.line, cell.text) for cell in blocks_of_markdown(page)]
    assert found == [
        (2, "import pkg"),
        (9, "x = 1"),
        (12, "import torch\ny = torch.ones(2)"),
    ]


def test_a_fence_that_never_closes_ends_with_the_page():
    assert [cell.text for cell in blocks_of_markdown("```python\nx = 1\ny = 2")] == ["x = 1\ny = 2"]


def test_directives_literal_blocks_and_sessions_of_a_page_are_read():
    page = textwrap.dedent(
        """\
        .. code-block:: python
           :linenos:

           import pkg

        Like this::

            import torch

        .. code-block:: bash

            ls

        >>> x = 1
        >>> x + \\
        ... 1
        2
        """
    )
    found = [(cell.line, cell.text.strip()) for cell in blocks_of_rst(page)]
    assert found == [(4, "import pkg"), (8, "import torch"), (14, "x = 1\nx + \\\n1")]


def test_a_notebook_gives_its_code_without_outputs_and_magic():
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install x\n", "x = 1"]},
        {"cell_type": "code", "source": "%%bash\nls", "outputs": [{"text": "secret"}]},
        {"cell_type": "code", "source": ["for i in range(2):\n", "    !ls\n"]},
    ]
    found = list(cells_of_notebook(json.dumps({"cells": cells})))
    assert [(one.line, one.text) for one in found] == [
        (2, "pass\npass\nx = 1"),
        (4, "for i in range(2):\n    pass\n"),
    ]
    assert list(cells_of_notebook("{not json")) == []


def test_a_notebook_with_outputs_of_fifty_megabytes_is_read_in_seconds(tmp_path):
    big = {"cell_type": "code", "source": "import pkg", "outputs": [{"data": "x" * 50_000_000}]}
    write(tmp_path, {"pkg/__init__.py": "import torch\n"})
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [big]}))
    start_s = time.monotonic()
    (script,) = scripts_of(tmp_path)
    assert (script.kind, script.cells) == ("notebook", (Cell(line=1, text="import pkg"),))
    assert time.monotonic() - start_s < 20


def test_docstring_examples_have_the_lines_of_their_file():
    source = textwrap.dedent(
        '''\
        """Module."""
        class A:
            """A class.

            >>> a = A()
            >>> a(1)
            2
            """
        def f():
            """Example::

                import pkg
                f()
            """
        '''
    )
    found = [[(cell.line, cell.text.strip()) for cell in one] for one in docstring_cells(source)]
    assert found == [[(5, "a = A()\na(1)")], [(12, "import pkg\nf()")]]


@pytest.mark.parametrize(
    ("text", "read", "bound"),
    [
        ("x = model(x)", {"model", "x"}, {"x"}),
        ("import torch.nn as nn\nnn.Linear(1, 1)", set(), {"nn"}),
        ("for i in range(n):\n    y = i", {"n"}, {"i", "y"}),
        ("def f(a):\n    return a + b", {"b"}, {"f"}),
        ("z = [k for k in items]", {"items"}, {"z", "k"}),
    ],
)
def test_names_that_a_cell_reads_and_binds(text, read, bound):
    found = names_of(text)
    assert (found.read, found.bound) == (read, bound)


def test_blocks_that_use_names_of_earlier_ones_are_one_program():
    cells = [
        Cell(line=1, text="from pkg import A\na = A()"),
        Cell(line=5, text="from pkg import B\nB()"),
        Cell(line=9, text="a(x)"),
        Cell(line=12, text="not python at all"),
    ]
    found = [([cell.line for cell in group], modules) for group, modules in continued(cells)]
    assert found == [
        ([1, 9], {"pkg", "pkg.A"}),
        ([5], {"pkg", "pkg.B"}),
        ([12], set()),
    ]


def test_each_file_has_its_kind_and_what_uses_nothing_of_the_tree_is_left_out(tmp_path):
    main = 'import torch\nif __name__ == "__main__":\n    pass\n'
    write(
        tmp_path,
        {
            "README.md": "```python\nimport pkg\n```\n```python\nimport numpy\n```\n",
            "docs/use.rst": ".. code-block:: python\n\n   import pkg\n",
            "pkg/__init__.py": 'import torch\n"""x"""\n',
            "pkg/run.py": main,
            "examples/a.py": "import torch, pkg\n",
            "benchmarks/speed.py": main,
            "tests/test_a.py": "import torch, pkg\ndef test_a(): pass\n",
            "tests/helper.py": "import torch\n",
            "setup.py": main,
            "build/README.md": "```python\nimport pkg\n```\n",
        },
    )
    found = {(script.kind, script.place) for script in scripts_of(tmp_path)}
    assert found == {
        ("readme", "README.md:2"),
        ("docs", "docs/use.rst:3"),
        ("main", "pkg/run.py"),
        ("example", "examples/a.py"),
        ("benchmark", "benchmarks/speed.py"),
        ("test", "tests/test_a.py"),
    }
