"""What a broker has before it opens its logs, and its parts are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.cluster.coordinator_finder import CoordinatorFinder
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.ports import ClusterStore, Peers
from leadline_common.clock import Clock
from leadline_common.identity import InternalAddress
from leadline_common.settings import BrokerSettings


@dataclass(frozen=True, slots=True)
class BrokerDependencies:
    """What a broker needs before it has opened its logs.

    `settings` are those at start, `configuration` has those in force. `controller()`
    returns None while no controller is known.
    """

    settings: BrokerSettings
    configuration: Configuration
    broker_state: BrokerState
    store: ClusterStore
    peers: Peers
    metadata: ClusterMetadataCache
    metrics: BrokerMetrics
    controller: Callable[[], InternalAddress | None]
    coordinators: CoordinatorFinder
    clock: Clock
    random: Random
