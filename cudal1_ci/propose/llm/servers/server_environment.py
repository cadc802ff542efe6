"""Build the environment of a model's server.

server_environment(os.environ, gpu="1", may_download=False)
"""

from __future__ import annotations

from collections.abc import Mapping

from cudal1_ci.processes.environment import listed

SERVER_KEPT = ("HOME", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "XDG_CACHE_HOME")
SERVER_PREFIXES = ("VLLM_", "HIP_", "ROCR_")
NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def server_environment(
    environ: Mapping[str, str], *, gpu: str | None, may_download: bool
) -> dict[str, str]:
    """Return the part of the host's environment that a server may see."""
    kept = listed(environ, SERVER_KEPT, SERVER_PREFIXES)
    if may_download:
        wanted = (*NETWORK, *HUB_TOKENS)
        kept |= {name: value for name, value in environ.items() if name.upper() in wanted}
    else:
        kept |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if gpu is not None:
        kept["CUDA_VISIBLE_DEVICES"] = gpu
    return {
        **kept,
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
