"""Carry requests and replies across the process wall. Standard library only.

codec      frozen dataclasses to JSON and back, checked on arrival
channel    one message after the other over a socket
verifier   what the host asks of a verifier
builder    what the host asks of a builder
template   what either asks of the process that runners are forked from
runner     what a verifier asks of a runner, and what a runner, which is hostile, may answer
"""
