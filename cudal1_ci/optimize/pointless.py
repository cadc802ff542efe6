"""Say why a candidate cannot gain anything, by what the recorded call does."""

from __future__ import annotations

from collections.abc import Mapping

from cudal1_ci.propose.apply import operators_of
from cudal1_ci.propose.recorded.graph import Graph, Operation, graph_of, values_in
from cudal1_ci.propose.wrappers.strategy import GRAPH_NAMES
from cudal1_ci.records import Candidate, Problem
from cudal1_ci.records.recording import RecordedValue, Recording

NO_PRODUCT = "the recorded call has no float32 product"
NO_CONVOLUTION = "the recorded call has no convolution"
NO_GRAPH = "the recorded call waits for the GPU or copies from the CPU: no CUDA graph can hold it"
WHY: Mapping[str, str] = {
    "cuda_graph": NO_GRAPH,
    "training_graph": NO_GRAPH,
    "fp32_tensor_cores": NO_PRODUCT,
    "channels_last": NO_CONVOLUTION,
    "channels_last_inside": NO_CONVOLUTION,
    "cudnn_benchmark": NO_CONVOLUTION,
}
"""What is missing, by the edit that needs it."""
OF_PRODUCTS = (
    *("conv", "mm", "matmul", "linear", "mv", "dot", "einsum", "product", "attention", "dist"),
    *("lstm", "gru", "rnn", "inner", "affine"),
)
"""Parts of the names of operations that may multiply matrices."""


def why_pointless(
    candidate: Candidate, problem: Problem, recording: Recording | None
) -> str | None:
    """Return what a candidate's edits need and the call does not do; None where nothing is missing,
    or where other workloads, which are not recorded, may do it."""
    operators = operators_of(candidate)
    needed = [WHY[one] for one in operators if one in WHY]
    if not GRAPH_NAMES.issuperset(operators):  # another edit may take away what no graph holds
        needed = [one for one in needed if one != NO_GRAPH]
    if not needed or recording is None or recording.is_cut or len(problem.workloads) > 1:
        return None
    graph = graph_of(recording)
    missing = {
        NO_PRODUCT: not any(is_float32_product(one, graph) for one in graph.operations),
        NO_CONVOLUTION: not any(is_convolution(one) for one in graph.operations),
        NO_GRAPH: any(ends_a_capture(one, graph) for one in graph.operations),
    }
    return next((why for why in needed if missing[why]), None)


def ends_a_capture(operation: Operation, graph: Graph) -> bool:
    """Return whether an operation fails while a CUDA graph is recorded: it waits for the GPU, or a
    tensor of the CPU that is no single number goes into one of the GPU."""
    made = [graph.of(value) for value in operation.recorded.outputs]
    read = [graph.of(value) for value in values_in(operation.recorded)]
    if not any(is_on_gpu(one) for one in [*made, *read]):
        return False
    from_cpu = any(one is not None and one.device == "cpu" and one.shape for one in read)
    return operation.recorded.syncs or (from_cpu and any(map(is_on_gpu, made)))


def is_on_gpu(value: RecordedValue | None) -> bool:
    """Return whether a tensor is on a GPU."""
    return value is not None and value.device.startswith("cuda")


def is_convolution(operation: Operation) -> bool:
    """Return whether an operation may convolve."""
    return "conv" in operation.name


def is_float32_product(operation: Operation, graph: Graph) -> bool:
    """Return whether an operation may multiply matrices in float32."""
    is_product = any(part in operation.name for part in OF_PRODUCTS)
    read = [graph.of(value) for value in values_in(operation.recorded)]
    return is_product and any(one is not None and one.dtype == "float32" for one in read)
