"""Make the tokenizer and the model of the toy language.

A token is a heading, a sentence, a program, the size of a task, or a role; any other text between
two of them is one unknown word. The text of an answer's tokens is what they were made of, letter by
letter, so that the product's parser reads it; of prompts the unknown words are lost. The programs
of exemplars are tokens of a prompt, so that what it shows can be seen by the model.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from model_training.toy.programs import PROGRAMS, SIZES, ToyProgram

PAD, UNKNOWN, END = "<pad>", "<unk>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
ANALYSIS = "## Performance analysis\n"
DESIGN = "\n\n## Algorithm design\n"
CODE = "\n\n## Code\n```python\n"
FENCE = "\n```\n"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
MAX_PLACES = 256
"""Of a prompt and its answer; they have about forty."""


def answer_to(program: ToyProgram) -> str:
    """Return the answer with a program, in the form that the prompt asks for: seven tokens and the
    end."""
    return f"{ANALYSIS}{program.analysis}{DESIGN}{program.design}{CODE}{program.code}{FENCE}"


def pieces() -> list[str]:
    """Return what is a token of its own, in the order of their numbers."""
    sentences = dict.fromkeys(
        text for program in PROGRAMS for text in (program.analysis, program.design)
    )
    sizes = [f"rows = {rows}\n" for rows in SIZES]
    return [ANALYSIS, DESIGN, CODE, FENCE, *sentences, *(one.code for one in PROGRAMS), *sizes]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer with a chat template, which pads on the left."""
    special = [PAD, UNKNOWN, END, *ROLES]
    words = [*special, *pieces()]
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=UNKNOWN)
    )
    # The longest first: of two that begin at a place the first that fits is taken.
    pattern = "|".join(re.escape(one) for one in sorted(pieces(), key=len, reverse=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=MAX_PLACES,
        clean_up_tokenization_spaces=False,
    )


def make_model_folder(path: Path, seed: int = 0) -> Path:
    """Write a transformer of two layers with random weights and its tokenizer, as transformers
    loads them."""
    tokenizer = make_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_PLACES,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
