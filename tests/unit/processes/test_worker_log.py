"""What a worker printed is read when it has ended."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.processes import Local
from cudal1_ci.sandboxed.wire.verifier import Describe


@pytest.mark.starts_verifier
@pytest.mark.parametrize("removes", [False, True])
def test_it_is_there_when_the_worker_has_removed_its_folder(tmp_path, removes):
    interpreter = tmp_path / "python"
    words = 'rm -rf "$HOME"' if removes else "true"
    interpreter.write_text(f"#!/bin/sh\necho 'RuntimeError: what ended it'\n{words}\nexit 1\n")
    interpreter.chmod(0o755)
    worker = Local(python=str(interpreter)).start("verifier", num_threads=1, device="cpu")
    with worker, pytest.raises(WorkerError, match="RuntimeError: what ended it"):
        worker.ask(Describe(), 5.0)
