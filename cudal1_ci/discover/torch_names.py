"""Classify torch's names, since the host never imports torch.

Lists the third-party classes that are nn.Modules, and the methods that no other common type has.
Lists the functions that compute with tensors, and those that only make or move tensors. Names
are canonical and dotted: `torch.nn.functional.softmax`, however the file spells it.
"""

from __future__ import annotations

import re

MODULE = "torch.nn.modules.module.Module"
"""Where torch itself defines nn.Module; matters when torch is the tree that is scanned."""

# --- classes ---------------------------------------------------------------------------------

_NOT_MODULES = frozenset(
    {
        "Parameter",
        "Buffer",
        "UninitializedParameter",
        "UninitializedBuffer",
        "UninitializedTensorMixin",
    }
)
_TORCH_MODULES = re.compile(
    r"torch\.nn\.(?:modules\.(?:\w+\.)*|parallel\.(?:\w+\.)*)?(?P<cls>_?[A-Z]\w*)"
    r"|torch\.(?:ao\.)?nn\.(?:quantized|qat|intrinsic|quantizable|sparse)\.(?:\w+\.)*[A-Z]\w*"
    r"|torch\.jit\.(?:ScriptModule|RecursiveScriptModule)"
    r"|torch\.fx\.(?:graph_module\.)?GraphModule"
)
# Libraries whose classes in these places are all Modules.
_MODULE_LIBRARIES = re.compile(
    r"(?:torchvision\.(?:models|ops)|timm\.(?:models|layers)|torch_geometric\.nn|monai\.networks"
    r"|torchaudio\.(?:models|transforms)|flash_attn\.(?:modules|layers)|segmentation_models_pytorch)"
    r"\.(?:\w+\.)*[A-Z]\w*"
)
_TRANSFORMERS_MODULE = re.compile(
    r"transformers\.(?:\w+\.)*\w+(?:Model|Attention|Layer|MLP|Mlp|Block|Embedding|Embeddings|Encoder"
    r"|Decoder|Norm|RMSNorm|Head|Pooler|Mixin|For[A-Z]\w+)"
)
_NOT_TRANSFORMERS_MODULE = re.compile(r"(?:TF|Flax)[A-Z]\w*|\w*(?:Generation|PushToHub)Mixin")
# Bases recognized by their own name, wherever a repository imports them from.
WELL_KNOWN_BASES = frozenset(
    {"PreTrainedModel", "LightningModule", "ModelMixin", "PyTorchModelHubMixin", "BaseModule"}
    | {"ScriptModule", "GraphModule", "CNNBlockBase", "FairseqEncoder", "FairseqDecoder"}
    | {"FairseqEncoderDecoderModel", "FairseqIncrementalDecoder", "MegatronModule", "NeuralModule"}
)
# They have no forward: a subclass without one cannot be called.
ABSTRACT_BASES = frozenset(
    {"torch.nn.Module", MODULE, "torch.nn.ModuleList", "torch.nn.ModuleDict"}
    | {"torch.nn.ParameterList", "torch.nn.ParameterDict"}
)
CONTAINERS = frozenset({"torch.nn.Sequential", "torch.nn.modules.container.Sequential"})

_OTHER_FRAMEWORKS = frozenset(
    {"flax", "jax", "haiku", "tensorflow", "tf", "keras", "tf_keras", "mlx", "paddle", "mindspore"}
    | {"tinygrad", "equinox", "mxnet", "chainer", "typing", "typing_extensions", "abc", "enum"}
    | {"collections", "dataclasses", "pydantic", "argparse", "unittest", "builtins", "numpy"}
)


def is_module_class(dotted: str) -> bool:
    """Return whether a class outside of the tree is an nn.Module, by its canonical name."""
    root, _, _ = dotted.partition(".")
    last = dotted.rpartition(".")[2]
    if root in _OTHER_FRAMEWORKS:
        return False
    match = _TORCH_MODULES.fullmatch(dotted)
    if match is not None:
        return match["cls"] not in _NOT_MODULES
    if root == "torch":
        return False
    if root == "transformers":
        return (
            _TRANSFORMERS_MODULE.fullmatch(dotted) is not None
            and _NOT_TRANSFORMERS_MODULE.fullmatch(last) is None
        )
    return last in WELL_KNOWN_BASES or _MODULE_LIBRARIES.fullmatch(dotted) is not None


def has_forward(dotted: str) -> bool:
    """Return whether an outside Module class has a forward that can be inherited."""
    last = dotted.rpartition(".")[2]
    return dotted not in ABSTRACT_BASES and last not in WELL_KNOWN_BASES


def may_hide_module(dotted: str) -> bool:
    """Return whether an unknown outside base could be a Module: not torch's, nor never one."""
    root = dotted.partition(".")[0]
    is_builtin = "." not in dotted
    return not is_builtin and root != "torch" and root not in _OTHER_FRAMEWORKS


# --- functions -------------------------------------------------------------------------------

_CREATES = frozenset(
    {"tensor", "as_tensor", "asarray", "from_numpy", "from_dlpack", "frombuffer", "zeros", "ones"}
    | {"zeros_like", "ones_like", "empty", "empty_like", "empty_strided", "full", "full_like"}
    | {"arange", "range", "linspace", "logspace", "eye", "rand", "rand_like", "randn"}
    | {"randn_like", "randint", "randint_like", "randperm", "normal", "scalar_tensor"}
    | {"hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window"}
    | {"Tensor", "FloatTensor", "LongTensor", "BoolTensor", "IntTensor", "sparse_coo_tensor"}
    | {"tril_indices", "triu_indices", "meshgrid", "complex", "polar"}
)
_NOT_COMPUTE = frozenset(
    {"save", "load", "compile", "seed", "manual_seed", "initial_seed", "no_grad", "enable_grad"}
    | {"inference_mode", "device", "dtype", "finfo", "iinfo", "Size", "Generator", "typename"}
    | {
        "can_cast",
        "result_type",
        "promote_types",
        "numel",
        "fork",
        "wait",
        "compiled_with_cxx11_abi",
    }
    | {"parse_ir", "parse_schema", "to_dlpack", "classproperty", "broadcast_shapes", "cond", "vmap"}
    | {"while_loop", "are_deterministic_algorithms_enabled", "sym_int", "sym_float", "sym_max"}
    | {"sym_min", "thread_safe_generator", "prepare_multiprocessing_environment", "clone", "detach"}
    | {"autocast", "allclose", "equal"}
) - {"complex", "polar"}
_NOT_COMPUTE_PREFIX = re.compile(r"(?:_|is_|set_|get_|use_|init_|import_|autocast_|parse_|unify_)")
_COMPUTE_LIBRARIES = re.compile(
    r"torch\.(?:nn\.functional|linalg|fft|special|sparse|func|ops\.\w+|Tensor|_C\._nn|nested"
    r"|nn\.attention\.flex_attention)\.[a-z]\w*"
    r"|einops\.(?:rearrange|reduce|repeat|einsum|pack|unpack)"
    r"|torchvision\.(?:ops|transforms(?:\.v2)?\.functional)\.(?:\w+\.)*[a-z]\w*"
    r"|torchaudio\.functional\.\w+|opt_einsum\.contract|kornia\.(?:\w+\.)*[a-z]\w*"
    r"|flash_attn\.(?:\w+\.)*flash_attn_\w+|xformers\.ops\.(?:\w+\.)*[a-z]\w*"
    r"|torch_scatter\.\w+|torch_sparse\.\w+"
)


def is_creation(dotted: str) -> bool:
    """Return whether a call makes a tensor from numbers, shapes or foreign arrays."""
    root, _, last = dotted.rpartition(".")
    return root == "torch" and last in _CREATES


def is_compute(dotted: str) -> bool:
    """Return whether a call computes a tensor from tensors."""
    root, _, last = dotted.rpartition(".")
    if root == "torch":
        return (
            last.islower()
            and last not in _NOT_COMPUTE
            and last not in _CREATES
            and _NOT_COMPUTE_PREFIX.match(last) is None
        ) or last in {"complex", "polar"}
    return _COMPUTE_LIBRARIES.fullmatch(dotted) is not None


def is_glue(dotted: str) -> bool:
    """Return whether a call belongs to a script: files, training, export, set-up."""
    return dotted in _GLUE_CALLS or _GLUE_LIBRARIES.match(dotted) is not None


_GLUE_CALLS = frozenset(
    {"open", "input", "torch.save", "torch.load", "torch.compile", "torch.manual_seed"}
    | {"torch.jit.load", "torch.jit.save", "torch.jit.trace", "torch.export.export"}
    | {"torch.profiler.profile", "torch.autograd.gradcheck"}
)
_GLUE_LIBRARIES = re.compile(
    r"(?:torch\.(?:optim|hub|nn\.init|onnx|utils\.data|utils\.tensorboard|testing|distributed\.init\w*"
    r"|package|serialization)|argparse|matplotlib|wandb|pytest|unittest|cv2|PIL|subprocess|pickle"
    r"|pandas|requests|triton\.testing)\."
)
GLUE_METHODS = frozenset(
    {"backward", "zero_grad", "load_state_dict", "state_dict", "parse_args", "savefig", "plot"}
    | {"named_parameters", "parameters", "named_modules", "from_pretrained", "save_pretrained"}
    | {"train", "eval", "imshow", "add_scalar", "add_argument"}
)

# --- methods ---------------------------------------------------------------------------------

UNMISTAKABLE_METHODS = frozenset(
    {"addbmm", "addcdiv", "addcmul", "addmm", "baddbmm", "bmm", "chunk", "clamp", "clamp_max"}
    | {"clamp_min", "contiguous", "cosh", "erf", "erfinv", "exp", "expand", "expand_as", "expm1"}
    | {"gather", "index_add", "index_copy", "index_fill", "index_select", "lerp", "log1p"}
    | {"log_softmax", "logsumexp", "masked_fill", "masked_scatter", "masked_select", "matmul"}
    | {"mm", "movedim", "mul", "multinomial", "narrow", "new_full", "new_ones", "new_zeros"}
    | {"permute", "reciprocal", "relu", "repeat_interleave", "rsqrt", "scatter", "scatter_add"}
    | {"scatter_reduce", "sigmoid", "softmax", "sqrt", "sub", "tanh", "topk", "tril", "triu"}
    | {"type_as", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as", "where"}
    | {"abs", "pow", "norm", "amax", "amin", "flip", "roll", "div", "neg", "silu", "add"} - {"add"}
)
"""Methods that no other common type has: one is enough to recognize a tensor."""

NOT_COMPUTE_METHODS = frozenset(
    {"size", "dim", "item", "tolist", "numpy", "cpu", "cuda", "to", "detach", "data_ptr", "numel"}
    | {"requires_grad_", "is_contiguous", "is_floating_point", "is_complex", "type", "clone"}
    | {"element_size", "get_device", "storage", "untyped_storage", "stride", "ndimension"}
    | {"register_hook", "record_stream", "pin_memory", "share_memory_", "new_tensor", "shape"}
    | {"is_sparse", "storage_offset", "nelement", "half", "float", "double", "long", "bool", "int"}
    | {"bfloat16", "copy_", "zero_", "fill_", "uniform_", "normal_", "retain_grad"}
)
"""Methods of tensors that query, move or copy, and compute nothing."""
