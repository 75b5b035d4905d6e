"""A formal model of the replication protocol, and the searches that Spin makes of it.

docs/protocol.md describes the protocol, the model and what was found.
"""
