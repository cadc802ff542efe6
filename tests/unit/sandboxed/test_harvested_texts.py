"""How the text of a script is rewritten before it runs."""

from __future__ import annotations

import ast

from cudal1_ci.sandboxed.harvester.needs import missing
from cudal1_ci.sandboxed.harvester.smaller import Smaller
from cudal1_ci.sandboxed.harvester.substitutes import Rewriting


def rewritten(transformer, text):
    return ast.unparse(transformer.visit(ast.parse(text)))


def test_depths_and_batches_become_small_and_widths_stay():
    notes = []
    text = (
        "m = ViT(dim=512, depth=12, layers=1)\nB = 8\nx = torch.randn(16, 3, 8)\ny = torch.ones(7)"
    )
    found = rewritten(Smaller(notes.append), text)
    assert found.splitlines() == [
        "m = ViT(dim=512, depth=2, layers=1)",
        "B = 1",
        "x = torch.randn(1, 3, 8)",
        "y = torch.ones(7)",
    ]
    assert notes == ["depth 12 -> 2", "B 8 -> 1", "batch 16 -> 1"]


def test_sizes_in_a_tuple_are_small_too():
    found = rewritten(Smaller(lambda _: None), "x = torch.randint(0, 9, (4, 6))")
    assert found == "x = torch.randint(0, 9, (1, 6))"


def test_a_file_is_the_main_program_and_asks_for_no_pretrained_weights():
    notes = []
    text = (
        "if __name__ == '__main__':\n    m = f(pretrained=True)\nif name == '__main__':\n    pass"
    )
    found = rewritten(Rewriting(notes.append), text)
    assert found.splitlines() == [
        "if True:",
        "    m = f(pretrained=False)",
        "if name == '__main__':",
        "    pass",
    ]
    assert notes == ["random weights instead of pretrained ones"]


def test_a_message_says_what_is_missing():
    assert missing("Torch not compiled with CUDA enabled") == "needs a GPU"
    assert missing("URLError: <urlopen error>") == "needs a download"
    assert missing("shapes cannot be multiplied") == ""
