"""Where a consumer continues after a failed read."""

from __future__ import annotations

import logging

from leadline_client.consumer_settings import OffsetReset
from leadline_client.errors import LeadlineError, LogTruncated, OffsetOutOfRange, TopicIdMismatch
from leadline_client.reading import Start
from leadline_client.wire import LogPosition

logger = logging.getLogger(__name__)


def reset_after(error: LeadlineError, policy: OffsetReset | None) -> Start | None:
    """Return where to continue after a failed read, None if the application must decide.

    With a chosen policy, a consumer of a truncated log continues at the point of divergence, as
    KIP-320 says: it gets every record of the log that it has not read. It does so without a policy
    only if retention has removed its offset, or if the topic was recreated.
    """
    if isinstance(error, LogTruncated) and policy in ("earliest", "latest"):
        logger.warning("%s", error.message)
        return LogPosition(error.divergence_offset, error.divergence_epoch)
    if isinstance(error, LogTruncated) or policy == "error":
        return None
    if isinstance(error, OffsetOutOfRange | TopicIdMismatch):
        return policy or "earliest"
    return None
