"""Carry requests and replies across the process wall. Standard library only.

codec      frozen dataclasses to JSON and back, checked on arrival
channel    one message after the other over a socket
verifier   requests of the host to a verifier
builder    requests of the host to a builder
template   requests of both to the process that runners are forked from
runner     requests of a verifier to a runner, and the answers of a runner, which is hostile
"""
