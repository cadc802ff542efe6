"""Settings: which place wins, what is refused, and that the refusal says where and what."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1_ci.config import Settings, load_settings
from cudal1_ci.config.keys import all_keys
from cudal1_ci.config.values import format_duration, parse_duration, shown
from cudal1_ci.errors import ConfigError

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"


def in_pyproject(root: Path, text: str) -> None:
    (root / "pyproject.toml").write_text(text)


def in_own_file(root: Path, text: str) -> None:
    (root / ".github").mkdir(exist_ok=True)
    (root / ".github" / "cudal1-ci.toml").write_text(text)


def load(root: Path, environ: dict[str, str] | None = None, **overrides: object) -> Settings:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_settings(root, overrides=named, environ=environ or {})


def origin(settings: Settings, key: str) -> tuple[object, str]:
    (found,) = [(value, where) for name, value, where in settings.origins() if name == key]
    return found


# --- which place wins --------------------------------------------------------------------------


def test_without_any_file_every_setting_is_its_default(tmp_path):
    settings = load(tmp_path)
    assert settings.file is None
    assert settings.workloads == ()
    assert settings == Settings(sources=settings.sources)
    assert {where for _, _, where in settings.origins()} == {"default"}
    assert [key for key, _, _ in settings.origins()] == list(all_keys())


@pytest.mark.parametrize("write", [in_pyproject, in_own_file])
def test_both_places_for_a_file_say_the_same(tmp_path, write):
    header, prefix = ("[tool.cudal1-ci]", "tool.cudal1-ci.") if write is in_pyproject else ("", "")
    write(
        tmp_path,
        f"""
        {header}
        trace = "pytest -q"
        budget = "10m"
        fail-on = "proposal"
        state-dir = "state"
        [{prefix}trial]
        threads = 4
        load = "90s"
        [{prefix}discover]
        exclude = ["experiments/**"]
        [[{prefix}workload]]
        target = "a.py:A"
        [[{prefix}workload]]
        target = "b.py:B"
        """,
    )
    settings = load(tmp_path)
    assert settings.trace == "pytest -q"
    assert settings.review.budget_s == 600.0
    assert settings.fail_on == "proposal"
    assert settings.state_dir == "state"
    assert settings.trial.threads == 4
    assert settings.trial.load_s == 90.0
    assert settings.discover.exclude == ("experiments/**",)
    assert settings.workloads == ({"target": "a.py:A"}, {"target": "b.py:B"})
    assert settings.file is not None
    assert origin(settings, "trial.load") == ("1m30s", str(settings.file.relative_to(tmp_path)))
    assert origin(settings, "trial.seed") == (0, "default")


def test_a_flag_beats_the_environment_and_that_the_file(tmp_path):
    in_pyproject(tmp_path, "[tool.cudal1-ci.trial]\nthreads = 2\nseed = 2\nmax-calls = 2\n")
    environ = {"CUDAL1_CI_TRIAL_THREADS": "3", "CUDAL1_CI_TRIAL_SEED": "3"}
    settings = load(tmp_path, environ, trial__threads=4)
    trial = settings.trial
    assert (trial.threads, trial.seed, trial.max_calls, trial.num_rounds) == (
        4,
        3,
        2,
        Settings().trial.num_rounds,
    )
    assert origin(settings, "trial.threads") == (4, "command line")
    assert origin(settings, "trial.seed") == (3, "CUDAL1_CI_TRIAL_SEED")
    assert origin(settings, "trial.max-calls") == (2, "pyproject.toml")


def test_flags_may_be_named_as_in_code_and_those_not_given_do_not_count(tmp_path):
    in_pyproject(tmp_path, '[tool.cudal1-ci]\nbudget = "5m"\n')
    settings = load_settings(
        tmp_path,
        overrides={
            "review.num_rounds": 5,
            "budget": None,
            "discover.include": ("a/**",),
            "fail_on": "never",
        },
        environ={},
    )
    assert settings.review.num_rounds == 5
    assert settings.review.budget_s == 300.0
    assert settings.discover.include == ("a/**",)


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("CUDAL1_CI_BUDGET", "1h30m", "budget", "1h30m"),
        ("CUDAL1_CI_STATE_DIR", "/var/state", "state-dir", "/var/state"),
        ("CUDAL1_CI_DISCOVER_TESTS", "true", "discover.tests", True),
        ("CUDAL1_CI_DISCOVER_TESTS", "0", "discover.tests", False),
        ("CUDAL1_CI_DISCOVER_EXCLUDE", "a/**, b/*.py,", "discover.exclude", ["a/**", "b/*.py"]),
        ("CUDAL1_CI_TRIAL_HALF_WIDTH", "0.02", "trial.half-width", 0.02),
        ("CUDAL1_CI_DEVICE", "cuda:1", "device", "cuda:1"),
    ],
)
def test_every_type_can_be_set_by_a_variable(tmp_path, variable, text, key, value):
    assert origin(load(tmp_path, {variable: text}), key) == (value, variable)


def test_an_empty_variable_is_not_set_and_other_programs_variables_do_not_matter(tmp_path):
    settings = load(tmp_path, {"CUDAL1_CI_BUDGET": "", "HOME": "/root", "CUDA_HOME": "/cuda"})
    assert origin(settings, "budget") == (None, "default")


def test_variables_of_the_process_are_read_unless_others_are_given(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDAL1_CI_TRACE", "make test")
    assert load_settings(tmp_path).trace == "make test"


def test_no_two_keys_share_a_variable():
    keys = all_keys()
    assert len({key.variable for key in keys.values()}) == len(keys)


@pytest.mark.parametrize(
    ("written", "found"),
    [("python3.12", "python3.12"), (".venv/bin/python", "ROOT/.venv/bin/python"), ("/p", "/p")],
)
def test_an_interpreter_in_a_file_is_relative_to_the_tree(tmp_path, written, found):
    in_pyproject(tmp_path, f'[tool.cudal1-ci]\npython = "{written}"\n')
    assert load(tmp_path).python == found.replace("ROOT", str(tmp_path))


def test_an_interpreter_in_a_flag_is_relative_to_where_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path / "repo", python="v/bin/python").python == str(tmp_path / "v/bin/python")


def test_the_link_that_makes_an_interpreter_a_virtual_environments_is_not_followed(tmp_path):
    (tmp_path / "python").symlink_to("/usr/bin/env")
    in_pyproject(tmp_path, '[tool.cudal1-ci]\npython = "./python"\n')
    assert load(tmp_path).python == str(tmp_path / "python")


# --- what is refused ---------------------------------------------------------------------------


def test_two_configurations_are_refused_by_both_names(tmp_path):
    in_pyproject(tmp_path, "[tool.cudal1-ci]\n")
    in_own_file(tmp_path, "")
    with pytest.raises(ConfigError, match=r"found two: .*pyproject\.toml and .*cudal1-ci\.toml"):
        load(tmp_path)


def test_a_pyproject_of_other_tools_beside_our_own_file_is_no_conflict(tmp_path):
    in_pyproject(tmp_path, "[tool.ruff]\n")
    in_own_file(tmp_path, 'trace = "pytest"')
    assert load(tmp_path).trace == "pytest"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('buget = "5m"', r"pyproject\.toml: unknown key `buget`; did you mean `budget`\?"),
        ('fail_on = "never"', r"unknown key `fail_on`; did you mean `fail-on`\?"),
        ("trial.thread = 2", r"unknown key `trial\.thread`; did you mean `trial\.threads`\?"),
        ("tiral.threads = 2", r"unknown key `tiral`; did you mean `trial`\?"),
        ("workloads = []", r"unknown key `workloads`; did you mean `workload`\?"),
        ('review.budget = "5m"', r"unknown key `review\.budget`; did you mean `budget`\?"),
        ("threads = 2", r"unknown key `threads`; did you mean `trial\.threads`\?"),
        ('qqq = "5m"', r"unknown key `qqq`; known keys: trace, harvest, python, .*discover"),
        ("trial.qqq = 1", r"unknown key `trial\.qqq`; known keys: trial\.threads, "),
        ('hub-token = "hunter2"', r"`hub-token`; it looks like a secret"),
        (
            'trial.threads = "two"',
            r'toml: `trial\.threads` must be a whole number, got the text "t',
        ),
        ("trial.threads = true", r"`trial\.threads` must be a whole number, got true"),
        ("trial.threads = 2.5", r"`trial\.threads` must be a whole number, got 2\.5"),
        ("trial = 3", r"`trial` must be a table, got 3"),
        ("discover.tests = 1", r"`discover\.tests` must be true or false, got 1"),
        (
            'discover.include = "a"',
            r"`discover\.include` must be a list, each item text, got the te",
        ),
        (
            "discover.include = [1]",
            r"`discover\.include` must be a list, each item text, got \[1\]",
        ),
        (
            'fail-on = "all"',
            r"must be one of `contract`, `inconclusive`, `never`, `proposal`, `regression`, got",
        ),
        ('device = "gpu"', r"`device` must be `auto`, `cpu`, `cuda`, `cuda:N`, several as `cuda:0"),
        ('device = "cuda:0,cpu"', r"`device` must be .* or `cuda:all`, got the text"),
        ('executor = "slurm"', r"`executor` must be one of `container`, `local`, `ray`, got the"),
        ("trace.x = 1", r"`trace` must be text, got a table with the keys 'x'"),
        ("budget = 600", r'`budget` must be a duration with its unit, such as "90s".*, got 600'),
        ('budget = "600"', r'`budget` must be a duration with its unit, .*, got the text "600"'),
        ("trial.threads = 0", r"threads.* got 0 \(set here: `trial\.threads` in pyproject\.toml\)"),
        ("workload = 3", r"`workload` must be an array of tables, got 3"),
        (
            "workload = {a = 1}",
            r"got a table with the keys 'a'; .*\[\[tool\.cudal1-ci\.workload\]\]",
        ),
    ],
)
def test_a_wrong_entry_names_the_file_the_key_and_the_mend(tmp_path, text, message):
    in_pyproject(tmp_path, f"[tool.cudal1-ci]\n{text}\n")
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path)
    assert "pyproject.toml" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["cudal1ci", "cudal1_ci", "cuda-l1-ci", "CudaL1-CI", "cudal1", "CUDAL1_CI"]
)
@pytest.mark.parametrize("beside", ["", "[tool.cudal1-ci]\n"])
def test_another_spelling_of_the_table_is_refused_with_the_right_one(tmp_path, name, beside):
    in_pyproject(tmp_path, f'{beside}[tool.{name}]\nbudget = "5m"\n')
    message = rf"pyproject\.toml: unknown table \[tool\.{name}\]; .* \[tool\.cudal1-ci\]\?"
    with pytest.raises(ConfigError, match=message):
        load(tmp_path)


def test_the_tables_of_other_tools_are_theirs(tmp_path):
    in_pyproject(tmp_path, "[tool.ruff]\n[tool.cuda]\n[tool.ci]\n[tool.cudal1-ci-plugin]\n")
    assert load(tmp_path).file is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"CUDAL1_CI_BUGET": "5m"}, r"unknown key `CUDAL1_CI_BUGET`; .* `CUDAL1_CI_BUDGET`\?"),
        ({"CUDAL1_CI_TRIAL_THREADS": "x"}, r"CUDAL1_CI_TRIAL_THREADS: .* a whole number, got the"),
        ({"CUDAL1_CI_BUDGET": "5"}, r"CUDAL1_CI_BUDGET: `budget` must be a duration"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path, environ, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, environ)


def test_a_wrong_flag_is_named(tmp_path):
    with pytest.raises(
        ConfigError, match=r'command line: `budget` must be .*, got the text "soon"'
    ):
        load(tmp_path, budget="soon")
    for text, message in (("soon", r"`--timeout` must be a dur"), ("0s", r"^--timeout: expected")):
        with pytest.raises(ConfigError, match=message) as caught:
            load_settings(tmp_path, {"trial.call": text}, {}, options={"trial.call": "--timeout"})
        assert "trial.call" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"the command line: unknown key `trial\.treads`"):
        load(tmp_path, trial__treads=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[tool.cudal1-ci\n", r"pyproject\.toml: expected TOML in UTF-8: .*line 1"),
        (b"[tool.cudal1-ci]\ntrace = '\xff'\n", r"pyproject\.toml: expected TOML in UTF-8"),
        (b"[tool]\ncudal1-ci = 3\n", r"\[tool\.cudal1-ci\] must be a table, got 3"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, message):
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path)


def test_a_tree_that_is_not_there_or_is_a_file_has_defaults_and_is_discoverys_to_refuse(tmp_path):
    (tmp_path / "file.py").write_text("")
    assert load(tmp_path / "file.py").file is None
    assert load(tmp_path / "missing").file is None


# --- durations and docs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("90s", 90, "1m30s"),
        ("10m", 600, "10m"),
        ("1h30m", 5400, "1h30m"),
        ("1h 30m", 5400, "1h30m"),
        ("0.5s", 0.5, "0.5s"),
        ("1.5h", 5400, "1h30m"),
        ("2h0m1s", 7201, "2h1s"),
        ("0s", 0, "0s"),
    ],
)
def test_durations_are_read_and_written(text, seconds, canonical):
    assert parse_duration(text) == seconds
    assert format_duration(seconds) == canonical
    assert parse_duration(canonical) == seconds


@pytest.mark.parametrize("text", ["", " ", "10", "m", "-5m", "5m1h", "10ms", "1d", "5M", 10, None])
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("key", all_keys())
def test_every_key_has_its_line_in_the_documentation_with_its_default(key):
    rows = DOCUMENT.read_text("utf-8").splitlines()
    row = next((row for row in rows if row.startswith(f"| `{key}` |")), None)
    assert row is not None, f"document `{key}` in docs/configuration.md"
    default = shown(all_keys()[key], all_keys()[key].default)
    if default is not None:
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert text in row.split("|")[2]
