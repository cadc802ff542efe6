"""Stands in for an interpreter that has servers of models: made executable by the tests.

Says what is installed, and serves as the file `behavior` beside it says. What it downloads from the
hub is the folder `hub` beside it; without one the download fails.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(sys.argv[0]).parent
PACKAGES = {"transformers": "5.0", "fastapi": "1", "uvicorn": "1", "openai": "2", "peft": "1"}
TIDYING = """\
import pathlib, signal, sys, time

def tidy(*_):
    time.sleep(0.5)  # longer than its parent takes to end
    pathlib.Path(sys.argv[1]).touch()
    sys.exit()

signal.signal(signal.SIGTERM, tidy)
time.sleep(60)
"""


def main() -> None:
    if sys.argv[1] == "-I" and "snapshot_download" in sys.argv[3]:
        download(sys.argv[4])
        return
    if sys.argv[1] == "-I":
        told = HERE / "packages.json"
        say(told.read_text() if told.exists() else json.dumps(PACKAGES))
        return
    (HERE / "pids").write_text(str(os.getpid()))
    (HERE / "seen.json").write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
    port = int(sys.argv[sys.argv.index("--port") + 1])
    behavior = (HERE / "behavior").read_text()
    if behavior == "dies at start":
        sys.exit("loading with sk-test-0123456789\nValueError: no such architecture")
    if behavior == "is never ready":
        say("still loading")
        time.sleep(60)
    if behavior == "leaves a child":
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", code])
        (HERE / "pids").write_text(f"{os.getpid()} {child.pid}")
    if behavior == "has a child that tidies up":
        child = subprocess.Popen([sys.executable, "-c", TIDYING, str(HERE / "tidied")])
        (HERE / "pids").write_text(f"{os.getpid()} {child.pid}")
    serve(port, dies=behavior == "dies later")


def download(name: str) -> None:
    if not (HERE / "hub").is_dir():
        sys.exit("ConnectionError: there is no hub")
    repository = Path(os.environ["HF_HUB_CACHE"]) / ("models--" + name.replace("/", "--"))
    shutil.copytree(HERE / "hub", repository / "snapshots" / "abc123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def serve(port: int, *, dies: bool) -> None:
    sys.path.insert(0, (HERE / "root").read_text())
    from tests.replay_server import replay_server

    with replay_server(["first", "second"], port=port) as server:
        while not (dies and server.requests):
            time.sleep(0.01)
        time.sleep(0.1)
        say("RuntimeError: out of memory")
        os._exit(3)


threading.Thread(target=lambda: (time.sleep(60), os._exit(9)), daemon=True).start()
main()
