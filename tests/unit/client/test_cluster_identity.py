"""A client belongs to one cluster: what it does when another one is at its addresses (rule R15)."""

from __future__ import annotations

import json

import pytest

from leadline_client.client import Client
from leadline_client.errors import ClusterChanged, ConnectionLost, OutcomeUnknown
from leadline_client.retry import RetryPolicy
from leadline_client.transport import CLUSTER_ID_HEADER, Request, Response

HASTY = RetryPolicy(timeout_s=5, first_pause_s=0.001)
ONE, TWO = "http://one", "http://two"


class Addresses:
    """A transport to brokers of `clusters`, by address; `leader` is the address of the leader.

    `replaced_by`: the next append gets no response, and then this cluster is at all addresses.
    `appended` has the cluster of each append.
    """

    def __init__(self) -> None:
        self.clusters = {ONE: "a", TWO: "a"}
        self.leader = ONE
        self.replaced_by = ""
        self.appended: list[str] = []

    def send(self, request: Request) -> Response:
        address = request.url[: len(ONE)]
        cluster = self.clusters[address]
        known = request.headers.get(CLUSTER_ID_HEADER)
        if known not in (None, cluster):
            return self._response(421, ClusterChanged.between(str(known), cluster).body(), cluster)
        if request.url.endswith("/v1/metadata"):
            return self._response(200, self._metadata(cluster), cluster)
        if request.method == "POST" and "/records" in request.url:
            self.appended.append(cluster)
            if self.replaced_by:
                self.clusters = dict.fromkeys(self.clusters, self.replaced_by)
                raise ConnectionLost("no response")
            return self._response(200, {"base_offset": 0, "count": 1}, cluster)
        return self._response(200, {}, cluster)

    def close(self) -> None:
        return

    @staticmethod
    def _response(status: int, document: object, cluster: str) -> Response:
        return Response(status, {CLUSTER_ID_HEADER: cluster}, json.dumps(document).encode())

    def _metadata(self, cluster: str) -> dict[str, object]:
        brokers = [
            {"id": number, "url": url, "rack": None, "incarnation": 1}
            for number, url in ((1, ONE), (2, TWO))
        ]
        leader = 1 if self.leader == ONE else 2
        topic = {"topic_id": "id", "partitions": [[0, leader, leader, [1, 2], [1, 2]]]}
        return {
            "cluster_id": cluster,
            "version": 1,
            "controller": None,
            "brokers": brokers,
            "topics": {"t": topic},
        }


@pytest.fixture
def addresses() -> Addresses:
    return Addresses()


@pytest.fixture
def client(addresses: Addresses) -> Client:
    """Return a client that has learnt of cluster a."""
    client = Client([ONE, TWO], policy=HASTY, transport=addresses)
    client.produce_batches("t", 0, b"")
    addresses.appended.clear()
    return client


def test_defect_09_nothing_is_sent_to_another_cluster_for_the_own_one(
    client: Client, addresses: Addresses
) -> None:
    addresses.clusters = {ONE: "b", TWO: "b"}
    for act in (
        lambda: client.produce_batches("t", 0, b""),
        client.metadata,
        client.find_coordinator,
        lambda: client.delete_topic("t"),
    ):
        with pytest.raises(ClusterChanged) as changed:
            act()
        assert changed.value.details == {"known_cluster_id": "a", "cluster_id": "b"}
    assert addresses.appended == []


def test_defect_09_an_administrator_s_client_needs_no_metadata_to_notice(
    addresses: Addresses,
) -> None:
    client = Client([ONE], policy=HASTY, transport=addresses)
    client.delete_topic("t")
    addresses.clusters[ONE] = "b"
    with pytest.raises(ClusterChanged):
        client.delete_topic("t")


def test_defect_09_one_address_of_another_cluster_is_like_a_broker_that_is_down(
    client: Client, addresses: Addresses
) -> None:
    """The former leader's machine now serves another cluster, and broker 2 leads."""
    addresses.clusters[ONE] = "b"
    addresses.leader = TWO
    client.produce_batches("t", 0, b"")
    assert addresses.appended == ["a"]
    assert client.metadata().cluster_id == "a"


def test_defect_09_an_unknown_outcome_stays_unknown(client: Client, addresses: Addresses) -> None:
    addresses.replaced_by = "b"
    with pytest.raises(OutcomeUnknown) as unknown:
        client.produce_batches("t", 0, b"", idempotent=True)
    assert isinstance(unknown.value.__cause__, ClusterChanged)
    assert addresses.appended == ["a"]
