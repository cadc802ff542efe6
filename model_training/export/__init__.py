"""Write what leaves a training run: adapters and merged weights.

export/adapter.py   LoRA weights as bf16 safetensors under a stated size, with their sha256
export/merge.py     LoRA weights into the base's, as a folder that transformers and vLLM load
export/bundle.py    an adapter into the package, with its card and its record
export/commands.py  python -m model_training export adapter | merge
"""
