"""Run the scripts of a checkout, each confined in a process of its own, and record their calls.

    server       forks a process for each script from one that has imported torch, and ends it
    script       runs the cells of one script, one after the other, or its file
    suite        runs a file of tests
    limits       ends what takes too long; needs names what is missing
    substitutes  the CPU where there is no GPU; pretrained: random weights instead of downloads
    stand_ins    packages that are not installed
    smaller      batches and depths of a script that was too large
    probe        models that no text calls, made as they are configured, by factories, or of
                 arguments that their signature suggests

A script may do what it likes: it has no network, reads the checkout, writes to memory that vanishes
with it, sees neither the home nor the environment of the user, and is ended with its children. What
it reports is one file of JSON lines, which it could forge: its calls are those of the user's own
code, and are checked as such where they are read.
"""
