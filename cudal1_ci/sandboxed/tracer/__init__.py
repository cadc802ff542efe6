"""Records how the user's own command calls modules and functions of a checkout.

Runs inside of every Python process of that command, started by a `sitecustomize` that comes first
on the path, and must break nothing: it imports nothing until torch is imported, and what it cannot
record it leaves alone, with the reason. Needs the standard library and torch.

    install     hooks the import of torch and of the checkout's files
    describe    arguments as specs: shapes, dtypes, ranges, plain values; never contents
    record      what was called how often, for how long; written to a file of the process

Not covered: processes started with -S, -I or -E; what leaves through os._exit within two seconds.
"""
