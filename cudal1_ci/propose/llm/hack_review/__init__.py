"""Get a second opinion: ask another model whether a jump is a trick. It never acquits.

    evaluation = Review(reviewer, problem, is_over).of(evaluation, has_jumped=True)

The verifier's verdict comes first; a failed candidate needs no review. A candidate that passed and
claims a jump goes to a model that did not write it, together with the most similar known hacks. If
the reviewer says `hack`, the candidate gets a finding (`opinion.hack`) and is inconclusive. The
report lists it with the model's words, and it is not proposed. If the reviewer says `fine`, is
unreadable, or cannot be reached, nothing changes, and a failure is counted.

    config      which model
    cases       known hacks: ours, a file's, and those that runs added; similarity of texts
    bare        code without words that could persuade
    question    what the model is asked
    reply       what it said
    review      when it is asked, and what comes of it

Source: CUDA-L1 (arXiv 2507.14111), the reward checking model and the hacking-case database. There
the model's opinion lowers a reward; here it only blocks a proposal.
"""
