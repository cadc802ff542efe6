"""Forges: where a Change comes from. Here so far: a checkout on this machine (`local`)."""
