"""Compile what programs define, ahead of their verification and once."""
