"""The token is for the cluster alone: nothing that Spark shows or keeps has it.

Spark hides options whose names match `spark.redaction.regex`, and `token` does; errors and what is
pickled into tasks are the connector's own. Pages of Spark's UI are drawn from its status store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leadline_client.payloads import OutgoingRecord
from tests.spark.live import Live
from tests.support.services.token_proxy import TokenProxy

pytestmark = pytest.mark.slow

TOKEN = "not-to-be-seen"  # noqa: S105 - a test's own


def shown(frame: DataFrame) -> str:
    told = StringIO()
    with redirect_stdout(told):
        frame.explain(extended=True)
        frame.explain(mode="formatted")
    return f"{told.getvalue()} {frame._jdf.queryExecution().toString()}"


def on_pages(spark: SparkSession) -> Iterator[str]:
    """Yield what the page of every execution so far is drawn from."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    for number in range(executions.size()):
        one = executions.apply(number)
        yield f"{one.description()} {one.details()} {one.physicalPlanDescription()}"


def test_the_token_is_nowhere_to_be_seen(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic)
    live.send(topic, [OutgoingRecord(b"v")])
    options = {"bootstrap": live.bootstrap, "subscribe": topic, "token": TOKEN}
    spark.createDataFrame([(1,)], "n int")  # Spark finds sinks for active sessions only

    batch = spark.read.format("leadline").options(**options).load()
    assert batch.count() == 1
    told = [shown(batch)]
    stream = spark.readStream.format("leadline").options(**options, startingOffsets="earliest")
    writer = stream.load().select("value").writeStream.format("leadline")
    writer = writer.options(bootstrap=live.bootstrap, topic=topic, token=TOKEN)
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    told += [progress.json for progress in query.recentProgress]
    told += [
        path.read_text() for path in tmp_path.rglob("*") if path.suffix != ".crc" and path.is_file()
    ]
    for wrong in ({"startingOffsets": "latest"}, {"bootstrap": "127.0.0.1:1"}, {"tokens": TOKEN}):
        with pytest.raises(PySparkException) as refused:
            spark.read.format("leadline").options(**{**options, **wrong}).load().count()
        told.append(str(refused.value))
    told += on_pages(spark)

    assert [text for text in told if TOKEN in text] == []
    assert "LEADLINE_CLUSTER_UNREACHABLE" in "".join(told)
    assert topic in "".join(told), "there was something to see"


@contextmanager
def proxy_of(live: Live, token: str, directory: Path) -> Iterator[TokenProxy]:
    proxy = TokenProxy(live.cluster, token, directory)
    live.run(proxy.__aenter__())
    try:
        yield proxy
    finally:
        live.run(proxy.__aexit__())


def test_driver_and_executors_connect_by_the_files_that_options_name(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    live.topic(topic)
    file = tmp_path / "shown"
    file.write_text(TOKEN)
    with proxy_of(live, TOKEN, tmp_path) as proxy:
        trusting = {"bootstrap": proxy.url("broker-1"), "ca.file": proxy.ca_file}
        options = {**trusting, "token.file": str(file)}
        rows = spark.createDataFrame([(b"v",)], "value binary")
        rows.write.format("leadline").options(**options, topic=topic).mode("append").save()
        read = spark.read.format("leadline").options(**options, subscribe=topic).load()
        assert [bytes(row.value) for row in read.collect()] == [b"v"]
        told = [shown(read)]
        file.write_text(f"{TOKEN}-too")
        live.run(proxy.accept_only(f"{TOKEN}-too"))
        assert read.count() == 1
        assert proxy.refused.keys() <= {TOKEN}
        for wrong, said in (
            (
                {"bootstrap": proxy.url("broker-1"), "token.file": str(file)},
                "certificate is refused",
            ),
            (trusting, "40150"),
            ({**trusting, "token": TOKEN}, "40150"),
        ):
            with pytest.raises(PySparkException, match=said) as refused:
                spark.read.format("leadline").options(**wrong, subscribe=topic).load().count()
            told.append(str(refused.value))
        told += on_pages(spark)
    assert [text for text in told if TOKEN in text] == []
