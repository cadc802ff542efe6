"""Load, ask and save a language model with weights to train.

    policy = load_policy(PolicyConfig(path="weights"), adapter=checkpoint.folder)
    policy.prompt_ids(messages), policy.save(folder)

Weights are in bfloat16 on a GPU and in float32 on a CPU; those that are trained are in float32 on
both, as steps of the optimizer are smaller than bfloat16 resolves. A conversation becomes text by
the tokenizer's chat template; without one a message is its role, a line end, its content and an
empty line. An answer ends with the token that ends generation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Record
from cudal1_ci.records.validation import at_least, positive

Tuning = Literal["lora", "full"]


class PolicyConfig(Record, frozen=True, kw_only=True):
    """Configure the weights, and which of them are trained."""

    path: str
    """A folder of transformers."""
    tuning: Tuning = "lora"
    lora_rank: int = 14
    """On all linear layers but the last. The largest whose adapter in bf16 the repository can
    carry (`export.adapter.LIMIT_BYTES`): 14 of a Qwen2.5 with 0.5B parameters, 6 of one with
    1.5B."""
    lora_alpha: float = 28.0
    """The adapter counts alpha / rank times."""
    adapter: str | None = None
    """A folder of an adapter to begin with, of an earlier run's checkpoint or as it was exported;
    None is a new one. What the run calls its base has it."""
    device: str = "auto"
    """`cuda` where there is one, for `auto`: of several processes each takes its own; or `cpu`."""

    def __post_init__(self) -> None:
        at_least(self, "model", 1, "lora_rank")
        positive(self, "model", "lora_alpha")
        if self.adapter is not None and self.tuning == "full":
            raise ConfigError(
                'model.adapter: with tuning = "full" all weights are trained and an adapter is not '
                "loaded; merge it into the weights (`export merge`) and name them in model.path"
            )


@dataclass
class Policy:
    """Hold a model and its tokenizer."""

    model: Any
    """Of transformers, or of peft around one."""
    tokenizer: Any
    config: PolicyConfig

    @property
    def device(self) -> torch.device:
        found: torch.device = self.model.device
        return found

    @property
    def base(self) -> Any:
        """Return the model without what peft has put around it; its layers are the same."""
        return self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the weights that are trained."""
        return [one for one in self.model.parameters() if one.requires_grad]

    @property
    def ends(self) -> tuple[int, ...]:
        """Return tokens that end an answer, that of the tokenizer first."""
        given = self.base.generation_config.eos_token_id
        more = given if isinstance(given, list) else [] if given is None else [given]
        return tuple(dict.fromkeys([self.tokenizer.eos_token_id, *more]))

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens after which an answer begins."""
        return self._ids(rendered(self.tokenizer, messages, asks=True))

    def example_ids(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """Return the tokens of a conversation before its last message, and those of that answer
        with its end: the very tokens that sampling asks with and would have to write."""
        texts = [str(one) for one in self.tokenizer.convert_ids_to_tokens(list(self.ends))]
        asked, answered = parted(self.tokenizer, messages, texts)
        ids = self._ids(answered)
        return self._ids(asked), ids if ids and ids[-1] in self.ends else [*ids, self.ends[0]]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def save(self, folder: Path) -> None:
        """Save the adapter, or all weights with the tokenizer where all are trained."""
        self.model.save_pretrained(str(folder))
        if self.config.tuning == "full":
            self.tokenizer.save_pretrained(str(folder))

    def load(self, folder: Path) -> None:
        """Load the weights that `save` has written into this model."""
        if self.config.tuning == "full":
            self.model.load_state_dict(load_model(str(folder), self.device, "full").state_dict())
            return
        if not (folder / "adapter_config.json").is_file():
            raise ConfigError(
                f"{folder}: expected an adapter of peft (it has no adapter_config.json); name a "
                "checkpoint of a run, or what `export adapter` has written, in model.adapter"
            )
        try:
            found = self.model.load_adapter(str(folder), "default", is_trainable=True)
            missing = [*found.unexpected_keys, *(n for n in found.missing_keys if "lora_" in n)]
        except RuntimeError as error:  # torch's, of tensors of other shapes
            missing = [str(error)]
        if missing:
            raise ConfigError(
                f"{folder}: expected an adapter of {self.config.path} of rank "
                f"{self.config.lora_rank}, got another ({missing[0][:200]}); set model.lora-rank "
                "and model.path to what it was trained with"
            )


def load_policy(config: PolicyConfig, adapter: Path | None = None, *, seed: int = 0) -> Policy:
    """Load the model of a folder, with a new adapter or with weights that were trained before.

    Args:
        seed: Of a new adapter's weights.

    Raises:
        ConfigError: The folder is none of a model, or the adapter is another model's.
    """
    folder = Path(config.path).expanduser()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"model.path: {folder} is no folder of transformers (it has no config.json); download "
            "the weights with `hf download`, and name the folder"
        )
    model = load_model(str(folder), torch.device(device_of(config.device)), config.tuning)
    tokenizer = load_tokenizer(folder)
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"model.path: the tokenizer of {folder} has no token that ends an answer")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if config.tuning == "lora":
        # Of its own device alone: others may be the verifiers'.
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            model = get_peft_model(model, lora(config))
    policy = Policy(model=model, tokenizer=tokenizer, config=config)
    if adapter is not None:
        policy.load(adapter)
    return policy


def lora(config: PolicyConfig) -> LoraConfig:
    """Configure LoRA on all linear layers but the last."""
    return LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def load_model(folder: str, device: torch.device, tuning: Tuning) -> Any:
    is_exact = device.type == "cpu" or tuning == "full"
    kind = torch.float32 if is_exact else torch.bfloat16
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=kind)
    return model.to(device)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a folder. One that describes all of itself in its file is read as it
    is: transformers would go by the name of the model, and take that model's own way to part
    words."""
    path = folder / "tokenizer_config.json"
    said = msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
    if said.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return PreTrainedTokenizerFast.from_pretrained(str(folder))
    return AutoTokenizer.from_pretrained(str(folder))


def device_of(name: str) -> str:
    if name != "auto":
        return name
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def rendered(tokenizer: Any, messages: Sequence[Message], *, asks: bool) -> str:
    """Return a conversation as text; `asks` where the assistant's answer is to follow."""
    if tokenizer.chat_template is None:
        text = "".join(f"{one.role}\n{one.content}\n\n" for one in messages)
        return f"{text}assistant\n" if asks else text
    turns = [{"role": one.role, "content": one.content} for one in messages]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=asks)
    return str(text)


def parted(tokenizer: Any, messages: Sequence[Message], ends: Sequence[str]) -> tuple[str, str]:
    """Return the text that asks for the last message, and the answer's up to the first of the texts
    that end one.

    Raises:
        ConfigError: The template writes a conversation otherwise once it has an answer.
    """
    *before, answer = messages
    if answer.role != "assistant":
        raise ConfigError(
            f"an example's last message is of the {answer.role}: expected the assistant's answer"
        )
    asked = rendered(tokenizer, before, asks=True)
    if tokenizer.chat_template is None:
        return asked, answer.content
    whole = rendered(tokenizer, messages, asks=False)
    if not whole.startswith(asked):
        raise ConfigError(
            "model.path: the chat template of the tokenizer writes a question otherwise once it "
            "is answered; use a tokenizer whose template only adds to it"
        )
    answered = whole[len(asked) :]
    after = len(answer.content)
    stops = [place + len(end) for end in ends if (place := answered.find(end, after)) >= 0]
    return asked, answered[: min(stops, default=len(answered))]
