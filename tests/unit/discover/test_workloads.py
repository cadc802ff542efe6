"""How a target is called: what people declare, what was traced, what can be guessed."""

from __future__ import annotations

import re
import textwrap

import pytest

from cudal1_ci.discover.declared import declarations, unmatched
from cudal1_ci.discover.ladder import Evidence, NoWorkload, read, workloads_of
from cudal1_ci.discover.traces import TracedCall, Traces
from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Call, Constant, Made, Target, TensorSpec

TENSOR = TensorSpec(shape=(2, 4), dtype="float32")


def target(qualname="Block", path="pkg/model.py", kind="torch_module"):
    return Target(path=path, qualname=qualname, kind=kind, first_line=1, last_line=9)


def table(**fields):
    return {"target": "pkg/model.py:Block", "inputs": ["float32[2, 4]"], **fields}


def declared(**fields):
    return declarations([table(**fields)], "pyproject.toml")[0]


def traced(*calls, qualname="Block"):
    return Traces({f"pkg/model.py:{qualname}": tuple(calls)}, total_s=10.0)


def found_in(tmp_path, source, evidence=None, sidecar=None, qualname="Block", kind="torch_module"):
    folder = tmp_path / "pkg"
    folder.mkdir(exist_ok=True)
    text = textwrap.dedent(source)
    (folder / "model.py").write_text(text)
    read.cache_clear()
    if sidecar is not None:
        (folder / "model_workloads.py").write_text(textwrap.dedent(sidecar))
    first = 1 + next(i for i, line in enumerate(text.splitlines()) if f"class {qualname}" in line)
    found = Target(
        path="pkg/model.py",
        qualname=qualname,
        kind=kind,
        first_line=first,
        last_line=len(text.splitlines()),
    )
    return workloads_of(tmp_path, found, evidence or Evidence())


BLOCK = """
class Block(nn.Module):
    def forward(self, x): return x
"""


def test_a_table_says_constructor_call_and_mode():
    workload = declared(init=[8, "dim=256"], mode="train", atol=1, rtol=0.5).workload
    assert workload.init == Call(args=(Constant(value=8),), kwargs={"dim": Constant(value=256)})
    assert workload.call == Call(args=(TENSOR,))
    assert (workload.mode, workload.atol, workload.rtol) == ("train", 1.0, 0.5)
    assert workload.name == "2x4" and workload.dtype is None
    assert declared(dtype="bfloat16").workload.dtype == "bfloat16"
    assert workload.autocast is None
    assert declared(autocast="bfloat16").workload.autocast == "bfloat16"
    assert workload.source == "pyproject.toml:tool.cudal1-ci.workload[0]"


@pytest.mark.parametrize(
    ("pattern", "path", "qualname", "matches"),
    [
        ("pkg/model.py:Block", "pkg/model.py", "Block", True),
        ("pkg.model:Block", "src/pkg/model.py", "Block", True),
        ("pkg/*.py:*Block", "pkg/model.py", "MyBlock", True),
        ("pkg:Block", "pkg/__init__.py", "Block", True),
        ("pkg/model.py:Block", "pkg/other.py", "Block", False),
        ("pkg/model.py:Block", "pkg/model.py", "Block.Inner", False),
    ],
)
def test_a_pattern_is_a_path_or_a_module_and_a_name(pattern, path, qualname, matches):
    assert declared(target=pattern).matches(target(qualname, path)) is matches


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"inptus": []}, "unknown key `inptus`; did you mean `inputs`? known keys: target, "),
        ({"target": "Block"}, 'expected "path/to/file.py:Name"'),
        ({"target": 3}, "workload[0].target: expected"),
        ({"inputs": "float32[2]"}, "expected a list with one string"),
        ({"inputs": [{}]}, "inputs[0]: expected a string"),
        ({"inputs": ["float23[2]"]}, "inputs[0]: expected a dtype (did you mean float32?)"),
        ({"inputs": ["a=1", "2"]}, "inputs[1]: expected `name=...`"),
        ({"inputs": ["a=1", "a=2"]}, "inputs[1]: `a` was given before"),
        ({"mode": "fast"}, 'expected "infer" or "train"'),
        ({"dtype": "float8"}, "dtype: expected one of float16, bfloat16, float64, got 'float8'"),
        ({"dtype": 16}, "dtype: expected one of float16"),
        (
            {"autocast": "bf16"},
            "autocast: expected one of float16, bfloat16, got 'bf16'; leave the key out",
        ),
        ({"autocast": True}, "autocast: expected one of float16, bfloat16, got True"),
        ({"atol": -1}, "atol: expected a number of 0 or more"),
        ({"atol": True}, "atol: expected a number"),
        ({"name": ""}, "name: expected text"),
    ],
)
def test_a_wrong_table_names_file_table_key_and_mend(fields, said):
    with pytest.raises(ConfigError) as caught:
        declared(**fields)
    assert str(caught.value).startswith("pyproject.toml: tool.cudal1-ci.workload[0]")
    assert said in str(caught.value)


def test_a_table_for_no_target_is_noticed_with_the_nearest_name():
    (notice,) = unmatched([declared(target="pkg/model.py:Blok")], [target()])
    assert "did you mean `pkg/model.py:Block`?" in notice.message


def test_functions_make_arguments_for_the_class_that_their_names_say(tmp_path):
    source = (
        BLOCK
        + BLOCK.replace("Block", "Model")
        + textwrap.dedent("""
        def get_inputs(): ...
        def get_init_inputs(): ...
        def get_inputs_long(): ...
        def get_inputs_Block_wide(): ...
        def get_init_inputs_Block_wide(): ...
        """)
    )
    main = found_in(tmp_path, source, qualname="Model")
    assert [w.name for w in main] == ["get_inputs", "long"]
    assert main[0].call == Made(function="get_inputs", path="pkg/model.py")
    assert main[0].init == Made(function="get_init_inputs", path="pkg/model.py")
    (wide,) = found_in(tmp_path, source)
    assert (wide.name, wide.provenance) == ("wide", "declared")
    assert wide.init == Made(function="get_init_inputs_Block_wide", path="pkg/model.py")


def test_functions_may_stand_beside_the_file(tmp_path):
    (workload,) = found_in(tmp_path, BLOCK, sidecar="def get_inputs(): ...")
    assert workload.call == Made(function="get_inputs", path="pkg/model_workloads.py")


def test_a_function_with_parameters_is_none_of_these_but_beside_the_file_it_is_a_mistake(tmp_path):
    source = BLOCK + "def get_inputs(batch): ...\ndef get_inputs_devices(inputs): ...\n"
    assert isinstance(found_in(tmp_path, source), NoWorkload)
    with pytest.raises(ConfigError, match="expected a function without parameters, got `batch`"):
        found_in(tmp_path, BLOCK, sidecar="def get_inputs(batch): ...")


@pytest.mark.parametrize(
    "mark",
    [
        '# cudal1: workload(init=["dim=8"], inputs=["float32[2, 4]"], name="small")',
        'from cudal1_ci import workload\n@workload(init=["dim=8"], inputs=["float32[2, 4]"], '
        'name="small")',
        'import cudal1_ci as c\n@c.workload(init=["dim=8"], inputs=["float32[2, 4]"], '
        'name="small")',
    ],
)
def test_a_decorator_and_a_comment_say_the_same(tmp_path, mark):
    (workload,) = found_in(tmp_path, mark + BLOCK)
    assert workload.name == "small"
    assert workload.init == Call(kwargs={"dim": Constant(value=8)})
    assert workload.call == Call(args=(TENSOR,))


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ('# cudal1: workload(inputs=["float23[2]"])', "did you mean float32?"),
        ('# cudal1: workload(shapes=["float32[2]"])', "unknown argument `shapes`"),
        ("# cudal1: workload(inputs=[SHAPE])", "expected a literal"),
        (
            '# cudal1: workload(inputs=["float32[2]"], autocast="fp8")',
            "workload autocast: expected one of float16, bfloat16, got 'fp8'",
        ),
    ],
)
def test_a_wrong_mark_names_file_and_line(tmp_path, mark, said):
    with pytest.raises(ConfigError) as caught:
        found_in(tmp_path, mark + BLOCK)
    assert "pkg/model.py:1" in str(caught.value)
    assert said in str(caught.value)


def test_declared_beats_benchmarked_beats_traced(tmp_path):
    plain = TracedCall(target="t", init=Call(), call=Call(args=(TENSOR,)), num_calls=3, total_s=2.0)
    benchmark = TracedCall(
        target="t", init=Call(), call=Call(), num_calls=1, total_s=1.0, provenance="benchmark"
    )
    evidence = Evidence(traces=traced(plain))
    (workload,) = found_in(tmp_path, BLOCK, evidence)
    assert (workload.provenance, workload.share, workload.num_calls) == ("traced", 0.2, 3)
    assert workload.traced_us == pytest.approx(2e6 / 3)
    evidence = Evidence(traces=traced(plain, benchmark))
    assert [w.provenance for w in found_in(tmp_path, BLOCK, evidence)] == ["benchmark"]
    evidence = Evidence(declared=(declared(),), traces=traced(plain, benchmark))
    assert [w.provenance for w in found_in(tmp_path, BLOCK, evidence)] == ["declared"]


def test_calls_that_differ_in_more_than_their_first_shape_have_names_of_their_own(tmp_path):
    calls = [
        TracedCall(target="t", init=Call(), call=call, num_calls=1, total_s=1.0)
        for call in (
            Call(args=(TENSOR,)),
            Call(args=(TENSOR, Constant(value=1))),
            Call(args=(TensorSpec(shape=(9,), dtype="int64"),)),
        )
    ]
    found = found_in(tmp_path, BLOCK, Evidence(traces=traced(*calls)))
    assert [workload.name for workload in found] == ["2x4", "2x4 #2", "9-int64"]


def test_a_target_without_calls_says_what_its_defaults_came_to(tmp_path):
    (tmp_path / "model.py").write_text("class Model(nn.Module):\n    def forward(self, x): ...\n")
    target = Target(
        path="model.py", qualname="Model", kind="torch_module", first_line=1, last_line=2
    )
    failed = {"model.py:1": "needs a download (ConnectionError: of a host)", "model.py:9": "other"}
    evidence = Evidence(traces=Traces(failed_defaults=failed))
    found = workloads_of(tmp_path, target, evidence)
    assert isinstance(found, NoWorkload)
    assert found.reason == ("no workload: no known call; tried with its defaults: needs a download")


def test_calls_that_could_not_be_recorded_say_why(tmp_path):
    call = TracedCall(target="t", reason="argument 0 is an object", num_calls=1, total_s=1.0)
    found = found_in(tmp_path, BLOCK, Evidence(traces=traced(call)))
    assert isinstance(found, NoWorkload)
    assert "argument 0 is an object" in found.reason


def test_without_any_evidence_the_mend_is_named(tmp_path):
    found = found_in(tmp_path, BLOCK)
    assert isinstance(found, NoWorkload)
    assert "cudal1-ci trace" in found.hint


GUESSABLE = """
class Block(nn.Module):
    def __init__(self, dim=16, *, bias=True):
        super().__init__()
        self.first = {layer}

    def forward(self, x, mask=None):
        return self.first(x)
"""


@pytest.mark.parametrize(
    ("layer", "spec"),
    [
        ("nn.Linear(dim, 4)", TensorSpec(shape=(8, 128, 16), dtype="float32")),
        (
            "nn.Linear(in_features=12, out_features=4)",
            TensorSpec(shape=(8, 128, 12), dtype="float32"),
        ),
        ("nn.Conv2d(3, dim, 3)", TensorSpec(shape=(8, 3, 64, 64), dtype="float32")),
        ("nn.Embedding(99, dim)", TensorSpec(shape=(8, 128), dtype="int64", low=0, high=98)),
    ],
)
def test_a_guess_follows_the_first_layer_and_is_labeled(tmp_path, layer, spec):
    (workload,) = found_in(tmp_path, GUESSABLE.format(layer=layer))
    assert workload.provenance == "synthetic"
    assert workload.call == Call(args=(spec,))
    assert workload.init == Call()
    assert workload.source == "pkg/model.py:3"


@pytest.mark.parametrize(
    "source",
    [
        GUESSABLE.format(layer="nn.Linear(dim * 2, 4)"),
        GUESSABLE.format(layer="Own(dim)"),
        GUESSABLE.format(layer="nn.Linear(dim, 4)").replace("dim=16", "dim"),
        GUESSABLE.format(layer="nn.Linear(dim, 4)").replace("mask=None", "mask"),
        GUESSABLE.format(layer="nn.Linear(dim, 4)").replace("self.first(x)", "self.first(x + 1)"),
    ],
)
def test_where_a_guess_would_be_more_than_one_there_is_none(tmp_path, source):
    assert isinstance(found_in(tmp_path, source), NoWorkload)


@pytest.mark.parametrize(
    ("modes", "wanted"),
    [
        (["infer"] * 4 + ["train"] * 2, [0, 1, 4]),
        (["train"] * 5 + ["infer"], [0, 1, 5]),
        (["infer", "train", "infer", "infer"], [0, 1, 2]),
        (["infer"] * 4, [0, 1, 2]),
        (["infer", "infer", "train"], [0, 1, 2]),
    ],
)
def test_training_is_judged_too_where_it_took_less_time(tmp_path, modes, wanted):
    calls = [
        TracedCall(
            target="t",
            init=Call(),
            call=Call(args=(TensorSpec(shape=(place + 1,), dtype="float32"),)),
            mode=mode,
            num_calls=1,
            total_s=10.0 - place,
        )
        for place, mode in enumerate(modes)
    ]
    found = found_in(tmp_path, BLOCK, Evidence(traces=traced(*calls)))
    assert [workload.name for workload in found] == [f"{place + 1}" for place in wanted]
    assert [workload.mode for workload in found] == [modes[place] for place in wanted]


def test_a_table_is_named_as_its_own_file_names_it():
    file = ".github/cudal1-ci.toml"
    (declared,) = declarations([table()], file)
    assert declared.where == f"{file}: workload[0]"
    assert declared.workload.source == f"{file}:workload[0]"
    with pytest.raises(ConfigError, match=re.escape(f"{file}: workload[0].target: expected")):
        declarations([table(target="nowhere")], file)
