"""Tests of unusable certificates and keys: the message names the file and the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from receiver.supervisor.self_signed import self_signed
from tests.support.config_files import ConfigDirectory

DAMAGED = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class Pair:
    """A certificate and its key, and another key."""

    def __init__(self, directory: Path) -> None:
        self.certificate, self.key = (path.read_text() for path in self_signed(directory / "first"))
        self.other_key = self_signed(directory / "other")[1].read_text()

    @property
    def encrypted(self) -> str:
        key = load_pem_private_key(self.key.encode(), None)
        encrypted_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        return encrypted_pem.decode()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("tls"))


NO_PEM = "tls.cert_file '{cert}' is not PEM and contains no certificate; expected a PEM chain"
NO_KEY = "tls.key_file '{key}' contains no private key; expected the certificate's key in PEM"
BOTH = "tls.cert_file '{cert}' and tls.key_file '{key}' "


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(lambda pair: ("garbage", pair.key), [NO_PEM], id="no PEM"),
        pytest.param(lambda pair: ("", pair.key), [NO_PEM], id="empty"),
        pytest.param(lambda pair: (pair.certificate, pair.certificate), [NO_KEY], id="no key"),
        pytest.param(
            lambda pair: (pair.key, pair.certificate),
            ["tls.cert_file '{cert}' contains no certificate; expected a PEM chain", NO_KEY],
            id="exchanged",
        ),
        pytest.param(
            lambda pair: (pair.certificate, pair.encrypted),
            ["tls.key_file '{key}' requires a passphrase; expected a key without one"],
            id="a passphrase",
        ),
        pytest.param(
            lambda pair: (pair.certificate, pair.other_key),
            [BOTH + "do not belong together; expected a PEM chain and its key"],
            id="mismatch",
        ),
        pytest.param(
            lambda pair: (DAMAGED, pair.key),
            [BOTH + "cannot be loaded: one of them is damaged; expected a PEM chain and its key"],
            id="damaged",
        ),
    ],
)
def test_message_names_the_unusable_file_and_the_reason(
    tmp_path: Path, pair: Pair, files: Callable[[Pair], tuple[str, str]], expected: list[str]
) -> None:
    config_dir = ConfigDirectory(tmp_path)
    cert, key = (
        config_dir.file(name, text) for name, text in zip(("tls.crt", "tls.key"), files(pair), strict=True)
    )

    message = config_dir.problem("[tls]\ncert_file = 'tls.crt'\nkey_file = 'tls.key'\n")

    assert message.splitlines()[1:] == [f"  {line.format(cert=cert, key=key)}" for line in expected]


def test_certificate_and_key_may_be_in_one_file(tmp_path: Path, pair: Pair) -> None:
    config_dir = ConfigDirectory(tmp_path)
    config_dir.file("both.pem", pair.key + pair.certificate)

    loaded = config_dir.load("[tls]\ncert_file = 'both.pem'\nkey_file = 'both.pem'\n")

    assert loaded.settings.tls.cert_file.endswith("both.pem")
