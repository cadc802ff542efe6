"""Rewrite what one recorded call did: rules read operations and values, and write back to the
expressions that made them.
"""
