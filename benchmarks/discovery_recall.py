"""Does discovery find what is there? Compared with what Python itself says after importing it all.

Imports every module of an installed package (in this process: give it packages that you trust) and
asks `issubclass(cls, torch.nn.Module)`, an oracle that shares nothing with discovery. A class with
a `forward` of its own must be among the targets (recall), and what discovery calls a Module must be
one at run time (precision). Local classes are left out on both sides: they cannot be imported.

    python benchmarks/discovery_recall.py timm --output discovery-recall.json
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import pkgutil
import re
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from discovery_speed import provenance

from cudal1_ci.discover import DiscoveryConfig, discover


def modules_of(package: types.ModuleType, pattern: str) -> Iterator[tuple[str, str | None]]:
    """Names of a package's modules, each with the error of its import or None."""
    names = [package.__name__]
    names += [
        info.name
        for info in pkgutil.walk_packages(
            package.__path__, f"{package.__name__}.", onerror=lambda _: None
        )
    ]
    for name in names:
        if re.search(pattern, name) is None:
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a stranger's import does)
            yield name, f"{type(error).__name__}: {error}"
        else:
            yield name, None


def modules_at_run_time(
    names: set[str], root: Path
) -> tuple[dict[tuple[str, str], bool], set[str]]:
    """nn.Modules defined in the named modules, with whether they define forward; and the files."""
    classes: dict[tuple[str, str], bool] = {}
    files: set[str] = set()
    for name in sorted(names):
        module = sys.modules[name]
        file = getattr(module, "__file__", None)
        if file is None or not Path(file).resolve().is_relative_to(root):
            continue
        path = Path(file).resolve().relative_to(root).as_posix()
        files.add(path)
        pending = [value for value in vars(module).values() if isinstance(value, type)]
        seen = set()
        while pending:
            cls = pending.pop()
            if cls in seen or cls.__module__ != name or "<locals>" in cls.__qualname__:
                continue
            seen.add(cls)
            pending += [value for value in vars(cls).values() if isinstance(value, type)]
            if issubclass(cls, torch.nn.Module):
                classes[path, cls.__qualname__] = "forward" in vars(cls)
    return classes, files


def compared(name: str, pattern: str) -> dict[str, Any]:
    """Recall and precision of one package, with every case that counts against them."""
    package = importlib.import_module(name)
    root = Path(package.__path__[0]).resolve()
    imports = dict(modules_of(package, pattern))
    failures = {module: error for module, error in imports.items() if error is not None}
    truth, files = modules_at_run_time(imports.keys() - failures.keys(), root)
    discovery = discover(root, DiscoveryConfig(tests=True, vendored=True))
    found = {(t.path, t.qualname) for t in discovery.targets if t.kind == "torch_module"}
    own = {key for key, has_forward in truth.items() if has_forward}
    inherited = truth.keys() - own
    seen = {key for key in found if key[0] in files}
    return {
        "package": name,
        "version": getattr(package, "__version__", None),
        "num_modules_imported": len(imports) - len(failures),
        "import_failures": failures,
        "num_with_own_forward": len(own),
        "num_found_of_them": len(own & found),
        "recall": len(own & found) / len(own) if own else None,
        "missed": sorted(":".join(key) for key in own - found),
        "num_with_inherited_forward": len(inherited),
        "num_found_of_inherited": len(inherited & found),
        "num_targets_in_imported_files": len(seen),
        "precision": len(seen & truth.keys()) / len(seen) if seen else None,
        "not_modules_at_run_time": sorted(":".join(key) for key in seen - truth.keys()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("package", nargs="*", help="default: those of timm, torchvision there are")
    parser.add_argument("--match", default="", help="only modules whose name matches this pattern")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    packages = arguments.package or [
        name for name in ("timm", "torchvision") if importlib.util.find_spec(name) is not None
    ]
    results = [compared(name, arguments.match) for name in packages]
    document = {**provenance(), "torch": torch.__version__, "results": results}
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not results:
        print("no packages given: nothing was compared")
    for result in results:
        if result["recall"] is None or result["precision"] is None:
            print(f"{result['package']} {result['version']}: nothing could be imported")
            continue
        print(
            f"{result['package']} {result['version']}: "
            f"{result['num_found_of_them']} of {result['num_with_own_forward']} found "
            f"(recall {result['recall']:.4f}), precision {result['precision']:.4f}, "
            f"{len(result['import_failures'])} modules could not be imported"
        )
        for key in ("missed", "not_modules_at_run_time"):
            print(f"  {key}: {', '.join(result[key][:20]) or 'none'}")


if __name__ == "__main__":
    main()
