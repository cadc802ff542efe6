"""Teach a tiny model with random weights, in seconds, a language in which answers are rewarded.

    folder = make_model_folder(Path("toy"), seed=0)      # a folder of transformers, 100 kB
    tasks(), ToyJudge(), ToyProposer()

Prompts, parser and archive are the product's own. A heading, a sentence or a whole program is one
token (`language.py`), and the verifier looks programs up in a table (`programs.py`). For tests,
and to see all stages move on a CPU. What a model learns here is unrelated to kernels.
"""

from model_training.toy.judge import DEVICE, POLICY, ToyJudge, ToyProposer
from model_training.toy.language import answer_to, make_model_folder, make_tokenizer
from model_training.toy.programs import PROGRAMS, ToyProgram, tasks

__all__ = [
    "DEVICE",
    "POLICY",
    "PROGRAMS",
    "ToyJudge",
    "ToyProgram",
    "ToyProposer",
    "answer_to",
    "make_model_folder",
    "make_tokenizer",
    "tasks",
]
