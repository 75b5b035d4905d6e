"""The metrics of consumer groups, and their limit."""

from leadline_common.metrics import Metrics
from leadline_coordinator.runtime.group_metrics import GroupMetrics


def served(groups: GroupMetrics) -> list[str]:
    metrics = Metrics(process=False)
    metrics.add(groups)
    lines = metrics.render().decode().splitlines()
    return [line.removeprefix("leadline_coordinator_") for line in lines if line[0] != "#"]


def test_groups_beyond_the_limit_count_in_the_totals_only() -> None:
    groups = GroupMetrics(most=2)
    groups.members = lambda: {"c": 1, "a": 2, "b": 0}
    groups.lag = {"a": {"orders": 5, "returns": 1}, "b": {"orders": 10}, "c": {"orders": 100}}

    assert served(groups) == [
        'group_members{group="a"} 2.0',
        'group_members{group="b"} 0.0',
        'group_lag_records{group="a"} 6.0',
        'group_lag_records{group="b"} 10.0',
        'group_topic_lag_records{group="a",topic="orders"} 5.0',
        'group_topic_lag_records{group="a",topic="returns"} 1.0',
        "members 3.0",
        "lag_records 116.0",
        'metrics_omitted{kind="groups"} 1.0',
        'metrics_omitted{kind="group_topics"} 2.0',
    ]


def test_a_group_that_is_gone_has_no_lag() -> None:
    groups = GroupMetrics(most=2)
    groups.lag = {"gone": {"orders": 5}}

    assert served(groups)[:2] == ["members 0.0", "lag_records 0.0"]
