"""Keep the speed of each target over commits and GPUs, from reports, and draw a page of it.

    history = read_lines(Path("history.jsonl"))
    render_page(view(history, commits_of(history)))

`record` is one line of the history, `report_lines` makes lines of a report, `lines` reads and
writes them (JSONL, append-only, docs/trend.md). `series` puts them in order, `steps` finds where a
time changed, `view` is all of it in the order in which a person wants to know it. `page` shows it,
`drawing` draws, `export` is for github-action-benchmark. Nothing here measures, asks git or prints.
"""
