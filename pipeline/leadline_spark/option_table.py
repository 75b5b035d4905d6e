"""All options of `format("leadline")` in one table, from which docs/spark-options.md is generated.

Options of Spark's Kafka source and sink have the same names, defaults and meanings here, so that a
job can move by changing the format and the address.
"""

from __future__ import annotations

from functools import partial

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

_batch = partial(Option, scopes=(BATCH,))
_stream = partial(Option, scopes=(STREAM,))
_read = partial(Option, scopes=(BATCH, STREAM))
_write = partial(Option, scopes=(WRITE,))
_any = partial(Option, scopes=(BATCH, STREAM, WRITE))
_MOST_MS = 2**31 - 1
"""The longest time, 24 days: Kafka's limit too. Sockets and clocks could not take any number."""
_MOST_FETCHED = 64 << 20
"""A broker answers no fetch of more."""

CONNECTION = (
    _any(
        "bootstrap",
        LIST,
        "Addresses of brokers or controllers, separated by commas; any one is enough.",
        aliases=("kafka.bootstrap.servers",),
    ),
    _any(
        "ca.file",
        TEXT,
        "Authorities (PEM) that may sign the services' certificates, a file of the driver and of "
        "every executor. Default: the variable LEADLINE_CA_FILE of each, or else its own.",
    ),
    _any(
        "token.file",
        TEXT,
        "The file of the token that requests show, on the driver and on every executor. Each task "
        "reads it, and again when the token is refused. Default: the variable LEADLINE_TOKEN_FILE.",
    ),
    _any("token", TEXT, "The token itself, instead of `token.file`; a query keeps it to its end."),
    _any(
        "certificate.file",
        TEXT,
        "A certificate to show, and its key (PEM), a file of the driver and of every executor. "
        "Default: the variable LEADLINE_CERTIFICATE_FILE of each.",
    ),
    _any(
        "requestTimeoutMs",
        NUMBER,
        "How long to wait for each part of an answer, in ms; the whole may take ten times as long.",
        default="30000",
        maximum=_MOST_MS,
        aliases=("kafka.request.timeout.ms",),
    ),
)

_SPARK_OPTIONS = tuple(
    Option(
        name, TEXT, "Spark's own option, which it passes to sources and sinks too.", (STREAM, WRITE)
    )
    for name in ("checkpointLocation", "queryName", "path")
)

IGNORED = tuple(
    _read(name, TEXT, "Has no effect; accepted so that jobs written for Kafka run unchanged.")
    for name in (
        "groupIdPrefix",
        "kafka.group.id",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    )
)

OPTIONS: tuple[Option, ...] = (
    *CONNECTION,
    # Which partitions are read.
    _read("subscribe", LIST, "Topics, separated by commas. Exactly one of the three ways."),
    _read(
        "subscribePattern",
        TEXT,
        "Regular expression that whole names of topics match (Python's `re`).",
    ),
    _read("assign", DOCUMENT, 'Partitions: `{"topicA":[0,1],"topicB":[2,4]}`.'),
    # Tables instead of topics.
    _read(
        "table",
        TEXT,
        "Read the cluster's own state instead of topics: `audit` (streams can follow it), "
        "`partitions`, `brokers`, `reassignments` or `groups` (see tables.md). Of the audit, "
        "`startingOffsets` and `endingOffsets` are `earliest`, `latest` or an id, and "
        "`maxOffsetsPerTrigger` counts entries; reads and streams start at `earliest`.",
        choices=("audit", "partitions", "brokers", "reassignments", "groups"),
    ),
    # Where reads begin and end.
    _read(
        "startingOffsets",
        TEXT,
        "`earliest`, `latest` (streams only), or an offset for each partition: "
        '`{"topicA":{"0":23,"1":-2}}`, -2 for earliest, -1 for latest. Default: `latest` for '
        "streams, `earliest` for batch reads. A stream with a checkpoint continues from there; "
        "partitions that are new to it start at earliest.",
    ),
    _read(
        "startingTimestamp",
        NUMBER,
        "Start every partition at its first record at or after this time, in ms since 1970.",
        minimum=0,
    ),
    _read(
        "startingOffsetsByTimestamp",
        DOCUMENT,
        'The same for each partition: `{"topicA":{"0":1600000000000}}`. `startingTimestamp` wins.',
    ),
    _read(
        "startingOffsetsByTimestampStrategy",
        TEXT,
        "What to do if no record is that new: `error`, or start at `latest`.",
        default="error",
        choices=("error", "latest"),
    ),
    _batch(
        "endingOffsets",
        TEXT,
        '`latest`, or an offset for each partition: `{"topicA":{"0":50,"1":-1}}`. Ends are '
        "exclusive. Default: `latest`.",
    ),
    _batch(
        "endingTimestamp",
        NUMBER,
        "End every partition before its first record at or after this time, or at latest if there "
        "is none.",
        minimum=0,
    ),
    _batch(
        "endingOffsetsByTimestamp",
        DOCUMENT,
        "The same for each partition. `endingTimestamp` wins.",
    ),
    _read(
        "failOnDataLoss",
        FLAG,
        "Fail if records to be read are gone: by retention, truncation or deletion, or because the "
        "topic was recreated.",
        default="true",
    ),
    _batch(
        "snapshot",
        TEXT,
        "`load`: every action on a DataFrame sees the records that existed when it was loaded; "
        "`action`: those that existed when Spark planned the read, at the first action or for each "
        "filter.",
        default="load",
        choices=("load", "action"),
    ),
    # The tasks of a read.
    _read(
        "minPartitions",
        NUMBER,
        "Split large ranges until there are about this many tasks. Default: one per partition.",
    ),
    _read("maxRecordsPerPartition", NUMBER, "Split ranges that hold more offsets than this."),
    _read(
        "fetchMaxBytes",
        NUMBER,
        "The size of one fetch, in bytes, 64 MiB at most. A task holds two of them.",
        default="16777216",
        maximum=_MOST_FETCHED,
        aliases=("kafka.max.partition.fetch.bytes",),
    ),
    _read(
        "fetchDeadlineMs",
        NUMBER,
        "How long a task waits for a leader that answers before it fails, in ms.",
        default="60000",
        maximum=_MOST_MS,
        aliases=("kafkaConsumer.pollTimeoutMs",),
    ),
    _read(
        "replica",
        TEXT,
        "Which replicas executors read: `leader`, or with `any` an in-sync follower, the nearest "
        "rack first. A follower serves records up to its own high watermark; what it lacks is read "
        "from the leader.",
        default="leader",
        choices=("leader", "any"),
    ),
    _read(
        "rack",
        TEXT,
        "With `replica=any`: the rack of the executors, as brokers name theirs (`broker.rack`). "
        "Default: the variable LEADLINE_RACK of each executor.",
        aliases=("kafka.client.rack",),
    ),
    _read(
        "decoder",
        TEXT,
        "How checksums are computed: `fast` by the compiled library of the extra `fast`, `python` "
        "without it, `auto` by the library if it is installed.",
        default="auto",
        choices=("auto", "fast", "python"),
    ),
    _batch(
        "pushFilters",
        FLAG,
        "Push filters on topic, partition, offset and timestamp down to the read. Needs the "
        "session setting spark.sql.python.filterPushdown.enabled=true.",
        default="false",
    ),
    # The columns of a read.
    _read(
        "columns",
        LIST,
        "Only these columns, in this order, as Python sources do not learn which ones a query "
        "needs. Default: all of Kafka's source.",
    ),
    _read("includeHeaders", FLAG, "Add the column headers.", default="false"),
    _read("includeLeaderEpoch", FLAG, "Add the column leaderEpoch.", default="false"),
    # Micro-batches.
    _stream(
        "maxOffsetsPerTrigger",
        NUMBER,
        "Most offsets in one micro-batch, shared among partitions in proportion to their backlog.",
    ),
    _stream(
        "minOffsetsPerTrigger",
        NUMBER,
        "Start a micro-batch when so many offsets are available, or after `maxTriggerDelay`.",
    ),
    _stream(
        "maxTriggerDelay",
        DURATION,
        "How long `minOffsetsPerTrigger` may delay records.",
        default="15m",
    ),
    _stream(
        "maxBytesPerTrigger",
        NUMBER,
        "About how many stored bytes one micro-batch reads, by the mean size of records.",
    ),
    _stream(
        "commitGroup",
        TEXT,
        "Commit the progress to this consumer group, for monitoring only. The group must have no "
        "members.",
    ),
    # Writes.
    _write(
        "topic",
        TEXT,
        "The topic of all rows; overrides the column `topic`. One of the two is required.",
    ),
    _write(
        "txnAppId",
        TEXT,
        "Write exactly once under this name. Each writer has its own, and a stream keeps it as "
        "long as its checkpoint. Default: at least once.",
    ),
    _write(
        "txnVersion",
        NUMBER,
        "The number of a batch write within `txnAppId`, greater than the previous one. Each number "
        "is written once. Streams number their batches themselves.",
        minimum=0,
    ),
    _write(
        "acks",
        TEXT,
        "When a record counts as written: when `all` in-sync replicas have it, when the leader has "
        "it (`1`), or when it is sent (`0`).",
        default="all",
        choices=("all", "-1", "1", "0"),
        aliases=("kafka.acks",),
    ),
    _write(
        "compression",
        TEXT,
        "How batches are compressed.",
        default="none",
        choices=("none", "lz4", "zstd", "snappy", "gzip"),
        aliases=("kafka.compression.type",),
    ),
    _write(
        "batchBytes",
        NUMBER,
        "The size of a batch before compression, in bytes; topics limit it (max.message.bytes).",
        default="524288",
        aliases=("kafka.batch.size",),
    ),
    _write(
        "bufferBytes",
        NUMBER,
        "How much a task buffers for all partitions before it sends partial batches, in bytes.",
        default="33554432",
        aliases=("kafka.buffer.memory",),
    ),
    _write(
        "deliveryTimeoutMs",
        NUMBER,
        "How long a task, or a commit, tries to deliver before it fails, in ms.",
        default="120000",
        maximum=_MOST_MS,
        aliases=("kafka.delivery.timeout.ms",),
    ),
    _write(
        "keepTimestamps",
        FLAG,
        "Write the column `timestamp` as the time of records. Default: the time of writing.",
        default="false",
    ),
    *_SPARK_OPTIONS,
    *IGNORED,
)
"""All options. Names and aliases are unique, ignoring case."""
