"""Balance the load of leaders and of disks: propose a reassignment, and apply it on request.

  leadline spark balance --bootstrap URL                     # measure, propose, dry run
  leadline spark balance --bootstrap URL --apply             # and apply the proposal
  leadline spark balance --bootstrap URL --load kept.ndjson  # from kept answers of /v1/load

The proposal is Kafka's reassignment JSON (`--out`). It is valid only for the metadata from which it
was computed. If the metadata has changed, the job computes another one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline_client.errors import StaleVersion
from leadline_spark.cluster.cluster_client import ClusterClient, document
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs import command
from leadline_spark.jobs.balancing.cluster_snapshot import ClusterSnapshot, cluster_snapshot
from leadline_spark.jobs.balancing.greedy import BalanceLimits, Proposal, propose

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ATTEMPTS = 5


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    job_parser = command.job_parser("balance", __doc__)
    command.add_cluster(job_parser)
    add = job_parser.add_argument
    add("--load", nargs="+", metavar="FILE", help="kept answers of /v1/load (NDJSON)")
    add("--samples", type=int, default=1, metavar="N", help="how often to ask for it")
    add("--every", type=float, default=60.0, metavar="SECONDS", help="between samples")
    add("--max-moves", type=int, default=20, metavar="N", help="replicas to copy")
    add("--max-bytes", type=int, metavar="B", help="bytes to copy")
    add("--tolerance", type=float, default=0.05, help="skew that is good enough")
    add("--throttle", type=int, metavar="B/S", help="for --apply, per broker")
    add("--out", type=Path, metavar="FILE", help="write the reassignment JSON")
    add("--apply", action="store_true", help="carry it out")
    add("--json", action="store_true", help="print JSON for scripts")
    return job_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, propose, try the proposal, and apply it with --apply; return the exit code."""
    arguments = parser().parse_args(argv)
    return command.run(lambda: _balance(arguments))


def _balance(arguments: argparse.Namespace) -> int:
    cluster = ClusterClient(command.connection_of(arguments))
    loads = measured(command.session("leadline-balance"), cluster, arguments)
    proposal, task = propose_and_try(cluster, loads, arguments)
    reassignment = reassignment_json(proposal)
    if arguments.out:
        arguments.out.write_text(json.dumps(reassignment, indent=2) + "\n", encoding="utf-8")
    if arguments.json:
        command.report(summary_of(proposal, task) | {"reassignment": reassignment})
    else:
        sys.stdout.write("\n".join(_text_report(proposal, task, applied=arguments.apply)) + "\n")
        if arguments.out:
            command.print_path(arguments.out)
    return command.DONE


def measured(
    spark: SparkSession, cluster: ClusterClient, arguments: argparse.Namespace
) -> DataFrame:
    """Return the load of each partition, from files or from the brokers."""
    from leadline_spark.jobs.balancing import loads  # noqa: PLC0415 - help and usage errors need no JVM

    if arguments.load:
        return loads.partition_loads(loads.read_samples(spark, arguments.load)).cache()
    answers = []
    for number in range(arguments.samples):
        time.sleep(arguments.every if number else 0)
        urls = cluster_snapshot(cluster).urls.values()
        answers += [document(cluster.call("GET", url, "/v1/load")) for url in urls]
    return loads.partition_loads(loads.samples_of(spark, answers)).cache()


def propose_and_try(
    cluster: ClusterClient, loads: DataFrame, arguments: argparse.Namespace
) -> tuple[Proposal, dict[str, Any] | None]:
    """Propose until the metadata does not change meanwhile; return the proposal and its task.

    Raises:
        LeadlineError: the cluster refused the proposal.
        LeadlineSparkError: LEADLINE_REFUSED: the metadata changed each time.

    """
    from leadline_spark.jobs.balancing.loads import merged_loads  # noqa: PLC0415 - as above

    limits = BalanceLimits(arguments.max_moves, arguments.max_bytes, arguments.tolerance)
    for _ in range(_ATTEMPTS):
        snapshot = cluster_snapshot(cluster)
        partitions = merged_loads(loads, snapshot.assignment)
        proposal = propose(partitions, snapshot.members, snapshot.racks, limits)
        if not proposal.targets:
            return proposal, None
        body = {**reassignment_json(proposal), "throttle_bytes_per_s": arguments.throttle}
        try:
            task = _post(cluster, snapshot, body | {"dry_run": True})
            if arguments.apply:
                task = _post(cluster, snapshot, body, {"Idempotency-Key": uuid.uuid4().hex})
        except StaleVersion:
            continue
        return proposal, task
    message = f"the metadata changed before each of {_ATTEMPTS} proposals could be tried: try later"
    raise LeadlineSparkError("LEADLINE_REFUSED", message)


def _post(
    cluster: ClusterClient,
    snapshot: ClusterSnapshot,
    body: dict[str, Any],
    more: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Send a proposal to a broker, on condition that the metadata is unchanged."""
    headers = {"If-Match": snapshot.etag, **(more or {})}
    url = next(iter(snapshot.urls.values()))
    response = cluster.call("POST", url, "/v1/reassignments", body=body, headers=headers)
    answer: dict[str, Any] = document(response)
    return answer


def reassignment_json(proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as Kafka's reassignment JSON."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for (topic, number), replicas in proposal.targets.items()
        ],
    }


def summary_of(proposal: Proposal, task: dict[str, Any] | None) -> dict[str, Any]:
    """Return the costs and effects of a proposal, and the task that would apply or applies it."""
    return {
        "moves": proposal.moves,
        "leader_swaps": proposal.swaps,
        "bytes_to_move": proposal.bytes_to_move,
        "skew": {
            "leader_bytes": {"before": proposal.before.leaders, "after": proposal.after.leaders},
            "disk": {"before": proposal.before.disk, "after": proposal.after.disk},
        },
        "brokers": [
            {
                "id": broker,
                "leader_bytes_per_s": {"before": share.leader_rate, "after": after.leader_rate},
                "disk_bytes": {"before": share.disk, "after": after.disk},
            }
            for broker, share in proposal.shares_before.items()
            for after in (proposal.shares_after[broker],)
        ],
        "task": task,
    }


def _text_report(
    proposal: Proposal, task: dict[str, Any] | None, *, applied: bool
) -> Iterator[str]:
    yield f"{'broker':>8} {'leads B/s':>14} {'after':>14} {'holds B':>16} {'after':>16}"
    for broker, share in proposal.shares_before.items():
        after = proposal.shares_after[broker]
        yield (
            f"{broker:>8} {share.leader_rate:>14,.0f} {after.leader_rate:>14,.0f} "
            f"{share.disk:>16,} {after.disk:>16,}"
        )
    old, new = proposal.before, proposal.after
    yield (
        f"the most loaded broker is above the mean by {old.leaders:.1%} of leader bytes "
        f"(after: {new.leaders:.1%}) and {old.disk:.1%} of disk (after: {new.disk:.1%})"
    )
    if not proposal.targets:
        yield "nothing worth moving"
        return
    yield (
        f"{proposal.swaps} leaders change within their replicas; {proposal.moves} replicas are "
        f"copied, {proposal.bytes_to_move:,} bytes"
    )
    for (topic, number), replicas in proposal.targets.items():
        yield f"  {topic}-{number}: {' '.join(map(str, replicas))}"
    if applied and task is not None:
        yield f"task {task['id']} carries it out"
    else:
        yield "the cluster would accept it; nothing is changed yet: repeat this with --apply"


if __name__ == "__main__":
    sys.exit(main())
