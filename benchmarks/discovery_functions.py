"""Which free functions does discovery take for tensor functions? Compared with a reader's answer.

Of the functions of `models/**/modeling_*.py` of transformers that differ from each other (their
trees are compared) fifty were drawn at random and read; what the reader said is kept in
benchmarks/results/discovery-functions.json. This finds them again in a checkout or an installation
of the same version and says where discovery agrees.

    python benchmarks/discovery_functions.py PATH/TO/transformers --sample 7
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path

from cudal1_ci.discover import DiscoveryConfig, discover

JUDGED = Path(__file__).parent / "results" / "discovery-functions.json"


def free_functions(root: Path) -> dict[str, str]:
    """`path:name` of functions at the top of a file, by their tree, the first of equal ones."""
    found: dict[str, str] = {}
    for path in sorted(root.glob("models/**/modeling_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                name = f"{path.relative_to(root).as_posix()}:{node.name}"
                found.setdefault(ast.dump(node), name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", type=Path, help="folder that holds models/")
    parser.add_argument("--sample", default="7", help="which of the samples that were read")
    options = parser.parse_args()
    sample = json.loads(JUDGED.read_text())["samples"][options.sample]["functions"]
    names = free_functions(options.root).values()
    config = DiscoveryConfig(include=("models/**/modeling_*.py",))
    targets = {
        f"{target.path}:{target.qualname}"
        for target in discover(options.root, config).targets
        if target.kind == "torch_function"
    }
    judged = {each["function"]: each["reader"] for each in sample}
    both = [name for name, is_one in judged.items() if is_one and name in targets]
    sys.stdout.write(
        f"{len(names)} distinct functions, {len(judged)} of them read\n"
        f"a reader calls {sum(judged.values())} tensor functions; found "
        f"{len(targets & judged.keys())}, both {len(both)}\n"
    )
    for name, is_one in judged.items():
        if is_one != (name in targets):
            sys.stdout.write(f"  {'missed' if is_one else 'not meant'}: {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
