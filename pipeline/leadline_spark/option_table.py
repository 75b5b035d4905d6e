"""All options of `format("leadline")` in one table, from which docs/spark-options.md is generated.

Options of Spark's Kafka source and sink have the same names, defaults and meanings here, so that a
job can move by changing the format and the address.
"""

from __future__ import annotations

from leadline_spark.options import (
    BATCH,
    DOCUMENT,
    DURATION,
    FLAG,
    LIST,
    NUMBER,
    STREAM,
    TEXT,
    WRITE,
    Option,
)

_READ = (BATCH, STREAM)
_ALL = (BATCH, STREAM, WRITE)

CONNECTION = (
    Option(
        "bootstrap",
        LIST,
        _ALL,
        "Addresses of brokers or controllers, separated by commas; any one is enough.",
        aliases=("kafka.bootstrap.servers",),
    ),
    Option("token", TEXT, _ALL, "Bearer token sent with every request."),
    Option(
        "requestTimeoutMs",
        NUMBER,
        _ALL,
        "How long one HTTP request may take, in ms.",
        default="30000",
        aliases=("kafka.request.timeout.ms",),
    ),
)

SUBSCRIPTION = (
    Option("subscribe", LIST, _READ, "Topics, separated by commas. Exactly one of the three ways."),
    Option(
        "subscribePattern",
        TEXT,
        _READ,
        "Regular expression that whole names of topics match (Python's `re`).",
    ),
    Option("assign", DOCUMENT, _READ, 'Partitions: `{"topicA":[0,1],"topicB":[2,4]}`.'),
)

TABLES = (
    Option(
        "table",
        TEXT,
        _READ,
        "Read the cluster's own state instead of topics: `audit` (streams can follow it), "
        "`partitions`, `brokers`, `reassignments` or `groups` (see tables.md). Of the audit, "
        "`startingOffsets` and `endingOffsets` are `earliest`, `latest` or an id, and "
        "`maxOffsetsPerTrigger` counts entries; reads and streams start at `earliest`.",
        choices=("audit", "partitions", "brokers", "reassignments", "groups"),
    ),
)

RANGES = (
    Option(
        "startingOffsets",
        TEXT,
        _READ,
        "`earliest`, `latest` (streams only), or an offset for each partition: "
        '`{"topicA":{"0":23,"1":-2}}`, -2 for earliest, -1 for latest. Default: `latest` for '
        "streams, `earliest` for batch reads. A stream with a checkpoint continues from there; "
        "partitions that are new to it start at earliest.",
    ),
    Option(
        "startingTimestamp",
        NUMBER,
        _READ,
        "Start every partition at its first record at or after this time, in ms since 1970.",
        minimum=0,
    ),
    Option(
        "startingOffsetsByTimestamp",
        DOCUMENT,
        _READ,
        'The same for each partition: `{"topicA":{"0":1600000000000}}`. `startingTimestamp` wins.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        TEXT,
        _READ,
        "What to do if no record is that new: `error`, or start at `latest`.",
        default="error",
        choices=("error", "latest"),
    ),
    Option(
        "endingOffsets",
        TEXT,
        (BATCH,),
        '`latest`, or an offset for each partition: `{"topicA":{"0":50,"1":-1}}`. Ends are '
        "exclusive. Default: `latest`.",
    ),
    Option(
        "endingTimestamp",
        NUMBER,
        (BATCH,),
        "End every partition before its first record at or after this time, or at latest if there "
        "is none.",
        minimum=0,
    ),
    Option(
        "endingOffsetsByTimestamp",
        DOCUMENT,
        (BATCH,),
        "The same for each partition. `endingTimestamp` wins.",
    ),
    Option(
        "failOnDataLoss",
        FLAG,
        _READ,
        "Fail if records to be read are gone: by retention, truncation or deletion, or because the "
        "topic was recreated.",
        default="true",
    ),
    Option(
        "snapshot",
        TEXT,
        (BATCH,),
        "`load`: every action on a DataFrame sees the records that existed when it was loaded; "
        "`action`: those that existed when Spark planned the read, at the first action or for each "
        "filter.",
        default="load",
        choices=("load", "action"),
    ),
)

TASKS = (
    Option(
        "minPartitions",
        NUMBER,
        _READ,
        "Split large ranges until there are about this many tasks. Default: one per partition.",
    ),
    Option(
        "maxRecordsPerPartition",
        NUMBER,
        _READ,
        "Split ranges that hold more offsets than this.",
    ),
    Option(
        "fetchMaxBytes",
        NUMBER,
        _READ,
        "The size of one fetch, in bytes.",
        default="4194304",
        aliases=("kafka.max.partition.fetch.bytes",),
    ),
    Option(
        "fetchDeadlineMs",
        NUMBER,
        _READ,
        "How long a task waits for a leader that answers before it fails, in ms.",
        default="60000",
        aliases=("kafkaConsumer.pollTimeoutMs",),
    ),
    Option(
        "decoder",
        TEXT,
        _READ,
        "How checksums are computed: `fast` by the compiled library of the extra `fast`, `python` "
        "without it, `auto` by the library if it is installed.",
        default="auto",
        choices=("auto", "fast", "python"),
    ),
    Option(
        "pushFilters",
        FLAG,
        (BATCH,),
        "Push filters on topic, partition, offset and timestamp down to the read. Needs the "
        "session setting spark.sql.python.filterPushdown.enabled=true.",
        default="false",
    ),
)

COLUMNS = (
    Option(
        "columns",
        LIST,
        _READ,
        "Only these columns, in this order, as Python sources do not learn which ones a query "
        "needs. Default: all of Kafka's source.",
    ),
    Option("includeHeaders", FLAG, _READ, "Add the column headers.", default="false"),
    Option("includeLeaderEpoch", FLAG, _READ, "Add the column leaderEpoch.", default="false"),
)

TRIGGERS = (
    Option(
        "maxOffsetsPerTrigger",
        NUMBER,
        (STREAM,),
        "Most offsets in one micro-batch, shared among partitions in proportion to their backlog.",
    ),
    Option(
        "minOffsetsPerTrigger",
        NUMBER,
        (STREAM,),
        "Start a micro-batch when so many offsets are available, or after `maxTriggerDelay`.",
    ),
    Option(
        "maxTriggerDelay",
        DURATION,
        (STREAM,),
        "How long `minOffsetsPerTrigger` may delay records.",
        default="15m",
    ),
    Option(
        "maxBytesPerTrigger",
        NUMBER,
        (STREAM,),
        "About how many stored bytes one micro-batch reads, by the mean size of records.",
    ),
    Option(
        "commitGroup",
        TEXT,
        (STREAM,),
        "Commit the progress to this consumer group, for monitoring only. The group must have no "
        "members.",
    ),
)

WRITING = (
    Option(
        "topic",
        TEXT,
        (WRITE,),
        "The topic of all rows; overrides the column `topic`. One of the two is required.",
    ),
    Option(
        "txnAppId",
        TEXT,
        (WRITE,),
        "Write exactly once under this name. Each writer has its own, and a stream keeps it as "
        "long as its checkpoint. Default: at least once.",
    ),
    Option(
        "txnVersion",
        NUMBER,
        (WRITE,),
        "The number of a batch write within `txnAppId`, greater than the previous one. Each number "
        "is written once. Streams number their batches themselves.",
        minimum=0,
    ),
    Option(
        "acks",
        TEXT,
        (WRITE,),
        "When a record counts as written: when `all` in-sync replicas have it, when the leader has "
        "it (`1`), or when it is sent (`0`).",
        default="all",
        choices=("all", "-1", "1", "0"),
        aliases=("kafka.acks",),
    ),
    Option(
        "compression",
        TEXT,
        (WRITE,),
        "How batches are compressed.",
        default="none",
        choices=("none", "lz4", "zstd", "snappy", "gzip"),
        aliases=("kafka.compression.type",),
    ),
    Option(
        "batchBytes",
        NUMBER,
        (WRITE,),
        "The size of a batch before compression, in bytes; topics limit it (max.message.bytes).",
        default="524288",
        aliases=("kafka.batch.size",),
    ),
    Option(
        "bufferBytes",
        NUMBER,
        (WRITE,),
        "How much a task buffers for all partitions before it sends partial batches, in bytes.",
        default="33554432",
        aliases=("kafka.buffer.memory",),
    ),
    Option(
        "deliveryTimeoutMs",
        NUMBER,
        (WRITE,),
        "How long a task, or a commit, tries to deliver before it fails, in ms.",
        default="120000",
        aliases=("kafka.delivery.timeout.ms",),
    ),
    Option(
        "keepTimestamps",
        FLAG,
        (WRITE,),
        "Write the column `timestamp` as the time of records. Default: the time of writing.",
        default="false",
    ),
)

SPARK_OPTIONS = tuple(
    Option(
        name, TEXT, (STREAM, WRITE), "Spark's own option, which it passes to sources and sinks too."
    )
    for name in ("checkpointLocation", "queryName", "path")
)

IGNORED = tuple(
    Option(
        name,
        TEXT,
        _READ,
        "Has no effect; accepted so that jobs written for Kafka run unchanged.",
    )
    for name in (
        "groupIdPrefix",
        "kafka.group.id",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    )
)

OPTIONS: tuple[Option, ...] = (
    *CONNECTION,
    *SUBSCRIPTION,
    *TABLES,
    *RANGES,
    *TASKS,
    *COLUMNS,
    *TRIGGERS,
    *WRITING,
    *SPARK_OPTIONS,
    *IGNORED,
)
"""All options. Names and aliases are unique, ignoring case."""
