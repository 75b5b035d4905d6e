"""Check an archive: nothing is missing or duplicated, and every byte is as it was written.

  leadline spark verify /archive [--bootstrap URL] [--json]
  python -m leadline_spark.jobs.verify /archive

Needs no Spark, because names and manifests describe the archive. With --bootstrap, the archive is
compared with the log. Exit codes: 0 sound, 1 problems were found, 3 the cluster did not answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from leadline_spark.archive import checking
from leadline_spark.archive.checking import ArchiveFinding, ArchiveFindings
from leadline_spark.archive.storage import open_store
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs import command


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    job_parser = command.job_parser("verify", __doc__)
    command.add_archive(job_parser)
    command.add_cluster(job_parser, required=False)
    job_parser.add_argument(
        "--complete",
        action="store_true",
        help="with --bootstrap: that the archive is behind the log is a problem too",
    )
    job_parser.add_argument(
        "--rows", action="store_true", help="also count rows in the files (pyarrow)"
    )
    job_parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    return job_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Check, print what was found, and return the exit code."""
    arguments = parser().parse_args(argv)
    try:
        found = checking.check(open_store(arguments.archive))
    except OSError as problem:
        sys.stderr.write(f"error {command.cannot_use(problem)}\n")
        return command.FAILED
    if arguments.rows:
        found = _with(found, _miscounted(arguments.archive, found), ())
    failure = ""
    if arguments.bootstrap:
        try:
            found = _compared(found, command.connection_of(arguments), complete=arguments.complete)
        except LeadlineSparkError as error:
            failure = str(error)
    if arguments.json:
        command.report(_document(found, failure))
    else:
        sys.stdout.write(_text_report(found, failure))
    if found.problems:
        return command.FAILED
    return command.UNKNOWN if failure else command.DONE


def _compared(found: ArchiveFindings, connection: Connection, *, complete: bool) -> ArchiveFindings:
    """Compare with the log, and add the findings."""
    topics = sorted({entry.name.topic for entry in found.entries})
    cluster = ClusterClient(connection)
    metadata = cluster.metadata(topics)
    topic_partitions = [
        {"topic": name, "partition": row.partition}
        for name, topic in metadata.topics.items()
        if name in topics
        for row in topic.partitions
    ]
    offsets = cluster.offsets({"partitions": topic_partitions}) if topic_partitions else {}
    problems, notes = checking.check_cluster(found.entries, metadata, offsets)
    if complete:
        problems += [note for note in notes if note.kind in {"behind", "begins_later"}]
        notes = [note for note in notes if note not in problems]
    return _with(found, problems, notes)


def _miscounted(location: str, found: ArchiveFindings) -> list[ArchiveFinding]:
    """Compare the row counts in files with the manifests; skip files that are known as damaged."""
    from leadline_spark.archive.parquet import row_group_rows  # noqa: PLC0415 - loads pyarrow

    store = open_store(location)
    damaged = {problem.about for problem in found.problems}
    problems = []
    for entry in found.entries:
        if entry.path in damaged:
            continue
        try:
            rows = sum(row_group_rows(store, entry.path))
        except FileNotFoundError:
            message = "it was deleted while it was checked: was it merged? Then verify again"
            problems.append(ArchiveFinding("missing", entry.path, message))
            continue
        if rows != entry.rows:
            message = f"{rows} rows, its manifest says {entry.rows}"
            problems.append(ArchiveFinding("rows", entry.path, message))
    return problems


def _with(
    found: ArchiveFindings, problems: Sequence[ArchiveFinding], notes: Sequence[ArchiveFinding]
) -> ArchiveFindings:
    return ArchiveFindings(found.entries, (*found.problems, *problems), (*found.notes, *notes))


def _document(found: ArchiveFindings, failure: str) -> dict[str, Any]:
    return {
        "sound": not found.problems,
        "partitions": list(checking.partition_rows(found.entries)),
        "problems": [asdict(problem) for problem in found.problems],
        "notes": [asdict(note) for note in found.notes],
        "cluster_error": failure or None,
    }


def _text_report(found: ArchiveFindings, failure: str) -> str:
    """Return the findings as text, one on each line."""
    lines = [
        f"{row['topic']}-{row['partition']}: offsets {row['first']} to {int(str(row['end'])) - 1}, "
        f"{row['rows']} records in {row['files']} files, {row['bytes']} bytes"
        for row in checking.partition_rows(found.entries)
    ]
    lines += [f"note: {note.about}: {note.message} [{note.kind}]" for note in found.notes]
    lines += [f"PROBLEM: {one.about}: {one.message} [{one.kind}]" for one in found.problems]
    if failure:
        lines.append(f"the cluster could not be asked: {failure}")
    count = len(found.problems)
    verdict = f"{count} problem{'s' if count > 1 else ''}" if count else "sound: no gap, no overlap"
    lines.append(verdict)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
