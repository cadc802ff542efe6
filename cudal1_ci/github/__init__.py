"""Read what GitHub says of a run and post what was found; `action/` is the front door of the
Action.

    payload     what GitHub said of the event that started this run
    event       what started this run, and so which commit and pull request is meant
    conclusion  what a report says for its pull request, in one word
    marker      how comments of ours are found again
    check, suggestion, review, plan   what to post: pure, of a report, an event and what is
                                      there already
    sanitize    text of a report outside of Markdown
    client, rate_limit           GitHub itself, and waiting when it asks for that
    answer      what it made, or why it did not
    publication the order of it all, and what happens when a part fails

A comment of a person that asks for something (`/cudal1 ...`):

    command, comment_event     what a text says, and who wrote it when
    fetch_facts     what GitHub says of that person and of the head
    decision    whether it is obeyed: pure
    command_effects        what is done then: pure
    reply       what is said to who asked
    acknowledgements           slowdowns that were agreed to, kept in our comment
    branches, edit             a patch as a draft pull request; the patch as texts of files

What a sweep has found:

    sweep_issue     the one issue: how it is found, what people dismissed, what to write: pure
    drafts      which proposals get a draft pull request: pure
    sweeps      what is there, and the order in which it is posted

This room stands above the report's, as it posts what that renders; it renders nothing itself.
Only `client` and `rate_limit` import PyGithub.
"""
