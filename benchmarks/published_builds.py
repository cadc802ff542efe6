"""Which of CUDA-L1's published extensions can be built at all, by what torch makes of their text.

    python benchmarks/published_builds.py CUDA-L1/optimized_cuda_code/h100.json \\
        --card benchmarks/results/report-card-h100.json.gz

Most of the codes that bring a CUDA kernel give its source to torch's `load_inline` within a `try`,
and call torch's own operator where that fails: what was measured of them is that operator then, and
nothing in the speedup tells. `load_inline` writes a file `main.cpp` of the C++ sources and of a
binding for each of `functions`, and one of the CUDA sources. So it cannot be built, with whatever
compiler and on whatever GPU, where

- `undeclared`: a binding names a function that the C++ sources do not declare: the compiler for C++
  says so of that file, for which no CUDA is needed;
- `twice`: `functions` are given and the sources have a `PYBIND11_MODULE` of their own: there are
  two of one name, which the same compiler says where both are in that file, and a linker else.

What became of each code in a report card, and whether a kernel of its own was launched, is told
beside it. Only texts are read: none of the codes is run.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discovery_speed import provenance
from text_trials import write
from torch.utils.cpp_extension import include_paths

from cudal1_ci.report_card.card import counted, machines
from cudal1_ci.report_card.columns import PUBLISHED
from cudal1_ci.report_card.reading import read_run
from cudal1_ci.report_card.tasks import tasks_at
from cudal1_ci.report_card.worth import launches_its_own

OUTPUT = Path(__file__).parent / "results" / "published-builds.json"
MODULE = "PYBIND11_MODULE"
ARGUMENTS = ("name", "cpp_sources", "cuda_sources", "functions")
COMPILE_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A call of load_inline, as far as it can be read."""

    cpp: str
    cuda: str
    functions: tuple[str, ...] | None
    """None where none are given."""

    @property
    def main(self) -> str:
        """The file that torch makes of the C++ sources and the bindings."""
        lines = ["#include <torch/extension.h>", self.cpp]
        if self.functions is not None:
            bound = [
                f'm.def("{f}", torch::wrap_pybind_function({f}), "{f}");' for f in self.functions
            ]
            lines += [f"{MODULE}(TORCH_EXTENSION_NAME, m) {{", *bound, "}"]
        return "\n".join(lines)


def extensions(source: str) -> Iterator[Extension]:
    """Of a text. Calls whose arguments are not constants are left out."""
    tree = ast.parse(source)
    texts = {
        ast.unparse(target): node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("load_inline"):
            continue
        given = dict(zip(ARGUMENTS, node.args, strict=False))
        given |= {one.arg: one.value for one in node.keywords if one.arg is not None}
        found = {name: text_of(given.get(name), texts) for name in ("cpp_sources", "cuda_sources")}
        functions = given.get("functions")
        if None in found.values():
            continue
        try:
            names = None if functions is None else ast.literal_eval(functions)
        except ValueError:
            continue
        names = (names,) if isinstance(names, str) else names
        yield Extension(
            cpp=found["cpp_sources"] or "",
            cuda=found["cuda_sources"] or "",
            functions=None if names is None else tuple(names),
        )


def text_of(given: ast.expr | None, texts: dict[str, str]) -> str | None:
    """Sources, one or several; None where that is not known."""
    if given is None:
        return ""
    if isinstance(given, ast.List | ast.Tuple):
        parts = [text_of(one, texts) for one in given.elts]
        return None if None in parts else "\n".join(part for part in parts if part is not None)
    if isinstance(given, ast.Constant):
        return given.value if isinstance(given.value, str) else ""
    return texts.get(ast.unparse(given))


class Compiler:
    """Looks at C++ without building it, with torch's headers, which are read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        includes = [*include_paths(), sysconfig.get_paths()["include"]]
        self.command = ["g++", "-std=c++20", "-DTORCH_EXTENSION_NAME=extension", "-w"]
        self.command += [word for one in includes for word in ("-isystem", one)]
        headers = folder / "headers.h"
        headers.write_text("#include <torch/extension.h>\n", encoding="utf-8")
        if said := self.error(["-x", "c++-header", str(headers), "-o", f"{headers}.gch"]):
            raise SystemExit(f"torch's headers cannot be compiled here: {said}")
        self.command += ["-include", str(headers), "-fsyntax-only"]

    def error(self, words: list[str]) -> str:
        """The first that it has to say; empty where there is none."""
        done = subprocess.run(
            [*self.command, *words], capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
        if done.returncode == 0:
            return ""
        lines = [one for one in done.stderr.splitlines() if "error: " in one]
        return lines[0].partition("error: ")[2] if lines else done.stderr[:300]

    def obstacle(self, one: Extension) -> str:
        """Why an extension cannot be built, in a word and what the compiler says; empty where this
        does not tell."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            file = Path(folder) / "main.cpp"
            file.write_text(one.main, encoding="utf-8")
            said = self.error([str(file)])
        if "not declared" in said:
            return f"undeclared: {said}"
        if "PyInit" in said:
            return f"twice: {said}"
        if one.functions is not None and MODULE in one.cpp + one.cuda:
            return f"twice: a {MODULE} in the sources, and one for `functions`"
        # Headers of CUDA, which need not be here.
        return "" if "No such file" in said else said and f"other: {said}"


def row(compiler: Compiler, name: str, source: str) -> dict[str, Any]:
    try:
        found = list(extensions(source))
    except SyntaxError:
        return {"task": name, "brings": "no Python"}
    if "load_inline" not in source:
        return {"task": name, "brings": "none"}
    if not found:
        return {"task": name, "brings": "unread"}
    return {"task": name, "brings": "inline", "obstacles": [*map(compiler.obstacle, found)]}


def outcomes(card: Path) -> dict[str, tuple[str, bool | None]]:
    """By task what became of the published code, and whether it launched a kernel of its own; None
    where it declares none, or nothing was seen."""
    run = read_run(card)
    return {
        task.name: (trial.status, launches_its_own(trial.kernels))
        for task in counted(run, machines(run)[0])
        for result in task.results
        if result.solver == PUBLISHED
        for trial in result.trials
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("codes", type=Path, help="of a release, JSON lines")
    parser.add_argument("--card", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    tasks = tasks_at([given.codes]).tasks
    codes = {task.name: one.code for task in tasks for one in task.published}
    known = outcomes(given.card)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.processes) as pool:
        compiler = Compiler(Path(folder))
        rows = list(pool.map(lambda item: row(compiler, *item), codes.items()))
    for one in rows:
        one["status"], one["launches_its_own"] = known.get(one["task"], (None, None))
    write(given.output, {**provenance(), "rows": rows})
    for line in said_of(rows):
        print(line)


def said_of(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Counts of those that could be read, and of what the judge saw of them."""
    inline = [one for one in rows if one["brings"] == "inline"]
    hopeless = [one for one in inline if all(one["obstacles"])]
    words = Counter(one["obstacles"][0].partition(":")[0] for one in hopeless)
    yield f"{len(rows)} codes: {dict(Counter(one['brings'] for one in rows))}"
    yield f"{len(hopeless)} of {len(inline)} cannot be built: {dict(words)}"
    others = [one for one in inline if one not in hopeless]
    for name, some in (("cannot be built", hopeless), ("others", others)):
        right = [one["launches_its_own"] for one in some if one["status"] == "passed"]
        yield f"  {name}: {len(some)}, {len(right)} right in the card, of these with a kernel of"
        yield f"    their own launched: {dict(Counter(right))}"


if __name__ == "__main__":
    main()
