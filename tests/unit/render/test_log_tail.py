"""What of a log is shown beside a verdict."""

from __future__ import annotations

from cudal1_ci.render.log_tail import NUM_LINES, log_tail

TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/site-packages/cudal1_ci/sandboxed/runner/subject.py", line 102, in load
    self.program = found(*args, **kwargs)
                   ^^^^^^^^^^^^^^^^^^^^^^
"""
USERS = """\
  File "fast.py", line 8, in __init__
    self.fc = nn.Linear(dim)
              ^^^^^^^^^^^^^^
"""
RAISED = "TypeError: missing 1 argument\n"


def test_frames_of_what_runs_a_program_are_left_out():
    assert log_tail(TRACEBACK + RAISED) == ["TypeError: missing 1 argument"]


def test_no_line_is_shown_without_the_frame_that_it_is_of():
    shown = log_tail(TRACEBACK + USERS + USERS.replace("8", "9") + RAISED)
    assert shown == [*USERS.replace("8", "9").splitlines(), RAISED.strip()]


def test_frames_of_the_import_system_are_left_out():
    frozen = '  File "<frozen importlib._bootstrap>", line 241, in _call_with_frames_removed\n'
    syntax = '  File "fast.py", line 1\n    def (:\n        ^\n'
    shown = log_tail(frozen + syntax + "SyntaxError: invalid syntax\n")
    assert shown == [*syntax.splitlines(), "SyntaxError: invalid syntax"]


def test_what_is_no_traceback_is_its_last_lines():
    assert log_tail("".join(f"{number}\n" for number in range(9))) == ["4", "5", "6", "7", "8"]
    assert log_tail("") == []


def test_a_message_that_is_longer_than_what_is_shown_ends_as_it_ends():
    frame = USERS + "".join(f"    {number}\n" for number in range(9))
    shown = log_tail(frame)
    assert len(shown) == NUM_LINES
    assert shown[-1] == "    8"
