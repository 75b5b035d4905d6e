"""The error that the data source and the jobs raise, and its stable codes.

A message names the topic, the partition, the offsets and the address, because Spark shows it out of
context: in the log of an executor, or as the reason why a query ended.
"""

from __future__ import annotations

CODES: dict[str, str] = {
    "LEADLINE_OPTION_UNKNOWN": "An option that the format does not have; the nearest is named.",
    "LEADLINE_OPTION_INVALID": "An option's value is of the wrong type or out of range.",
    "LEADLINE_OPTION_CONFLICT": "Options that exclude each other, or one without its companion.",
    "LEADLINE_OPTION_MISSING": "A required option was not given.",
    "LEADLINE_CLUSTER_CHANGED": "Another cluster has the addresses of the one that was read.",
    "LEADLINE_WORKER_PYTHON": "Spark's workers run a Python that cannot run the source.",
    "LEADLINE_CLUSTER_UNREACHABLE": "None of the bootstrap addresses answered.",
    "LEADLINE_LEADER_UNREACHABLE": "No leader served it in time, or had all committed records.",
    "LEADLINE_REFUSED": "The cluster refused a request; the text contains its code and advice.",
    "LEADLINE_TOPIC_UNKNOWN": "A topic or partition that the cluster does not have.",
    "LEADLINE_TOPIC_RECREATED": "A topic was deleted and recreated: offsets start at 0 again.",
    "LEADLINE_OFFSETS_INVALID": "Offsets that are no range, or name other partitions.",
    "LEADLINE_OFFSET_NOT_FOUND": "No record is as late as the timestamp that starts a read.",
    "LEADLINE_DATA_LOSS": "Records to be read are gone: retention, truncation, deletion.",
    "LEADLINE_TABLE_INVALID": "A row of a table that this release cannot read.",
    "LEADLINE_BATCH_CORRUPT": "A record batch that fails its checksum or cannot be decoded.",
    "LEADLINE_SCHEMA_INVALID": "A column to be written is missing, or of the wrong type.",
    "LEADLINE_ROW_INVALID": "A row without a topic, of an unknown partition, or before 1970.",
    "LEADLINE_STAGED_LOST": "The staged records of an exactly-once write are gone; run it again.",
    "LEADLINE_PUBLISH_REFUSED": "A batch out of order, or not the same as the first time.",
    "LEADLINE_PUBLISH_TOO_LARGE": "Staged in more batches for a partition than a publish names.",
    "LEADLINE_ARCHIVE_GAP": "The next file of an archive would skip offsets.",
    "LEADLINE_ARCHIVE_CONFLICT": "An archive has these offsets, or another topic of that name.",
    "LEADLINE_ARCHIVE_DAMAGED": "The files of an archive differ from its manifests.",
    "LEADLINE_REPLAY_CONFLICT": "The topic to be filled from an archive has other records.",
    "LEADLINE_HISTORY_EMPTY": "There is no audit entry to analyse.",
}
"""Every code, with its meaning. Codes are never renamed: alerts and scripts match them."""


class LeadlineSparkError(Exception):
    """A stable code, and a message that says what to do."""

    def __init__(self, code: str, message: str) -> None:
        # The base class gets both arguments, or the error could not be unpickled.
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"
