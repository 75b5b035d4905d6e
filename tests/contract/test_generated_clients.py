"""Clients that a well-known generator makes of the documents, used on a running cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from leadline_client import batches
from leadline_client.payloads import OutgoingRecord
from tests.support.openapi.document import DOCUMENTS, operations_of
from tests.support.openapi.generator import environment, generate
from tests.support.services.cluster import Cluster

pytestmark = pytest.mark.slow

SERVICES = ("controller", "broker", "coordinator")

PROGRAM = """
import io, sys
from broker.api.cluster import read_metadata
from broker.api.records import fetch, produce
from broker.client import Client as BrokerClient
from broker.models import FetchAnswer, JsonRecord, MetadataBody, ProduceAnswer, ProduceBody
from broker.types import File
from controller.api.topics import create_topic, delete_topic
from controller.client import Client as ControllerClient
from controller.models import CreatedTopic, DeletedTopic, NewTopicBody

controller_url, broker_url, batch = sys.argv[1:]
controller = ControllerClient(controller_url)

wanted = NewTopicBody(name="generated", partitions=2, replication_factor=3)
created = create_topic.sync(client=controller, body=wanted)
assert isinstance(created, CreatedTopic), created

metadata = read_metadata.sync(client=BrokerClient(broker_url), topics="generated")
assert isinstance(metadata, MetadataBody), metadata
urls = {broker.id: broker.url for broker in metadata.brokers}
for partition, leader, epoch, isr, replicas in metadata.topics["generated"].partitions:
    assert isinstance(isr, list) and set(isr) <= set(replicas), (isr, replicas)
    if partition == 0:
        broker = BrokerClient(urls[leader])

records = [JsonRecord("to be"), JsonRecord("or not", key="k")]
first = produce.sync("generated", 0, client=broker, body=ProduceBody(records))
assert isinstance(first, ProduceAnswer), first
with open(batch, "rb") as stored:
    octets = File(io.BytesIO(stored.read()))
second = produce.sync("generated", 0, client=broker, body=octets)
assert isinstance(second, ProduceAnswer), second
assert (first.base_offset, first.count, second.base_offset, second.count) == (0, 2, 2, 1)

read = fetch.sync("generated", 0, client=broker, offset=0, wait_ms=5000)
assert isinstance(read, FetchAnswer), read
print([(record.offset, record.key, record.value) for record in read.records])

deleted = delete_topic.sync("generated", client=controller)
assert isinstance(deleted, DeletedTopic) and deleted.complete, deleted
"""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the packages `controller`, `broker` and `coordinator`."""
    folder = tmp_path_factory.mktemp("clients")
    said = {name: generate(DOCUMENTS / f"{name}.json", folder / name) for name in SERVICES}
    # Without a warning no operation and no response was left out.
    assert {name: words for name, words in said.items() if "warning" in words.lower()} == {}
    return folder


@pytest.mark.parametrize("service", SERVICES)
def test_defect_20_a_client_is_generated_with_every_operation(service: str, clients: Path) -> None:
    modules = [
        path.relative_to(clients).with_suffix("")
        for path in (clients / service).rglob("*.py")
        if path.stem != "__init__"
    ]
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    run(clients, "-c", code, *(".".join(module.parts) for module in modules))
    document = json.loads((DOCUMENTS / f"{service}.json").read_text(encoding="utf-8"))
    operations = sorted(operation.id for operation in operations_of(document))
    assert sorted(module.stem for module in modules if module.parts[1] == "api") == operations


def test_defect_20_generated_clients_create_produce_read_and_delete(
    clients: Path, cluster: Cluster, tmp_path: Path
) -> None:
    batch = tmp_path / "batch"
    batch.write_bytes(batches.encode([OutgoingRecord(b"that is the question")], now_ms=0))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    urls = cluster.url("controller-1"), cluster.url("broker-1")
    said = run(clients, str(program), *urls, str(batch))
    records = [(0, None, "to be"), (1, "k", "or not"), (2, None, "that is the question")]
    assert said.strip() == repr(records)


def run(clients: Path, *arguments: str) -> str:
    """Run Python where the generated packages and what they need can be imported."""
    done = subprocess.run(
        [environment() / "python", *arguments],
        env={"PYTHONPATH": str(clients), "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
