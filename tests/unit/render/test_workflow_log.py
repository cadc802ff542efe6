"""Commands in the log of a job."""

from __future__ import annotations

from cudal1_ci.render.workflow_log import workflow_command


def test_text_within_a_command_has_no_second_line():
    assert workflow_command("error", "100 %\r\n::x::") == "::error::100 %25%0D%0A::x::"
