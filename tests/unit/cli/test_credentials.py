"""The files by which services know each other: private, kept, and good for TLS."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from leadline_cli import node_restriction
from leadline_cli.certificates import Authority
from leadline_cli.credentials import Credentials, UnusableAuthority
from leadline_cli.main import app
from leadline_common.http.public_tls import PublicTls
from leadline_common.http.tls import InternalTls
from leadline_common.identity import KINDS, ServiceIdentity, UnusableCredentials
from leadline_common.zk.credentials import ZkCredentials, digest_of, read_credentials
from leadline_common.zk.errors import ConnectionLoss

BROKER = ServiceIdentity("broker", 1)
CONTROLLER = ServiceIdentity("controller", 2)


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "deep" / "credentials")
    made = credentials.create([BROKER, CONTROLLER])
    assert {credentials.certificate_of(BROKER), credentials.zookeeper_operator} < set(made)
    files = list(credentials.directory.iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(credentials.directory.stat().st_mode) == 0o700


def test_what_exists_is_kept_and_what_is_missing_is_made(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([BROKER])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert credentials.create([BROKER]) == []
    assert credentials.create([BROKER, CONTROLLER]) == [credentials.certificate_of(CONTROLLER)]
    assert {path: path.read_bytes() for path in before} == before
    for service in (BROKER, CONTROLLER):
        InternalTls.load(credentials.certificate_of(service), credentials.authority)


def test_two_commands_at_a_time_make_one_authority(tmp_path: Path) -> None:
    services = [ServiceIdentity("broker", number) for number in range(8)]
    with ThreadPoolExecutor(len(services)) as pool:
        list(pool.map(lambda service: Credentials(tmp_path).create([service]), services))
    credentials = Credentials(tmp_path)
    authority = x509.load_pem_x509_certificate(credentials.authority.read_bytes())
    for service in services:
        certificate = credentials.certificate_of(service).read_text().partition("-----BEGIN PR")[0]
        x509.load_pem_x509_certificate(certificate.encode()).verify_directly_issued_by(authority)


def test_every_kind_has_a_user_and_knows_all_others(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([BROKER])
    operator = credentials.zookeeper_administrator()
    roles = [read_credentials(credentials.zookeeper_user(kind)) for kind in KINDS]
    everybody = {digest_of(user.login) for user in (operator, *roles)}
    assert [role.login.partition(":")[0] for role in roles] == list(KINDS)
    assert len(everybody) == len({*KINDS, "operator"})
    for user in (operator, *roles):
        assert set(user.users) == everybody
        assert user.login.split(":")[1] not in repr(user)


@pytest.mark.parametrize("written", [1, 2, 3])
def test_all_know_each_other_after_a_run_that_was_interrupted(tmp_path: Path, written: int) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([])
    files = [credentials.zookeeper_operator, *map(credentials.zookeeper_user, KINDS)]
    for path in files[written:]:
        path.unlink()
    kept = [path.read_text() for path in files[:written]]
    credentials.create([])
    users = [read_credentials(path) for path in files]
    everybody = {digest_of(user.login) for user in users}
    assert all(everybody <= set(user.users) for user in users)
    for path, before in zip(files, kept, strict=False):
        assert path.read_text().startswith(before), "a rotation's digests stay"


def test_users_of_an_earlier_release_stay_and_the_operator_learns_of_the_new_ones(
    tmp_path: Path,
) -> None:
    credentials = Credentials(tmp_path)
    credentials.zookeeper_operator.write_text("operator:one\n")
    shared = f"services:two\n{digest_of('operator:one')}\n"
    credentials.zookeeper_services.write_text(shared)
    credentials.create([BROKER])
    operator = credentials.zookeeper_administrator()
    assert operator.login == "operator:one"
    broker = read_credentials(credentials.zookeeper_user("broker"))
    assert set(operator.users) == set(broker.users)
    assert operator.users[0] in broker.users
    assert credentials.zookeeper_services.read_text() == shared


def test_the_digest_is_that_of_zookeeper() -> None:
    # From the documentation of ZooKeeper's DigestAuthenticationProvider.
    assert digest_of("super:admin") == "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="


@pytest.mark.parametrize("lost", ["internal-ca.key", "internal-ca.pem"])
def test_half_an_authority_is_no_reason_to_make_another(tmp_path: Path, lost: str) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([BROKER])
    (tmp_path / lost).unlink()
    with pytest.raises(UnusableAuthority, match=r"internal-ca\.pem"):
        credentials.create([CONTROLLER])
    assert not credentials.certificate_of(CONTROLLER).exists()


@pytest.mark.parametrize(
    ("name", "signed"),
    [
        ("internal-ca", "broker-1.pem"),
        ("ca", "broker-1-public.pem"),
        ("zookeeper-ca", "zookeeper-server-1.pem"),
    ],
)
def test_a_key_that_has_signed_nothing_is_used_after_an_interrupted_run(
    tmp_path: Path, name: str, signed: str
) -> None:
    credentials = Credentials(tmp_path)

    def create(number: int) -> None:
        service = ServiceIdentity("broker", number)
        credentials.create([service])
        credentials.create_public([service])
        credentials.create_zookeeper({number: "10.0.0.1"})

    create(1)
    key = (tmp_path / f"{name}.key").read_bytes()
    (tmp_path / f"{name}.pem").unlink()
    for path in tmp_path.glob("*-1*.pem"):
        path.unlink()
    create(1)
    assert (tmp_path / f"{name}.key").read_bytes() == key
    authority = x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate((tmp_path / signed).read_bytes())
    certificate.verify_directly_issued_by(authority)
    (tmp_path / f"{name}.pem").unlink()
    for path in tmp_path.glob("*-1*.pem"):
        if path.name != signed:
            path.unlink()
    with pytest.raises(UnusableAuthority, match=name):
        create(2)


def test_the_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = Credentials(tmp_path / "ours"), Credentials(tmp_path / "theirs")
    ours.create([BROKER])
    theirs.create([BROKER])
    ours.authority_key.write_bytes(theirs.authority_key.read_bytes())
    with pytest.raises(UnusableAuthority, match="not that of the certificate"):
        ours.create([CONTROLLER])


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\n", b"\xff\xfe"])
def test_a_damaged_certificate_is_named(tmp_path: Path, content: bytes) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([BROKER])
    credentials.certificate_of(BROKER).write_bytes(content)
    with pytest.raises(UnusableCredentials, match=r"broker-1\.pem"):
        InternalTls.load(credentials.certificate_of(BROKER), credentials.authority)


@pytest.mark.parametrize("content", [b"", b"services", b"services:secret\nnobody", b"\xff\xfe"])
def test_a_damaged_file_of_users_is_named_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "zookeeper-services"
    path.write_bytes(content)
    with pytest.raises(UnusableCredentials, match="zookeeper-services") as refused:
        read_credentials(path)
    assert "secret" not in str(refused.value)


def test_the_command_makes_them_once(tmp_path: Path) -> None:
    arguments = ["credentials", "create", "--dir", str(tmp_path), "broker/1", "controller/2"]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "broker-1.pem" in first.stdout
    assert second.stdout == ""


@pytest.mark.parametrize("service", ["broker", "broker/x", "operator/1", "broker/1/2", "broker/٣"])
def test_the_command_refuses_what_is_no_service(tmp_path: Path, service: str) -> None:
    done = CliRunner().invoke(app, ["credentials", "create", "--dir", str(tmp_path), service])
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())


def public_names(credentials: Credentials, service: ServiceIdentity) -> set[str]:
    content = credentials.public_certificate_of(service).read_bytes()
    names = x509.load_pem_x509_certificate(content).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return {str(name.value) for name in names.value}


def test_the_command_makes_certificates_for_clients(tmp_path: Path) -> None:
    arguments = ["credentials", "create", "--dir", str(tmp_path), "broker/1", "coordinator/2"]
    hosts = ["--host", "b1.example", "--host", "10.0.0.1", "--host", "localhost"]
    first, second = (CliRunner().invoke(app, [*arguments, *hosts]) for _ in range(2))
    assert (first.exit_code, second.exit_code, second.stdout) == (0, 0, "")
    assert "broker-1-public.pem" in first.stdout
    credentials = Credentials(tmp_path)
    for service in (BROKER, ServiceIdentity("coordinator", 2)):
        names = {"127.0.0.1", "::1", "localhost", "b1.example", "10.0.0.1"}
        assert public_names(credentials, service) == names
        PublicTls.load(credentials.public_certificate_of(service), None, "b1.example")
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_the_authority_of_clients_signs_for_no_service_of_the_cluster(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([BROKER])
    credentials.create_public([BROKER])
    with pytest.raises(UnusableCredentials):
        InternalTls.load(credentials.public_certificate_of(BROKER), credentials.authority)
    with pytest.raises(UnusableCredentials):
        InternalTls.load(credentials.certificate_of(BROKER), credentials.public_authority)


@pytest.mark.parametrize("host", ["", "a b", "\N{SNOWMAN}.example", "https://b1", "b1:9092", "-"])
def test_the_command_refuses_what_is_no_host(tmp_path: Path, host: str) -> None:
    arguments = ["credentials", "create", "--dir", str(tmp_path / "new"), "broker/1"]
    done = CliRunner().invoke(app, [*arguments, "--host", host])
    assert done.exit_code == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("signer_first", [True, False])
def test_an_authority_signs_while_it_replaces_another(tmp_path: Path, signer_first: bool) -> None:
    credentials = Credentials(tmp_path)
    credentials.create([BROKER])
    own, other = credentials.authority.read_bytes(), Authority.new().certificate_pem
    credentials.authority.write_bytes(own + other if signer_first else other + own)
    credentials.create([CONTROLLER])
    InternalTls.load(credentials.certificate_of(CONTROLLER), credentials.authority)


class _LostSession:
    """A session that is lost while the ACL of the first node is changed."""

    credentials = ZkCredentials.of("operator:secret")

    async def acl_users(self, _: str) -> dict[str, int]:
        return {}

    async def restrict(self, _: str) -> None:
        raise ConnectionLoss("the connection broke")

    async def get_children(self, _: str) -> list[str]:
        return []


@pytest.mark.parametrize(("flags", "code"), [((), 3), (("--dry-run",), 0)])
def test_a_lost_connection_leaves_the_outcome_of_restrict_unknown(
    flags: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def lost(*_: object) -> AsyncIterator[_LostSession]:
        yield _LostSession()

    monkeypatch.setattr(node_restriction, "zookeeper_session", lost)
    file = tmp_path / "operator"
    file.write_text("operator:secret\n")
    command = ["credentials", "restrict", "--zookeeper", "h:1", "--file", str(file), *flags]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == code, ended.output
    assert ("run the same command again" in ended.output) == (code == 3)
