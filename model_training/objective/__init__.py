"""Hold what stage 3 optimizes, equation by equation of CUDA-L1 (arXiv 2507.14111).

    reward.py      a number for an evaluation, and equation 6: smoothed and clipped
    advantage.py   equation 4: normalized within the group of one prompt
    loss.py        equation 5: the clipped objective with its penalty of divergence

Equations 1 to 3 are the product's own: `cudal1_ci.propose.llm.contrast` draws exemplars
(equation 1), `cudal1_ci.stats.speedups` has a pair's ratio and the median over buckets (2 and 3).
Pure: records and tensors in, numbers out.
"""
