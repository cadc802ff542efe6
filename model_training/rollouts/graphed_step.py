"""The step of a decode loop: on a GPU a CUDA graph, which one call starts.

A step is some hundreds of short kernels, which Python would start one by one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from model_training.rollouts.kept import Kept


@dataclass
class Stepping:
    """Steps of a batch. The first after `renew` runs kernel by kernel, as what is captured must
    have run before; the second is captured and from then on replayed."""

    model: Any
    kept: Kept
    captures: bool
    """Whether to try: false on a CPU, and once it has failed."""
    num_captures: int = 0

    def __post_init__(self) -> None:
        self._has_run = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits_BV: torch.Tensor | None = None
        self._stream: torch.cuda.Stream | None = None
        if self.captures:
            self._stream = torch.cuda.Stream(self.model.device)  # type: ignore[no-untyped-call]

    def renew(self) -> None:
        """The batch has other rows: the graph is of memory that it no longer uses."""
        self._has_run = False
        self._graph = self._logits_BV = None

    def __call__(self) -> torch.Tensor:
        """Logits [B, V] of what follows the next token; the next call may overwrite them."""
        if self._stream is None or not self.captures:
            return self.kept.step(self.model)
        if not self._has_run:
            self._has_run = True
            return self._aside(self._stream)
        if self._graph is None:
            self._capture(self._stream)
        if self._graph is None or self._logits_BV is None:
            return self.kept.step(self.model)
        self._graph.replay()
        return self._logits_BV

    def _aside(self, stream: torch.cuda.Stream) -> torch.Tensor:
        """One step on the stream on which the next is captured."""
        here = torch.cuda.current_stream(self.model.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            logits_BV = self.kept.step(self.model)
        here.wait_stream(stream)
        logits_BV.record_stream(here)
        return logits_BV

    def _capture(self, stream: torch.cuda.Stream) -> None:
        """Nothing runs while it is captured, so that a capture that fails has changed nothing."""
        graph = torch.cuda.CUDAGraph()
        try:
            # The outer block takes the stream back where a capture ends with an error. Threads of
            # this process may allocate meanwhile.
            with (
                torch.cuda.stream(stream),
                torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            ):
                self._logits_BV = self.kept.step(self.model)
        except RuntimeError as error:
            self.captures, self._logits_BV = False, None
            release_generator(self.model.device)
            warnings.warn(
                "expected to capture a step of decoding as a CUDA graph, got "
                f"{type(error).__name__}: {str(error)[:300]}; it goes on kernel by kernel, which "
                "is slower",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self._graph = graph
        self.num_captures += 1


def release_generator(device: torch.device) -> None:
    """The device's generator of random numbers, which a capture that failed has not let go of, goes
    on from where it is. Raises nothing."""
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    # A state of its own: the one that is taken part in the capture says so for ever.
    generator.graphsafe_set_state(generator.clone_state())
