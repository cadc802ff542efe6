"""Find lower precision and settings of the whole process.

None of it is dishonest. It affects users who merge the code, so they must see it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cudal1_ci.verification.static_rules.python_text import PythonText, last, literal_text
from cudal1_ci.verification.static_rules.rule import Check, Sight, check

_LOW = re.compile(r"torch\.(float16|half|bfloat16|float8\w*|float4\w*)")
_LOW_METHODS = {"half", "bfloat16"}
_AUTOCAST = re.compile(
    r"torch\.(autocast|(cuda|cpu)\.amp\.autocast(_mode\.autocast)?|amp\.autocast)"
)
_SETTING_CALLS = re.compile(
    r"torch\.(set_num_threads|set_num_interop_threads|set_default_dtype|set_default_device"
    r"|set_default_tensor_type|use_deterministic_algorithms|set_flush_denormal|set_grad_enabled"
    r"|set_deterministic_debug_mode|autograd\.set_grad_enabled|autograd\.set_detect_anomaly"
    r"|backends\.[\w.]+|cuda\.set_device|cuda\.set_per_process_memory_fraction"
    r"|_C\._\w+|jit\.set_fusion_strategy|jit\.enable_onednn_fusion|autograd\.profiler\.\w+)"
)
_OTHER_SETTINGS = re.compile(
    r"sys\.(addaudithook|setprofile|settrace|set\w+limit|setswitchinterval|set_\w+)"
    r"|threading\.(setprofile|settrace|stack_size)\w*|os\.(register_at_fork|umask|chdir|nice|sched_set\w+)"
    r"|gc\.(disable|freeze|set_\w+)|locale\.setlocale|logging\.(disable|basicConfig)|tracemalloc\.start"
    r"|faulthandler\.\w+|signal\.(signal|setitimer|alarm|siginterrupt|set_wakeup_fd)"
    r"|(random|numpy\.random)\.seed|numpy\.(seterr\w*|set_printoptions)|torch\.set_printoptions"
    r"|warnings\.(simplefilter|filterwarnings)|copyreg\.\w+|(torch\.)?multiprocessing\.set_\w+"
    r"|asyncio\.set_event_loop\w*|resource\.setrlimit|torch\.\w+(\.\w+)*\.register_(module|optimizer)_\w+"
)
_OF_THE_SYSTEM = {"mallopt", "prctl", "fesetround", "feenableexcept", "sched_setscheduler"}
"""Functions of C that programs call through ctypes."""
_QUERIES = re.compile(
    r"torch\.backends\.[\w.]*(is_available|is_built|version|is_acceptable|get_\w+|flags|\w+_enabled)|torch\.backends\.cuda\.sdp_kernel"
)
LONGEST_FLAGS = 300
_FAST_MATH = re.compile(r"(.*\s)?-{0,2}(use_fast_math|ffast-math|ftz=true|Ofast)(\s.*)?", re.DOTALL)


def precision(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        path = text.dotted(call.func) or ""
        if _AUTOCAST.fullmatch(path):
            if not is_off(call):
                yield Sight(
                    call.lineno, "computes in lower precision where torch sees fit (autocast)"
                )
        elif last(call.func) in _LOW_METHODS and not call.args:
            yield Sight(call.lineno, f"computes in lower precision (`{last(call.func)}`)")
        elif path.endswith("set_float32_matmul_precision"):
            is_full = [literal_text(a) for a in call.args] == ["highest"]
            if not is_full:
                yield Sight(call.lineno, "allows matrix products in lower precision")
    for node in text.every(ast.Attribute):
        if _LOW.fullmatch(text.dotted(node) or "") and is_conversion(text, node):
            yield Sight(node.lineno, f"computes in lower precision (`{node.attr}`)")
    for assign in text.every(ast.Assign):
        for target in assign.targets:
            reduced = last(target).startswith("allow_") and last(target).endswith(
                ("tf32", "reduction")
            )
            if reduced and not (isinstance(assign.value, ast.Constant) and not assign.value.value):
                yield Sight(assign.lineno, f"allows lower precision (`{last(target)}`)")


def is_off(call: ast.Call) -> bool:
    return any(
        k.arg == "enabled" and isinstance(k.value, ast.Constant) and k.value.value is False
        for k in call.keywords
    )


def is_conversion(text: PythonText, node: ast.AST) -> bool:
    """Return whether a dtype is given to a call. `x.dtype == torch.float16` is only a
    comparison."""
    for above in text.above(node):
        match above:
            case ast.Compare() | ast.Dict() | ast.Set() | ast.stmt():
                return False
            case ast.Call(func=func) if _AUTOCAST.fullmatch(text.dotted(func) or ""):
                return False
            case ast.Call():
                return True
    return False


def global_setting(text: PythonText) -> Iterator[Sight]:
    for call in text.every(ast.Call):
        path = text.dotted(call.func) or ""
        scoped = any(isinstance(a, ast.withitem) for a in text.above(call))
        sets = _SETTING_CALLS.fullmatch(path) or _OTHER_SETTINGS.fullmatch(path)
        if sets and not _QUERIES.fullmatch(path) and not scoped:
            yield Sight(call.lineno, f"`{path}` sets something for the whole process")
        elif last(call.func) in _OF_THE_SYSTEM:
            name = last(call.func)
            yield Sight(call.lineno, f"`{name}` sets something for the whole process")
    for target in text.every(ast.Attribute):
        if isinstance(target.ctx, ast.Store):
            path = text.dotted(target) or ""
            if path.startswith("torch.") and (".backends." in path or "config." in path):
                yield Sight(target.lineno, f"sets `{path}` for the whole process")


def fast_math(text: PythonText) -> Iterator[Sight]:
    for node in text.every(ast.Constant):
        is_flag = isinstance(node.value, str) and len(node.value) < LONGEST_FLAGS
        if is_flag and _FAST_MATH.fullmatch(str(node.value).strip()):
            yield Sight(node.lineno, "compiles with less exact functions and without denormals")


CHECKS: tuple[Check[PythonText], ...] = (
    check("precision", precision, "half, bfloat16, fp8, autocast or TF32"),
    check("fast_math", fast_math, "native code is compiled with `use_fast_math`"),
    check("global_setting", global_setting, "a setting of the whole process is changed"),
)
