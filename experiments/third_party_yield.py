"""Count what is proposed for targets of other people's repositories, source edits apart.

**Rule of choice, stated before anything was measured.** From each of the three lists below, in
order, the first two repositories that qualify: pure PyTorch, and a test suite of its own that runs
on a CPU without downloads or compiled extensions. Tests are all of its suite; where that takes
more than five minutes, its test files by name until five minutes are spent. No earlier result names
one of them, and no rule was written with one of them in view.

- like vit-pytorch: perceiver-pytorch, segmentation_models.pytorch, open_clip
- like transformers: titans-pytorch, native-sparse-attention-pytorch, alphafold2
- for diffusion: rectified-flow-pytorch, GenerativeModels, transfusion-pytorch
"""
