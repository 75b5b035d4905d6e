"""How a setting is declared, and the settings that every service has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict

from leadline_common.identity import Kind

KIB: Final = 1024
MIB: Final = 1024 * KIB
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
SESSION_FILE: Final = "zookeeper.session"

Scope = Literal["read-only", "cluster-wide", "per-broker", "topic"]
"""Kafka's update modes (KIP-226), and the scope of a topic's own settings.

`read-only` settings are set at the start of a service. `cluster-wide` ones can be changed at
run time for the whole cluster and, if only brokers use them, also for one broker. `per-broker`
ones depend on the machine, and can be changed only for one broker.
"""


def setting(
    default: Any,
    meaning: str,
    *,
    scope: Scope = "read-only",
    aliases: tuple[str, ...] = (),
    sensitive: bool = False,
    ge: int | None = None,
    le: int | None = None,
) -> Any:
    """Declare a setting of a service; `ge` and `le` are its minimum and maximum.

    The name ends with the unit, as in `_ms`. `aliases` are other accepted names. The value of a
    `sensitive` setting is never shown.
    """
    schema: JsonDict = {"scope": scope, "aliases": list(aliases), "sensitive": sensitive}
    return Field(default, description=meaning, ge=ge, le=_bound(ge, le), json_schema_extra=schema)


def required(meaning: str, *, ge: int | None = None) -> Any:
    """Declare a required setting of a service."""
    schema: JsonDict = {"scope": "read-only"}
    return Field(description=meaning, ge=ge, le=_bound(ge, None), json_schema_extra=schema)


def topic_setting(follows: str, *, ge: int | None = None) -> Any:
    """Declare a topic's own setting; by default it has the value of the setting `follows`."""
    schema: JsonDict = {"scope": "topic", "follows": follows}
    meaning = f"As `{follows}`, for one topic."
    return Field(None, description=meaning, ge=ge, le=_bound(ge, None), json_schema_extra=schema)


def _bound(ge: int | None, le: int | None) -> int | None:
    """Limit numbers without a maximum to 64 bits."""
    return INT64_MAX if le is None and ge is not None else le


class ServiceSettings(BaseModel):
    """The settings of every service."""

    kind: ClassVar[Kind | None] = None
    """The kind of service whose settings these are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    zookeeper_connect: str = setting(
        "127.0.0.1:2181", "ZooKeeper's addresses: `host:port[,host:port…][/chroot]`."
    )
    zookeeper_session_timeout_ms: int = setting(
        6_000,
        "How long ZooKeeper keeps the session of a silent service, and thus how long the failure "
        "of a leader can remain undetected.",
        ge=500,
    )
    zookeeper_session_file: str = setting(
        "",
        "File in which this service keeps its ZooKeeper session, for its owner alone. If the "
        "service dies, its supervisor or its next start closes the session there, and nobody waits "
        "for it to expire. Empty: `zookeeper.session` in a broker's `log.dir`, or beside a "
        "controller's history; coordinators then keep none.",
    )
    listen_host: str = setting(
        "127.0.0.1",
        "Address to listen on. Without authentication and TLS, only loopback is allowed.",
    )
    authentication: Literal["none", "required"] = setting(
        "none",
        "Whether requests must show who sends them (`required`), and may then do what the sender "
        "was granted; or everybody who reaches a service may do everything (`none`). All services "
        "of a cluster have the same value.",
    )
    oidc_issuer: str = setting(
        "",
        "URL of the OpenID Connect issuer whose signed tokens (JWT) are accepted, too, exactly as "
        "they name it. Empty: none. Needs `authentication=required` and `oidc.audience`.",
    )
    oidc_audience: str = setting(
        "", "The audience (`aud`) that a token of the issuer must have: the name of this cluster."
    )
    oidc_jwks_url: str = setting(
        "", "URL of the issuer's keys. Empty: where its OpenID Connect description says."
    )
    oidc_ca_file: str = setting(
        "",
        "PEM file with the authorities of the issuer's certificate. Empty: those of this machine.",
    )
    oidc_user_claim: str = setting(
        "sub",
        "The claim that names the user. Nobody else may be able to choose it at the issuer.",
    )
    oidc_user_prefix: str = setting(
        "",
        "What comes before that claim in the user's name, so that the issuer cannot name users "
        "that are not its own.",
    )
    listen_port: int = setting(0, "Port to listen on; 0 selects a free one.", ge=0, le=65_535)
    listen_tls_certificate_file: str = setting(
        "",
        "PEM file with the certificate that clients see, those that link it to its authority, and "
        "its key. It names the host of this service's URL. Empty: plain HTTP.",
    )
    listen_tls_client_ca_file: str = setting(
        "",
        "PEM file with the authorities of client certificates. Clients then may show one. Empty: "
        "none is asked for.",
    )
    tls_ca_file: str = setting(
        "",
        "PEM file with the authorities of the certificates that services of this cluster show to "
        "clients, because services call each other there, too. Empty: those of this machine.",
    )
    advertised_url: str = setting(
        "",
        "URL of this service as published in ZooKeeper. Empty: the address it listens on.",
    )
    internal_listen_port: int = setting(
        0,
        "Port for the requests of other services, which prove their identity by a certificate; 0 "
        "selects a free one.",
        ge=0,
        le=65_535,
    )
    internal_advertised_url: str = setting(
        "",
        "URL of the internal listener as published in ZooKeeper. Empty: the address it listens on.",
    )
    internal_certificate_file: str = setting(
        "",
        "PEM file with this service's certificate and its key. Only coordinators without "
        "authentication need none; `leadline credentials create` makes it.",
    )
    internal_ca_file: str = setting(
        "",
        "PEM file with the certificate of the authority that signed the certificates of this "
        "cluster's services, and of nobody else.",
    )
    zookeeper_credentials_file: str = setting(
        "",
        "File with this service's ZooKeeper user as `user:password`, and a line `user:digest` for "
        "each other user of the cluster. A user that is named after a kind of service may change "
        "what is its own. Empty: everybody may read and change all nodes.",
    )
    zookeeper_tls_ca_file: str = setting(
        "",
        "PEM file with the authorities of ZooKeeper's certificates, which name the hosts of "
        "`zookeeper.connect`. Empty: no TLS. Needs `zookeeper.credentials.file`.",
    )
    zookeeper_tls_certificate_file: str = setting(
        "",
        "PEM file with the certificate that this service shows to ZooKeeper, and its key. Empty: "
        "none. Needs `zookeeper.tls.ca.file`.",
    )
    listen_allowed_hosts: str = setting(
        "",
        "Further host names, separated by commas, that requests may have in their `Host` header. "
        "Loopback names and those of `listen.host` and `advertised.url` are always allowed.",
    )
    listen_allowed_origins: str = setting(
        "",
        "Origins (`https://name:port`), separated by commas, whose pages may send requests from "
        "a browser, besides the pages of the service itself.",
    )
    max_connections_total: int = setting(
        10_000,
        "Most connections at a time, but at most half of the open files that the process may have; "
        "a further one gets status 503.",
        ge=1,
    )
    max_connections_per_ip: int = setting(
        5_000, "Most connections at a time from one address.", ge=1
    )
    connections_max_idle_ms: int = setting(
        75_000,
        "How long a connection may stay open between requests. Twice as long as Leadline's clients "
        "keep idle connections, or longer: a request that meets the end of its connection has an "
        "unknown outcome.",
        ge=4_000,
    )
    request_head_timeout_ms: int = setting(
        10_000, "How long the head of a request may take to arrive.", ge=100
    )
    request_head_max_bytes: int = setting(
        32 * KIB, "Largest head of a request: its line and all headers.", ge=KIB, le=128 * KIB
    )
    transfer_grace_ms: int = setting(
        10_000,
        "The period over which the rates of a request's body and of a response are measured.",
        ge=100,
    )
    transfer_min_bytes_per_s: int = setting(
        1_024,
        "The rate below which a request's body, or a response that the caller reads too slowly, "
        "is aborted.",
        ge=1,
    )
    queued_max_request_bytes: int = setting(
        256 * MIB,
        "Bytes of request bodies that the process holds at a time; more get status 503. The first "
        "16 KiB of each body do not count.",
        ge=MIB,
    )
    queued_max_response_bytes: int = setting(
        256 * MIB,
        "Unsent bytes of responses that the process holds at a time; beyond that the largest "
        "responses that wait for their readers are aborted.",
        ge=MIB,
    )
    min_insync_replicas: int = setting(
        2,
        "In-sync replicas below which acks=all is refused and the high watermark does not advance; "
        "at most the number of the partition's replicas.",
        scope="cluster-wide",
        ge=1,
    )
    quota_requests_per_s: int = setting(
        0,
        "Requests of one user that a service accepts per second on average, and ten times as many "
        "at once; 0 is no quota. A user's own quota counts instead. It needs "
        "`authentication=required`. Coordinators and standby controllers use the value that they "
        "were started with.",
        scope="cluster-wide",
        ge=0,
    )
    request_max_bytes: int = setting(
        16 * MIB,
        "Largest accepted request body; a larger one gets status 413.",
        ge=KIB,
    )
    tracing_otlp_endpoint: str = setting(
        "",
        "URL of an OpenTelemetry collector (OTLP over HTTP, as `http://127.0.0.1:4318`) that gets "
        "spans of requests and of what they cause. Empty: nothing is traced. Needs the extra "
        "`tracing`.",
    )
    tracing_sample_ratio: float = setting(
        1.0,
        "The share of clients' requests, and of events that no request caused, whose spans are "
        "recorded, from 0 to 1.",
        ge=0,
        le=1,
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The lowest severity of log lines to write."
    )
    log_format: Literal["json", "console"] = setting(
        "json", "One JSON object per log line, or text for people."
    )

    @field_validator("zookeeper_connect")
    @classmethod
    def _addresses_of_servers(cls, connect: str) -> str:
        """Refuse at the start what no connection could use."""
        if "//" in connect:
            raise ValueError("it has neither a scheme nor an empty name in its chroot")
        for address in connect.partition("/")[0].split(","):
            if not _is_address(address):
                raise ValueError(f"{address!r} is not host:port, nor [IPv6 address]:port")
        return connect

    @property
    def session_file(self) -> Path | None:
        """Where this service keeps its ZooKeeper session; None if it keeps it nowhere."""
        named, directory = self.zookeeper_session_file, self._own_directory()
        if named:
            return Path(named).absolute()
        return directory / SESSION_FILE if directory else None

    def _own_directory(self) -> Path | None:
        """Return the directory of this service's own files; None if it has none."""
        return None


def _is_address(address: str) -> bool:
    try:
        split = urlsplit(f"//{address.lstrip()}")
        port = split.port  # raises ValueError, as a name does that no resolver takes
        name = (split.hostname or "").encode("idna")
    except ValueError:
        return False
    return bool(name) and port != 0 and split.netloc == address.lstrip() and "@" not in address
