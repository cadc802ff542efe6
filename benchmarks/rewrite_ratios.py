"""What two rewrites of the playbook gain on a GPU: float32 products, attention without its weights.

    python benchmarks/rewrite_ratios.py --output build/rewrite-ratios.json

`products` times `torch.matmul` and what `fp32_tensor_cores` calls in its place, and tells both
largest errors against float64 in the first 256 rows, of standard normal numbers; where the errors
are the same, the product was left to torch. `attention` times `nn.MultiheadAttention` with and
without `need_weights=False`. The two of a row take turns, and its times are medians of them. Inputs
stay in the GPU's cache where they are small enough. Nothing is judged here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from discovery_speed import provenance
from text_trials import write

from cudal1_ci.propose.rewrites.tensor_cores import HELPERS

OUTPUT = Path(__file__).parent / "results" / "rewrite-ratios.json"
PRODUCTS = (
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (2048, 8192, 4096),
    (8205, 2949, 5921),
    (32768, 64, 32768),
    (256, 131072, 256),
    (16384, 16384, 16),
)
"""m, k, n."""
ATTENTION = ((256, 8, 256, 8), (512, 8, 1024, 8), (768, 12, 197, 32), (256, 8, 100, 2))
"""Width, heads, length, batch."""
NUM_ROWS = 256
"""Of a product, whose error is told."""
NUM_TURNS = 7
TURN_MS = 12.0
Pair = tuple[Callable[[], Any], Callable[[], Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    found: dict[str, Any] = {
        **provenance(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    for name, rows in (("products", products()), ("attention", attention())):
        found[name] = []
        for row in rows:
            found[name].append(row)
            print(json.dumps(row), flush=True)
            write(options.output, found)


def products() -> Iterator[dict[str, Any]]:
    """Of two matrices: torch's, and the rewrite's."""
    matmul = loaded(HELPERS)["fp32_matmul"]
    for m, k, n in PRODUCTS:
        torch.manual_seed(0)
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        with torch.inference_mode():
            pair = (lambda a=a, b=b: torch.matmul(a, b), lambda a=a, b=b: matmul(a, b))
            torch_ms, ours_ms = times_ms(pair)
            exact = a[:NUM_ROWS].double() @ b.double()
            torch_error, error = ((one()[:NUM_ROWS] - exact).abs().max().item() for one in pair)
        sizes = {"m": m, "k": k, "n": n}
        taken = {"torch_ms": torch_ms, "ours_ms": ours_ms, "ratio": torch_ms / ours_ms}
        yield sizes | taken | {"error": error, "torch_error": torch_error}


def attention() -> Iterator[dict[str, Any]]:
    """Of one tensor with itself, without gradients."""
    for width, heads, length, batch in ATTENTION:
        for training in (False, True):
            torch.manual_seed(0)
            layer = torch.nn.MultiheadAttention(width, heads, batch_first=True)
            layer = layer.cuda().train(training)
            x = torch.randn(batch, length, width, device="cuda")
            pair = (
                lambda layer=layer, x=x: layer(x, x, x)[0],
                lambda layer=layer, x=x: layer(x, x, x, need_weights=False)[0],
            )
            with torch.no_grad():
                plain_ms, ours_ms = times_ms(pair)
            call = {"width": width, "heads": heads, "length": length, "batch": batch}
            taken = {"plain_ms": plain_ms, "ours_ms": ours_ms, "ratio": plain_ms / ours_ms}
            yield call | {"training": training} | taken


def times_ms(pair: Pair) -> tuple[float, float]:
    """Of a call of each, by the device's clock."""
    for one in pair:
        one()
        one()
    num_calls = [max(1, min(50, int(TURN_MS / max(turn_ms(one, 1), 0.02)))) for one in pair]
    turns: tuple[list[float], list[float]] = ([], [])
    for _ in range(NUM_TURNS):
        for one, num, found in zip(pair, num_calls, turns, strict=True):
            found.append(turn_ms(one, num))
    return statistics.median(turns[0]), statistics.median(turns[1])


def turn_ms(call: Callable[[], Any], num: int) -> float:
    """Of one of `num` calls in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(num):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / num


def loaded(text: str) -> dict[str, Any]:
    """The names of a file with these definitions; Triton reads a kernel's text from its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rewrite.py"
        header = "import torch\nimport triton\nimport triton.language as tl\n"
        path.write_text(header + text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("rewrite", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return vars(module)


if __name__ == "__main__":
    main()
