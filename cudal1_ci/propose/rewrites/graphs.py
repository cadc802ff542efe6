"""A module's inference call as one CUDA graph.

Half of what is called in a small model takes longer to launch than to run; a graph launches all of
it at once. What it must not do is kept out by what is written into the file: outputs of an earlier
call never change, inputs are read from where the caller has them now, and weights that lie
elsewhere than when it was recorded are noticed.
"""

from __future__ import annotations

import libcst as cst

from cudal1_ci.propose.rewrites.rewrite import Edit, Rewrite, Site, defined_in

DECORATOR = "cuda_graphed"
HELPERS = '''class RecordedCall:
    """An inference call as a CUDA graph. Tensors are copied into it, and what it returns is a copy;
    arguments and attributes that are no tensors are as they were when it was recorded. The copies
    are its first and last nodes where NVIDIA's bindings can tell them, before each replay, from and
    to where; else they are made around it, which takes twice as long in a small model."""

    def __init__(self, forward, module, args):
        self.lock = threading.Lock()
        with torch.inference_mode(False), torch.no_grad():
            self.args = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
            self.inputs = [
                place for place, mine in enumerate(self.args) if isinstance(mine, torch.Tensor)
            ]
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    result = forward(module, *self.args)
            torch.cuda.current_stream().wait_stream(side)
            self.remember(module)
            try:
                self.record_with_copies(forward, module, args, self.tensors_of(result))
            except (AttributeError, ImportError, KeyError):
                self.leads = None
                self.record(forward, module, torch.cuda.CUDAGraph())
            self.stream = torch.cuda.current_stream()
        if not self.is_current():
            raise RuntimeError("a forward that replaces what its module holds is no CUDA graph")
        self.is_one = isinstance(self.result, torch.Tensor)

    def record(self, forward, module, graph, sources=(), targets=()):
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for place, source in zip(self.inputs, sources):
                self.args[place].copy_(source)
            self.result = forward(module, *self.args)
            self.leaves = self.tensors_of(self.result)
            for place, target in enumerate(targets):
                if self.leaves[place].stride() != target.stride():
                    self.leaves[place] = self.leaves[place].clone()
                target.copy_(self.leaves[place])
        self.graph = graph

    def record_with_copies(self, forward, module, args, answers):
        """Raises ImportError without the bindings, AttributeError with a torch that does not hand
        out its graphs, KeyError where a copy is not a node that copies bytes in a row."""
        from cuda.bindings import runtime

        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
            raise AttributeError("raw_cuda_graph_exec")
        mine = [self.args[place] for place in self.inputs]
        for place, one in zip(self.inputs, mine):
            given = args[place]
            if one.is_complex() or given.is_neg() or one.stride() != given.stride():
                raise KeyError(place)
        sources, targets = ([torch.empty_like(one) for one in some] for some in (mine, answers))
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        self.record(forward, module, graph, sources, targets)
        nodes = {}
        recorded = graph.raw_cuda_graph()
        count = runtime.cudaGraphGetNodes(recorded, numNodes=0)[2]
        for node in runtime.cudaGraphGetNodes(recorded, numNodes=count)[1][:count]:
            kind = runtime.cudaGraphNodeGetType(node)[1]
            if kind == runtime.cudaGraphNodeType.cudaGraphNodeTypeMemcpy:
                copy = runtime.cudaGraphMemcpyNodeGetParams(node)[1]
                nodes[int(copy.srcPtr.ptr), int(copy.dstPtr.ptr)] = node
        graph.instantiate()
        executable = runtime.cudaGraphExec_t(graph.raw_cuda_graph_exec())
        update = runtime.cudaGraphExecMemcpyNodeSetParams1D
        way = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice

        def lead(source, to, comes_in):
            size = to.numel() * to.element_size()
            source, to = source.data_ptr(), to.data_ptr()
            node = nodes[source, to]
            if comes_in:
                return lambda place: update(executable, node, to, place, size, way)[0]
            return lambda place: update(executable, node, place, source, size, way)[0]

        self.leads = [lead(*pair, True) for pair in zip(sources, mine)]
        self.leads += [lead(*pair, False) for pair in zip(self.leaves, targets)]
        self.places = [None for _ in self.leads]

    def remember(self, module):
        self.parts = [
            (held, name, one)
            for part in module.modules()
            for held in (part._parameters, part._buffers, part._modules, vars(part))
            for name, one in held.items()
            if held is not vars(part) or isinstance(one, torch.Tensor)
        ]
        tensors = [one for _, _, one in self.parts if isinstance(one, torch.Tensor)]
        self.weights = [(one.data_ptr, one.data_ptr()) for one in tensors]

    def is_current(self):
        """Whether the parts are those that were recorded, with their weights where they lay."""
        for held, name, one in self.parts:
            if held.get(name) is not one:
                return False
        for place, recorded in self.weights:
            if place() != recorded:
                return False
        return True

    def __call__(self, args):
        """The answer; None where a node cannot copy from or to where a tensor lies."""
        if self.leads is None:
            outs = self.copied_around(args)
        else:
            outs = [torch.empty_like(one) for one in self.leaves]
            places = [args[place].data_ptr() for place in self.inputs]
            places += [one.data_ptr() for one in outs]
            with self.lock:
                for number, (lead, place) in enumerate(zip(self.leads, places)):
                    if place != self.places[number]:
                        if lead(place):
                            return None
                        self.places[number] = place
                self.graph.replay()
        return outs[0] if self.is_one else self.put(self.result, iter(outs))

    def copied_around(self, args):
        with self.lock:
            stream = torch.cuda.current_stream()
            if stream != self.stream:
                stream.wait_stream(self.stream)
                self.stream = stream
            for place in self.inputs:
                self.args[place].copy_(args[place])
            self.graph.replay()
            return [one.clone() for one in self.leaves]

    def tensors_of(self, result):
        if isinstance(result, torch.Tensor):
            return [result]
        parts = result.values() if isinstance(result, dict) else result
        if type(result) not in (tuple, list) and not isinstance(result, dict):
            raise TypeError(f"a CUDA graph cannot return a {type(result).__name__}")
        return [one for part in parts for one in self.tensors_of(part)]

    def put(self, result, outs):
        """The result with other tensors in it."""
        if isinstance(result, torch.Tensor):
            return next(outs)
        if isinstance(result, dict):
            return {key: self.put(value, outs) for key, value in result.items()}
        return type(result)(self.put(value, outs) for value in result)


def cuda_graphed(forward):
    """Record inference calls on a GPU as CUDA graphs, one for each form of the inputs, and replay
    them; other calls are made as they are."""
    recorded = weakref.WeakKeyDictionary()

    def form_of(args):
        form = []
        for one in args:
            if type(one) is torch.Tensor and one.is_cuda and one.layout is torch.strided:
                form += (one.shape, one.stride(), one.dtype, one.device, one.is_neg())
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
        answer = None if call is None else call(args)
        return forward(self, *args) if answer is None else answer

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
        frozenset({"functools", "threading", "weakref"}),
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
