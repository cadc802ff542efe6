"""The report card: many tasks, several ways to make each faster, one judge.

    tasks.py        paths -> tasks: KernelBench checkouts, CUDA-L1's releases, other folders
    names.py        names that tell tasks apart, where two corpora have the same
    solvers.py      a problem -> candidates, by the name of a column; wrapped.py has the texts
    run.py          tasks x columns -> a run, on an archive; turn.py is one task, work.py the means
    shape.py        the JSON of a run; reading.py reads it back
    crowded.py      who had too little of a GPU's memory, which settles nothing
    merge.py        several runs -> one, whatever their order and however often each is given
    worth.py        what a column is worth on a task; summary.py what numbers say together
    card.py         a run -> its tables
    table.py, page.py, plots.py    a card for people

A task whose reference says nothing (constant output, a check that anything would pass) is named and
left out of every column.
"""
