"""The tokenizer of a model as fields of a GGUF file.

llama.cpp splits text by rules that are part of its code, and a file names the one that it needs. A
tokenizer's split is recognized by what its `tokenizer.json` says; one that is not known is refused:
with a wrong name a model would read other tokens than it was trained on, and say nothing of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cudal1_ci.errors import ConfigError

if TYPE_CHECKING:
    import gguf

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    rf"{WORDS}|\p{{N}}|{REST}": "qwen2",
    rf"{WORDS}|\p{{N}}{{1,3}}|{REST}": "llama-bpe",
}
"""Regular expressions of tokenizers, and llama.cpp's names for them."""


def add_vocabulary(writer: gguf.GGUFWriter, model: Path, vocab_size: int) -> None:
    """Tokens, merges, special tokens and the chat template.

    Raises:
        ConfigError: The tokenizer is not a byte-level BPE of a known kind.
    """
    import gguf

    path = model / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{path}: expected the tokenizer of the model, found none")
    found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    if found["model"].get("type") != "BPE":
        raise ConfigError(f"{path}, model.type: expected BPE, got {found['model'].get('type')}")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split_of(found, path))
    texts, types = tokens_of(found, vocab_size)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    special = gguf.SpecialVocab(model, load_merges=True, n_vocab=vocab_size)
    special.add_to_gguf(writer)


def tokens_of(found: dict[str, Any], vocab_size: int) -> tuple[list[str], list[int]]:
    """All of them by number, with their types. A model may have more rows than its tokenizer has
    tokens; those that are missing get a name and are never read."""
    import gguf

    texts = [f"[PAD{number}]" for number in range(vocab_size)]
    types: list[int] = [gguf.TokenType.UNUSED] * vocab_size
    for text, number in found["model"]["vocab"].items():
        texts[number], types[number] = text, gguf.TokenType.NORMAL
    for one in found["added_tokens"]:
        kind = gguf.TokenType.CONTROL if one["special"] else gguf.TokenType.USER_DEFINED
        texts[one["id"]], types[one["id"]] = one["content"], kind
    return texts, types


def split_of(found: dict[str, Any], path: Path) -> str:
    """llama.cpp's name for how text is split into words."""
    step = found.get("pre_tokenizer") or {}
    steps: list[dict[str, Any]] = step.get("pretokenizers", [step])
    kinds = [one.get("type") for one in steps]
    if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"]:
        return "smollm"
    if kinds == ["ByteLevel"] and steps[0]["use_regex"]:
        return "gpt-2"
    if kinds == ["Split", "ByteLevel"]:
        pattern = steps[0]["pattern"].get("Regex")
        if pattern in SPLITS:
            return SPLITS[pattern]
    known = ", ".join(["smollm", "gpt-2", *SPLITS.values()])
    raise ConfigError(
        f"{path}, pre_tokenizer: expected that of {known}, got {', '.join(map(str, kinds))}; "
        "llama.cpp's own converter knows more"
    )
