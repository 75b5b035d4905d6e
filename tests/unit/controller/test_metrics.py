"""What a controller counts for its metrics."""

from leadline_client.wire import TopicPartition
from leadline_common.elections import ElectionReason
from leadline_controller.domain.cluster import ClusterPolicy
from leadline_controller.domain.failover import decide_all, none_stale
from leadline_controller.domain.stats import count_unhealthy
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from tests.unit.controller.images import TOPIC, cluster, state


def test_elections_of_every_reason_are_counted_from_0_on() -> None:
    served = ControllerMetrics().render().decode()

    for reason in set(ElectionReason) - {ElectionReason.UNCHANGED}:
        assert f'leadline_controller_elections_total{{reason="{reason}"}} 0.0' in served


def test_a_leader_that_leads_on_was_not_elected() -> None:
    """Broker 2 dies: it led partition 0, and followed in partition 1."""
    metrics, both = ControllerMetrics(), (1, 2)
    image = cluster({1}, {0: both, 1: both}, {0: state(2, both), 1: state(1, both)})
    names = [TopicPartition(TOPIC, number) for number in range(2)]

    metrics.count_elections(decide_all(image, names, none_stale))

    served = metrics.render().decode()
    assert 'leadline_controller_elections_total{reason="isr"} 1.0' in served
    assert 'reason="unchanged"' not in served


def test_partitions_are_unhealthy_by_leader_by_isr_and_by_min_insync_replicas() -> None:
    three = (1, 2, 3)
    image = cluster(
        three,
        dict.fromkeys(range(5), three) | {5: (1,)},
        {
            0: state(1, three),
            1: state(1, (1, 2)),
            2: state(1, (1,)),
            3: state(-1, (3,)),
            5: state(1, (1,)),
        },
        policy=ClusterPolicy(min_insync_replicas=2),
    )

    # Partition 4 has no state yet; a single replica is as many as partition 5 can have.
    assert count_unhealthy(image) == (2, 4, 3)
