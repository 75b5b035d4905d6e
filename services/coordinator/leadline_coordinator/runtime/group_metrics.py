"""The metrics of consumer groups: of each group and topic up to a limit, and in total.

Groups are as many as clients create. Beyond the limit they have no labels of their own; they still
count in the totals, and a metric has the number that was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leadline_common.metrics import Rows, ScrapedMetrics


class GroupMetrics(ScrapedMetrics):
    """The members and the lag of each group, by name; nothing while this process is a standby.

    `lag` has what was measured last: records by group and topic. `members()` returns the number of
    members by group.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.members: Callable[[], Mapping[str, int]] = dict
        self.lag: dict[str, Mapping[str, int]] = {}
        self._members: Mapping[str, int] = {}
        self._measured: Mapping[str, Mapping[str, int]] = {}
        by_group, gauge = ("group",), self.family
        self._group_members = gauge(
            "gauge", "coordinator_group_members", "Members of each group.", by_group
        )
        self._group_lag = gauge(
            "gauge",
            "coordinator_group_lag_records",
            "Records that a group has not committed yet, over all of its partitions.",
            by_group,
        )
        self._topic_lag = gauge(
            "gauge",
            "coordinator_group_topic_lag_records",
            "Records of a topic that a group has not committed yet; the last known number while "
            "the leader of a partition does not answer.",
            ("group", "topic"),
        )
        self._all_members = gauge("gauge", "coordinator_members", "Members of all groups.")
        self._all_lag = gauge(
            "gauge",
            "coordinator_lag_records",
            "Records that groups have not committed yet, over all groups.",
        )
        self._omitted = gauge(
            "gauge",
            "coordinator_metrics_omitted",
            "Groups, and pairs of a group and a topic, that have no metrics of their own, because "
            "of `metrics.groups.max`.",
            ("kind",),
        )

    def sample(self) -> None:
        """Take the members and the lag of the groups that there are."""
        self._members = dict(sorted(self.members().items()))
        self._measured = {name: self.lag[name] for name in self._members if name in self.lag}

    def rows(self) -> Rows:
        """Return what was taken."""
        lag = [({"group": name}, sum(found.values())) for name, found in self._measured.items()]
        pairs = [
            ({"group": name, "topic": topic}, records)
            for name, found in self._measured.items()
            for topic, records in sorted(found.items())
        ]
        members = [({"group": name}, number) for name, number in self._members.items()]
        omitted = {"groups": len(members), "group_topics": len(pairs)}
        return {
            self._group_members: members[: self._most],
            self._group_lag: lag[: self._most],
            self._topic_lag: pairs[: self._most],
            self._all_members: [({}, sum(self._members.values()))],
            self._all_lag: [({}, sum(records for _, records in lag))],
            self._omitted: [
                ({"kind": kind}, max(0, number - self._most)) for kind, number in omitted.items()
            ],
        }
