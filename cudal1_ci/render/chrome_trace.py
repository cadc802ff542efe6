"""Write a profiled call as Chrome's trace format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import re

from cudal1_ci.records import Impact, Report
from cudal1_ci.render.impact import headlines

LANES = {False: "host", True: "device"}


def traces_of(document: Report) -> dict[str, str]:
    """Return the traces of a report's headlines by the end of a file name,
    `VisionModel.before.trace.json`."""
    found: dict[str, str] = {}
    for one in headlines(document):
        for side in ("before", "after"):
            text = chrome_trace(one.impact, side)
            if text is not None:
                found[f"{file_part(one.title)}.{side}.trace.json"] = text
    return found


def chrome_trace(impact: Impact, side: str) -> str | None:
    """Return the trace of a call `before` or `after`; None where it was not profiled."""
    cost = impact.before if side == "before" else impact.after
    if cost is None or not cost.events:
        return None
    lanes = sorted({one.on_device for one in cost.events})
    events: list[dict[str, object]] = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": 0,
            "tid": int(lane),
            "args": {"name": LANES[lane]},
        }
        for lane in lanes
    ]
    events += [
        {
            "name": cost.names[one.name],
            "ph": "X",
            "pid": 0,
            "tid": int(one.on_device),
            "ts": one.start_us,
            "dur": one.duration_us,
        }
        for one in cost.events
    ]
    title = f"{impact.root}, {impact.workload}, {side}"
    return json.dumps({"traceEvents": events, "otherData": {"title": title}})


def file_part(title: str) -> str:
    """Return a title as part of a file name."""
    return re.sub(r"[^\w.]+", "-", title).strip("-")
