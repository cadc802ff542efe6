"""Fork runners from a warm process that has imported torch and run no program."""
