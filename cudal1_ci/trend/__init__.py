"""The speed of each target over commits and GPUs: what reports leave behind, and a page of it.

    history = read_lines(Path("history.jsonl"))
    render_page(view(history, commits_of(history)))

`record` is one line of the history, `report_lines` makes lines of a report, `archived` reports of
an archive; `lines` reads and writes them (JSONL, append-only, docs/history.md). `commits` and
`series` put them in order, `steps` finds where a time changed, `chain` multiplies the paired
ratios, `evidence` and `proposals` say what became of what was proposed. `view` is all of it in the
order in which a person wants to know it; `text` and `page` show it, `drawing` draws. Nothing here
measures, asks git or prints.
"""
