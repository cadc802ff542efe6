"""Verify a candidate: a reference, a candidate and workloads become an Evaluation.

    with Session(TrialConfig()) as session:
        evaluation = session.evaluate(problem, candidate)

This room starts a verifier process and decides how long to measure. The verifier gives the answers.
"""

from cudal1_ci.verification.config import BuildsConfig, TrialConfig
from cudal1_ci.verification.session import Session

__all__ = ["BuildsConfig", "Session", "TrialConfig"]
