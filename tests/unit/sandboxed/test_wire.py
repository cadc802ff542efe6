"""What crosses the process wall: every message arrives as it was sent, and what is none is refused
with the name of its field."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import math
import random
import subprocess
import sys
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from cudal1_ci import records
from cudal1_ci.sandboxed import wire
from cudal1_ci.sandboxed.forkserver.handles import RunnerFailure, RunnerHandle
from cudal1_ci.sandboxed.wire import (
    arguments,
    builder,
    programs,
    runner,
    template,
    verdicts,
    verifier,
)
from cudal1_ci.sandboxed.wire.codec import (
    Asks,
    AtMost,
    Form,
    ProtocolError,
    Within,
    answers_or,
    answers_to,
    converted,
    decode,
    encode,
)
from cudal1_ci.sandboxed.wire.recording import Recording
from cudal1_ci.verification.crossing import FORMS, on_wire, record
from tests.fakes import a_workload
from tests.unit.sandboxed.messages import called, recording

ROLES = (builder, runner, template, verifier)
ROOT = Path(wire.__file__).parents[2]


def example(kind: Any, rng: random.Random, depth: int = 4) -> Any:
    """Some value of a type that a field may have."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        for bound in of[1:]:
            if isinstance(bound, Within):
                whole = rng.randint(math.ceil(bound.low), min(math.floor(bound.high), 9))
                return float(whole) if of[0] is float else whole
            assert isinstance(bound, AtMost)
        return example(of[0], rng, depth)
    if origin is Literal:
        return rng.choice(of)
    if origin is tuple and of[-1] is ...:
        return tuple(
            example(of[0], rng, depth - 1) for _ in range(rng.randint(0, 2) if depth else 0)
        )
    if origin is tuple:
        return tuple(example(one, rng, depth - 1) for one in of)
    if origin is dict:
        return {word: example(of[1], rng, depth - 1) for word in ("a", "b")[: depth and 2]}
    if of:  # a union
        flat = [one for one in of if depth > 0 or not dataclasses.is_dataclass(one)] or [of[0]]
        return example(rng.choice(flat), rng, depth - 1)
    if dataclasses.is_dataclass(kind):
        return an_example(kind, rng, depth)
    plain = {bool: True, int: rng.randint(0, 9), float: 0.5, str: "word", type(None): None}
    return plain[kind]


def an_example(kind: type, rng: random.Random, depth: int = 4) -> Any:
    """Some message of a class."""
    if kind is runner.Called:
        return called()
    if kind is Recording:
        return recording()
    hints = typing.get_type_hints(kind, include_extras=True)
    found = {one.name: example(hints[one.name], rng, depth) for one in dataclasses.fields(kind)}
    if "stride" in found and "dtype" in found:
        shape = found["shape"]
        found |= {name: shape for name in ("stride", "own_stride") if name in found}
    if kind is runner.MadeCall:
        found["structure"] = found["masks"] = tuple(range(len(found["slots"])))
    if kind in (runner.Remains, runner.Tried):
        found["names"] = tuple(f"name {i}" for i in range(len(found["slots"])))
    return kind(**found)


def requests() -> list[type]:
    """Every request of every role."""
    return [kind for role in ROLES for kind in typing.get_args(role.Request)]


def answers(kind: type) -> tuple[type, ...]:
    """What may answer a request."""
    form = answers_or(object.__new__(kind))
    return typing.get_args(form.of) or (form.of,)


def test_every_request_of_a_role_is_in_its_union():
    for role in ROLES:
        own = {
            one
            for one in vars(role).values()
            if isinstance(one, type) and issubclass(one, Asks) and one.__module__ == role.__name__
        }
        assert own - {verifier.InTurn} <= set(typing.get_args(role.Request))
        ops = [one.op for one in typing.get_args(role.Request)]
        assert len(set(ops)) == len(ops)


@pytest.mark.parametrize(
    "kind", requests(), ids=lambda kind: f"{kind.__module__[27:]}.{kind.__name__}"
)
def test_a_request_and_its_answers_arrive_as_they_were_sent(kind):
    rng = random.Random(kind.__name__)
    role = sys.modules[kind.__module__]
    for _ in range(20):
        sent = an_example(kind, rng)
        assert decode(role.REQUEST, encode(sent)) == sent
        for answer in answers(kind):
            said = an_example(answer, rng)
            assert decode(answers_to(sent), encode(said)) == said


@pytest.mark.parametrize("kind", [template.Ready, verifier.Waits, runner.Raised])
def test_what_answers_no_request_of_its_own_arrives_too(kind):
    sent = an_example(kind, random.Random(1))
    assert decode(Form(kind), encode(sent)) == sent


def of_batch(said: Any) -> Any:
    return converted(answers_or(runner.Batch(seed=1), runner.Raised), said)


CLAIM = {"claim_us": 12.5, "issue_us": 11.0, "cold_us": 1.0, "num_threads": 1}
SLOT = {"dtype": "float32", "shape": [2, 3], "stride": [3, 1], "offset": 0}
PLACED = {**SLOT, "device": "cpu", "own_stride": [3, 1]}
CALL = json.loads(encode(called()))
FLAGS = json.loads(encode(an_example(runner.Settings, random.Random(0))))
DEMAND = {"num_bytes": 12, "product_flops": 0, "convolution_flops": 4, "dtype": "float32"}
RECORDED = json.loads(encode(recording()))
PARAMETER = {
    "name": "p",
    "kind": "plain",
    "value": 2.0,
    "is_given": True,
    "has_default": False,
    "holds_value": True,
}
TRIED = {
    "facts": [["structure of output", "*"]],
    "names": ["output 0"],
    "slots": [PLACED],
    "used_rng": False,
    "growth": [0.5],
}
ROW = {"name": "relu(float*)", "num_calls": 2, "time_us": 1.5}
LEFT = {
    "aliases": [0],
    "patched": ["torch.relu"],
    "overlapping": [1],
    "lazy": [2],
    "in_state": [],
    "forms": ["* Tensor float32"],
    "process": [["os.umask", "022", "000"]],
}
COST = {
    "host_us": 12.0,
    "device_us": None,
    "num_launches": 1,
    "peak_bytes": 64,
    "energy_j": None,
    "names": ["aten::add"],
    "events": [],
    "is_cut": False,
}
GOOD = {
    runner.Fill: {
        "state": [],
        "imported": [],
        "inexact": [],
        "is_lazy": True,
        "changes_environment": False,
    },
    runner.Load: {
        "state": [{**SLOT, "key": "fc.weight", "is_parameter": True}],
        "imported": ["numpy"],
        "inexact": ["`_buffers` of the module is a Table"],
        "is_lazy": False,
        "changes_environment": True,
    },
    runner.ListImported: {"names": ["numpy"]},
    runner.MakeCalls: {
        "calls": [{"data": "gASV", "slots": [SLOT], "structure": [0], "masks": [0]}],
        "imported": ["einops"],
    },
    runner.CallSets: {"calls": [CALL], "flags": FLAGS},
    runner.Batch: CLAIM,
    runner.Exchange: {**CLAIM, "claim_us": 0},
    runner.Aftermath: {"names": ["the state `x`"], "slots": [SLOT]},
    runner.AskLeft: LEFT,
    runner.AskKept: {"names": ["output 0"], "slots": [SLOT]},
    runner.AskCached: {"num_bytes": 0},
    runner.Profile: {"rows": [ROW]},
    runner.CountDemand: {"demand": DEMAND},
    runner.RecordCall: {"recording": RECORDED},
    runner.PriceCall: {"cost": COST},
    runner.Spin: {"num_calls": 3},
    runner.Reach: {"names": ["input 0", "fc.weight"]},
    runner.Survey: {
        "arguments": [PARAMETER],
        "init": [],
        "tensors": ["x"],
        "submodules": [{"name": "fc", "kind": "Linear", "num_rows": 0}],
        "attributes": [],
        "words": ["mean"],
        "is_module": True,
        "is_class": True,
        "mentions_hooks": False,
        "replaces_submodules": False,
        "mentions_graphs": False,
        "mentions_checks": False,
    },
    runner.Try: TRIED,
}


def call_with(**fields: Any) -> dict[str, Any]:
    return {"calls": [CALL | fields], "flags": FLAGS}


def slot_with(**fields: Any) -> dict[str, Any]:
    return call_with(slots=[PLACED | fields])


def without(whole: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in whole.items() if key != name}


def recorded_with(field: str, **fields: Any) -> dict[str, Any]:
    """An answer with other fields in the last of its values, frames, scopes or operations."""
    *others, last = RECORDED[field]
    return {"recording": RECORDED | {field: [*others, last | fields]}}


UNKNOWN = {"kind": "value", "value": 3, "text": None, "items": []}
NESTED = {**UNKNOWN, "kind": "tuple", "value": None, "items": [UNKNOWN]}
LAUNCH = RECORDED["operations"][0]["launch"]
BAD = [
    (runner.RecordCall, recorded_with("frames", caller=1), "recording"),
    (runner.RecordCall, recorded_with("frames", file="/etc/passwd"), "recording.frames[1]"),
    (runner.RecordCall, recorded_with("frames", file="a/../../b.py"), "recording.frames[1]"),
    (runner.RecordCall, recorded_with("operations", frame=2), "recording"),
    (runner.RecordCall, recorded_with("operations", scope=1), "recording"),
    (runner.RecordCall, recorded_with("operations", outputs=[3]), "recording"),
    (runner.RecordCall, recorded_with("operations", args=[NESTED]), "recording"),
    (
        runner.RecordCall,
        recorded_with("operations", kwargs=[{"name": "k", "argument": NESTED}]),
        "recording",
    ),
    (
        runner.RecordCall,
        recorded_with("scopes", locals=[{"name": "x", "argument": NESTED}]),
        "recording",
    ),
    *(
        (runner.RecordCall, recorded_with("operations", launch=LAUNCH | fields), where)
        for fields, where in (
            ({"writes": ["y"]}, "recording.operations[0]"),
            ({"reads": ["y"]}, "recording.operations[0]"),
            ({"writes": ["dim", "dim"]}, "recording.operations[0]"),
            ({"grid": [1, 1, 1, 1]}, "recording.operations[0].launch.grid"),
            ({"grid": [-1]}, "recording.operations[0].launch.grid[0]"),
            ({"file": "../b.py"}, "recording.operations[0].launch"),
            ({"language": "perl"}, "recording.operations[0].launch.language"),
            ({"constants": [{"name": "k", "argument": NESTED}]}, "recording"),
        )
    ),
    (runner.RecordCall, {"recording": RECORDED | {"outputs": [3]}}, "recording"),
    (runner.RecordCall, {"recording": RECORDED | {"total_us": -1.0}}, "recording.total_us"),
    (runner.RecordCall, {"recording": RECORDED | {"scopes": [{"locals": []}] * 20000}}, "scopes"),
    (
        runner.RecordCall,
        recorded_with("operations", device_us=math.inf),
        "recording.operations[0].device_us",
    ),
    (
        runner.RecordCall,
        recorded_with("values", origin="elsewhere"),
        "recording.values[2].origin",
    ),
    (runner.RecordCall, recorded_with("values", shape=[-1]), "recording.values[2].shape[0]"),
    (runner.CountDemand, {"demand": {**DEMAND, "num_bytes": -1}}, "demand.num_bytes"),
    (runner.CountDemand, {"demand": {**DEMAND, "num_bytes": True}}, "demand.num_bytes"),
    (runner.CountDemand, {"demand": {**DEMAND, "product_flops": 1.5}}, "demand.product_flops"),
    (runner.CountDemand, {"demand": {**DEMAND, "convolution_flops": 2**63}}, "convolution_flops"),
    (runner.CountDemand, {"demand": {**DEMAND, "dtype": "f" * 600}}, "demand.dtype"),
    (runner.CountDemand, {"demand": {"num_bytes": 12}}, "demand.convolution_flops"),
    (
        runner.MakeCalls,
        {"calls": [{"data": "", "slots": [SLOT], "structure": [1], "masks": []}], "imported": []},
        "calls[0]",
    ),
    (runner.CallSets, {"calls": []}, "flags"),
    (runner.CallSets, {"calls": [], "flags": without(FLAGS, "trace")}, "flags.trace"),
    (runner.CallSets, {"calls": [], "flags": FLAGS | {"trace": [True]}}, "flags.trace"),
    (runner.CallSets, {"calls": [], "flags": FLAGS | {"cudnn_tf32": 1}}, "flags.cudnn_tf32"),
    (runner.CallSets, call_with(num_leaves=2), "calls[0]"),
    (runner.CallSets, call_with(num_leaves=-1), "calls[0]"),
    (runner.CallSets, call_with(types=["Tensor", "Tensor"]), "calls[0]"),
    (runner.CallSets, call_with(aliases=[[{}]]), "calls[0].aliases[0][0]"),
    (runner.CallSets, call_with(shares=[[[]]]), "calls[0].shares[0][0]"),
    (runner.CallSets, call_with(shares=[]), "calls[0]"),
    (runner.CallSets, call_with(structure="x" * 2**21), "calls[0].structure"),
    (runner.CallSets, call_with(slots=[SLOT]), "calls[0].slots[0].device"),
    (runner.CallSets, slot_with(device=0), "calls[0].slots[0].device"),
    (runner.CallSets, slot_with(shape=[2**57], stride=[0], own_stride=[0]), "calls[0].slots[0]"),
    (runner.CallSets, slot_with(shape=[-1, 3]), "calls[0].slots[0].shape[0]"),
    (runner.CallSets, slot_with(stride=[3]), "calls[0].slots[0]"),
    (runner.CallSets, slot_with(shape=[True, 3]), "calls[0].slots[0].shape[0]"),
    (runner.CallSets, slot_with(own_stride=[1]), "calls[0].slots[0]"),
    (runner.CallSets, slot_with(own_stride=[-3, 1]), "calls[0].slots[0].own_stride[0]"),
    (runner.CallSets, slot_with(own_stride=[2**57, 1]), "calls[0].slots[0]"),
    (runner.CallSets, slot_with(shape=[1] * 65, stride=[1] * 65), "calls[0].slots[0].shape"),
    (runner.Batch, {**CLAIM, "claim_us": "soon"}, "claim_us"),
    (runner.Batch, {**CLAIM, "issue_us": math.inf}, "issue_us"),
    (runner.Batch, {**CLAIM, "claim_us": math.nan}, "claim_us"),
    (runner.Batch, {**CLAIM, "claim_us": -1.0}, "claim_us"),
    (runner.Batch, {**CLAIM, "claim_us": True}, "claim_us"),
    (runner.Batch, {**CLAIM, "claim_us": 10**400}, "claim_us"),
    (runner.Batch, without(CLAIM, "issue_us"), "issue_us"),
    (runner.Batch, {**CLAIM, "more": 1}, "more"),
    (runner.Batch, {}, "claim_us"),
    (runner.Batch, [], ""),
    (
        runner.Load,
        {
            "state": [SLOT],
            "imported": [],
            "inexact": [],
            "is_lazy": False,
            "changes_environment": False,
        },
        "state[0].is_parameter",
    ),
    (runner.ListImported, {"names": "numpy"}, "names"),
    (runner.ListImported, {"names": [1]}, "names[0]"),
    (runner.Aftermath, {"names": [], "slots": [SLOT]}, ""),
    (runner.AskLeft, {**LEFT, "aliases": ["0"]}, "aliases[0]"),
    (runner.AskLeft, {**LEFT, "patched": "torch.relu"}, "patched"),
    (runner.AskLeft, {**LEFT, "process": [["os.umask", "022"]]}, "process[0]"),
    (runner.AskCached, {"num_bytes": -1}, "num_bytes"),
    (runner.Profile, {"rows": [{**ROW, "num_calls": 0}]}, "rows[0].num_calls"),
    (runner.Profile, {"rows": [{**ROW, "time_us": math.inf}]}, "rows[0].time_us"),
    (runner.Profile, {"rows": [{**ROW, "name": "r" * 600}]}, "rows[0].name"),
    (runner.Profile, {"rows": [ROW] * 257}, "rows"),
    (runner.Reach, {"names": ["x"] * 5000}, "names"),
    (runner.Try, {**TRIED, "names": []}, ""),
    (runner.Try, {**TRIED, "facts": [["alone"]]}, "facts[0]"),
    (runner.Try, {**TRIED, "growth": [math.nan]}, "growth[0]"),
    (runner.Try, {**TRIED, "growth": [0.0] * 9}, "growth"),
    (runner.Survey, {"arguments": [{**PARAMETER, "kind": "odd"}]}, "attributes"),
    (runner.Reach, {"op": "raised", "kind": 3}, "message"),
    (
        runner.Reach,
        {"op": "raised", "kind": "E", "message": "", "traceback": "", "stage": "link"},
        "stage",
    ),
]


@pytest.mark.parametrize("kind", GOOD)
def test_an_answer_of_a_runner_is_taken(kind):
    assert converted(answers_or(object.__new__(kind), runner.Raised), GOOD[kind])


def test_every_answer_that_says_something_has_a_good_one_here():
    silent = {kind for kind in typing.get_args(runner.Request) if answers(kind) == (runner.Done,)}
    assert set(GOOD) | silent == set(typing.get_args(runner.Request))


@pytest.mark.parametrize(("kind", "said", "field"), BAD)
def test_what_is_no_answer_is_refused_with_the_name_of_its_field(kind, said, field):
    with pytest.raises(ProtocolError) as refused:
        converted(answers_or(object.__new__(kind), runner.Raised), said)
    assert refused.value.field.endswith(field) if field else refused.value.field == ""
    assert len(str(refused.value)) < 600


def test_a_refusal_names_message_field_what_was_expected_and_what_came():
    with pytest.raises(ProtocolError) as refused:
        of_batch({**CLAIM, "num_threads": "two"})
    assert str(refused.value) == "Claim.num_threads: expected int, got 'two'"
    with pytest.raises(ProtocolError, match="'launch'") as refused:
        decode(verifier.REQUEST, b'{"op": "launch", "workload": "w"}')
    assert refused.value.field == "op" and "'repeat'" in refused.value.expected
    with pytest.raises(ProtocolError, match="expected 'infer' or 'train', got 'both'"):
        workload = programs.Workload(name="w", call=arguments.Made(function="f"))
        said = json.loads(encode(workload)) | {"mode": "both"}
        converted(Form(programs.Workload), said)


@pytest.mark.parametrize("body", [b"", b"\xff", b"[" * 10**5, b"1" * 10**4, b'{"op": "batch"'])
def test_what_is_no_json_is_refused(body):
    with pytest.raises(ProtocolError):
        decode(runner.REQUEST, body)


def test_arguments_that_are_nested_without_end_are_refused():
    said: Any = {"type": "constant", "value": 1}
    for _ in range(400):
        said = {"type": "items", "items": [said], "container": "list"}
    with pytest.raises(ProtocolError, match="nesting"):
        converted(Form(arguments.Argument), said)


def test_whatever_is_changed_in_an_answer_raises_nothing_else():
    rng = random.Random(0)
    junk = [None, -1, 2**70, 1.5, "x", [], {}, True, float("inf"), [[]], {"shape": 3}]
    for _ in range(3000):
        kind = rng.choice(list(GOOD))
        said = copy.deepcopy(GOOD[kind])
        here = said
        while True:
            key = rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
            if not isinstance(here[key], dict | list) or not here[key] or rng.random() < 0.3:
                break
            here = here[key]
        here[key] = rng.choice(junk)
        try:
            found = converted(answers_or(object.__new__(kind), runner.Raised), said)
        except ProtocolError:
            continue
        assert encode(found)


@pytest.mark.parametrize("dtype", ["Tensor", "float33", "nn", ""])
def test_a_name_that_torch_has_for_no_dtype_is_refused_where_torch_is(monkeypatch, dtype):
    handle, ended = object.__new__(RunnerHandle), []
    handle.is_trusted = False
    monkeypatch.setattr(handle, "end", lambda: ended.append(True), raising=False)
    monkeypatch.setattr(handle, "log", lambda: "", raising=False)
    said = json.dumps(slot_with(dtype=dtype)).encode()
    with pytest.raises(RunnerFailure, match="its answer to `call` is none") as failure:
        handle.read(runner.CallSets(sets=(0,), seeds=(0,)), said)
    assert failure.value.kind == "malformed" and ended


def test_a_class_that_cannot_be_sent_or_told_from_another_is_an_error_of_the_tool():
    @dataclasses.dataclass(frozen=True)
    class One:
        number: int

    @dataclasses.dataclass(frozen=True)
    class Other:
        number: int

    with pytest.raises(TypeError, match="cannot be sent"):
        encode(One(number=object()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="nothing tells"):
        Form(One | Other)
    with pytest.raises(TypeError, match="cannot be received"):
        Form(list[int])


# --- records -----------------------------------------------------------------------------------


def test_what_stands_for_a_record_has_its_fields():
    for kind, form in FORMS.items():
        fields = set(kind.__struct_fields__)
        assert {one.name for one in dataclasses.fields(form)} <= fields, kind
        tag = kind.__struct_config__.tag
        assert tag is None or form.type == tag
    for kind, form in (
        (records.Finding, verdicts.Finding),
        (records.Verdict, verdicts.Verdict),
        (records.Demand, verdicts.Demand),
    ):
        assert {one.name for one in dataclasses.fields(form)} == set(kind.__struct_fields__)
    assert typing.get_args(verdicts.Status) == typing.get_args(records.Status)


def test_a_problem_crosses_the_wall_and_a_verdict_comes_back():
    file = records.OverlayFile(path="m.py", text="x", base_digest="d")
    tree = records.TreeProgram(
        root="/r", import_root=".", import_path="m:f", digest="d", overlay=(file,)
    )
    workload = msgspec.structs.replace(
        a_workload(),
        init=records.Made(function="get_init_inputs"),
        call=records.Call(
            args=(
                records.Items(
                    items=(records.TensorSpec(shape=(2,), dtype="float32"),), container="tuple"
                ),
                records.Mapping(
                    items=((records.Constant(value="a"), records.Symbol(path="torch:float16")),)
                ),
            ),
            kwargs={"n": records.Instance(factory="builtins:slice", args=(records.Constant(),))},
        ),
    )
    problem = records.Problem(reference=tree, workloads=(workload,))
    sent = on_wire(problem)
    assert decode(Form(programs.Problem), encode(sent)) == sent
    assert sent.reference.overlay[0].base_digest == "d"
    assert sent.workloads[0].call.kwargs["n"].factory == "builtins:slice"
    finding = verdicts.Finding(rule="r", message="m", line=3)
    verdict = verdicts.Verdict(status="reward_hack", findings=(finding,), max_abs_error=1.5)
    expected = records.Verdict(
        status="reward_hack",
        findings=(records.Finding(rule="r", message="m", line=3),),
        max_abs_error=1.5,
    )
    assert record(verdict, records.Verdict) == expected


# --- the rooms ---------------------------------------------------------------------------------


def test_the_host_loads_what_crosses_the_wall_without_torch():
    text = (
        "import sys; before = set(sys.modules)\n"
        "from cudal1_ci.sandboxed.wire import builder, channel, runner, template, verifier\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names - {'cudal1_ci'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


HANDLERS = ("ask", "send", "answer", "receive", "exchange", "repeat", "check", "examine")


@pytest.mark.parametrize("room", ["sandboxed", "verification", "processes"])
def test_no_dict_of_anything_crosses_the_wall(room):
    """Neither what asks nor what answers takes or returns a bare dict."""
    seen = 0
    for path in (ROOT / room).rglob("*.py"):
        if "tracer" in path.parts or path.name == "codec.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            given = [node.returns, *(one.annotation for one in node.args.args)]
            words = [ast.unparse(one) for one in given if one is not None]
            is_handler = node.name.strip("_") in HANDLERS
            seen += is_handler
            if is_handler or any("Channel" in word or "Asks" in word for word in words):
                assert not any("dict[str, Any]" in word for word in words), (path, node.name)
    assert seen
