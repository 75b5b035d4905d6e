"""Refusals about batches that are staged and published exactly once."""

from __future__ import annotations

from leadline_client.errors.tree import Refused


class UnknownStaged(Refused):
    """No replica has anything staged under this id: it expired, or those that had it are gone."""

    code = 40452


class PublishMismatch(Refused):
    """The batch is published in part, and what is there differs from what is to complete it.

    A replay has to produce the same record batches as the first time.
    """

    code = 40959


class PublishOutOfOrder(Refused):
    """Another batch of the application is published in part: that one has to be completed first."""

    code = 40962


class StagingFull(Refused):
    """As much is staged as staging.max.bytes allows: publish or delete some of it, or wait."""

    code = 50358
    retriable = True
