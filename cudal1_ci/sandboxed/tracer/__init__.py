"""Record how the user's own command calls modules and functions of a checkout.

The tracer runs in every Python process of that command. A `sitecustomize` that is first on the path
starts it. It must break nothing: it imports nothing until torch is imported. It does not touch what
it cannot record, and notes the reason. It needs the standard library and torch.

    install     hooks the import of torch and of the checkout's files
    describe    arguments as specs: shapes, dtypes, ranges, plain values; never contents
    record      what was called how often, for how long; written to a file of the process

Not covered: processes started with -S, -I or -E; processes that end by os._exit within two seconds.
"""
