"""The files that `leadline cluster init` makes of an inventory."""

from __future__ import annotations

import os
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from cryptography import x509
from typer.testing import CliRunner

from leadline_cli.credentials import UnusableAuthority
from leadline_cli.host_files import HostFiles
from leadline_cli.inventory import BadInventory, parse_inventory, read_inventory
from leadline_cli.main import app
from leadline_common.settings import (
    BrokerSettings,
    ControllerSettings,
    CoordinatorSettings,
    load_settings,
)
from leadline_common.zk.credentials import read_credentials
from leadline_common.zk.tls import ZkTls
from tests.unit.cli.test_inventory import HOSTS, list_of_all

SETTINGS = {"min": {"insync": {"replicas": 2}}, "broker": {"log": {"segment": {"bytes": 4096}}}}


def make(directory: Path, hosts: list[dict[str, Any]] = HOSTS, **other: Any) -> list[str]:
    """Make the files; return those that are new or differ, with their directory."""
    found = parse_inventory({"hosts": hosts, "settings": SETTINGS, **other})
    changes = HostFiles(found, directory).create()
    return [f"{change.path.parent.name}/{change.path.name}" for change in changes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("init") / "cluster"
    make(directory)
    return directory


def test_services_accept_the_settings_of_their_host(made: Path) -> None:
    file = made / "b/leadline.toml"
    broker = load_settings(BrokerSettings, flags={}, environment={}, config=file)
    controller = load_settings(ControllerSettings, flags={}, environment={}, config=file)
    coordinator = load_settings(CoordinatorSettings, flags={}, environment={}, config=file)
    assert (broker.broker_id, controller.controller_id, coordinator.coordinator_id) == (2, 2, 2)
    assert broker.advertised_url == "https://b.example.org:9092"
    assert controller.internal_advertised_url == "https://b.example.org:9193"
    assert (broker.min_insync_replicas, broker.log_segment_bytes) == (2, 4096)
    for service in (broker, controller, coordinator):
        assert service.authentication == "required"
        assert service.listen_host == "b.example.org"
        assert service.zookeeper_connect == ("10.0.0.11:2281,b.example.org:2281,[2001:db8::3]:2281")
        for file_name in (
            service.listen_tls_certificate_file,
            service.internal_certificate_file,
            service.internal_ca_file,
            service.tls_ca_file,
            service.zookeeper_tls_ca_file,
            service.zookeeper_credentials_file,
        ):
            assert (made / "b" / file_name).is_file()


def test_a_host_has_what_its_own_services_need_and_no_more(made: Path) -> None:
    assert {path.name for path in (made / "c").iterdir()} == {
        "leadline.toml",
        "zoo.cfg",
        "broker-3.pem",
        "broker-3-public.pem",
        "ca.pem",
        "internal-ca.pem",
        "zookeeper-broker",
        "zookeeper-ca.pem",
        "zookeeper-server-3.pem",
    }
    own = [path for path in made.rglob("*") if path.parent.name != "authority" and path.is_file()]
    keys = {path.read_bytes() for path in (made / "authority").glob("*.key")}
    assert len(keys) == 3
    assert not any(key in path.read_bytes() for key in keys for path in own)
    operator = read_credentials(made / "admin/zookeeper-operator")
    assert operator.is_administrator
    assert not read_credentials(made / "c/zookeeper-broker").is_administrator


def test_nobody_else_can_read_the_files(made: Path) -> None:
    for path in (made, *made.rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_certificates_name_the_addresses_of_their_host(made: Path) -> None:
    for name, host, address in (
        ("broker-1-public.pem", "a", "10.0.0.11"),
        ("zookeeper-server-3.pem", "c", "2001:db8::3"),
    ):
        certificate = x509.load_pem_x509_certificate((made / host / name).read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert address in [str(one) for one in names.get_values_for_type(x509.IPAddress)]
    ZkTls(made / "a/zookeeper-ca.pem", made / "a/zookeeper-server-1.pem")
    with pytest.raises(ssl.SSLError):
        ssl.create_default_context(cafile=str(made / "a/zookeeper-broker"))


def test_zookeepers_servers_know_each_other_and_speak_tls_only(made: Path) -> None:
    lines = dict(
        line.split("=", 1)
        for line in (made / "c/zoo.cfg").read_text().splitlines()
        if not line.startswith("#")
    )
    assert lines["server.1"] == "10.0.0.11:2888:3888"
    assert lines["server.3"] == "[2001:db8::3]:2888:3888"
    assert (lines["secureClientPort"], lines["sslQuorum"]) == ("2281", "true")
    assert "clientPort" not in lines
    assert lines["secureClientPortAddress"] == "2001:db8::3"
    for purpose in ("ssl", "ssl.quorum"):
        assert lines[f"{purpose}.keyStore.location"] == "zookeeper-server-3.pem"
        assert lines[f"{purpose}.trustStore.location"] == "zookeeper-ca.pem"


def test_another_run_changes_nothing_and_a_new_host_only_what_follows(tmp_path: Path) -> None:
    make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert make(tmp_path) == []
    added = {"name": "d", "address": "10.0.0.14", "id": 4, "roles": ["broker"]}
    changed = make(tmp_path, [*HOSTS, added])
    assert {name.split("/")[0] for name in changed} == {"d"}
    fifth = {"name": "e", "address": "10.0.0.15", "id": 5, "roles": ["zookeeper"]}
    changed = make(tmp_path, [*HOSTS, added, fifth])
    settings = [f"{host}/leadline.toml" for host in "abcd"]
    others = [name for name in changed if not name.startswith("e/")]
    assert sorted(others) == sorted([*settings, *(f"{host}/zoo.cfg" for host in "abc")])
    kept = {path for path in before if path.suffix in (".pem", ".key") or "zookeeper-" in path.name}
    assert all(path.read_bytes() == before[path] for path in kept)


def test_a_host_loses_the_files_of_a_role_that_it_has_lost(tmp_path: Path) -> None:
    """`leadline host` runs what it finds: the former ZooKeeper server, with the former servers."""
    make(tmp_path)
    own = tmp_path / "b/notes-of-the-operator.pem"
    own.write_text("mine")
    (tmp_path / "b/data/broker-2").mkdir(parents=True)
    changed = make(tmp_path, [HOSTS[0], {**HOSTS[1], "roles": ["broker"]}, HOSTS[2]])
    assert {"b/zoo.cfg", "b/controller-2-public.pem", "a/zoo.cfg"} <= set(changed)
    assert {path.name for path in (tmp_path / "b").iterdir()} == {
        "leadline.toml",
        "broker-2.pem",
        "broker-2-public.pem",
        "ca.pem",
        "internal-ca.pem",
        "zookeeper-broker",
        "zookeeper-ca.pem",
        own.name,
        "data",
    }
    assert (tmp_path / "authority/controller-2.pem").exists(), "it may get the role back"
    make(tmp_path)
    assert (tmp_path / "b/zoo.cfg").exists()


def test_directories_that_others_can_enter_are_closed(tmp_path: Path) -> None:
    for name in ("a", "admin", "authority"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    make(tmp_path)
    for name in ("a", "b", "admin", "authority"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700, name


def test_several_runs_at_a_time_make_one_cluster(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: make(tmp_path), range(4)))
    assert sorted(map(len, made))[:3] == [0, 0, 0], "one of them has made everything"
    assert len(make(tmp_path)) == 0


@pytest.mark.parametrize("name", ["", "authority"])
def test_no_keys_are_made_or_used_where_others_can_exchange_them(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    with pytest.raises(UnusableAuthority, match="everybody can write"):
        make(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    directory.chmod(0o1777)
    make(tmp_path)


def test_the_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    if os.geteuid() == 0:
        os.chown(theirs, 12_345, 12_345)
    else:
        theirs = Path("/")
    with pytest.raises(UnusableAuthority, match="another user's"):
        make(theirs)


def test_a_new_address_needs_new_certificates(tmp_path: Path) -> None:
    make(tmp_path)
    moved = [{**HOSTS[0], "address": "10.0.0.99"}, *HOSTS[1:]]
    with pytest.raises(BadInventory, match=r"broker-1-public\.pem does not name 10\.0\.0\.99"):
        make(tmp_path, moved)
    for path in (tmp_path / "authority").glob("*-1*.pem"):
        path.unlink()
    assert {"a/broker-1-public.pem", "a/leadline.toml", "b/leadline.toml"} <= set(
        make(tmp_path, moved)
    )


def test_a_wrong_setting_is_named_before_anything_is_written(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    for wrong, named in (
        ({"min": {"insync": {"replica": 2}}}, "min.insync.replica"),
        ({"broker": {"log": {"segment": {"bytes": "big"}}}}, "log.segment.bytes"),
    ):
        with pytest.raises(BadInventory, match=named):
            HostFiles(parse_inventory({"hosts": HOSTS, "settings": wrong}), directory).create()
    assert not directory.exists()


def test_a_port_of_its_own_is_in_the_addresses_of_a_service(tmp_path: Path) -> None:
    settings = {"broker": {"listen": {"port": 10092}}, "controller.internal.listen.port": 10193}
    make(tmp_path, settings=settings)
    file = tmp_path / "b/leadline.toml"
    broker = load_settings(BrokerSettings, flags={}, environment={}, config=file)
    controller = load_settings(ControllerSettings, flags={}, environment={}, config=file)
    assert (broker.listen_port, broker.advertised_url) == (10092, "https://b.example.org:10092")
    assert broker.internal_advertised_url == "https://b.example.org:9192"
    assert controller.internal_advertised_url == "https://b.example.org:10193"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"broker": {"listen": {"port": 9192}}}, "same port, 9192"),
        ({"controller": {"listen": {"port": 9092}}}, "broker.listen.port and controller"),
        ({"coordinator": {"listen.port": 2281}}, "zookeeper and coordinator"),
        ({"broker": {"internal.listen.port": 3888}}, "zookeeper and broker"),
        ({"broker": {"listen.port": 0}}, "0 is no port"),
        ({"listen.port": 9092}, "put it into"),
        ({"broker": {"id": 7}}, "broker.id differs from host to host"),
        ({"advertised": {"url": "https://x"}}, "advertised.url differs"),
        ({"controller.internal.advertised.url": "https://x"}, "differs"),
        ({"broker": {"zookeeper": {"connect": "z:1"}}}, "of all services"),
        ({"authentication": "none"}, "authentication is required"),
        ({"broker": {"authentication": "none"}}, "authentication is required"),
        ({"min.insync.replicas": date(2026, 1, 1)}, "min.insync.replicas is a text"),
        ({"min.insync.replicas": [{"a": 1}]}, "min.insync.replicas is a text"),
        ({"min.insync.replicas": float("inf")}, "min.insync.replicas"),
    ],
)
def test_settings_with_which_no_cluster_could_run_are_refused(
    tmp_path: Path, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInventory, match=named):
        HostFiles(parse_inventory({"hosts": HOSTS, "settings": settings}), tmp_path).create()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ['a"b\\c', "r\n1", "😀", "\x7f", "é"])
def test_every_text_comes_back_from_the_settings(tmp_path: Path, text: str) -> None:
    make(tmp_path, [{**HOSTS[0], "rack": text}])
    file = tmp_path / "a/leadline.toml"
    assert load_settings(BrokerSettings, flags={}, environment={}, config=file).broker_rack == text


def test_a_directory_may_have_spaces(tmp_path: Path) -> None:
    make(tmp_path, data="/var/lib/lead line")
    lines = (tmp_path / "a/zoo.cfg").read_text().splitlines()
    assert "dataDir=/var/lib/lead line/zookeeper" in lines


def test_the_command_says_what_to_copy_and_shows_no_secret(tmp_path: Path) -> None:
    file, directory = tmp_path / "inventory.toml", tmp_path / "cluster"
    rows = "\n".join(
        f'[[hosts]]\nname = "{name}"\naddress = "10.0.0.{number}"\nid = {number}'
        for number, name in enumerate("abc", 1)
    )
    file.write_text(rows)
    assert len(read_inventory(file).hosts) == 3
    arguments = ["cluster", "init", str(file), "--directory", str(directory)]
    tried = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert (tried.exit_code, directory.exists()) == (0, False), tried.output
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "copy it to 10.0.0.2" in done.output
    token = (directory / "admin/admin.token").read_text().strip()
    assert token not in done.output
    again = CliRunner().invoke(app, arguments)
    assert again.output.strip() == "nothing has changed"
    file.write_text(rows + '\nroles = ["broker"]')
    changed = CliRunner().invoke(app, arguments)
    removed = directory / "c/zoo.cfg"
    assert f"removed {removed}: remove it on 10.0.0.3, too" in changed.output
    file.write_text(rows.partition('[[hosts]]\nname = "c"')[0])
    smaller = CliRunner().invoke(app, arguments)
    assert f"stop that host, then remove {directory / 'c'}" in smaller.stderr
    file.write_text(rows.replace("id = 3", "id = 2"))
    refused = CliRunner().invoke(app, arguments)
    assert (refused.exit_code, "2 hosts have the id 2" in refused.stderr) == (2, True)


@pytest.mark.parametrize("content", ["", "damaged"])
@pytest.mark.parametrize(
    "name",
    [
        "broker-1-public.pem",
        "zookeeper-server-1.pem",
        "zookeeper-broker",
        "zookeeper-operator",
        "admin.token",
    ],
)
def test_a_damaged_file_is_named_and_no_host_gets_it(
    made: Path, tmp_path: Path, name: str, content: str
) -> None:
    directory = tmp_path / "cluster"
    copytree(made, directory)
    (directory / "authority" / name).write_text(content)
    before = copied(directory)
    file = tmp_path / "inventory.toml"
    rows = [
        "\n".join(f"{key} = {value!r}" for key, value in {"roles": list_of_all(), **host}.items())
        for host in HOSTS
    ]
    file.write_text("".join(f"[[hosts]]\n{row}\n" for row in rows))
    refused = CliRunner().invoke(app, ["cluster", "init", str(file), "--directory", str(directory)])
    assert refused.exit_code == 1, refused.output
    assert name in refused.stderr
    assert copied(directory) == before


def copied(directory: Path) -> dict[Path, bytes]:
    """Return the files that leave the operator's machine."""
    files = [path for path in directory.glob("*/*") if path.parent.name != "authority"]
    return {path: path.read_bytes() for path in files}


def test_a_file_that_cannot_be_read_is_named(made: Path, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    copytree(made, directory)
    (directory / "authority/ca.pem").unlink()
    file = tmp_path / "inventory.toml"
    file.write_text("[[hosts]]\nname = 'a'\naddress = '10.0.0.11'\nid = 1\n")
    refused = CliRunner().invoke(app, ["cluster", "init", str(file), "--directory", str(directory)])
    assert refused.exit_code == 1
    assert "authority/ca.pem: No such file" in refused.stderr


def test_a_directory_of_nothing_is_no_host(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["host", str(tmp_path)])
    assert refused.exit_code == 1
    assert "leadline cluster init" in refused.stderr
