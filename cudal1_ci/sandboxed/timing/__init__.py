"""Time reference and candidate in paired rounds, on inputs that no program has seen."""
