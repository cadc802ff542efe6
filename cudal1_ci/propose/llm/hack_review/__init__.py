"""Get a second opinion: ask another model whether a jump is a trick. It never acquits.

    evaluation = Review(reviewer, problem, is_over).of(evaluation, has_jumped=True)

The judge's verdict comes first, and where it says no nobody is asked. What passed and claims a jump
is shown to a model that did not write it, beside the known cases of hacks that are most like it. If
it says `hack`, the candidate gets a finding (`opinion.hack`) and is inconclusive: listed with the
model's words, and not proposed. If it says `fine`, says nothing that can be read, or cannot be
asked, nothing changes, and a failure is counted.

    config      which model
    cases       what is known of hacks: ours, a file's, and what runs added; how alike two texts are
    bare        code without words that could persuade
    question    what the model is asked
    reply       what it said
    review      when it is asked, and what comes of it

Source: CUDA-L1 (arXiv 2507.14111), the reward checking model and the hacking-case database; there
the model's word lowers a reward, here it only takes a proposal back.
"""
