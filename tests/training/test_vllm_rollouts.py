"""vLLM itself: the adapter that it samples with is the policy's, from each change on.

    CUDAL1_CI_TEST_MODEL=/models/qwen CUDAL1_CI_TEST_VLLM_PYTHON=.../bin/python pytest -m model

The interpreter has vLLM, its CPU build will do, and what training needs beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def test_vllm_samples_with_the_adapter_as_it_is(tmp_path):
    python, weights = (
        os.environ.get(name) for name in ("CUDAL1_CI_TEST_VLLM_PYTHON", "CUDAL1_CI_TEST_MODEL")
    )
    if not python:
        pytest.skip("no interpreter that has vLLM in CUDAL1_CI_TEST_VLLM_PYTHON")
    if not weights:
        pytest.fail("expected a folder of weights in CUDAL1_CI_TEST_MODEL")
    story = ROOT / "tests" / "training" / "vllm_story.py"
    done = subprocess.run(
        [python, str(story), weights, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "2"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads((tmp_path / "story.json").read_text())
    assert said["start"] == said["transformers"], "the same weights say the same"
    assert said["not handed over"] == said["start"]
    assert said["changed"] != said["start"]
    assert said["back"] == said["start"]
    assert said["drawn"] == said["drawn again"]
    assert len({text for some in said["drawn"] for text in some}) == 4, "each has its own seed"
    (kept,) = [one.name for one in tmp_path.iterdir() if one.name.startswith("version-")]
    assert kept == "version-3"
