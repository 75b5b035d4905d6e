from collections.abc import Iterable

from aiokafka.structs import TopicPartition

class ConsumerRebalanceListener:
    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None: ...
    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None: ...
