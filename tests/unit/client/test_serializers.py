"""Each serializer: what it writes, what it reads, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import (
    AvroSerializer,
    BytesSerializer,
    JsonSerializer,
    MissingExtra,
    ProtobufSerializer,
    StringSerializer,
)
from leadline_client.serializers import json_serializer

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "cents", "type": "long"}],
}
OLDER = {**ORDER, "fields": [ORDER["fields"][0], {"name": "cents", "type": "int"}]}
NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "tip", "type": "long", "default": 0}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@dataclass
class Order:
    customer: str
    cents: int


def test_bytes_stay_and_nothing_else_is_taken() -> None:
    assert BytesSerializer().serialize("t", b"\xff") == b"\xff"
    assert BytesSerializer().deserialize("t", b"\xff") == b"\xff"
    with pytest.raises(TypeError, match="a str is not bytes"):
        BytesSerializer().serialize("t", "text")  # type: ignore[arg-type] # what is refused


@given(st.text())
def test_text_is_utf_8(text: str) -> None:
    assert StringSerializer().serialize("t", text) == text.encode()
    assert StringSerializer().deserialize("t", text.encode()) == text


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        StringSerializer().deserialize("t", b"\xff")
    with pytest.raises(UnicodeEncodeError):
        StringSerializer("ascii").serialize("t", "é")
    with pytest.raises(TypeError, match="a int is not text"):
        StringSerializer().serialize("t", 1)  # type: ignore[arg-type] # what is refused
    with pytest.raises(LookupError):
        StringSerializer("no such encoding")


@given(JSON)
def test_json_comes_back(value: Any) -> None:
    json: JsonSerializer = JsonSerializer()
    assert json.deserialize("t", json.serialize("t", value)) == value


def test_json_is_short_and_readable() -> None:
    assert JsonSerializer().serialize("t", {"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object(), "\ud800"])
def test_what_has_no_json_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        JsonSerializer().serialize("t", value)


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"[1] 2", '"é"'.encode("utf-16"), b'"\xff"'])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        JsonSerializer().deserialize("t", data)


def test_json_of_a_type_returns_that_type_and_refuses_another() -> None:
    json = JsonSerializer(Order)
    data = json.serialize("t", Order("ann", 250))
    assert data == b'{"customer":"ann","cents":250}'
    assert json.deserialize("t", data) == Order("ann", 250)
    for wrong in (b'{"customer":"ann"}', b'{"customer":1,"cents":1}', b"[]", b"{"):
        with pytest.raises(ValueError, match=r"\w"):
            json.deserialize("t", wrong)


def test_json_of_a_type_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_serializer, "installed", lambda *_: False)
    with pytest.raises(MissingExtra, match=r"leadline-client\[json\]"):
        JsonSerializer(Order)
    assert JsonSerializer().deserialize("t", b"1") == 1


def test_avro_writes_the_single_object_encoding_of_its_specification() -> None:
    # Avro's own test data: the fingerprint of "int" is 0x7275d51a3f395c8f; 64 is the varint 80 01.
    assert AvroSerializer("int").serialize("t", 64).hex() == "c301" + "8f5c393f1ad57572" + "8001"
    assert AvroSerializer("int", single_object=False).serialize("t", 64).hex() == "8001"


@given(st.fixed_dictionaries({"customer": st.text(), "cents": st.integers(-(2**63), 2**63 - 1)}))
def test_avro_values_come_back(order: dict[str, Any]) -> None:
    for avro in (AvroSerializer(ORDER), AvroSerializer(ORDER, single_object=False)):
        assert avro.deserialize("t", avro.serialize("t", order)) == order


@pytest.mark.parametrize(
    "value",
    [{"customer": "ann"}, {"customer": 1, "cents": 1}, {"customer": "", "cents": 0, "x": 1}],
)
def test_avro_refuses_values_of_another_schema(value: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        AvroSerializer(ORDER).serialize("t", value)


def test_avro_detects_a_record_of_another_schema() -> None:
    written = AvroSerializer(OLDER).serialize("t", {"customer": "ann", "cents": 7})
    with pytest.raises(ValueError, match="give it in writer_schemas"):
        AvroSerializer(ORDER).deserialize("t", written)
    bare = AvroSerializer({"type": "array", "items": "int"}, single_object=False)
    read = AvroSerializer("string", single_object=False)
    # Without the fingerprint a list of numbers is text: this is what it is for.
    assert read.deserialize("t", bare.serialize("t", [])) == ""


def test_avro_reads_records_of_older_schemas_as_the_newest() -> None:
    written = AvroSerializer(ORDER).serialize("t", {"customer": "ann", "cents": 7})
    newest = AvroSerializer(NEWER, writer_schemas=[OLDER, ORDER])
    assert newest.deserialize("t", written) == {"customer": "ann", "cents": 7, "tip": 0}
    own = newest.serialize("t", {"customer": "bob", "cents": 1, "tip": 2})
    assert newest.deserialize("t", own) == {"customer": "bob", "cents": 1, "tip": 2}


@pytest.mark.parametrize("single_object", [True, False])
def test_avro_refuses_damaged_records(single_object: bool) -> None:
    avro = AvroSerializer(ORDER, single_object=single_object)
    data = avro.serialize("t", {"customer": "ann", "cents": 7})
    for damaged in (b"", data[:-1], data + b"\0"):
        with pytest.raises((ValueError, EOFError)):
            avro.deserialize("t", damaged)


def test_avro_converts_to_types_of_the_application() -> None:
    avro = AvroSerializer(ORDER, to_avro=vars, from_avro=lambda fields: Order(**fields))
    assert avro.deserialize("t", avro.serialize("t", Order("ann", 7))) == Order("ann", 7)


@pytest.mark.parametrize("schema", ["nothing", "{", {"type": "record"}, ["int", "unheard"]])
def test_avro_refuses_a_schema_that_is_none(schema: Any) -> None:
    with pytest.raises(ValueError, match="the Avro schema is invalid"):
        AvroSerializer(schema)


def test_avro_takes_a_schema_as_text() -> None:
    text = '{"type": "array", "items": "int"}'
    assert AvroSerializer(text).serialize("t", [1]) == AvroSerializer(
        {"type": "array", "items": "int"}
    ).serialize("t", [1])


def test_avro_without_fingerprints_has_one_schema() -> None:
    with pytest.raises(ValueError, match="give no other"):
        AvroSerializer(ORDER, writer_schemas=[OLDER], single_object=False)


def test_avro_names_its_extra() -> None:
    code = (
        "import sys; sys.modules['fastavro'] = None\n"
        "import leadline_client\n"
        "try: leadline_client.AvroSerializer\n"
        "except leadline_client.MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "leadline-client[avro]" in done.stdout


def test_protobuf_messages_come_back() -> None:
    protobuf = ProtobufSerializer(Timestamp)
    sent = Timestamp(seconds=7, nanos=1)
    assert protobuf.deserialize("t", protobuf.serialize("t", sent)) == sent
    with pytest.raises(DecodeError):
        protobuf.deserialize("t", b"\xff")
    with pytest.raises(TypeError, match="a Struct is not a Timestamp"):
        protobuf.serialize("t", Struct())


def test_equal_protobuf_messages_give_equal_keys() -> None:
    names = [f"field {n}" for n in range(50)]
    one, other = Struct(), Struct()
    one.update(dict.fromkeys(names, 1))
    other.update(dict.fromkeys(reversed(names), 1))
    protobuf = ProtobufSerializer(Struct)
    assert protobuf.serialize("t", one) == protobuf.serialize("t", other)
