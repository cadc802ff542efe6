"""Count which attacks of `tests/attacks/` other checkers catch, and which honest programs they
refuse.

Every file of `tests/attacks/` and `tests/honest/` is put to the static checker of KernelBench, to
kernelguard, to this package's static screen, and (those that need no GPU) to what KernelBench's
`eval_kernel_against_ref` asks of an answer, stated again for a CPU below. Fetch both repositories
first; nothing of them is kept:

    python experiments/who_catches_what.py KernelBench/.git kernelguard/.git

What the verifier says is read from the files (`EXPECT`): `tests/test_attacks.py` holds it to that.
`--verifier` asks it again, which takes minutes.

The attacks are hostile. They run one at a time, with limits, in namespaces of their own where the
system lends them; those that fork, send signals or spend all resources are not run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import importlib.metadata
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

from provenance import provenance

from cudal1_ci.records import Candidate, Made, Problem, TextProgram, Workload
from cudal1_ci.stats import speedups
from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.static_rules import convictions, screen

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
OUTPUT = Path(__file__).parents[1] / "assets" / "results" / "who-catches-what.json"
SETTINGS = ("EXPECT", "EXPECT_ANY", "EXPECT_ON_GPU", "GAIN", "NEEDS", "REFERENCE", "MODE")
TOOLS = ("kernelbench_static", "kernelguard", "screen", "kernelbench_eval", "judge")
TITLES = ("KernelBench static", "kernelguard", "screen", "KernelBench eval (CPU)", "this verifier")
NOT_RUN_FAMILY = "resources and exits"
NOT_RUN = re.compile(r"\bos\.(fork|kill|killpg|nice|setpriority)\b|\bsignal\.|\bsubprocess\b")
PATIENCE_S = 20
LIMITS = {
    resource.RLIMIT_AS: 8 << 30,
    resource.RLIMIT_FSIZE: 64 << 20,
    resource.RLIMIT_CPU: 60,
    resource.RLIMIT_NPROC: 2048,
    resource.RLIMIT_CORE: 0,
}
NAMESPACES = ("--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc")
NO_GAIN = 1.05
"""As in tests/test_attacks.py: what the lower bound of an attack's speedup may not exceed."""
BRIEF = TrialConfig(call_s=10, load_s=60, num_rounds=4, batch_us=1500, launch_s=0.5, measure_s=1.0)

KERNELBENCH = "src/kernelbench/kernel_static_checker.py"
ASK_KERNELBENCH = """
import json, sys
from kernel_static_checker import validate_kernel_static
found = []
for source in json.load(sys.stdin):
    _, errors, warnings = validate_kernel_static(source, backend="any", precision="fp32")
    valid, _, _ = validate_kernel_static(source, backend="cuda", precision="fp32")
    found.append({"refused": bool(errors), "flagged": bool(errors or warnings),
                  "errors": sorted(errors), "warnings": sorted(warnings),
                  "refused_as_cuda": not valid})
json.dump(found, sys.stdout)
"""
KERNELGUARD = "kernelguard.py"
ASK_KERNELGUARD = """
import json, sys
import kernelguard
kernelguard.configure_runtime(overrides=['entrypoints.names=["forward", "ModelNew"]'])
found = []
for source in json.load(sys.stdin):
    said = kernelguard.analyze_code(source, compute_structural_hash=False)
    found.append({"refused": said["should_filter"], "flagged": bool(said["matched_patterns"]),
                  "classification": said["classification"],
                  "patterns": sorted({p["pattern"] for p in said["matched_patterns"]})})
json.dump(found, sys.stdout)
"""
MARK = "kernelbench-like verdict:"
EVALUATE = f'''
"""What eval_kernel_against_ref does for correctness, on a CPU, in its order."""
import json, os, sys
import torch


def process_input(value):
    return value.to(dtype=torch.float32) if isinstance(value, torch.Tensor) else value


def run_and_check_correctness(original_model, new_model, get_inputs, num_trials, seed):
    passed = dict.fromkeys((1e-4, 1e-2), 0)
    torch.manual_seed(seed)
    seeds = [torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(num_trials)]
    with torch.no_grad():
        for trial_seed in seeds:
            torch.manual_seed(trial_seed)
            inputs = [process_input(x) for x in get_inputs()]
            torch.manual_seed(trial_seed)
            model = original_model.to(dtype=torch.float32)
            torch.manual_seed(trial_seed)
            model_new = new_model.to(dtype=torch.float32)
            output = model(*inputs)
            try:
                output_new = model_new(*inputs)
                if output.shape != output_new.shape:
                    return 0, 0, "shape"
                for tolerance in passed:
                    close = torch.allclose(output, output_new, atol=tolerance, rtol=tolerance)
                    passed[tolerance] += close
            except Exception as error:
                return 0, 0, type(error).__name__
    strict, loose = (int(count == num_trials) for count in passed.values())
    return strict, loose, "equal" if strict else "values"


def eval_kernel_against_ref(original_model_src, custom_model_src, seed_num=42):
    context = {{}}
    exec(compile(original_model_src, "<string>", "exec"), context)
    model_class, get_inputs = context["Model"], context["get_inputs"]
    torch.manual_seed(seed_num)
    init_inputs = [process_input(x) for x in context["get_init_inputs"]()]
    with torch.no_grad():
        torch.manual_seed(seed_num)
        original_model = model_class(*init_inputs)
    exec(compile(custom_model_src, "<string>", "exec"), context)
    with torch.no_grad():
        torch.manual_seed(seed_num)
        custom_model = context["ModelNew"](*init_inputs)
        original_model = original_model.to(dtype=torch.float32)
        custom_model = custom_model.to(dtype=torch.float32)
    return run_and_check_correctness(original_model, custom_model, get_inputs, 5, seed_num)


strict, loose, why = eval_kernel_against_ref(*json.load(sys.stdin))
print(f"\\n{MARK} {{strict}} {{loose}} {{why}}", flush=True)
os._exit(0)
'''


def settings_of(source: str) -> dict[str, Any]:
    """Read a file's statements about itself from module constants, without running it."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in SETTINGS
    }


def bare(source: str) -> str:
    """Remove the docstring and those constants, so that no checker reads what the file is."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            told = node.targets[0].id in SETTINGS
        if told:
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines).strip() + "\n"


def rows_of(folder: str, pattern: str) -> list[dict[str, Any]]:
    """Return a row for every file of a folder, with what is known before any checker runs."""
    rows = []
    for path in sorted((TESTS / folder).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        said = settings_of(text)
        family = re.search(r"Family: ([^.]+)\.", text) if folder == "attacks" else None
        expected = [list(e) for e in said.get("EXPECT_ANY") or [said.get("EXPECT", ("passed", 0))]]
        row = {
            "name": path.stem,
            "attack": folder == "attacks",
            "family": family[1] if family else "honest",
            "needs_gpu": said.get("NEEDS") == "cuda",
            "reference": said.get("REFERENCE", "linear_relu"),
            "no_error": folder == "attacks" and any(s == "passed" for s, _ in expected),
            "source": bare(text),
        }
        if row["attack"]:
            row["judge"] = {"refused": True, "expected": expected, "ran": False}
        else:
            row["judge"] = {"refused": False, "ran": False}
        if fnmatch.fnmatch(path.stem, pattern):
            rows.append(row)
    return rows


def reference_source(name: str) -> str:
    return (TESTS / "attacks" / "references" / f"{name}.py").read_text(encoding="utf-8")


def said_by(git: Path, file: str, program: str, sources: list[str]) -> tuple[str, list[Any]]:
    """Return the commit of a checker, and its answers for each source, from its own process."""
    show = ["git", "--git-dir", str(git)]
    commit = subprocess.run(
        [*show, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    text = subprocess.run([*show, "show", f"HEAD:{file}"], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / Path(file).name).write_bytes(text)
        answered = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(sources),
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return commit, json.loads(answered.stdout)


def screened(row: dict[str, Any]) -> dict[str, Any]:
    """Return the findings of this package's static rules."""
    candidate = TextProgram(source=row["source"], entry="ModelNew")
    reference = TextProgram(source=reference_source(row["reference"]), entry="Model")
    findings = screen(candidate, reference)
    convicting = sorted({f.rule for f in convictions(findings)})
    return {
        "refused": bool(convicting),
        "flagged": bool(findings),
        "convictions": convicting,
        "findings": sorted({f.rule for f in findings} - set(convicting)),
    }


def containment() -> list[str]:
    """Return the words that put a command into its own namespaces; empty where that is
    unavailable.
    """
    mount = 'mount -t tmpfs -o size=1g tmpfs /dev/shm && "$@"; exit $?'
    for more in ((), ("--user", "--map-root-user")):
        words = ["unshare", *more, *NAMESPACES, "sh", "-c", mount, "sh"]
        with contextlib.suppress(OSError):
            if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
                return words
    return []


def limited() -> None:
    """Run in the child, between fork and exec."""
    for what, most in LIMITS.items():
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def evaluated(reference: str, candidate: str, words: list[str]) -> dict[str, Any]:
    """Return the restated evaluation's answer for a candidate; without an answer it is refused."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder) / "work"
        work.mkdir()
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        hung = False
        with (Path(folder) / "out").open("w+b") as out, (Path(folder) / "err").open("w+b") as err:
            child = subprocess.Popen(
                [*words, sys.executable, "-c", EVALUATE],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=work,
                env={**keep, "HOME": str(work), "TMPDIR": str(work)},
                start_new_session=True,
                preexec_fn=limited,
            )
            try:
                child.communicate(json.dumps([reference, candidate]).encode(), timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                hung = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            answers = [s for s in tail(out) if s.startswith(MARK)]
            errors = tail(err)
    if not answers:
        last = errors[-1].partition(":")[0] if errors else ""
        why = "hung" if hung else f"died: {last if last.isidentifier() else child.returncode}"
        return {"refused": True, "refused_at_1e-2": True, "why": why}
    strict, loose, why = answers[-1].removeprefix(MARK).split()
    return {"refused": strict == "0", "refused_at_1e-2": loose == "0", "why": why}


def tail(file: BinaryIO) -> list[str]:
    """Return the last lines that a child wrote."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
    return [s for s in file.read().decode(errors="replace").splitlines() if s.strip()]


def reason_not_run(row: dict[str, Any]) -> str | None:
    if row["needs_gpu"]:
        return "needs a GPU"
    if row["family"] == NOT_RUN_FAMILY:
        return "spends the machine's resources, or ends processes"
    if NOT_RUN.search(row["source"]):
        return "forks, starts processes or sends signals"
    return None


def evaluate_all(rows: list[dict[str, Any]]) -> list[str]:
    """Fill in the restated evaluation; return references that it refuses as their own
    candidates.
    """
    words = containment()
    refused: dict[str, bool] = {}
    for number, row in enumerate(rows, 1):
        reason = reason_not_run(row)
        name = row["reference"]
        if reason is None and name not in refused:
            same = re.sub(r"\bModel\b", "ModelNew", bare(reference_source(name)))
            refused[name] = evaluated(bare(reference_source(name)), same, words)["refused"]
        if reason is None and refused[name]:
            reason = "the evaluation refuses the reference itself"
        if reason is None:
            found = evaluated(bare(reference_source(name)), row["source"], words)
        else:
            found = {"refused": None, "why": reason}
        row["kernelbench_eval"] = found
        print(f"{number}/{len(rows)} {row['name']}: {found['why']}", file=sys.stderr)
    return sorted(name for name, is_refused in refused.items() if is_refused)


def judge_all(rows: list[dict[str, Any]], device: str) -> None:
    """Run the verifier again, as tests/test_attacks.py does: without the static screen."""
    with (
        mock.patch("cudal1_ci.verification.session.screen", lambda *_: ()),
        Session(BRIEF, device=device) as session,
    ):
        for row in sorted(rows, key=lambda row: row["reference"]):
            if not row["needs_gpu"] or device == "cuda":
                row["judge"].update(judged(session, row), ran=True)
                print(f"{row['name']}: {row['judge']}", file=sys.stderr)


def judged(session: Session, row: dict[str, Any]) -> dict[str, Any]:
    """Return the verifier's verdict; an attack that passes and gains nothing counts as caught."""
    source = reference_source(row["reference"])
    workload = Workload(
        name="default",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
        mode=settings_of(source).get("MODE", "infer"),
    )
    problem = Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))
    program = TextProgram(source=row["source"], entry="ModelNew")
    candidate = Candidate(problem_id=problem.id, program=program, proposer="benchmark")
    for _ in range(8):
        evaluation = session.evaluate(problem, candidate)
        if [f.rule for f in evaluation.verdict.findings[:1]] != ["timing.noisy"]:
            break
    gains = [speedups.speedup(measurement) for measurement in evaluation.measurements]
    low = max((gain.low for gain in gains if gain), default=None)
    passed = evaluation.verdict.status == "passed"
    rules = [finding.rule for finding in evaluation.verdict.findings]
    first = [evaluation.verdict.status, rules[0] if rules and not passed else None]
    return {
        "as_expected": first in row["judge"].get("expected", [["passed", None]]),
        "refused": not passed or (row["attack"] and low is not None and low <= NO_GAIN),
        "status": evaluation.verdict.status,
        "rules": rules,
        "speedup_low": low,
    }


def count(rows: Iterable[dict[str, Any]], tool: str) -> dict[str, int]:
    """Count the files that a tool checked, refused and marked."""
    said = [row[tool] for row in rows if row[tool]["refused"] is not None]
    found = {"asked": len(said), "refused": sum(s["refused"] for s in said)}
    for more in ("flagged", "refused_as_cuda", "refused_at_1e-2"):
        if said and more in said[0]:
            found[more] = sum(s[more] for s in said)
    return found


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count attacks, honest programs and every family."""
    run = [row for row in rows if row["kernelbench_eval"]["refused"] is not None]
    groups = {
        "attacks": [row for row in rows if row["attack"]],
        "attacks that are errors": [r for r in rows if r["attack"] and not r["no_error"]],
        "attacks that were run": [row for row in run if row["attack"]],
        "run attacks that are errors": [r for r in run if r["attack"] and not r["no_error"]],
        "honest": [row for row in rows if not row["attack"]],
        "honest that were run": [row for row in run if not row["attack"]],
    }
    for family in sorted({row["family"] for row in rows if row["attack"]}):
        groups[f"family: {family}"] = [row for row in rows if row["family"] == family]
    return {
        name: {"files": len(group), **{tool: count(group, tool) for tool in TOOLS}}
        for name, group in groups.items()
    }


def cell(found: dict[str, int]) -> str:
    """Format `refused of asked`, and in brackets what is only shown."""
    more = f" ({found['flagged']})" if "flagged" in found else ""
    return f"{found['refused']} of {found['asked']}{more}" if found["asked"] else "–"


def table(found: dict[str, Any]) -> str:
    """Render the totals as Markdown."""
    lines = ["| | files | " + " | ".join(TITLES) + " |", "|---" * (len(TITLES) + 2) + "|"]
    for name, group in found.items():
        cells = " | ".join(cell(group[tool]) for tool in TOOLS)
        lines.append(f"| {name.removeprefix('family: ')} | {group['files']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernelbench", type=Path, help="the git directory of a clone")
    parser.add_argument("kernelguard", type=Path, help="the git directory of a clone")
    parser.add_argument("--only", default="*", help="names of files, with * and ?")
    parser.add_argument("--judge", action="store_true", help="run the judge too")
    parser.add_argument("--device", default="cpu", help="of the judge: cpu, cuda")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    rows = rows_of("attacks", options.only) + rows_of("honest", options.only)
    sources = [row["source"] for row in rows]
    asked = {
        "kernelbench_static": (options.kernelbench, KERNELBENCH, ASK_KERNELBENCH),
        "kernelguard": (options.kernelguard, KERNELGUARD, ASK_KERNELGUARD),
    }
    commits = {}
    for tool, question in asked.items():
        commits[tool], answers = said_by(*question, sources)
        for row, answer in zip(rows, answers, strict=True):
            row[tool] = answer
    for row in rows:
        row["screen"] = screened(row)
    unfit = evaluate_all(rows)
    if options.judge:
        judge_all(rows, options.device)
    found = totals(rows)
    result = {
        **provenance(),
        "command": "python experiments/who_catches_what.py KernelBench/.git kernelguard/.git",
        "torch": importlib.metadata.version("torch"),
        "checkers": commits,
        "namespaces": bool(containment()),
        "judge_ran": options.judge,
        "references_refused_by_kernelbench_eval": unfit,
        "totals": found,
        "rows": [{k: v for k, v in row.items() if k != "source"} for row in rows],
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
