"""Carry requests and replies across the process wall. Standard library only."""
