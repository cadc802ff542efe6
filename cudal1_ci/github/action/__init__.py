"""Run the GitHub Action: read an event; write a report, a summary, outputs and an exit code.

    python -I .ci/action measure      what action.yml runs; inputs are in INPUT_* variables
    python -I .ci/action publish      what actions/publish/action.yml runs
    python -I .ci/action sweep        what actions/sweep/action.yml runs
    python -I .ci/action commands     what actions/commands/action.yml runs

`inputs` and `event` read the request. `admission` decides whether it may run here. `children` runs
the command line's verbs without any secret. `outcome` writes the workflow's outputs. `measure`,
`sweep` and `publish` combine these. Measuring and posting are done by the verbs, not here.
`commands` runs no verb; the parent package decides about a comment.

Two rules hold in every module. No process that may run code of the pull request gets a token, a
command file of the runner, or an input. And nothing of the pull request is imported: the
interpreter is isolated (-I), so that a `json.py` at the top of the checkout is a file like any
other.
"""
