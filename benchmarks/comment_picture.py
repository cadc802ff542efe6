"""The comment below a pull request of the example, as a person sees it: measured here, rendered as
GitHub renders Markdown (its own style sheet, from the npm package github-markdown-css), and taken
as a picture by headless Chromium.

    python benchmarks/comment_picture.py --css node_modules/github-markdown-css/github-markdown.css
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from compare_rates import LAYERS, cudal1_ci, git, repository
from markdown_it import MarkdownIt

from cudal1_ci.render import render
from cudal1_ci.render.comment import About, comment
from cudal1_ci.render.merge import merge
from cudal1_ci.render.reading import read_report

DOCS = Path(__file__).parents[1] / "docs"
REPORT = Path(__file__).parent / "results" / "comment-picture.json"
CHANGES = {
    "scoring.py": [
        ("return self.fc(x).sum(dim=-1)", "hidden = self.fc(x)\n        return hidden.sum(dim=-1)"),
        (
            "return shifted / shifted.sum(dim=-1, keepdim=True)",
            "total = torch.exp(logits - logits.max(dim=-1, keepdim=True)[0]).sum(-1, True)\n"
            "        return shifted / total",
        ),
    ],
    "mlp.py": [
        (
            """return (
            0.5
            * x
            * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        )""",
            'return F.gelu(x, approximate="tanh")',
        )
    ],
}
PAGE = """<!doctype html><meta charset="utf-8"><style>{css}</style>
<style>body {{ margin: 0; background: #fff }} article {{ width: 860px; padding: 24px;
border: 1px solid #d1d9e0; border-radius: 6px; margin: 16px }}</style>
<article class="markdown-body">{body}</article>"""
CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-device-scale-factor=1.5"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--css", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--height", type=int, default=1400)
    parser.add_argument("--report", type=Path, default=REPORT, help="where measured, and kept")
    parser.add_argument("--measured", action="store_true", help="draw the report that is there")
    parser.add_argument("--output", type=Path, default=DOCS / "images" / "comment.png")
    options = parser.parse_args()
    if not options.measured:
        options.report.write_text(measured(options.device), encoding="utf-8")
    document = read_report(options.report)
    about = About(
        run_url="https://github.com/owner/slowformer/actions/runs/1", head_sha=document.head_sha
    )
    body = MarkdownIt("gfm-like", {"linkify": False}).render(comment(document, about))
    # The first proposal is open, as after a click.
    body = body.replace("<details><summary><b>1.", "<details open><summary><b>1.", 1)
    page = PAGE.format(css=options.css.read_text("utf-8"), body=body)
    picture(page, options.height, options.output)


def measured(device: str) -> str:
    """The report of a pull request that makes one module slower and another one faster."""
    with tempfile.TemporaryDirectory() as folder:
        root = repository(Path(folder) / "slowformer", "cpu")
        git(root, "checkout", "-q", "-b", "work")
        for name, edits in CHANGES.items():
            file = root / LAYERS / name
            text = file.read_text("utf-8")
            for old, new in edits:
                assert old in text, old
                text = text.replace(old, new)
            file.write_text(text, encoding="utf-8")
        git(root, "commit", "-qam", "GELU in one kernel, softmax in steps")
        parts = []
        for words in (("compare", "base"), ("scan", ".", "--changed", "base", "--no-model")):
            part = Path(folder) / f"{words[0]}.json"
            cudal1_ci(root, *words, "--device", device, "--json", str(part), "--quiet")
            parts.append(read_report(part))
        return render(merge(parts), "json")


def picture(page: str, height: int, output: Path) -> None:
    output.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        words = (f"--window-size=960,{height}", f"--user-data-dir={folder}/profile")
        words += (f"--screenshot={output.resolve()}", file.as_uri())
        subprocess.run([*CHROMIUM, *words], check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    main()
