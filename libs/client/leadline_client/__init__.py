"""Leadline's client library: clients, producers, consumers, and the types and errors they use.

    from leadline_client import Client, Consumer, NewTopic, Producer

`docs/python-client.md` is the guide. Names are imported when they are first used.
"""

from leadline_client.lazy_exports import lazy_exports

_EXPORTS = {
    "client": ["AsyncClient", "Client"],
    "consumer": ["AsyncConsumer"],
    "consumer_settings": ["ConsumerSettings", "RebalanceListener"],
    "errors": [
        "DeserializationFailed",
        "LeadlineError",
        "OutcomeUnknown",
        "Refused",
        "SerializationFailed",
    ],
    "extras": ["MissingExtra"],
    "fetching": ["ConsumedRecord"],
    "groups": ["ResetTo"],
    "payloads": ["OutgoingRecord"],
    "producer": ["AsyncProducer"],
    "producer_settings": ["ProducerSettings"],
    "sent_records": ["AsyncSentRecords", "RecordMetadata", "SentRecords"],
    "readers": ["AsyncPartitionReader", "PartitionReader"],
    "reading": ["ReadLimits"],
    "record_future": ["RecordFuture"],
    "retry": ["RetryPolicy"],
    "security": ["Security"],
    "serializers.avro_serializer": ["AvroSerializer"],
    "serializers.json_serializer": ["JsonSerializer"],
    "serializers.plain": ["BytesSerializer", "StringSerializer"],
    "serializers.protobuf_serializer": ["ProtobufSerializer"],
    "serializers.protocols": ["Deserializer", "Serializer"],
    "sync_consumer": ["Consumer"],
    "sync_producer": ["Producer"],
    "table_producing": ["produce_table"],
    "table_reading": ["read_batches", "read_pandas", "read_table"],
    "wire": ["NewTopic", "Record", "TopicPartition"],
}

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
