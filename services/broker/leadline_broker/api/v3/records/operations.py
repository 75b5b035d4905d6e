"""The documentation of the operations that append records."""

from __future__ import annotations

from typing import Any, Final

from leadline_broker.api.v3.errors import ErrorResponse
from leadline_broker.api.v3.layer import PREFIX
from leadline_broker.api.v3.models.cluster import CLUSTER_ID
from leadline_broker.api.v3.records.batch import MOST_ENTRIES, BatchRequest
from leadline_broker.api.v3.records.reports import (
    BatchReport,
    EntryFailure,
    EntrySuccess,
    PartReport,
    ProduceReport,
)
from leadline_broker.api.v3.records.requests import ProduceRequest
from leadline_broker.api.v3.routes import MEANINGS, OTHER_ERRORS
from leadline_common.http.document import COMPONENT
from leadline_common.http.errors import Responses
from leadline_common.http.operation import REF, Body, Operation, Parameter
from leadline_common.rpc import JSON

TAG: Final = "v3 records"
_TOPIC: Final = f"{PREFIX}/clusters/{{cluster_id}}/topics/{{topic_name}}"
_TEXT: Final = {"type": "string"}
_PARAMETERS: Final = (
    Parameter("cluster_id", "The cluster's id", _TEXT, "path", example=CLUSTER_ID),
    Parameter("topic_name", "The topic's name", _TEXT, "path", example="orders"),
)
_TIME: Final = "2026-01-02T03:04:05.678Z"
_REQUEST: Final[dict[str, Any]] = {
    "key": {"type": "STRING", "data": "customer-7"},
    "value": {"type": "JSON", "data": {"coffees": 2}},
}
_KEY, _VALUE = PartReport("STRING", 10), PartReport("JSON", 13)


def _errors() -> Responses:
    schema = {"$ref": REF.format(name=ErrorResponse.__name__)}
    named: dict[int | str, tuple[str, str]] = {**MEANINGS, "default": OTHER_ERRORS}
    return {
        status: {
            "description": meaning,
            "content": {JSON: {"schema": schema}},
            COMPONENT: name,
        }
        for status, (name, meaning) in named.items()
    }


PRODUCE: Final = Operation(
    method="POST",
    path=f"{_TOPIC}/records",
    name="v3_produce",
    summary="Append records to a topic",
    description=(
        "Append one record, or several that follow each other in the body, also as an open stream "
        "with `Transfer-Encoding: chunked`. Any broker takes records for any partition. A record "
        "is answered once every in-sync replica has it on disk.\n\n"
        "A body with one record and a `Content-Length` is answered with the status of its record. "
        "Otherwise the status is 200, and each record has a report with an `error_code`, 200 for "
        "success, in the order of the request and each on a line of its own. Records are "
        "independent of each other; what is no JSON object ends the stream.\n\n"
        "Records with the same key go to the same partition, as with all of Leadline's producers."
    ),
    tags=[TAG],
    parameters=_PARAMETERS,
    requests=[Body(JSON, "A record", ProduceRequest, _REQUEST)],
    responses=[
        Body(
            JSON,
            "The report of each record",
            ProduceReport,
            ProduceReport(200, None, CLUSTER_ID, "orders", 1, 41, _TIME, _KEY, _VALUE),
        )
    ],
    own_errors=_errors(),
)
PRODUCE_BATCH: Final = Operation(
    method="POST",
    path=f"{_TOPIC}/records:batch",
    name="v3_produce_batch",
    summary="Append a batch of records to a topic",
    description=(
        f"Append up to {MOST_ENTRIES} records, each with an id of its own. They are independent of "
        "each other: the results say which were appended. A malformed batch is refused as a whole "
        "(422, 42208)."
    ),
    tags=[TAG],
    parameters=_PARAMETERS,
    requests=[Body(JSON, "A batch", BatchRequest, {"entries": [{"id": "1", **_REQUEST}]})],
    responses=[
        Body(
            JSON,
            "The results",
            BatchReport,
            BatchReport(
                [EntrySuccess("1", CLUSTER_ID, "orders", 1, 41, _TIME, _KEY, _VALUE)],
                [EntryFailure("2", 400, "value is not base64")],
            ),
        )
    ],
    status=207,
    own_errors=_errors(),
)
