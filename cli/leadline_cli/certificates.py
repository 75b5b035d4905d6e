"""X.509 certificates: of a service for the others of its cluster, and of one for its clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from leadline_cli.authorities import INTERNAL
from leadline_common.identity import ServiceIdentity

_LIFETIME: Final = dt.timedelta(days=3_650)
_LABEL: Final = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_SKEW: Final = dt.timedelta(days=1)
"""How far the clocks of the machines may be apart when a certificate is new."""


class Authority(NamedTuple):
    """An authority that signs the certificates of one cluster, and of nothing else."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, now: dt.datetime | None = None, name_text: str = INTERNAL) -> Self:
        """Make an authority, valid from `now` on; by default from the present."""
        return cls._certified(ec.generate_private_key(ec.SECP256R1()), name_text, now)

    @classmethod
    def of_key(cls, key: bytes, name_text: str) -> Self:
        """Make a certificate for the key of an authority, a PEM that `key_pem` returned.

        Raises:
            ValueError: it is damaged.

        """
        return cls._certified(_private_key(key), name_text)

    @classmethod
    def _certified(
        cls, key: ec.EllipticCurvePrivateKey, name_text: str, now: dt.datetime | None = None
    ) -> Self:
        name = _name(name_text)
        builder = _certificate(name, name, key.public_key(), now)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Return the authority with this certificate and key, both PEM.

        While one authority replaces another, `certificate` has those of both.

        Raises:
            ValueError: they are damaged, or do not belong together.

        """
        secret = _private_key(key)
        for found in x509.load_pem_x509_certificates(certificate):
            if secret.public_key() == found.public_key():
                return cls(found, secret)
        raise ValueError("the key is not that of the certificate")

    def require_valid(self) -> None:
        """Refuse to sign what nobody would accept.

        Raises:
            ValueError: the authority has expired.

        """
        ends = self.certificate.not_valid_after_utc
        if ends <= dt.datetime.now(dt.UTC):
            raise ValueError(f"the certificate expired at {ends:%Y-%m-%d %H:%M:%S} UTC")

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as PEM: whoever has it can be any service."""
        return _key_bytes(self.key)

    def issue(self, service: ServiceIdentity, now: dt.datetime | None = None) -> bytes:
        """Return a certificate of a service, valid from `now` on, with its key, as PEM."""
        names = [x509.UniformResourceIdentifier(service.uri), x509.DNSName(service.host_name)]
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        return self._issue(_name(str(service)), names, uses, now)

    def issue_public(
        self, service: ServiceIdentity, hosts: Iterable[str], now: dt.datetime | None = None
    ) -> bytes:
        """Return a certificate that a service shows to clients, with its key, as PEM.

        `hosts` are the names and the IP addresses by which clients reach it.

        Raises:
            ValueError: a host is neither a name in ASCII nor an IP address.

        """
        names = [name_of_host(host) for host in dict.fromkeys(hosts)]
        return self._issue(_name(str(service)), names, [ExtendedKeyUsageOID.SERVER_AUTH], now)

    def issue_zookeeper(self, server_id: int, host: str, now: dt.datetime | None = None) -> bytes:
        """Return a certificate of a ZooKeeper server for clients and other servers, as PEM.

        Raises:
            ValueError: the host is neither a name in ASCII nor an IP address.

        """
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        return self._issue(_name(f"zookeeper {server_id}"), [name_of_host(host)], uses, now)

    def _issue(
        self,
        subject: x509.Name,
        names: list[x509.GeneralName],
        uses: list[x509.ObjectIdentifier],
        now: dt.datetime | None,
    ) -> bytes:
        own = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage(uses), False),
            (x509.SubjectAlternativeName(names), False),
            (issuer, False),
        ]
        builder = _certificate(subject, self.certificate.subject, own.public_key(), now)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM) + _key_bytes(own)


def is_for(certificate: bytes, host: str) -> bool:
    """Tell whether a certificate (PEM) names a host.

    Raises:
        ValueError: it is damaged, or `host` is no host.

    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return name_of_host(host) in list(names)


def name_of_host(host: str) -> x509.GeneralName:
    """Return a host as a certificate names it.

    Raises:
        ValueError: it is neither a name in ASCII nor an IP address.

    """
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None:
            raise ValueError(f"{host!r} is neither a host name nor an IP address") from None
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: dt.datetime | None,
) -> x509.CertificateBuilder:
    now = now or dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    found = serialization.load_pem_private_key(pem, None)
    if isinstance(found, ec.EllipticCurvePrivateKey):
        return found
    raise ValueError("the key is none of an elliptic curve")


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
