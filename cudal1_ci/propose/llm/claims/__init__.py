"""Claims of a model's analysis that what was measured contradicts.

    contradictions(evaluation, problem, rows)      # rows: the profile of the reference
    # (Contradiction(claim="Softmax dominates the runtime.", measured="softmax has 4% of ..."),)

Three kinds of claims are looked at: what bounds the call, which operator takes its time, and how
many times faster the new code is. A claim is only flagged where the sentence says nothing else and
what was measured leaves no way for it to be true; a claim that is not flagged is not confirmed.

    sentences   what an analysis claims
    operators   which rows of a profile an operator could be in
    measured    what is known, and how it is said
"""

from __future__ import annotations
