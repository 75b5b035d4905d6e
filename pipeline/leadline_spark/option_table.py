"""Every option of `format("leadline")`, as one table; docs/spark-options.md is made from it.

Names, defaults and meanings are those of Spark's Kafka source and sink wherever it has the option,
so that a job moves by changing the format and the address.
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
        minimum=1,
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
        "Read the cluster itself instead of topics: `audit` (its history; streams can follow it), "
        "`partitions`, `brokers`, `reassignments` or `groups` (see tables.md). Of the audit, "
        "`startingOffsets` and `endingOffsets` are `earliest`, `latest` or an id, and "
        "`maxOffsetsPerTrigger` counts entries; it begins at `earliest`, streams too.",
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
        "streams, `earliest` for batch reads. A stream that has a checkpoint goes on from there; "
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
        "What to do where no record is that new: `error`, or start at `latest`.",
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
        "End every partition before its first record at or after this time; at latest where there "
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
        "Fail where records that were to be read are gone: by retention, truncation or deletion, "
        "or because the topic was made anew.",
        default="true",
    ),
    Option(
        "snapshot",
        TEXT,
        (BATCH,),
        "`load`: every action on a DataFrame sees what was there when it was loaded; `action`: "
        "what was there when Spark planned the read, at the first action or for each filter.",
        default="load",
        choices=("load", "action"),
    ),
)

TASKS = (
    Option(
        "minPartitions",
        NUMBER,
        _READ,
        "Split large ranges until there are about this many tasks. Default: one a partition.",
        minimum=1,
    ),
    Option(
        "maxRecordsPerPartition",
        NUMBER,
        _READ,
        "Split ranges that hold more offsets than this.",
        minimum=1,
    ),
    Option(
        "fetchMaxBytes",
        NUMBER,
        _READ,
        "How much one fetch asks for, in bytes.",
        default="4194304",
        minimum=1,
        aliases=("kafka.max.partition.fetch.bytes",),
    ),
    Option(
        "fetchDeadlineMs",
        NUMBER,
        _READ,
        "How long a task looks for a leader that answers before it fails, in ms.",
        default="60000",
        minimum=1,
        aliases=("kafkaConsumer.pollTimeoutMs",),
    ),
    Option(
        "decoder",
        TEXT,
        _READ,
        "How checksums are computed: `fast` by the compiled library of the extra `fast`, `python` "
        "without it, `auto` by what there is.",
        default="auto",
        choices=("auto", "fast", "python"),
    ),
    Option(
        "pushFilters",
        FLAG,
        (BATCH,),
        "Let filters on topic, partition, offset and timestamp choose what is read. Needs the "
        "session setting spark.sql.python.filterPushdown.enabled=true.",
        default="false",
    ),
)

COLUMNS = (
    Option(
        "columns",
        LIST,
        _READ,
        "Only these columns, in this order: Spark does not tell Python sources which ones a query "
        "needs. Default: all, as Kafka's source.",
    ),
    Option("includeHeaders", FLAG, _READ, "Add the column headers.", default="false"),
    Option("includeLeaderEpoch", FLAG, _READ, "Add the column leaderEpoch.", default="false"),
)

TRIGGERS = (
    Option(
        "maxOffsetsPerTrigger",
        NUMBER,
        (STREAM,),
        "Offsets in one micro-batch at most, shared among partitions in proportion to what waits.",
        minimum=1,
    ),
    Option(
        "minOffsetsPerTrigger",
        NUMBER,
        (STREAM,),
        "Begin a micro-batch when as many offsets wait, or after `maxTriggerDelay`.",
        minimum=1,
    ),
    Option(
        "maxTriggerDelay",
        DURATION,
        (STREAM,),
        "How long `minOffsetsPerTrigger` may hold records back.",
        default="15m",
    ),
    Option(
        "maxBytesPerTrigger",
        NUMBER,
        (STREAM,),
        "About how many stored bytes one micro-batch reads, by the mean size of what was read.",
        minimum=1,
    ),
    Option(
        "commitGroup",
        TEXT,
        (STREAM,),
        "Report progress as the committed offsets of this consumer group, for monitoring only. The "
        "group must have no members.",
    ),
)

WRITING = (
    Option(
        "topic",
        TEXT,
        (WRITE,),
        "Where all rows go; wins over the column `topic`, one of the two is required.",
    ),
    Option(
        "txnAppId",
        TEXT,
        (WRITE,),
        "Write exactly once under this name: no two writers share it, and a stream keeps it as "
        "long as its checkpoint. Default: at least once.",
    ),
    Option(
        "txnVersion",
        NUMBER,
        (WRITE,),
        "The number of a batch write within `txnAppId`, greater than the one before: the same "
        "number is written once. Streams number their batches themselves.",
        minimum=0,
    ),
    Option(
        "acks",
        TEXT,
        (WRITE,),
        "When a record counts as written: with `all` in-sync replicas, the leader (`1`), or sent "
        "(`0`).",
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
        "How large a batch gets before compression, in bytes; topics limit it (max.message.bytes).",
        default="524288",
        minimum=1,
        aliases=("kafka.batch.size",),
    ),
    Option(
        "bufferBytes",
        NUMBER,
        (WRITE,),
        "How much a task gathers for all partitions before it sends what is not full, in bytes.",
        default="33554432",
        minimum=1,
        aliases=("kafka.buffer.memory",),
    ),
    Option(
        "deliveryTimeoutMs",
        NUMBER,
        (WRITE,),
        "How long a task, or a commit, tries to deliver before it fails, in ms.",
        default="120000",
        minimum=1,
        aliases=("kafka.delivery.timeout.ms",),
    ),
    Option(
        "keepTimestamps",
        FLAG,
        (WRITE,),
        "Write the column `timestamp` as the records' time, which else is when they are written.",
        default="false",
    ),
)

SPARKS_OWN = tuple(
    Option(name, TEXT, (STREAM, WRITE), "Spark's own; it hands it to sources and sinks as well.")
    for name in ("checkpointLocation", "queryName", "path")
)

PASSED_OVER = tuple(
    Option(
        name,
        TEXT,
        _READ,
        "Accepted so that jobs written for Kafka run unchanged; without effect.",
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
    *SPARKS_OWN,
    *PASSED_OVER,
)
"""All of them. Names and aliases are unique, whatever their case."""
