"""Why the process of a service ends by itself."""

from __future__ import annotations


class CannotRun(Exception):
    """A service cannot run as things are; the message says why, and what to do."""


class ServiceFailed(Exception):
    """What makes a service a member has failed, and was logged: its process ends with 1."""
