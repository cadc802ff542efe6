"""What of the host's environment a worker sees."""

from __future__ import annotations

import pytest

from cudal1_ci.processes.environment import listed, without_secrets


def test_a_worker_sees_what_torch_reads_and_neither_settings_nor_secrets():
    seen = {"PATH": "/bin", "CUDACXX": "nvcc", "CUDA_HOME": "/cuda", "TORCH_CUDA_ARCH_LIST": "9.0"}
    unseen = {"CUDAL1_CI_STATE_DIR": "/state", "TORCH_TOKEN": "x", "GITHUB_ENV": "/env"}
    assert listed({**seen, **unseen}) == seen
    assert listed({**seen, **unseen}, ("GITHUB_ENV",)) == {**seen, "GITHUB_ENV": "/env"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASS", "hunter2"),
        ("MYSQL_PWD", "hunter2"),
        ("BOT_PAT", "hunter2"),
        ("SENTRY_DSN", "hunter2"),
        ("SLACK_WEBHOOK_URL", "https://hooks.example/T0/B0/x"),
        ("GPG_PASSPHRASE", "hunter2"),
        ("LOGIN", "ghp_" + "a1" * 18),
        ("LOGIN", "github_pat_" + "a1" * 20),
        ("LOGIN", "hf_" + "Ab" * 17),
        ("LOGIN", "AKIA" + "A1" * 8),
        ("LOGIN", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln"),
        ("LOGIN", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl"),
        ("STORAGE", "Protocol=https;AccountKey=abc"),
        ("DATABASE", "host=db password=hunter2"),
        ("REGISTRY", "https://pypi.example/simple?token=abc"),
    ],
)
def test_a_secret_is_known_by_its_name_or_its_value(name, value):
    assert without_secrets({name: value, "HERE": "1"}) == {"HERE": "1"}


def test_a_url_loses_its_user_and_keeps_its_address():
    given = {
        "PIP_INDEX_URL": "https://token@pypi.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://a:b@one.example/x https://c:d@two.example/y",
        "HTTPS_PROXY": "http://me:p@ss@proxy.example:3128",
    }
    assert without_secrets(given) == {
        "PIP_INDEX_URL": "https://pypi.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://one.example/x https://two.example/y",
        "HTTPS_PROXY": "http://proxy.example:3128",
    }


def test_what_a_suite_needs_is_no_secret():
    given = {
        "PWD": "/work",
        "OLDPWD": "/",
        "PATH": "/bin:/opt/sk-learn/bin",
        "BYPASS": "1",
        "MODEL": "https://example.org/@user/model?x=1",
        "MAIL": "someone@example.org",
        "HF_HUB_CACHE": "/data/hf_cache",
        "PYTEST_ADDOPTS": "-k tokenizer --durations=5",
        "CFLAGS": "-O2 -DKEEP=1",
    }
    assert without_secrets(given) == given
