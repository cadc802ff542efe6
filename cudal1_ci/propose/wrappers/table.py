"""List the wrappers: changes of how a whole program runs, not of what it computes.

A wrapper is one decorator on the target's forward, or on the target where it is a function. The
order of the table is the order in which wrappers are put on: the last one is outermost.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from cudal1_ci.propose.editing.layout import with_last_line
from cudal1_ci.propose.editing.rewrite import Rewrite, Site, SourceEdit, Vendored, defined_in
from cudal1_ci.propose.editing.terms import code

GRAPHED = Vendored("cuda_graph", "cuda_graphed")
GRAPHED_IN_TRAINING = Vendored("training_graph", "graphed_in_training")
TUNED = Vendored("fastest_convolutions", "fastest_convolutions")
IN_INFERENCE = Vendored("compiled_in_inference", "compiled_in_inference")
REDUCED = Vendored("reduce_overhead", "compiled_with_reduce_overhead")
LAID_OUT = (
    Vendored("channels_last", "convolutions_to_channels_last"),
    Vendored("channels_last", "with_channels_last_inputs"),
)
VENDORED = (GRAPHED, GRAPHED_IN_TRAINING, TUNED, REDUCED, IN_INFERENCE, *LAID_OUT)
OWN_NAMES = ("torch.compile", *(one.name for one in VENDORED))
"""Decorators of wrappers, below which another wrapper may be."""
CONTEXTS = ("no_grad", "inference_mode", "enable_grad", "autocast")
"""Decorators of torch that change how a call runs and not what is called."""
NOT_RECORDABLE = (".item()", ".cpu()", ".tolist()", ".nonzero(", ".numpy()", "print(", "global ")
"""Code that a CUDA graph cannot record, or would run once instead of at every call."""
ATTRIBUTE = re.compile(r"\.(\w+)")
COMPILED_REGION = "compiled_region"
"""Name of what compiles parts of a program: a program by itself, which may be wrapped."""
RANDOM = ("bernoulli", "torch.rand", "torch.normal", "multinomial", "normal_(", "uniform_(")
"""Code that draws random numbers in each call; dropout does so in training."""
SAME_RANDOM = ('"fallback_random": True', '"comprehensive_padding": False')
"""Options with which compiled code draws the same random numbers. By itself the compiler draws
others for the same seed, so that neither outputs nor gradients could be compared. Which element
gets which number depends on the layout, which padding would change."""
COMPILES = "the first call of each process compiles, which takes seconds to minutes"


def forward_of(site: Site) -> cst.FunctionDef | None:
    """Return the function to decorate; None if one of the user's decorators may depend on it."""
    definition = site.definition
    if isinstance(definition, cst.FunctionDef):
        forward: cst.FunctionDef | None = definition
    else:
        forward = next((m for m in site.methods() if m.name.value == "forward"), None)
    if forward is None or site.names.imports.get("torch", "torch") != "torch":
        return None
    known = all(is_known(site, code(one.decorator)) for one in forward.decorators)
    return forward if known and "yield" not in code(forward).split() else None


def is_known(site: Site, decorator: str) -> bool:
    """Return whether a wrapper may be put on top of a decorator."""
    first, dot, rest = decorator.partition("(")[0].partition(".")
    path = f"{site.names.imports.get(first, first)}{dot}{rest}"
    is_context = path.startswith("torch.") and path.rpartition(".")[2] in CONTEXTS
    return is_context or decorator.startswith(OWN_NAMES)


def decorated(
    forward: cst.FunctionDef, decorator: str, found: str, *vendored: Vendored
) -> SourceEdit:
    """Return the edit that puts a decorator outermost on a function."""
    first = cst.Decorator(cst.parse_expression(decorator))
    new = forward.with_changes(decorators=[first, *forward.decorators], lines_after_decorators=[])
    return SourceEdit(
        {forward: new}, (found,), frozenset({"torch"} if not vendored else ()), vendored=vendored
    )


def compiled(decorator: str) -> Callable[[Site], SourceEdit | None]:
    """Return the wrapper that compiles a forward with this decorator."""

    def apply(site: Site) -> SourceEdit | None:
        forward = forward_of(site)
        if forward is None or any("compile" in code(one.decorator) for one in forward.decorators):
            return None
        return decorated(forward, decorator, f"`@{decorator}` on `{forward.name.value}`")

    return apply


def compiled_with(*options: str) -> Callable[[Site], SourceEdit | None]:
    """Return the wrapper that compiles a forward with these options, and with those that make it
    draw the random numbers of the forward that is not compiled, where it draws any."""

    def apply(site: Site) -> SourceEdit | None:
        chosen = ", ".join([*options, *(SAME_RANDOM if draws(site) else ())])
        return compiled(f"torch.compile(options={{{chosen}}})" if chosen else "torch.compile")(site)

    return apply


def draws(site: Site) -> bool:
    """Return whether a known call may draw random numbers."""
    definition = code(site.definition)
    trains = any(one.mode != "infer" for one in site.workloads)
    has_dropout = trains and "drop" in site.module.code.lower()
    return has_dropout or any(word in definition for word in RANDOM)


def reduced(site: Site) -> SourceEdit | None:
    """Compile a module's forward with CUDA graphs, and return copies."""
    forward = forward_of(site)
    if forward is None or any("compile" in code(one.decorator) for one in forward.decorators):
        return None
    return decorated(forward, REDUCED.name, f"`@{REDUCED.name}` on `forward`", REDUCED)


def compiled_in_inference(site: Site) -> SourceEdit | None:
    """Compile the forward of a module that trains too, for inference alone."""
    forward = forward_of(site)
    if forward is None or any("compile" in code(one.decorator) for one in forward.decorators):
        return None
    if not site.has_inference or site.is_inference:
        return None
    name = IN_INFERENCE.name
    return decorated(forward, name, f"`@{name}` on `forward`", IN_INFERENCE)


def recorded(site: Site, wrapper: Vendored) -> SourceEdit | None:
    """Put a wrapper on the forward of a module that takes something and does what a CUDA graph can
    hold."""
    definition, forward = site.definition, forward_of(site)
    if not isinstance(definition, cst.ClassDef) or forward is None:
        return None
    given = forward.params
    takes_any = isinstance(given.star_arg, cst.Param) or given.star_kwarg is not None
    takes_nothing = not (takes_any or given.params[1:] or given.kwonly_params)
    has_own = wrapper.name in defined_in(site.module) or wrapper.name in code(definition)
    if takes_nothing or has_own:
        return None
    if any(word in text for text in reached(site, forward) for word in NOT_RECORDABLE):
        return None
    return decorated(forward, wrapper.name, f"`{definition.name.value}.forward` replayed", wrapper)


def reached(site: Site, forward: cst.FunctionDef) -> list[str]:
    """Return the texts of a forward and of the methods that it may call: those that are named."""
    methods = {method.name.value: code(method) for method in site.methods()}
    found = {"forward": code(forward)}
    pending = [*found.values()]
    while pending:
        for name in ATTRIBUTE.findall(pending.pop()):
            if name in methods and name not in found:
                found[name] = methods[name]
                pending.append(methods[name])
    return list(found.values())


def graphed(site: Site) -> SourceEdit | None:
    """Record the forward of a module that is called for inference. Calls that train run as
    before."""
    return recorded(site, GRAPHED) if site.has_inference else None


def graphed_in_training(site: Site) -> SourceEdit | None:
    """Record forward and backward passes of a module that trains."""
    trains = any(one.mode != "infer" for one in site.workloads)
    return recorded(site, GRAPHED_IN_TRAINING) if trains else None


def has_convolutions(site: Site) -> bool:
    """Return whether the file makes 2-D or 3-D convolutions by torch's classes."""
    return any(word in site.module.code for word in ("Conv2d", "Conv3d", "ConvTranspose"))


def tuned(site: Site) -> SourceEdit | None:
    """Let cuDNN choose the algorithms of a module's convolutions by trying them."""
    forward = forward_of(site)
    if forward is None or isinstance(site.definition, cst.FunctionDef):
        return None
    if not has_convolutions(site) or "cudnn.benchmark" in site.module.code:
        return None
    return decorated(forward, TUNED.name, f"`@{TUNED.name}` on `forward`", TUNED)


def laid_out(site: Site) -> SourceEdit | None:
    """Store convolution weights and inputs in channels-last order."""
    forward, constructor = forward_of(site), site.constructor()
    if forward is None or constructor is None or not has_convolutions(site):
        return None
    if not isinstance(constructor.body, cst.IndentedBlock) or "channels_last" in site.module.code:
        return None
    if not site.is_inference:
        return None
    weights, inputs = LAID_OUT
    edit = decorated(forward, inputs.name, "inputs and weights in channels-last order", *LAID_OUT)
    new = with_last_line(constructor, f"{weights.name}(self)")
    return SourceEdit(
        {**edit.functions, constructor: new}, edit.found, edit.modules, vendored=LAID_OUT
    )


CHANNELS_LAST = Rewrite(
    name="channels_last_inside",
    family="memory layout",
    precondition="a module with convolutions, called for inference; outputs stay contiguous",
    why="convolution kernels read channels-last data without repacking it.",
    apply=laid_out,
    is_of_program=True,
)
CUDNN = Rewrite(
    name="cudnn_benchmark",
    family="library selection",
    precondition="a module with convolutions; the first call with each shape times cuDNN's "
    "algorithms",
    why="the fastest algorithm for these shapes is found by trying, not by a heuristic.",
    apply=tuned,
    is_of_program=True,
)
COMPILE = Rewrite(
    name="compile",
    family="compilation",
    precondition="a forward that torch.compile can trace; where it draws random numbers, options "
    f"keep them the same; {COMPILES}",
    why="torch.compile fuses chains of elementwise operations and takes the Python out.",
    apply=compiled_with(),
    is_of_program=True,
)
COMPILE_AS_LAID_OUT = Rewrite(
    name="compile_as_laid_out",
    family="compilation",
    precondition="as for compile; convolutions keep their memory format, since the compiler's "
    f"choice may lose precision; {COMPILES}",
    why="torch.compile fuses chains of elementwise operations and takes the Python out.",
    apply=compiled_with('"layout_optimization": False'),
    is_of_program=True,
)
COMPILE_IN_INFERENCE = Rewrite(
    name="compile_in_inference",
    family="compilation",
    precondition="a module that is called for training and for inference, of which the compiled "
    f"program is wrong or less precise in one; training runs as before; {COMPILES}",
    why="torch.compile fuses chains of elementwise operations and takes the Python out.",
    apply=compiled_in_inference,
    is_of_program=True,
)
REDUCE_OVERHEAD = Rewrite(
    name="compile_reduce_overhead",
    family="compilation",
    precondition=f"as for compile, on a GPU; {COMPILES}",
    why="the compiler's kernels are launched as one CUDA graph.",
    apply=reduced,
    is_of_program=True,
)
MAX_AUTOTUNE = Rewrite(
    name="compile_max_autotune",
    family="compilation",
    precondition="as for compile; the first call of each process tries many kernels, which takes "
    "minutes",
    why="the compiler times several kernels for each product and keeps the fastest.",
    apply=compiled('torch.compile(mode="max-autotune-no-cudagraphs")'),
    is_of_program=True,
)
TRAINING_GRAPH = Rewrite(
    name="training_graph",
    family="CUDA graph",
    precondition="a module that is trained with tensors on a GPU, and whose forward "
    "does the same whatever they hold; each combination of shapes keeps memory for both passes",
    why="launching the kernels of both passes one by one takes longer than they run: two graphs "
    "launch all of them.",
    apply=graphed_in_training,
    is_of_program=True,
)
CUDA_GRAPH = Rewrite(
    name="cuda_graph",
    family="CUDA graph",
    precondition="a module that is called for inference with tensors on a GPU, and "
    "whose forward does the same whatever they hold; each combination of shapes keeps memory",
    why="launching the kernels one by one takes longer than they run: a graph launches all of "
    "them at once.",
    apply=graphed,
    is_of_program=True,
)

COMPILATIONS = (
    COMPILE,
    COMPILE_AS_LAID_OUT,
    COMPILE_IN_INFERENCE,
    REDUCE_OVERHEAD,
    MAX_AUTOTUNE,
)
GRAPHS = (TRAINING_GRAPH, CUDA_GRAPH)
WRAPPERS: tuple[Rewrite, ...] = (CHANNELS_LAST, CUDNN, *COMPILATIONS, *GRAPHS)
