"""A cluster of Ray of two nodes, one with a GPU in name; a seat there has a text built on the other
one. Says as JSON what became of it.

    python tests/integration/built_elsewhere.py FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.cluster_utils import Cluster

from cudal1_ci.pool import builders
from cudal1_ci.pool.builders import builder_for
from cudal1_ci.pool.ray import silence
from cudal1_ci.pool.sessions import SessionConfig
from cudal1_ci.processes import Local
from cudal1_ci.processes.elsewhere import BuildsElsewhere
from cudal1_ci.verification import BuildsConfig

FOLDER = Path(sys.argv[1])
SOURCE = """
import os, time, uuid
from pathlib import Path

# as load_inline does
if {waits}:
    time.sleep(600)
folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "made"
if not folder.exists():
    folder.mkdir(parents=True)
    (folder / "made.so").write_text(uuid.uuid4().hex)
"""
CONFIG = SessionConfig(builds=BuildsConfig(folder=str(FOLDER / "here")))


class OtherBuilder(builders.Builder):
    """With a store of its own, as on a machine of its own, that is said to be at the same path."""

    def __init__(self, config: bytes, part: int, num_parts: int):
        super().__init__(config, part, num_parts)
        self.own["store"] |= {"folder": str(FOLDER / "there")}
        (FOLDER / "builder").write_text(f"{ray.get_runtime_context().get_node_id()} {os.getpid()}")

    def ask(self, request: bytes, timeout_s: float) -> bytes:
        said = msgspec.msgpack.decode(super().ask(request, timeout_s))
        if "store" in said:
            said["store"] = str(FOLDER / "here")
        return msgspec.msgpack.encode(said)


class Seat:
    """In place of a judge, where a GPU would be."""

    def built(self) -> dict[str, Any]:
        """What becomes of a build, and of one whose machine is lost."""
        builders.Builder = OtherBuilder  # type: ignore[misc]
        executor = BuildsElsewhere(Local(), lambda: builder_for(ray, CONFIG, 0))
        with executor.start("builder", num_threads=1, device="none") as both:
            store = {"folder": str(FOLDER / "here"), "max_bytes": 2**30}
            opens = {"architecture": None, "cores": [0], "num_at_once": 1, "store": store}
            opened = both.ask({"op": "open", **opens}, 120)
            first = self.ended(both, 1, SOURCE.format(waits=False))
            node, process = (FOLDER / "builder").read_text().split()
            self.begin(both, 2, SOURCE.format(waits=True))
            os.kill(int(process), signal.SIGKILL)
            lost = self.poll(both)
            here = self.ended(both, 3, SOURCE.format(waits=False) + "# another")
        return {
            "opened": opened,
            "ended": [first, lost, here],
            "is_elsewhere": node != ray.get_runtime_context().get_node_id(),
            "there": self.made("there"),
            "here": self.made("here"),
        }

    def begin(self, both: Any, number: int, source: str) -> None:
        program = {"type": "text", "source": source, "entry": "Model"}
        both.ask({"op": "begin", "number": number, "program": program, "limit_s": 60.0}, 60)

    def poll(self, both: Any) -> Any:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            found = both.ask({"op": "poll", "wait_s": 0.5}, 60)["ended"]
            if found:
                return found
        return None

    def ended(self, both: Any, number: int, source: str) -> Any:
        self.begin(both, number, source)
        return self.poll(both)

    def made(self, name: str) -> list[str]:
        return sorted(path.read_text() for path in (FOLDER / name).rglob("made.so"))


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    silence(ray)
    try:
        seat = ray.remote(Seat).options(num_cpus=1, num_gpus=1).remote()
        found = ray.get(seat.built.remote(), timeout=300)
    finally:
        ray.shutdown()
        cluster.shutdown()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
