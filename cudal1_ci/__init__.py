"""cudal1-ci: finds slow PyTorch code and GPU kernels and proves faster versions.

What a user may import is named here; everything else may change in any release.
"""

from cudal1_ci.declare import workload

__all__ = ["__version__", "workload"]
__version__ = "0.1.0"
