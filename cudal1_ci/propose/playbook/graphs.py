"""A module's inference call as one CUDA graph.

Half of what is called in a small model takes longer to launch than to run; a graph launches all of
it at once. What it must not do is kept out by what is written into the file: outputs of an earlier
call never change, inputs are read from where the caller has them now, and weights that lie
elsewhere than when it was recorded are noticed.
"""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.playbook.rewrite import Edit, Rewrite, Site, defined_in

DECORATOR = "cuda_graphed"
HELPERS = '''class RecordedCall:
    """An inference call as a CUDA graph. Tensors are copied into it, and what it returns is a copy;
    arguments and attributes that are no tensors are as they were when it was recorded."""

    def __init__(self, forward, module, args):
        with torch.inference_mode(False), torch.no_grad():
            self.args = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    forward(module, *self.args)
            torch.cuda.current_stream().wait_stream(side)
            self.remember(module)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = forward(module, *self.args)
        if not self.is_current():
            raise RuntimeError("a forward that replaces what its module holds is no CUDA graph")
        self.inputs = [
            (place, mine) for place, mine in enumerate(self.args) if isinstance(mine, torch.Tensor)
        ]
        self.is_one = isinstance(self.result, torch.Tensor)

    def remember(self, module):
        self.parts = [
            (held, name, one)
            for part in module.modules()
            for held in (part._parameters, part._buffers, part._modules, vars(part))
            for name, one in held.items()
            if held is not vars(part) or isinstance(one, torch.Tensor)
        ]
        tensors = [one for _, _, one in self.parts if isinstance(one, torch.Tensor)]
        self.places = [(one.data_ptr, one.data_ptr()) for one in tensors]

    def is_current(self):
        """Whether the parts are those that were recorded, with their weights where they lay."""
        for held, name, one in self.parts:
            if held.get(name) is not one:
                return False
        for place, recorded in self.places:
            if place() != recorded:
                return False
        return True

    def __call__(self, args):
        for place, mine in self.inputs:
            mine.copy_(args[place])
        self.graph.replay()
        return self.result.clone() if self.is_one else self.copied(self.result)

    def copied(self, result):
        if isinstance(result, torch.Tensor):
            return result.clone()
        if isinstance(result, dict):
            return {key: self.copied(value) for key, value in result.items()}
        if type(result) in (tuple, list):
            return type(result)(self.copied(value) for value in result)
        raise TypeError(f"a CUDA graph cannot return a {type(result).__name__}")


def cuda_graphed(forward):
    """Record inference calls on a GPU as CUDA graphs, one for each form of the inputs, and replay
    them; other calls are made as they are."""
    recorded = weakref.WeakKeyDictionary()

    def form_of(args):
        form = []
        for one in args:
            if type(one) is torch.Tensor and one.is_cuda:
                form += (one.shape, one.stride(), one.dtype, one.device)
            elif type(one) in (bool, int, float, str, type(None)):
                form += (type(one), one)
            else:
                return None
        return tuple(form)

    def record(self, args, form):
        devices = [one.device for one in args if isinstance(one, torch.Tensor)]
        if not devices or torch.cuda.is_current_stream_capturing():
            return None
        calls = recorded.setdefault(self, {})
        calls.pop(form, None)
        if len(calls) == 8:
            calls.clear()
        with torch.cuda.device(devices[0]):
            calls[form] = RecordedCall(forward, self, args)
        return calls[form]

    @functools.wraps(forward)
    def replayed(self, *args, **named):
        if named or self.training or torch.is_grad_enabled() or torch.is_autocast_enabled():
            return forward(self, *args, **named)
        form = form_of(args)
        if form is None:
            return forward(self, *args)
        call = recorded.get(self, {}).get(form)
        if call is None or not call.is_current():
            call = record(self, args, form)
        elif torch.cuda.is_current_stream_capturing():
            call = None
        return forward(self, *args) if call is None else call(args)

    return replayed
'''
"""What a file gets. Its hot path asks as little as it can: it stands before every call."""
UNFIT = (".item()", ".cpu()", ".tolist()", ".nonzero(", ".numpy()", "print(", "yield", "global ")
"""What cannot be recorded, or would happen once instead of at every call."""


def graphed(site: Site) -> Edit | None:
    """`@cuda_graphed` on the forward of a module that is called for inference with tensors by their
    places alone."""
    definition = site.definition
    if not isinstance(definition, cst.ClassDef) or not site.is_inference:
        return None
    forward = next((m for m in site.methods() if m.name.value == "forward"), None)
    if forward is None or forward.decorators or site.names.imports.get("torch") != "torch":
        return None
    parameters = forward.params
    is_plain = not (
        parameters.kwonly_params
        or isinstance(parameters.star_arg, cst.Param)
        or parameters.star_kwarg
        or any(one.default is not None for one in parameters.params)
    )
    if not is_plain or len(parameters.params) < 2:
        return None
    whole = site.module.code_for_node(definition)
    if (
        any(word in whole for word in UNFIT)
        or {DECORATOR, "RecordedCall"} & defined_in(site.module).keys()
    ):
        return None
    decorated = forward.with_changes(
        decorators=[cst.Decorator(cst.Name(DECORATOR))], lines_after_decorators=[]
    )
    return Edit(
        {forward: decorated},
        (f"`{definition.name.value}.forward` recorded and replayed",),
        frozenset({"functools", "weakref"}),
        HELPERS,
    )


REWRITES = (
    Rewrite(
        name="cuda_graph",
        family="cuda graph",
        precondition="a module that is called for inference with tensors alone, on a GPU, and "
        "whose forward does the same whatever they hold; a decorator is added to the file",
        why="launching its kernels one by one takes longer than they run: a graph launches all of "
        "them at once.",
        apply=graphed,
        is_of_program=True,
    ),
)
