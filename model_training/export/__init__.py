"""What leaves a training run: adapters, merged weights, GGUF files, and data for other trainers.

export/adapter.py   LoRA weights as bf16 safetensors under a stated size, with their sha256
export/merge.py     LoRA weights into the base's, as a folder that transformers and vLLM load
export/gguf.py      such a folder as one GGUF file, for llama.cpp and what is built on it
export/verl/        prompts, reward and dataset for verl, for clusters
export/command.py   python -m model_training export adapter | merge | gguf | verl
"""
