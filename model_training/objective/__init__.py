"""What stage 3 optimizes, equation by equation of CUDA-L1 (arXiv 2507.14111).

    reward.py      a number for an evaluation, and equation 6: smoothed and clipped
    advantage.py   equation 4: normalized within the group of one prompt
    loss.py        equation 5: the clipped objective with its penalty of divergence

Equations 1 to 3 are the product's own: exemplars are drawn in `cudal1_ci.propose.llm.contrast`
(1), a pair's ratio and the median over buckets are in `cudal1_ci.stats.speedups` (2 and 3).

Pure: records and tensors in, numbers out; no model, no judge, no files.
"""
