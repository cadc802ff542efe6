"""Fork runners from a warm process in which torch is imported and no program was run."""
