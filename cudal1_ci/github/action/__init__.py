"""The front door of the GitHub Action: an event in, a report, a summary, outputs and an exit code
out.

    python -I .ci/action measure      what action.yml runs; inputs are in INPUT_* variables
    python -I .ci/action publish      what actions/publish/action.yml runs
    python -I .ci/action sweep        what actions/sweep/action.yml runs
    python -I .ci/action commands     what actions/commands/action.yml runs

`inputs` and `event` say what is asked, `admission` whether it may be answered here, `children`
starts the verbs of the command line without anything that is worth stealing, `outcome` is what the
workflow is told, `measure`, `sweep` and `publish` put these together. Measuring and posting are the
verbs' affair: nothing here knows how. `commands` starts no verb; what is done about a comment is
decided in the forge.

Two rules hold in every module. No process that may run code of the pull request is given a token, a
command file of the runner, or an input. And nothing of the pull request is imported: the
interpreter is isolated (-I), so that a `json.py` at the top of the checkout is a file like any
other.
"""
