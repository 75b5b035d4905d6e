"""Refusals about batches that are staged and published exactly once."""

from __future__ import annotations

from leadline_client.errors.tree import Refused


class UnknownStaged(Refused):
    """No replica has a staged batch with this id: it expired, or its replicas are gone."""

    code = 40452


class PublishMismatch(Refused):
    """The batch is partly published, and the published part differs from this request.

    A replay must produce the same record batches as the first attempt.
    """

    code = 40959


class PublishOutOfOrder(Refused):
    """Another batch of the application is partly published: complete that one first."""

    code = 40962


class StagingFull(Refused):
    """The staged batches reach staging.max.bytes: publish or delete some of them, or wait."""

    code = 50358
    retriable = True
