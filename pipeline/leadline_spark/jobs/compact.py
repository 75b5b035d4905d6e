"""Merge an archive's adjacent small files, and delete files that no manifest lists.

  leadline spark compact /archive [--target-bytes 134217728]
  spark-submit … leadline_spark/jobs/compact.py /archive

Readers that use the manifests see the same records all the time. A reader of all files may see some
twice between a rename and the next deletions. May run beside an archiving job. Of two compactions
at the same time, one is refused and changes nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from leadline_spark.archive import catalog, compaction
from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.compaction import MergeGroup
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.storage import ArchiveStore, absolute, open_store
from leadline_spark.jobs import command

TARGET_BYTES = 128 << 20


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    job_parser = command.job_parser("compact", __doc__)
    command.add_archive(job_parser)
    job_parser.add_argument(
        "--target-bytes",
        type=int,
        default=TARGET_BYTES,
        metavar="N",
        help="how large a merged file may become (default: %(default)s)",
    )
    job_parser.add_argument("--dry-run", action="store_true", help="only say what would be merged")
    return job_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compact, and print what was done. The exit code is 1 after an error."""
    arguments = parser().parse_args(argv)
    location = absolute(arguments.archive)

    def merge_all(groups: Sequence[MergeGroup]) -> Sequence[ManifestEntry]:
        spark = command.session("leadline compact")
        parts = spark.sparkContext.parallelize(groups, len(groups))
        return parts.map(lambda group: compaction.merge(open_store(location), group)).collect()

    def job() -> int:
        store = open_store(location)
        groups = compaction.plan(catalog.holdings(store), arguments.target_bytes)
        deleted = [] if arguments.dry_run else tidy(store)
        if groups and not arguments.dry_run:
            compact(store, groups, merge_all, time.time_ns())
        merged = sum(len(group.entries) for group in groups)
        result = {"merged": merged, "into": len(groups), "deleted": deleted}
        command.report(result | {"dry_run": arguments.dry_run})
        return command.DONE

    return command.run(job)


def compact(
    store: ArchiveStore,
    groups: Sequence[MergeGroup],
    merge_all: Callable[[Sequence[MergeGroup]], Sequence[ManifestEntry]],
    number: int,
) -> None:
    """Merge the groups by `merge_all`, and replace their files by the results."""
    merged = tuple(merge_all(groups))
    replaced = tuple(entry.path for group in groups for entry in group.entries)
    catalog.add_compaction(store, number, merged, replaced)


def tidy(store: ArchiveStore) -> list[str]:
    """Delete the files that no manifest lists and whose offsets are in others; return their paths.

    A compaction that died leaves such files, and so does a task that outlived its driver. Files of
    a batch in progress stay, because they are beyond the archive's end. So do files that may be the
    only copy of their records because a manifest was lost.
    """
    with store.lock():
        held = manifests.spans(catalog.holdings(store))
        stray = [name for name in catalog.unlisted(store) if manifests.covers(held, name)]
        for name in stray:
            store.delete(name.path)
    return [name.path for name in stray]


if __name__ == "__main__":
    sys.exit(main())
