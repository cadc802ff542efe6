"""Compile what programs bring, ahead of their turn and once."""
