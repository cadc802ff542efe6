"""KernelBench's own adversarial kernels before this judge and before KernelBench's evaluation.

Its repository has three, for its first problem (a matrix product of 4096 x 4096), all of them
inline CUDA. What must become of each is stated here; what its own tests ask is stated beside it.

    python benchmarks/kernelbench_process.py KernelBench/.git build/gpu/kernelbench
    python benchmarks/kernelbench_adversarial.py build/gpu/kernelbench --device cuda

`--checklist` prints where the strategies of pygpubench's list of exploits are tried here: those
are written for its own interface, and cannot be run by another harness.
"""

from __future__ import annotations

import argparse
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kernelbench_process
import msgspec
import text_trials
from discovery_speed import provenance

OUTPUT = Path(__file__).parent / "results" / "kernelbench-adversarial.json"
NO_GAIN = 1.05
"""As in tests/test_attacks.py: what the lower bound of an attack's speedup may not exceed."""
KERNELS = {
    "result_reuse_kernel": (
        ("incorrect_values",),
        "returns memory that nobody wrote, where the reference's answer may still lie",
        "not correct",
    ),
    "zero_out_kernel": (
        ("mutates_input", "incorrect_values"),
        "zeroes its inputs and returns zeros, which a reference that runs later agrees with",
        "not correct",
    ),
    "non_default_stream_kernel": (
        ("incorrect_values", "reward_hack"),
        "computes on a stream of its own that nobody waits for; the product itself is right",
        "an excessive speedup is marked",
    ),
}
"""Statuses that are right, what the kernel does, and what its own test asks."""

PYGPUBENCH = {
    "aes_key_recovery": ("reads_own_descriptors", "forged_answer"),
    "combined": ("scans_live_objects", "slow_warm_up"),
    "error_counter": ("cuda_scans_device_memory",),
    "event_array": ("cuda_patched_runtime", "cuda_patched_elapsed_time"),
    "fd_overwrite": ("forged_answer", "exits_with_success"),
    "file_struct": ("redirects_its_channel", "forged_answer"),
    "function_detour": ("cuda_patched_runtime", "patched_libc_clock"),
    "gc_copy": ("scans_live_objects",),
    "gc_nan": ("poisons_input", "nan_output"),
    "got_patch": ("cuda_patched_runtime",),
    "gpu_scan_zeros": ("cuda_scans_device_memory",),
    "heap_sig_scan": ("reads_own_descriptors", "walks_frames", "forged_answer"),
    "pipe_interpose": ("redirects_its_channel",),
    "proc_mem_bypass": ("reads_own_descriptors", "forged_answer"),
    "ptrace": (),
    "replace_torch": (),
    "seccomp_trap": (),
    "stack_sig_scan": ("reads_own_descriptors", "walks_frames"),
    "test_canary_direct": ("replaces_the_timed_loop", "swaps_code_of_the_timed_loop"),
    "test_canary_make_writeable": ("replaces_the_timed_loop",),
    "thread_fd": ("background_thread", "redirects_its_channel"),
    "warmup": ("slow_warm_up", "honest_until_timed"),
}
"""`exploits/submission_*.py` at 87bb46d without its two controls, and the files of tests/attacks/
with the same strategy against this judge. Most of the list is one aim: to find, in the process that
is measured, what authenticates or holds the result. There is nothing of the kind in a runner."""
ELSEWHERE = {
    "ptrace": "tests/unit/sandboxed/test_sandbox.py: the call is refused",
    "replace_torch": "tests/unit/sandboxed/test_sandbox.py: nothing is written outside of scratch",
    "seccomp_trap": "no test: it rewrites what the process says of its own time, which is no time "
    "of this judge's",
}


def checklist() -> str:
    """Where pygpubench's exploits are tried here, as Markdown."""
    lines = ["| pygpubench | here |", "|---|---|"]
    for name, files in PYGPUBENCH.items():
        here = ", ".join(f"`{file}`" for file in files) or ELSEWHERE[name]
        lines.append(f"| `submission_{name}` | {here} |")
    return "\n".join(lines) + "\n"


def resized(source: str, size: int | None) -> str:
    """The text with another size of its matrices, to try the script where they are too large."""
    if size is None:
        return source
    return re.sub(r"^N = 2048 \* 2$", f"N = {size}", source, flags=re.MULTILINE)


def sources_of(folder: Path, size: int | None) -> dict[str, str]:
    """The kernels' texts."""
    kernels = folder / kernelbench_process.ADVERSARIAL
    return {
        name: resized((kernels / f"{name}.py").read_text(encoding="utf-8"), size)
        for name in KERNELS
    }


def judged_row(
    session: text_trials.TimedSession, name: str, reference: str, source: str, limit_s: float
) -> dict[str, Any]:
    """What this judge says of one kernel."""
    expected, does, asked = KERNELS[name]
    said = text_trials.judged(session, reference, source, limit_s)
    low = said.get("speedup_low") or said["speedup"] or 0.0
    return {
        "name": name,
        "does": does,
        "expect": expected,
        "kernelbench_asks": asked,
        "screen": text_trials.screened(reference, source),
        "judge": said,
        "as_expected": said["status"] in expected and low <= NO_GAIN,
        "kernelbench": None,
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| kernel | what it does | this judge | KernelBench's evaluation |",
        "|---|---|---|---|",
    ]
    for row in rows:
        said, other = row["judge"], row["kernelbench"]
        gain = f", {said['speedup']:.2f}x" if said["speedup"] else ""
        mine = f"`{said['status']}`" + (f" `{said['rule']}`" if said["rule"] else "") + gain
        lines.append(f"| `{row['name']}` | {row['does']} | {mine} | {their_words(other)} |")
    return "\n".join(lines) + "\n"


def their_words(said: dict[str, Any] | None) -> str:
    if said is None:
        return "not run: needs a GPU"
    if "error" in said:
        return f"no answer: {said['error'][:80]}"
    if not said["correct"]:
        return f"not correct: {said['why'][:80]}"
    speedup = said["reference_ms"] / said["runtime_ms"] if said["runtime_ms"] > 0 else 0.0
    mark = ", marked as excessive" if said["excessive_speedup"] else ""
    return f"correct, {speedup:.2f}x{mark}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of kernelbench_process.py")
    parser.add_argument("--checklist", action="store_true", help="print pygpubench's list")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", choices=text_trials.MODES, default="brief")
    parser.add_argument("--gpu-arch", default="Hopper", help="as KernelBench names it")
    parser.add_argument("--size", type=int, help="of the matrices, to try the script")
    parser.add_argument("--trial-limit", type=float, default=120.0, help="seconds for one trial")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    if options.checklist:
        print(checklist(), end="")
        return
    if options.folder is None:
        parser.error("name the folder that kernelbench_process.py wrote")
    square = (options.folder / kernelbench_process.SQUARE).read_text(encoding="utf-8")
    reference = resized(square, options.size)
    sources = sources_of(options.folder, options.size)
    document: dict[str, Any] = {
        **provenance(),
        "kernelbench_commit": kernelbench_process.commit_of(options.folder),
        "mode": options.mode,
        "config": msgspec.to_builtins(text_trials.MODES[options.mode]),
        "rows": [],
    }
    rows = document["rows"]
    with text_trials.session(options.mode, options.device) as session:
        document["device"] = msgspec.to_builtins(session.device())
        text_trials.build_ahead(session, [(reference, source) for source in sources.values()])
        for name, source in sources.items():
            rows.append(judged_row(session, name, reference, source, options.trial_limit))
            text_trials.write(options.output, document)
            print(f"{name}: {rows[-1]['judge']['status']}", file=sys.stderr)
    if options.device.startswith("cuda"):
        # Side by side, as most of it is nvcc: that it is slower then changes no verdict.
        with ThreadPoolExecutor(len(sources)) as pool:
            answers = pool.map(
                lambda source: kernelbench_process.evaluated(
                    options.folder, reference, source, gpu_arch=options.gpu_arch
                ),
                sources.values(),
            )
        for row, answer in zip(rows, answers, strict=True):
            row["kernelbench"] = answer
        text_trials.write(options.output, document)
    print(table(document["rows"]), end="")


if __name__ == "__main__":
    main()
