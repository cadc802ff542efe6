"""Draw a report card: tasks by columns, filled by the loop that every command uses.

    tasks.py        paths -> tasks: KernelBench checkouts, CUDA-L1's releases, other folders
    names.py        names that tell tasks apart, where two corpora have the same
    columns.py      the columns, the strategies that fill them, and whose a candidate is
    run.py          tasks x columns -> a run, on an archive; task_result.py is one task
    shape.py        the JSON of a run; reading.py reads it back
    crowded.py      who had too little of a GPU's memory, which settles nothing
    merge.py        several runs -> one, whatever their order and however often each is given
    worth.py        what a column is worth on a task; summary.py what numbers say together
    card.py         a run -> its tables
    table.py, page.py, plots.py    a card for people

A task whose reference is degenerate (constant output, a check that anything would pass) is named
and excluded from every column.
"""
