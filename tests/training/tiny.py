"""Tasks of milliseconds on a CPU."""

from __future__ import annotations

from model_training.tasks.draft import Scale

TINY = Scale(min_elements=2**8, max_elements=2**11, max_loop=4)
