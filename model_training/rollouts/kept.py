"""What is kept of the rows of a batch while they are written on: keys, values and places.

    kept = prefilled(model, rows, num_more=512, pad=0)
    logits_BV = kept.step(model)

A row's prompt is in the first columns, and what is written in those after the longest prompt, so
that all rows are written on in the same column. What lies between is hidden by a mask; where a
token is in its text is told by its position. All that a step reads and changes stays where it is
in memory, as a CUDA graph asks for.

Shapes: B rows, P tokens of a prompt but the last, L columns that are kept, V of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, StaticCache, StaticLayer, StaticSlidingWindowLayer
from transformers.cache_utils import Cache

from cudal1_ci.errors import ConfigError

PREFILL_TOKENS = 16_384
"""In one pass, by estimate enough to keep a GPU busy: more of them take more memory."""
MULTIPLE = 8
"""Of columns: kernels read whole vectors."""


class KeptLayer(StaticLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, [B, heads, L, size]; new ones are written into the column that
    all layers share."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, column: torch.Tensor) -> None:
        super().__init__(max_cache_len=keys.shape[2])
        self.keys: torch.Tensor = keys
        self.values: torch.Tensor = values
        self.column = column
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.index_copy_(2, self.column, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.column, value_states.to(self.values.dtype))
        return self.keys, self.values

    def get_seq_length(self) -> torch.Tensor:  # type: ignore[override]
        return self.column[0]


@dataclass
class Kept:
    """Of a batch."""

    layers: list[KeptLayer]
    mask_B11L: torch.Tensor
    """Added to scores: 0 where a row has a token, else the least number."""
    position_B1: torch.Tensor
    """Of the next token in its row."""
    column: torch.Tensor
    """[1]: where the next token's keys are written."""
    token_B1: torch.Tensor
    """The next token."""

    def __post_init__(self) -> None:
        self._cache = Cache(layers=list(self.layers))

    def step(self, model: Any) -> torch.Tensor:
        """Take in the next token: logits [B, V] of what follows it. Nothing here makes the
        processor wait for the device."""
        self.mask_B11L.index_fill_(3, self.column, 0.0)
        logits_B1V: torch.Tensor = model(
            input_ids=self.token_B1,
            attention_mask=self.mask_B11L,
            position_ids=self.position_B1,
            past_key_values=self._cache,
            use_cache=True,
        ).logits
        self.column.add_(1)
        self.position_B1.add_(1)
        return logits_B1V[:, -1]

    def select(self, places: Sequence[int]) -> None:
        """Go on with these rows alone."""
        chosen = torch.tensor(places, device=self.column.device)
        for layer in self.layers:
            layer.keys = layer.keys.index_select(0, chosen)
            layer.values = layer.values.index_select(0, chosen)
        self.mask_B11L = self.mask_B11L.index_select(0, chosen)
        self.position_B1 = self.position_B1.index_select(0, chosen)
        self.token_B1 = self.token_B1.index_select(0, chosen)


def prefilled(model: Any, rows: Sequence[Sequence[int]], num_more: int, pad: int) -> Kept:
    """What is kept of prompts, with space for `num_more` tokens. All tokens of a prompt but the
    last have been read, once where rows share them; the last is the first step's.

    Raises:
        ConfigError: A layer of the model keeps something else than the keys and values of all.
    """
    device = model.device
    starts = [tuple(row[:-1]) for row in rows]
    width = rounded_up(max(map(len, starts)))
    length = rounded_up(width + num_more)
    check_layers(model, length)
    column = torch.tensor([width], device=device)
    layers: list[KeptLayer] = []
    for piece in pieces(starts, PREFILL_TOKENS):
        made = read(model, piece, pad)
        layers = layers or [empty(one, len(rows), length, column) for one in made]
        numbers = {start: number for number, start in enumerate(piece)}
        pairs = [(b, numbers[start]) for b, start in enumerate(starts) if start in numbers]
        places, sources = torch.tensor(pairs, device=device).unbind(1)
        for layer, one in zip(layers, made, strict=True):
            columns = slice(0, one.keys.shape[2])
            layer.keys[places, :, columns] = one.keys[sources].to(layer.keys.dtype)
            layer.values[places, :, columns] = one.values[sources].to(layer.values.dtype)
    num_read_B1 = torch.tensor([[len(start)] for start in starts], device=device)
    is_open_BL = torch.arange(length, device=device) < num_read_B1
    return Kept(
        layers=layers,
        mask_B11L=additive(is_open_BL[:, None, None], compute_dtype(model)),
        position_B1=num_read_B1,
        column=column,
        token_B1=torch.tensor([[row[-1]] for row in rows], device=device),
    )


def pieces(rows: Sequence[Sequence[int]], num_tokens: int) -> list[list[tuple[int, ...]]]:
    """Distinct rows, the longest first, in pieces of at most so many tokens with their padding, or
    of one row."""
    left = sorted(dict.fromkeys(map(tuple, rows)), key=len, reverse=True)
    found = []
    while left:
        num_rows = max(1, num_tokens // max(1, len(left[0])))
        found.append(left[:num_rows])
        left = left[num_rows:]
    return found


def read(model: Any, rows: Sequence[Sequence[int]], pad: int) -> list[Any]:
    """The layers with keys and values of rows. They are padded on the right, where no token of the
    row looks, so that attention needs no mask and the quickest kernel does it."""
    width = max(1, max(map(len, rows)))
    tokens_BP = torch.tensor([list(row) + [pad] * (width - len(row)) for row in rows])
    cache = DynamicCache()
    model(
        input_ids=tokens_BP.to(model.device),
        position_ids=torch.arange(width, device=model.device).expand(len(rows), -1),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return list(cache.layers)


def empty(layer: Any, num_rows: int, length: int, column: torch.Tensor) -> KeptLayer:
    """As wide as a layer that has been read. Under autocast keys may be in float32, as positions
    are; all products are of the smaller kind."""
    keys, values = (
        one.new_zeros(
            (num_rows, one.shape[1], length, one.shape[3]),
            dtype=autocast_dtype(one.device.type) or one.dtype,
        )
        for one in (layer.keys, layer.values)
    )
    return KeptLayer(keys, values, column)


def check_layers(model: Any, length: int) -> None:
    """Every layer must look at all columns."""
    layers: list[Any] = StaticCache(config=model.config, max_cache_len=length).layers
    known = (StaticLayer, StaticSlidingWindowLayer)
    if any(type(one) not in known or one.max_cache_len < length for one in layers):
        raise ConfigError(
            "model.path: a layer of the model looks at a part of a prompt and its answer "
            f"({length} tokens) only, or keeps no keys and values: expected attention to all of "
            'them; set rollouts.kind = "vllm", or fewer tokens'
        )


def additive(is_open: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    closed = torch.full_like(is_open, torch.finfo(dtype).min, dtype=dtype)
    return closed.masked_fill_(is_open, 0.0)


def compute_dtype(model: Any) -> torch.dtype:
    """Of scores."""
    found: torch.dtype = autocast_dtype(model.device.type) or model.dtype
    return found


def autocast_dtype(kind: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def rounded_up(number: int) -> int:
    return -(-number // MULTIPLE) * MULTIPLE
