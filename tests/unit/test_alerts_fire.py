"""Each alert rule fires on what it is meant for, and only on that.

The samples are two scrapes of one target, 15 s apart; the expressions are those of the file.
"""

from __future__ import annotations

import pytest

from tests.support.promql.evaluator import Evaluator
from tests.support.promql.rules import load_rules
from tests.support.promql.scrapes import Scrapes, Target

RULES = {rule.name.removeprefix("Leadline"): rule.expression for rule in load_rules()}
HEALTHY = """\
leadline_controller_active 1
leadline_coordinator_active 1
leadline_lease_left_seconds 4
leadline_build_info{release="a"} 1
leadline_internal_certificate_not_after_timestamp_seconds 9e9
"""
NOW_S = 1_700_000_000.0


def buckets(name: str, fast: int, slow: int, labels: str = "") -> str:
    """Return a histogram with observations below and above 0.1 s, the latter up to 5 s."""
    return (
        f'{name}_bucket{{{labels}le="0.1"}} {fast}\n'
        f'{name}_bucket{{{labels}le="5"}} {fast + slow}\n'
        f'{name}_bucket{{{labels}le="+Inf"}} {fast + slow}\n'
    )


REQUESTS = 'leadline_http_requests_total{{route="/v1/topics",method="GET",status="{}"}} {}\n'
DISK = (
    'leadline_log_dir_free_bytes{{log_dir="/d"}} {}\n'
    'leadline_log_dir_capacity_bytes{{log_dir="/d"}} 100\n'
)
REBALANCING = "leadline_coordinator_rebalancing_groups 1\n"
SAMPLES = {
    "OfflinePartitions": ("", "leadline_controller_offline_partitions 1\n"),
    "NoActiveController": ("", "leadline_controller_active 0\n"),
    "TwoActiveControllers": ("", "leadline_controller_active 2\n"),
    "UnderReplicatedPartitions": ("", "leadline_controller_under_replicated_partitions 1\n"),
    "UnderMinIsrPartitions": ("", "leadline_controller_under_min_isr_partitions 1\n"),
    "UncleanElection": (
        'leadline_controller_elections_total{reason="unclean"} 0\n',
        'leadline_controller_elections_total{reason="unclean"} 1\n',
    ),
    "CommittedRecordsTruncated": (
        'leadline_truncated_records_total{kind="committed"} 0\n',
        'leadline_truncated_records_total{kind="committed"} 1\n',
    ),
    "DamagedBatches": (
        "leadline_damaged_batches_found_total 0\n",
        "leadline_damaged_batches_found_total 1\n",
    ),
    "BrokerFailed": ("", "leadline_controller_failed_brokers 1\n"),
    "HealingSuspended": ("", "leadline_controller_healing_suspended 1\n"),
    "LeaseExpired": ("", "leadline_lease_left_seconds 0\n"),
    "LateRoles": ("", "leadline_late_roles 1\n"),
    "BrokersOutOfReach": ("", "leadline_controller_brokers_out_of_reach 1\n"),
    "ClockOff": ("", "leadline_clock_ahead_seconds -6\n"),
    "DiskNearlyFull": (
        "",
        DISK.format(9),
    ),
    "FsyncSlow": (buckets("leadline_fsync_seconds", 0, 0), buckets("leadline_fsync_seconds", 9, 9)),
    "IsrFlapping": (
        'leadline_isr_changes_total{kind="shrink"} 0\n',
        'leadline_isr_changes_total{kind="shrink"} 21\n',
    ),
    "EventQueueSlow": (
        buckets("leadline_controller_event_queue_seconds", 0, 0, 'event="Reconcile",'),
        buckets("leadline_controller_event_queue_seconds", 9, 9, 'event="Reconcile",'),
    ),
    "AuditOutboxGrowing": ("", "leadline_controller_audit_outbox_entries 5001\n"),
    "EventLoopSlow": ("", "leadline_event_loop_lag_seconds 0.6\n"),
    "RequestErrors": (
        REQUESTS.format(500, 0) + REQUESTS.format(200, 0),
        REQUESTS.format(500, 6) + REQUESTS.format(200, 94),
    ),
    "ProduceSlow": (
        buckets("leadline_produce_stage_seconds", 0, 0, 'stage="replicate",'),
        buckets("leadline_produce_stage_seconds", 9, 9, 'stage="replicate",'),
    ),
    "RefusedConnections": (
        'leadline_http_refused_connections_total{reason="r"} 0\n',
        'leadline_http_refused_connections_total{reason="r"} 1000\n',
    ),
    "CertificateEndsSoon": (
        "",
        f"leadline_internal_certificate_not_after_timestamp_seconds {NOW_S + 86_400}\n",
    ),
    "NoActiveCoordinator": ("", "leadline_coordinator_active 0\n"),
    "ConsumerLagGrowing": (
        'leadline_coordinator_group_lag_records{group="g"} 10000\n',
        'leadline_coordinator_group_lag_records{group="g"} 10001\n',
    ),
    "RebalancesFailing": (
        'leadline_coordinator_evictions_total{reason="r"} 0\n',
        REBALANCING + 'leadline_coordinator_evictions_total{reason="r"} 10\n',
    ),
    "UnreadableNodes": ("", "leadline_unreadable_znodes 1\n"),
    "TwoReleases": (
        "",
        'leadline_build_info{release="a"} 1\nleadline_build_info{release="b"} 1\n',
    ),
    "OpenFilesHigh": ("", "process_open_fds 81\nprocess_max_fds 100\n"),
    "MetricsOmitted": ("", 'leadline_metrics_omitted{kind="topics"} 1\n'),
}


def exposition(samples: str) -> str:
    """Return the samples with those of a healthy process that they do not state."""
    stated = {line.split(" ")[0] for line in samples.splitlines()}
    rest = [line for line in HEALTHY.splitlines() if line.split(" ")[0] not in stated]
    return samples + "".join(f"{line}\n" for line in rest)


def firing(before: str | None, after: str | None) -> set[str]:
    scrapes, target = Scrapes(), Target("leadline-broker", "one:1")
    scrapes.add(NOW_S - 15, target, before)
    scrapes.add(NOW_S, target, after)
    evaluator = Evaluator(scrapes, NOW_S)
    return {name for name, expression in RULES.items() if evaluator.firing(expression)}


@pytest.mark.parametrize("name", SAMPLES)
def test_an_alert_fires_alone_on_what_it_is_meant_for(name: str) -> None:
    before, after = SAMPLES[name]

    assert firing(exposition(before), exposition(after)) == {name}


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        (
            "CertificateEndsSoon",
            f"leadline_public_certificate_not_after_timestamp_seconds {NOW_S + 86_400}\n",
        ),
        ("MetricsOmitted", 'leadline_coordinator_metrics_omitted{kind="groups"} 1\n'),
    ],
)
def test_an_alert_fires_on_the_other_metric_that_it_is_meant_for(name: str, samples: str) -> None:
    assert firing(exposition(""), exposition(samples)) == {name}


def test_every_rule_is_tested() -> None:
    assert set(SAMPLES) | {"ServiceDown"} == set(RULES)


def test_a_process_that_does_not_answer_fires_what_is_missing_with_it() -> None:
    missing = {"ServiceDown", "NoActiveController", "NoActiveCoordinator"}

    assert firing(exposition(""), None) == missing


@pytest.mark.parametrize("kind", ["controller", "coordinator"])
def test_a_cluster_without_its_last_candidate_has_none_beside_a_healthy_cluster(kind: str) -> None:
    scrapes, rule = Scrapes(), RULES[f"NoActive{kind.title()}"]
    for cluster, text in (("healthy", exposition("")), ("down", None)):
        scrapes.add(NOW_S, Target(f"leadline-{kind}", f"{cluster}:1", cluster), text)

    found = Evaluator(scrapes, NOW_S).firing(rule)

    assert [dict(labels)["cluster"] for labels in found] == ["down"]


def test_nothing_fires_on_a_healthy_process() -> None:
    assert firing(exposition(""), exposition("")) == set()
