"""What happens to a record that cannot be deserialized."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from leadline_client.errors import DeserializationFailed, InvalidRequest
from leadline_client.serializers.protocols import OnDeserializationError

logger = logging.getLogger(__name__)


def checked(policy: OnDeserializationError) -> OnDeserializationError:
    """Return `policy`. Raises InvalidRequest for a word that is none."""
    if policy in ("raise", "skip") or callable(policy):
        return policy
    raise InvalidRequest(f'on_deserialization_error is "raise", "skip" or a function, not {policy}')


def handle(policy: OnDeserializationError, failed: DeserializationFailed) -> Awaitable[None] | None:
    """Decide about a record: return what has to be awaited before it is left out, or raise."""
    if policy == "raise":
        raise failed
    if policy == "skip":
        logger.warning("left out: %s", failed)
        return None
    return policy(failed)
