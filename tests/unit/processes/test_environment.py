"""What of the host's environment a worker sees."""

from __future__ import annotations

from cudal1_ci.processes.environment import listed


def test_a_worker_sees_what_torch_reads_and_neither_settings_nor_secrets():
    seen = {"PATH": "/bin", "CUDACXX": "nvcc", "CUDA_HOME": "/cuda", "TORCH_CUDA_ARCH_LIST": "9.0"}
    unseen = {"CUDAL1_CI_STATE_DIR": "/state", "TORCH_TOKEN": "x", "GITHUB_ENV": "/env"}
    assert listed({**seen, **unseen}) == seen
    assert listed({**seen, **unseen}, ("GITHUB_ENV",)) == {**seen, "GITHUB_ENV": "/env"}
