"""Pages: every one is in the site's index, links lead somewhere, and the language is plain."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cudal1_ci import assets, errors
from cudal1_ci.cli import group

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [ROOT / name for name in ("README.md", "SECURITY.md", ".github/CONTRIBUTING.md")]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
ADDRESS = SITE["repo_url"]


@pytest.fixture(scope="module")
def words():
    loader = importlib.machinery.SourceFileLoader("words", str(ROOT / ".ci/words"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("words", loader))
    loader.exec_module(module)
    return module


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def test_every_page_is_in_the_index_of_the_site():
    def pages(entry):
        if isinstance(entry, str):
            return [entry]
        return [one for part in entry.values() for each in part for one in pages(each)]

    listed = [one for entry in SITE["nav"] for one in pages(entry)]
    assert sorted(listed) == [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]


def anchors(path):
    """The anchors of a page, as the site and GitHub make them of headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one).lower() for one in headings]
    made = {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", one).strip()) for one in plain}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("path", [*PAGES, *OTHERS], ids=name_of)
def test_links_lead_to_files_and_headings(path):
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    held = {f"assets/{name}" for name in assets.manifest()}
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        place, _, anchor = link.partition("#")
        own = re.match(rf"{ADDRESS}/(?:blob|tree)/main/|{raw(ADDRESS)}/main/", link)
        if own:
            target = ROOT / place[own.end() :]
        elif re.match("[a-z]+:", link):
            continue
        else:
            target = (path.parent / place).resolve() if place else path
        found = target.exists() or any(
            one.startswith(target.relative_to(ROOT).as_posix()) for one in held
        )
        assert found, link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def raw(address):
    return address.replace("github.com", "raw.githubusercontent.com")


def test_links_of_the_readme_work_where_there_is_no_checkout():
    readme = (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", readme)
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.parametrize("path", [*PAGES, *OTHERS], ids=name_of)
def test_the_language_of_a_page_is_plain(words, path):
    assert list(words.page_findings(path)) == []


def test_long_sentences_and_private_words_of_a_page_are_found(words, tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{'word ' * 24}end.\n\n```\ntold\n```\n\nIt `told` us.\n")
    assert list(words.page_findings(page)) == []
    page.write_text(f"{'word ' * 24}end.\n")
    assert "25.0 words a sentence" in next(words.page_findings(page))
    page.write_text(f"Short. Short. Short.\n\n- {'word ' * 60}end.\n")
    assert "a sentence of 61 words" in next(words.page_findings(page))
    page.write_text("We were told. It stands beside it.\n")
    assert [one.split("'")[1] for one in words.page_findings(page)] == ["beside", "told"]


def test_private_words_of_comments_messages_and_templates_are_found(words, tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "cudal1_ci").mkdir()
    module = tmp_path / "cudal1_ci" / "module.py"
    module.write_text(
        '''"""Judge it.

    judged(it)
"""
# The judge waits.
SAID = f"the judge had its turn on {NAME}"
NAME = "judge"
'''
    )
    places = [line.split(": write")[0] for line in words.findings(module)]
    assert [place.split("'")[1] for place in places] == ["judge", "judge", "had its turn", "judge"]
    assert [place.split(":")[1] for place in places] == ["5", "6", "6", "1"]
    prompts = tmp_path / "cudal1_ci" / "propose" / "llm"
    prompts.mkdir(parents=True)
    (prompts / "task.py").write_text('SAID = "a judge runs it"\n')
    assert list(words.findings(prompts / "task.py")) == []
    template = tmp_path / "report.html.j2"
    template.write_text("{# judged #}{{ judged }} targets were judged")
    assert len(list(words.template_findings(template))) == 1


def test_pages_that_are_written_from_code_are_current():
    for script in (".ci/reference", ".ci/architecture"):
        command = [sys.executable, ROOT / script, "--check"]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_lists_are_lists_on_the_site_too(path):
    """Python-Markdown needs an empty line before a list, and four spaces before what is in one."""
    text = re.sub(
        r"^ *```.*?^ *```",
        lambda block: "\n" * block.group().count("\n"),
        path.read_text("utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    is_list, before = False, ""
    for line in text.splitlines():
        item = re.match(r"( *)(?:[-*]|\d+\.) ", line)
        if item:
            assert len(item.group(1)) % 4 == 0, line
            assert is_list or not before.strip(), line
        if line.strip():
            is_list = bool(item) or (is_list and line.startswith(" "))
        before = line


def test_the_page_of_exit_codes_has_every_code():
    page = (ROOT / "docs" / "exit-codes.md").read_text("utf-8")
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    own = {value for name, value in vars(group).items() if name.startswith("EXIT_")}
    failures = {
        one.exit_code
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.CudaL1Error)
    }
    assert listed == own | failures
