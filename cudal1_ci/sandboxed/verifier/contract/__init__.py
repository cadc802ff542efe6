"""Examine how a candidate may be used in ways that its workload does not show.

A workload is one call; a patch is merged for all calls. `derive` makes the lines of a contract from
the reference's signature, constructor, parts, text and example inputs. Each is tried on the
reference first. What it honors is learned once, kept in its case, and asked of every candidate by
the same requests. The results are compared by the verifier, with the comparison of other calls.

A line is `held`, `broken`, `not_applicable` (the reference refuses it) or `not_tried` (with the
reason). It `differs` where the candidate gives numbers for NaN that the reference multiplies by
zero, or loses subnormal numbers: that is stated, and breaks nothing. A line that crashes or hangs
costs only itself: its process is started again.
Not covered: several calls at the same time, from threads; whole process settings (settings.py).
"""

from .examination import ContractKnowledge, examine_contract

__all__ = ["ContractKnowledge", "examine_contract"]
