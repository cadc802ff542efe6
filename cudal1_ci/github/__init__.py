"""Read GitHub's facts about a run and post the report; `action/` runs the GitHub Action.

    payload     parse GitHub's record of the event that started this run
    event       read the event: which commit and pull request this run is about
    conclusion  summarize a report for its pull request in one word
    marker      find our own comments again
    check, suggestion, review, plan   build what to post from a report, an event and what is
                                      already there: pure
    sanitize    make text of a report safe outside of Markdown
    client, rate_limit         call GitHub, and wait when it says so
    answer      describe what GitHub made, or why it refused
    publication publish in order, and handle a part that fails

A comment with a command (`/cudal1 ...`):

    command, comment_event     read what a text says, and who wrote it when
    fetch_facts read what GitHub says of that person and of the head
    decision    decide whether the command is carried out: pure
    command_effects            build the requests of a command: pure
    reply       write the reply
    acknowledgements           keep accepted slowdowns in our comment
    branches, edit             make a draft pull request of a patch; apply a patch to file texts

What a sweep has found:

    sweep_issue find the one issue, read dismissals, write the text: pure
    drafts      choose which proposals get a draft pull request: pure
    sweeps      read what is there, and post in order

Commits as folders:

    trees       check commits out, each into its own folder
    files_of_commit  write the files of a commit and of its submodules, and run nothing for it
    built       copy what the checkout has built into a tree, where it fits
    version_of_commit  give build programs the version that they would ask git for

This package posts what `render` renders, and renders nothing itself. Only `client` and
`rate_limit` import PyGithub.
"""
