"""The project's own commands as hostile as can be: none reaches past its folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudal1_ci.processes.enclosed import CommandsConfig, Enclosure, enclosed, run_to_end
from tests.hostile.commands import ATTACKS, DANGEROUS
from tests.hostile.machine import SECRET, Machine, confined, free, machine, state


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("kept")) as found:
        yield found


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_command_achieves_nothing(kept, name):
    assert achieved(kept, ATTACKS[name]) == []


@pytest.mark.parametrize("name", DANGEROUS)
def test_a_dangerous_command_achieves_nothing(kept, name):
    """Without a PID namespace `kill -9 -1` would end all that this user runs: the tests too."""
    place = Enclosure(copied=(str(kept.checkout),))
    with enclosed(("true",), kept.checkout, place, os.environ) as process:
        assert not {"pid_namespace", "private_root"} & process.refused.keys()
    assert achieved(kept, DANGEROUS[name]) == []


def achieved(kept: Machine, script: str) -> list[str]:
    """Run a script as a command of the project, and return the damage."""
    kept.heard.clear()
    before = state(kept.top)
    return kept.damage(before, confined(kept, script))


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_command_achieves_something_where_nothing_confines_it(tmp_path, name):
    with machine(tmp_path) as exposed:
        before = state(exposed.top)
        said = free(exposed, ATTACKS[name])
        damage = exposed.damage(before, said, 0)
        exposed.repaired()
    assert damage, said


def test_what_a_suite_needs_still_works(kept):
    said = confined(
        kept,
        """
        echo new > pkg/new && cat pkg/new && mkdir -p deep/er && echo x=9 >> pkg/model.py
        cat pkg/model.py; echo $HOME | grep -v $USERHOME; touch $HOME/file /tmp/file && ls /tmp
        "$PYTHON" -c "
import multiprocessing, socket, tempfile, threading
one = socket.create_server(('127.0.0.1', 0))
two = socket.create_connection(one.getsockname()); two.close()
with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(abs, [-5]))
tempfile.TemporaryFile().write(b'x'); print('all', 'fine')"
        """,
    )
    for words in ("new", "x=9", "file", "[5]", "all fine"):
        assert words in said, said
    assert not (kept.checkout / "deep").exists()


@pytest.mark.parametrize("name", ["token_of_the_checkout", "base_is_slowed", "netrc", "archive"])
def test_without_namespaces_landlock_still_keeps_files(kept, tmp_path, name):
    """A command may make no namespace, so one that confines another is on such a machine."""
    script = tmp_path / "nested.py"
    script.write_text(
        "import sys, os\n"
        f"sys.path[:0] = {[str(Path(__file__).parents[2])]!r}\n"
        "from pathlib import Path\n"
        "from cudal1_ci.processes.enclosed import Enclosure, enclosed\n"
        f"place = Enclosure(pythons=(sys.executable,), copied=({str(kept.checkout)!r},))\n"
        f"command = ('/bin/sh', '-c', {ATTACKS[name]!r})\n"
        f"with enclosed(command, Path({str(kept.checkout)!r}), place, os.environ) as one:\n"
        "    assert 'private_root' in one.refused and 'landlock' not in one.refused\n"
        "    one.process.wait(20)\n"
    )
    enclosure = Enclosure(
        pythons=(sys.executable,),
        readable=(str(Path(__file__).parents[2]), str(script), str(kept.top)),
    )
    before = state(kept.top)
    command = (sys.executable, str(script))
    environment = {**kept.names, "PATH": "/usr/bin:/bin"}
    code, said = run_to_end(command, tmp_path, enclosure, environment, 60)
    assert code == 0, said
    assert kept.damage(before, said) == [], said


def test_the_network_is_there_where_it_is_configured(kept):
    kept.heard.clear()
    enclosure = Enclosure(
        pythons=(sys.executable,), config=CommandsConfig(network=True), copied=(str(kept.checkout),)
    )
    command = ("/bin/sh", "-c", ATTACKS["server_of_the_machine"])
    code, said = run_to_end(command, kept.checkout, enclosure, kept.names, 30)
    assert code == 0, said
    assert kept.heard
    kept.heard.clear()


def test_a_folder_that_is_configured_is_read_and_not_written(kept, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set").write_text("numbers")
    config = CommandsConfig(read=(str(tmp_path / "data"),))
    script = f"cat {tmp_path}/data/set; echo more >> {tmp_path}/data/set"
    code, said = run_to_end(
        ("/bin/sh", "-c", script), tmp_path / "data", Enclosure(config=config), kept.names, 30
    )
    assert "numbers" in said
    assert code != 0
    assert (tmp_path / "data" / "set").read_text() == "numbers"


def test_nothing_that_a_command_started_outlives_it_when_it_is_cut_off(kept):
    command = ("/bin/sh", "-c", "sh -c 'sleep 60' $MARK & wait")
    place = Enclosure(copied=(str(kept.checkout),))
    with (
        enclosed(command, kept.checkout, place, kept.names) as process,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        process.process.wait(0.3)
    assert kept.damage(state(kept.top), "") == []


READER = """
import importlib.util, os, subprocess, sys
if sys.argv[2] == "keeps":
    spec = importlib.util.spec_from_file_location("unreadable", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make_unreadable()
reader = f"cat /proc/{os.getpid()}/environ; grep VmSize /proc/{os.getpid()}/status"
print(subprocess.run(["sh", "-c", reader], capture_output=True, text=True, env={}).stdout)
"""


@pytest.mark.parametrize("keeps", ["keeps", "shows"])
def test_the_tools_own_process_is_read_by_no_other_of_its_user(keeps):
    """Root may look, as ever: so an ordinary user starts it."""
    python = "/usr/bin/python3" if os.geteuid() == 0 else sys.executable
    if not Path(python).exists():
        pytest.skip("needs an interpreter that an ordinary user can run")
    file = Path(__file__).parents[2] / "cudal1_ci" / "unreadable.py"
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    words = [python, "-I", "-S", "-", str(file), keeps]
    done = subprocess.run(
        words,
        input=READER,
        capture_output=True,
        text=True,
        check=True,
        env={"OPENAI_API_KEY": SECRET, "PATH": "/usr/bin:/bin"},
        **other,
    )
    assert "VmSize" in done.stdout
    assert (SECRET in done.stdout) == (keeps == "shows")


def test_every_door_of_the_tool_is_closed_before_anything_else(tmp_path):
    """Both front doors say so of themselves: 0 is `not dumpable`."""
    root = Path(__file__).parents[2]
    for module in ("cudal1_ci.__main__", "cudal1_ci.github.action.__main__"):
        code = (
            "import ctypes, runpy, sys\n"
            f"sys.path.insert(0, {str(root)!r})\n"
            f"sys.argv = ['x', '--version']\n"
            "try:\n"
            f"    runpy.run_module({module!r}, run_name='__main__', alter_sys=False)\n"
            "except SystemExit:\n"
            "    print('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stdout.endswith("dumpable 0\n"), done.stdout + done.stderr
