"""A server of OpenAI's protocol for weights, which answers many requests at once.

    python benchmarks/batch_server.py /models/qwen2.5-coder-0.5b --port 8100
    python benchmarks/batch_server.py /models/base --adapter /models/lora --device cpu --batch 4

For machines with torch and transformers and no vLLM; it needs nothing else (and peft for an
adapter, which is added into the weights). Requests that come within `--wait-ms` of one another are
generated together, by `generate` of transformers with padding on the left and the attention of
training's decode loop, which copies no keys: a step costs about the same for one row as for a
hundred. A prompt that several rows have is read once. What waits is sorted by the length of its
prompt, so that little of a batch is padding; the oldest request is always in the next batch.

Every row is drawn by itself: with its own temperature and top_p, from a generator with its own
seed, whatever it is generated with. So a seed holds as far as arithmetic does: the same request in
another batch has logits that differ in their last bits, and a draw that is close may turn out
otherwise. Temperature 0 is the likeliest token. Greedy rows and sampled ones are generated apart.

`stop` and `max_tokens` end a row, `n` makes rows with the seeds from `seed` on. A reply is whole
when it comes: one that is asked for as a stream has all its text in one event. A request whose
client has gone is left.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MAX_TOKENS = 1024
"""Of a request that does not say."""
LONGEST_WAIT = 10
"""Times `--wait-ms`: however steadily requests come, the first does not wait longer."""
STOP_TOKENS = 16
"""Looked at for the words that end an answer."""
LEAST_NOISE = 2.0**-25
"""Half of what single precision resolves beside 1: where a draw is rounded to zero, a token of no
probability at all would win."""
GONE_S = 0.5
"""Between two looks whether a client is still there."""


class BadRequest(Exception):
    """What the protocol answers with 400."""


@dataclass(eq=False)
class Row:
    """One answer that is asked for, and what came of it."""

    prompt: list[int]
    temperature: float
    top_p: float
    seed: int
    max_tokens: int
    stop: tuple[str, ...] = ()
    text: str = ""
    num_tokens: int = 0
    finish_reason: str = "stop"
    error: str | None = None
    is_left: bool = False
    """Nobody waits for it any more."""
    is_done: threading.Event = field(default_factory=threading.Event)


def rows_of(request: dict[str, Any], prompt: list[int]) -> list[Row]:
    """The answers that a request wants.

    Raises:
        BadRequest: A value is not of the protocol.
    """
    stop = request.get("stop") or ()
    tokens = request.get("max_completion_tokens") or request.get("max_tokens") or MAX_TOKENS
    try:
        row = {
            "temperature": float(number(request.get("temperature"), 1.0)),
            "top_p": float(number(request.get("top_p"), 1.0)),
            "max_tokens": int(tokens),
            "stop": (stop,) if isinstance(stop, str) else tuple(map(str, stop)),
        }
        count, seed = int(number(request.get("n"), 1)), int(number(request.get("seed"), 0))
    except (TypeError, ValueError) as error:
        raise BadRequest(str(error)) from error
    if row["temperature"] < 0 or not 0 < row["top_p"] <= 1 or row["max_tokens"] < 1 or count < 1:
        raise BadRequest("expected temperature >= 0, 0 < top_p <= 1, max_tokens >= 1, n >= 1")
    return [Row(prompt=prompt, seed=seed + place, **row) for place in range(count)]


def number(given: Any, default: float) -> Any:
    return default if given is None else given


def next_batch(waiting: Sequence[Row], most: int) -> list[Row]:
    """Rows to be generated together: of the kind of the oldest, the slice in which it lies when all
    of that kind are sorted by length. `waiting` is in the order of arrival."""
    oldest = waiting[0]
    is_greedy = oldest.temperature == 0
    alike = [row for row in waiting if (row.temperature == 0) == is_greedy]
    alike.sort(key=lambda row: len(row.prompt))
    first = next(place for place, row in enumerate(alike) if row is oldest) // most * most
    return alike[first : first + most]


def padded(prompts: Sequence[Sequence[int]], pad: int) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts of one length, filled on the left, and a mask of what they are made of."""
    length = max(map(len, prompts))
    missing = [length - len(prompt) for prompt in prompts]
    return (
        [[pad] * gap + list(prompt) for gap, prompt in zip(missing, prompts, strict=True)],
        [[0] * gap + [1] * (length - gap) for gap in missing],
    )


def ended(tokens: Sequence[int], ends: frozenset[int], most: int) -> tuple[list[int], str]:
    """The tokens before the first that ends an answer, and why it ends there."""
    for place, token in enumerate(tokens[:most]):
        if token in ends:
            return list(tokens[:place]), "stop"
    return list(tokens[:most]), "length"


def until(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first of the words that end it, and whether there was one."""
    places = [place for word in stop if (place := text.find(word)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


# --- generating ----------------------------------------------------------------------------------


class Weights:
    """A model with its tokenizer on a device. Only this class knows torch."""

    def __init__(self, folder: Path, adapter: Path | None, device: str, dtype: str):
        import torch
        import transformers

        from model_training.rollouts.grouped_attention import grouped_attention

        self.torch, self.transformers = torch, transformers
        self.attention = grouped_attention
        self.device = device
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.lock = threading.Lock()
        """Tokenizers are not for two threads."""
        form = getattr(torch, dtype)
        # An adapter is added in single precision: rounded once, when the sum is.
        first = torch.float32 if adapter else form
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=first)
        if adapter is not None:
            import peft

            model = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()
        self.model = model.to(device=device, dtype=form).eval()
        own = self.model.generation_config.eos_token_id
        ends = {*(own if isinstance(own, list) else [own]), self.tokenizer.eos_token_id}
        self.ends = frozenset(end for end in ends if end is not None)
        pad = self.tokenizer.pad_token_id
        self.pad = int(min(self.ends) if pad is None else pad)
        # Whatever a folder says of sampling, what is asked for holds.
        self.model.generation_config = transformers.GenerationConfig()

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """A conversation as tokens, up to where the answer begins."""
        with self.lock:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def generate(self, rows: Sequence[Row]) -> int:
        """Answers all rows; returns the number of tokens that were made."""
        torch = self.torch
        ids, mask = padded([row.prompt for row in rows], self.pad)
        config = self.transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=max(row.max_tokens for row in rows),
            eos_token_id=sorted(self.ends),
            pad_token_id=self.pad,
        )
        with torch.inference_mode(), self.attention(self.model):
            made = self.model.generate(
                input_ids=torch.tensor(ids, device=self.device),
                attention_mask=torch.tensor(mask, device=self.device),
                past_key_values=self.read(ids, mask),
                generation_config=config,
                logits_processor=[self.drawing(rows)],
                stopping_criteria=[self.stopping(rows, len(ids[0]))],
            )
        for row, tokens in zip(rows, made[:, len(ids[0]) :].tolist(), strict=True):
            self.finish(row, tokens)
        return sum(row.num_tokens for row in rows)

    def read(self, ids: Sequence[list[int]], mask: Sequence[list[int]]) -> Any:
        """The keys and values of all but the last token of each row, where rows are alike: those of
        different prompts are computed once. None where all differ."""
        places = {tuple(row): place for place, row in reversed(list(enumerate(ids)))}
        if len(places) == len(ids):
            return None
        torch, firsts = self.torch, sorted(places.values())
        shown = torch.tensor([mask[place] for place in firsts], device=self.device)[:, :-1]
        cache = self.transformers.DynamicCache(config=self.model.config)
        self.model.model(  # without the logits, which nobody asks for
            input_ids=torch.tensor([ids[place] for place in firsts], device=self.device)[:, :-1],
            attention_mask=shown,
            position_ids=(shown.cumsum(-1) - 1).clamp_min(0),
            past_key_values=cache,
        )
        whose = [firsts.index(places[tuple(row)]) for row in ids]
        cache.batch_select_indices(torch.tensor(whose, device=self.device))
        return cache

    def finish(self, row: Row, tokens: list[int]) -> None:
        kept, row.finish_reason = ended(tokens, self.ends, row.max_tokens)
        with self.lock:
            text = self.tokenizer.decode(kept, skip_special_tokens=True)
        row.text, is_stopped = until(text, row.stop)
        if is_stopped:
            row.finish_reason = "stop"
        # The token that ends an answer was made too.
        row.num_tokens = len(kept) + (row.finish_reason == "stop" and not is_stopped)

    def drawing(self, rows: Sequence[Row]) -> Callable[[Any, Any], Any]:
        """Makes the likeliest token that of a draw: with exponential noise of a row's own generator
        the largest p / noise is distributed as p is (the Gumbel trick)."""
        torch, device = self.torch, self.device
        sampled = [place for place, row in enumerate(rows) if row.temperature > 0]
        generators = {
            place: torch.Generator(device=device).manual_seed(rows[place].seed) for place in sampled
        }
        drawn_rows = torch.tensor(sampled, dtype=torch.long, device=device)
        heat = torch.tensor([rows[place].temperature for place in sampled], device=device)
        shares = torch.tensor([rows[place].top_p for place in sampled], device=device)

        def draw(_: Any, scores: Any) -> Any:
            if not sampled:
                return scores
            scores = scores.float()
            drawn = scores[drawn_rows] / heat[:, None]
            if any(rows[place].top_p < 1 for place in sampled):
                drawn = self.likeliest(drawn, shares)
            noise = torch.empty_like(drawn)
            for one, place in zip(noise, sampled, strict=True):
                one.exponential_(generator=generators[place])
            scores[drawn_rows] = drawn - noise.clamp_min(LEAST_NOISE).log()
            return scores

        return draw

    def likeliest(self, scores: Any, shares: Any) -> Any:
        """Without the tokens beyond each row's share of the probability."""
        ordered, places = scores.sort(dim=-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        ordered = ordered.masked_fill(before >= shares[:, None], float("-inf"))
        return self.torch.empty_like(scores).scatter_(-1, places, ordered)

    def stopping(self, rows: Sequence[Row], length: int) -> Callable[..., Any]:
        """Which rows have all they may have, hold a word that ends them, or are not waited for."""
        torch = self.torch
        most = torch.tensor([row.max_tokens for row in rows], device=self.device)
        worded = [(place, row) for place, row in enumerate(rows) if row.stop]

        def stopped(ids: Any, _: Any, **__: Any) -> Any:
            num_new = ids.shape[1] - length
            done = most <= num_new
            for place, row in worded:
                tail = ids[place, max(length, ids.shape[1] - STOP_TOKENS) :]
                with self.lock:
                    done[place] |= until(self.tokenizer.decode(tail), row.stop)[1]
            for place, row in enumerate(rows):
                if row.is_left:
                    done[place] = True
            return done

        return stopped


class Batches(threading.Thread):
    """Collects rows, and has them generated."""

    def __init__(self, weights: Weights, *, most: int, wait_s: float):
        super().__init__(name="batches", daemon=True)
        self.weights, self.most, self.wait_s = weights, most, wait_s
        self.waiting: list[Row] = []
        self.changed = threading.Condition()

    def add(self, rows: Sequence[Row]) -> None:
        with self.changed:
            self.waiting += rows
            self.changed.notify()

    def run(self) -> None:
        while True:
            batch = self.collected()
            started_s = time.monotonic()
            try:
                num_tokens = self.weights.generate(batch)
            except Exception as error:  # noqa: BLE001 (whatever it is, the clients are told)
                num_tokens = 0
                for row in batch:
                    row.error = f"{type(error).__name__}: {error}"
                print(batch[0].error, file=sys.stderr, flush=True)
            for row in batch:
                row.is_done.set()
            seconds = time.monotonic() - started_s
            lengths = [len(row.prompt) for row in batch]
            print(
                f"{len(batch)} rows of {min(lengths)} to {max(lengths)} tokens: {num_tokens} more "
                f"in {seconds:.1f} s, {num_tokens / seconds:.0f} tokens/s; "
                f"{len(self.waiting)} waiting",
                file=sys.stderr,
                flush=True,
            )

    def collected(self) -> list[Row]:
        """The next batch, once a full one waits or nothing came for a moment."""
        with self.changed:
            while True:
                while not self.waiting:
                    self.changed.wait()
                over_s = time.monotonic() + LONGEST_WAIT * self.wait_s
                while len(self.waiting) < self.most and time.monotonic() < over_s:
                    if not self.changed.wait(self.wait_s):
                        break
                self.waiting = [row for row in self.waiting if not row.is_left]
                if self.waiting:
                    break
            batch = next_batch(self.waiting, self.most)
            self.waiting = [row for row in self.waiting if row not in batch]
            return batch


# --- the protocol --------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], name: str, weights: Weights, batches: Batches):
        super().__init__(address, Handler)
        self.name, self.weights, self.batches = name, weights, batches

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Batches are told of."""

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            self.failed(404, f"there is no {self.path}")
            return
        found = {"id": self.server.name, "object": "model", "created": 0, "owned_by": "local"}
        self.document(200, {"object": "list", "data": [found]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != "/v1/chat/completions":
            self.failed(404, f"there is no {self.path}")
            return
        try:
            request = json.loads(body)
            rows = rows_of(request, self.server.weights.prompt(request["messages"]))
        except (BadRequest, KeyError, TypeError, ValueError) as error:
            self.failed(400, f"{type(error).__name__}: {error}")
            return
        self.server.batches.add(rows)
        for row in rows:
            while not row.is_done.wait(GONE_S):
                if is_gone(self.connection):
                    for one in rows:
                        one.is_left = True
                    self.close_connection = True
                    return
        if rows[0].error is not None:
            self.failed(500, rows[0].error)
        elif request.get("stream"):
            self.stream(rows, request)
        else:
            self.document(200, document_of(rows, self.server.name))

    def stream(self, rows: Sequence[Row], request: dict[str, Any]) -> None:
        said = [
            event_of(self.server.name, place, row.text, reason)
            for place, row in enumerate(rows)
            for reason in (None, row.finish_reason)
        ]
        if (request.get("stream_options") or {}).get("include_usage"):
            said.append({**event_of(self.server.name), "choices": [], "usage": usage_of(rows)})
        lines = [f"data: {json.dumps(one)}\n\n" for one in said]
        self.whole(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

    def failed(self, code: int, message: str) -> None:
        error = {"message": message, "type": "error", "param": None, "code": None}
        self.document(code, {"error": error})

    def document(self, code: int, value: Any) -> None:
        self.whole(code, json.dumps(value).encode(), "application/json")

    def whole(self, code: int, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def is_gone(connection: socket.socket) -> bool:
    """Whether the other side has closed."""
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def usage_of(rows: Sequence[Row]) -> dict[str, int]:
    prompt, made = len(rows[0].prompt), sum(row.num_tokens for row in rows)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def document_of(rows: Sequence[Row], name: str) -> dict[str, Any]:
    choices = [
        {
            "index": place,
            "message": {"role": "assistant", "content": row.text},
            "finish_reason": row.finish_reason,
        }
        for place, row in enumerate(rows)
    ]
    return {
        **event_of(name),
        "object": "chat.completion",
        "choices": choices,
        "usage": usage_of(rows),
    }


def event_of(
    name: str, place: int = 0, text: str = "", reason: str | None = None
) -> dict[str, Any]:
    """A piece of a stream: the text, or with a reason the end."""
    delta = {} if reason else {"role": "assistant", "content": text}
    choice = {"index": place, "delta": delta, "finish_reason": reason}
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": name,
        "choices": [choice],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?", help="folder of weights with a tokenizer")
    parser.add_argument("--adapter", type=Path, help="folder of a LoRA adapter")
    parser.add_argument("--name", help="what the model is called; else its folder's name")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch", type=int, default=128, help="rows generated together at most")
    parser.add_argument("--wait-ms", type=float, default=50.0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    options = parser.parse_args()
    if options.model is None:
        print("no weights given: nothing is served")
        return
    weights = Weights(options.model, options.adapter, options.device, options.dtype)
    batches = Batches(weights, most=options.batch, wait_s=options.wait_ms / 1000)
    batches.start()
    name = options.name or options.model.name
    if options.adapter and not options.name:
        name = f"{name}+{options.adapter.name}"
    server = Server((options.host, options.port), name, weights, batches)
    print(f"{name} at http://{options.host}:{server.server_port}/v1", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
