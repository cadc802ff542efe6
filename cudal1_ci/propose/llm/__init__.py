"""Ask a language model for candidates: prompt, exemplars, answers, servers, second review."""
