"""Mutual TLS between Kafka's brokers, with certificates like those of Leadline's services."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from leadline_cli.credentials import Credentials
from leadline_common.identity import ServiceIdentity
from leadline_common.tcp_ports import LOOPBACK

LISTENER: Final = "BROKERS"


def tls_settings(directory: Path, broker: int, port: int, client_port: int) -> dict[str, object]:
    """Return the settings by which a broker speaks TLS with the others at `port`.

    Its certificate is made in `directory`, by an authority that all of them have there.
    """
    credentials, service = Credentials(directory), ServiceIdentity("broker", broker)
    credentials.create([service])
    plain, secret = f"PLAINTEXT://{LOOPBACK}:{client_port}", f"{LISTENER}://{LOOPBACK}:{port}"
    return {
        "listeners": f"{plain},{secret}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SSL",
        "inter.broker.listener.name": LISTENER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": credentials.certificate_of(service),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": credentials.authority,
        "ssl.client.auth": "required",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.endpoint.identification.algorithm": "",
    }
