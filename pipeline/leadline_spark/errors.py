"""The one error that the data source and the jobs raise, with codes that stay.

A message says which topic, partition and offsets it is about and whom was asked, as Spark shows
it out of context: in the log of an executor, or as the reason why a query ended.
"""

from __future__ import annotations

CODES: dict[str, str] = {
    "LEADLINE_OPTION_UNKNOWN": "An option that the format does not have; the nearest is named.",
    "LEADLINE_OPTION_INVALID": "An option's value is of the wrong type or out of its range.",
    "LEADLINE_OPTION_CONFLICT": "Options that exclude each other, or one without its companion.",
    "LEADLINE_OPTION_MISSING": "A required option was not given.",
    "LEADLINE_CLUSTER_UNREACHABLE": "None of the bootstrap addresses answered.",
    "LEADLINE_LEADER_UNREACHABLE": "No leader answered, or had what is committed, in time.",
    "LEADLINE_REFUSED": "The cluster refused a request; the text holds its own code and advice.",
    "LEADLINE_TOPIC_UNKNOWN": "A topic or partition that the cluster does not have.",
    "LEADLINE_TOPIC_RECREATED": "A topic was deleted and made again: its offsets start anew.",
    "LEADLINE_OFFSETS_INVALID": "Offsets that name other partitions than are read, or no range.",
    "LEADLINE_OFFSET_NOT_FOUND": "No record at or after a timestamp that was to start a read.",
    "LEADLINE_DATA_LOSS": "Records that were to be read are gone: retention, truncation, deletion.",
    "LEADLINE_TABLE_INVALID": "A row of a table that is not as this release knows it.",
    "LEADLINE_BATCH_CORRUPT": "A record batch that fails its checksum or cannot be decoded.",
    "LEADLINE_SCHEMA_INVALID": "A column to be written is missing, or of a type that cannot be.",
    "LEADLINE_ROW_INVALID": "A row to be written names no topic, or a partition that there is not.",
    "LEADLINE_STAGED_LOST": "What was staged for an exactly-once write is gone; run it again.",
    "LEADLINE_PUBLISH_REFUSED": "A batch that does not follow on, or is not what it was before.",
    "LEADLINE_ARCHIVE_GAP": "An archive's next file would leave offsets out.",
    "LEADLINE_ARCHIVE_CONFLICT": "An archive holds these offsets already, or those of a namesake.",
    "LEADLINE_ARCHIVE_DAMAGED": "An archive's files are not as its manifests say.",
    "LEADLINE_REPLAY_CONFLICT": "The topic to be filled from an archive holds something else.",
    "LEADLINE_HISTORY_EMPTY": "There is no audit entry to analyse.",
}
"""Every code, with its meaning. Codes are never renamed: alerts and scripts match them."""


class LeadlineSparkError(Exception):
    """What went wrong, as a stable code and a text that says what to do."""

    def __init__(self, code: str, message: str) -> None:
        # Both are arguments of the base class, so that the error survives pickling.
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"
