"""The certificate of TLS: the user's, or one that is made when the first client wants TLS and signs itself."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from ..errors import CertificateUnusable

DAYS = 3650
ALWAYS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate (or a chain, the server's own first) and its private key, both as PEM.

    Raises CertificateUnusable for what is not bytes. Whether TLS can use it shows at the start of the endpoint.
    """

    certificate_pem: bytes
    key_pem: bytes

    def __post_init__(self) -> None:
        if not (isinstance(self.certificate_pem, bytes) and isinstance(self.key_pem, bytes)):
            raise CertificateUnusable("a certificate and its key are PEM, as bytes; `Certificate.read` takes paths")

    @classmethod
    def read(cls, certificate: str | Path, key: str | Path) -> Certificate:
        """From two PEM files. Raises CertificateUnusable."""
        try:
            return cls(Path(certificate).read_bytes(), Path(key).read_bytes())
        except OSError as error:
            raise CertificateUnusable(f"the certificate for TLS cannot be read: {error}") from error

    @classmethod
    def self_signed(cls, host: str) -> Certificate:
        """A new one for this host, `localhost` and the loopback addresses, valid for ten years.

        A client that checks certificates takes it once it is told to trust it: it is its own root. Raises
        CertificateUnusable without the package `cryptography`.
        """
        try:
            from cryptography import x509  # noqa: PLC0415  # 50 ms that only TLS needs
            from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415  # as above
            from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415  # as above
            from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415  # as above
        except ImportError as error:
            raise CertificateUnusable(
                "TLS without a certificate of yours needs the package `cryptography`: pip install 'stratalog[rocketmq]'"
            ) from error
        names: list[x509.GeneralName] = []
        for one in dict.fromkeys((host, *ALWAYS)):
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(one)))
            except ValueError:
                names.append(x509.DNSName(one))
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stratalog endpoint")])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
            .not_valid_after(now + datetime.timedelta(days=DAYS))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(
            made.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
