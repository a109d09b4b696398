r"""Access tokens at rest: a file for each installation, readable by its owner only, encrypted with a key.

    DATA/platform/tokens/ID    plain \n token      or      aes-256-gcm \n nonce 12 bytes │ ciphertext

The ciphertext is bound to the id, so that the file of another installation is not accepted.

Invariant: a token is only in these files, and in the memory of this process.
Never: a token in a log, an error, a `repr` or an argument of a process.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from receiver.durable.files import (
    DIRECTORY_MODE,
    FILE_MODE,
    Files,
    drafts_in,
    make_directories,
    opened,
    reported,
    write_all,
    write_durably,
)
from receiver.errors import OperatorError
from receiver.platform.installations.record_files import file_name

_PLAIN: Final = b"plain\n"
_ENCRYPTED: Final = b"aes-256-gcm\n"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class Tokens:
    def __init__(self, directory: Path, key: str, previous_key: str, files: Files) -> None:
        """Read and write tokens with these keys.

        `key`: text from which the encryption key is derived; empty: tokens are not encrypted.
        `previous_key`: text of the key before; tokens that it encrypted are encrypted again. Empty: none.
        """
        self.directory = directory
        self._cipher = _cipher_of(key) if key else None
        self._previous_cipher = _cipher_of(previous_key) if previous_key else None
        self._files = files

    def __contains__(self, installation_id: str) -> bool:
        return self._files.size_bytes(self.path_of(installation_id)) is not None

    def keep(self, installation_id: str, token: str) -> None:
        """Write the token of an installation. Raises `OSError`."""
        make_directories(self.directory, self._files)
        write_durably(
            self.path_of(installation_id),
            *self._parts_of(file_name(installation_id), token),
            files=self._files,
        )

    def read(self, installation_id: str) -> str:
        """Return the token of an installation; empty if there is none.

        Raises `OperatorError` if none of the keys is the key that encrypted it.
        """
        path = self.path_of(installation_id)
        try:
            content = self._files.read(path)
        except FileNotFoundError:
            return ""
        return self._token_in(path, content)

    def kind(self, installation_id: str) -> str:
        """Return the form of a stored token: `plain`, `encrypted` or `damaged`; empty if there is none."""
        try:
            begin = self._files.read_head(self.path_of(installation_id), len(_ENCRYPTED))
        except FileNotFoundError:
            return ""
        except OSError:
            return "damaged"
        if begin.startswith(_PLAIN):
            return "plain"
        return "encrypted" if begin == _ENCRYPTED else "damaged"

    def destroy(self, installation_id: str) -> None:
        """Overwrite and delete the token of an installation, if there is one. Raises `OSError`."""
        path = self.path_of(installation_id)
        if self._files.size_bytes(path) is not None:
            self._erase(path)

    def prepare(self) -> bool:
        """Delete drafts of a crash, make all files private, and encrypt tokens with the current key.

        Reports a file for which that fails; the next start tries again. Returns whether there is a token.
        """
        if self._files.size_bytes(self.directory) is None:
            return False
        # The directory may have been created by hand or restored with a wider mode.
        with reported("permissions of a directory cannot be set", self.directory):
            self._files.set_mode(self.directory, DIRECTORY_MODE)
        for draft in drafts_in(self.directory, self._files):
            with reported("temporary file with a token cannot be deleted", draft):
                self._erase(draft)
        names = self._files.names(self.directory)
        for name in names:
            path = self.directory / name
            with reported("file of a token cannot be made private or encrypted", path):
                self._files.set_mode(path, FILE_MODE)
                content = self._files.read(path)
                if self._cipher and not _is_encrypted_with(self._cipher, path, content):
                    self._encrypt(path, content)
        return bool(names)

    def _encrypt(self, path: Path, content: bytes) -> None:
        try:
            token = self._token_in(path, content)
        # Reported when the token is read.
        except OperatorError:
            return
        # Opened before the rename, after which the bytes to overwrite have no name.
        with opened(self._files, path) as fd:
            # Bound to the name of the file, which depends on the id only.
            write_durably(path, *self._parts_of(path.name, token), files=self._files)
            self._overwrite(fd, len(content))

    def _erase(self, path: Path) -> None:
        with opened(self._files, path) as fd:
            self._overwrite(fd, self._files.size_bytes(path) or 0)
        self._files.unlink(path)
        self._files.sync_directory(path.parent)

    def _overwrite(self, fd: int, size_bytes: int) -> None:
        write_all(self._files, fd, bytes(size_bytes), 0)
        self._files.sync(fd)

    def path_of(self, installation_id: str) -> Path:
        """Return the path of a token, whether or not it exists."""
        return self.directory / file_name(installation_id)

    def _parts_of(self, name: str, token: str) -> tuple[bytes, ...]:
        if self._cipher is None:
            return _PLAIN, token.encode()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _ENCRYPTED, nonce, self._cipher.encrypt(nonce, token.encode(), name.encode())

    def _token_in(self, path: Path, content: bytes) -> str:
        """Return the token that a file has. Raises `OperatorError`."""
        if content.startswith(_PLAIN):
            with suppress(UnicodeDecodeError):
                return content.removeprefix(_PLAIN).decode()
        if not content.startswith(_ENCRYPTED):
            raise OperatorError(f"token file '{path}' is damaged; install the integration again")
        ciphers = [cipher for cipher in (self._cipher, self._previous_cipher) if cipher]
        if not ciphers:
            raise OperatorError(
                f"token file '{path}' is encrypted; expected the setting platform.encryption_key_file"
            )
        for cipher in ciphers:
            with suppress(InvalidTag, ValueError):
                return _decrypted(cipher, path, content)
        raise OperatorError(
            f"token file '{path}' cannot be decrypted; expected the platform.encryption_key "
            "that encrypted it, and an undamaged file"
        )


def _is_encrypted_with(cipher: AESGCM, path: Path, content: bytes) -> bool:
    try:
        _decrypted(cipher, path, content)
    except (InvalidTag, ValueError):
        return False
    return True


def _decrypted(cipher: AESGCM, path: Path, content: bytes) -> str:
    """Raise `InvalidTag` if the key is another, and `ValueError` if the file is cut, shorter than a nonce."""
    sealed = content.removeprefix(_ENCRYPTED)
    return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], path.name.encode()).decode()


def _cipher_of(key: str) -> AESGCM:
    # Not a slow derivation: the setting is a random key of at least 32 characters, not a password.
    derivation = HKDF(SHA256(), _KEY_BYTES, salt=None, info=b"trace-drain access tokens")
    return AESGCM(derivation.derive(key.encode()))
