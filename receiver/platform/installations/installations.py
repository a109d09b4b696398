"""Installations of the platform's integration, and their tokens.

    DATA/platform/installations/ID.json    record
    DATA/platform/tokens/ID                token

Invariant: an id is never used twice: a new installation has a new id, and the record of the old one stays.
The record is written before the token and changed before the token is destroyed; the next start completes
what a crash interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from receiver.durable.files import DISK, Files, reported
from receiver.errors import InstallationFailed
from receiver.platform.client.core_dumps import forbid_core_dumps
from receiver.platform.installations.record_files import RecordFiles, is_id
from receiver.platform.installations.records import Installation, State, StateChange, listed_scopes
from receiver.platform.installations.tokens import Tokens


class Installations(RecordFiles[Installation]):
    def __init__(
        self, directory: Path, encryption_key: str = "", previous_key: str = "", files: Files = DISK
    ) -> None:
        """Read the records, and complete what a crash interrupted. Errors of the disk are reported.

        `directory`: DATA/platform. `encryption_key`, `previous_key`: the settings
        `platform.encryption_key` and `platform.encryption_key_previous`.
        """
        super().__init__(directory / "installations", Installation, files)
        self._tokens = Tokens(directory / "tokens", encryption_key, previous_key, files)
        with reported("tokens cannot be listed", self._tokens.directory):
            if self._tokens.prepare():
                forbid_core_dumps()
        self.complete()

    def all(self) -> list[Installation]:
        """Return all installations, the newest first."""
        with self._lock:
            return sorted(self._records.values(), key=_age, reverse=True)

    def add(self, installation: Installation, token: str) -> None:
        """Add an installation. Raises `InstallationFailed` if the id was used before, and `OSError`."""
        with self._lock:
            if not is_id(installation.id):
                raise InstallationFailed("the platform named the installation by an id that cannot be stored")
            if installation.id in self:
                raise InstallationFailed(
                    "the platform gave the installation an id that was used before; "
                    "the stored installation is not changed"
                )
            # Before the token is in a file of this process for the first time.
            forbid_core_dumps()
            self._write(installation)
            self._tokens.keep(installation.id, token)

    def set_state(self, installation_id: str, state: State, at_s: float) -> bool:
        """Change the state. Returns whether the record changed. Raises `OSError`.

        The end of an installation destroys its token, also of one that is not known: if its removal arrives
        before it is added, it must not be added later.
        """
        with self._lock:
            known = self._stored(installation_id)
            if known is None:
                return state == "removed" and self._add_removed(installation_id, at_s)
            is_changed = self._change(known.changed(state, at_s))
            if self._records[installation_id].is_ended:
                self._tokens.destroy(installation_id)
            return is_changed

    def set_scopes(self, installation_id: str, scopes: Iterable[str] | None, at_s: float) -> bool:
        """Set the granted scopes, unless newer ones are known. Returns whether the record changed.

        `None`: the platform has not listed them. Raises `OSError`.
        """
        granted = None if scopes is None else listed_scopes(scopes)
        with self._lock:
            known = self._stored(installation_id)
            if known is None or at_s <= known.scopes_at_s:
                return False
            return self._change(msgspec.structs.replace(known, scopes=granted, scopes_at_s=at_s))

    def token(self, installation_id: str) -> str:
        """Return the token; empty if there is none.

        Raises `OperatorError` if it cannot be decrypted, and `OSError`.
        """
        with self._lock:
            return self._tokens.read(installation_id)

    def token_kind(self, installation_id: str) -> str:
        """Return the form of the stored token: `plain`, `encrypted` or `damaged`; empty if there is none."""
        return self._tokens.kind(installation_id)

    def has_token(self, installation_id: str) -> bool:
        """Return whether there is a token, readable or not."""
        return installation_id in self._tokens

    def complete(self) -> None:
        """Read records that the disk could not read, and destroy tokens of installations that have ended.

        Failures are reported.
        """
        super().complete()
        for installation in self.all():
            if installation.is_ended:
                with self._lock, reported("token cannot be destroyed", self._tokens.path_of(installation.id)):
                    self._tokens.destroy(installation.id)

    def _add_removed(self, installation_id: str, at_s: float) -> bool:
        if not is_id(installation_id):
            return False
        if installation_id in self:
            # Its record is damaged.
            self._tokens.destroy(installation_id)
            return False
        self._write(Installation(id=installation_id, changes=(StateChange("removed", at_s),)))
        return True

    def _change(self, record: Installation) -> bool:
        if record == self._records[record.id]:
            return False
        self._write(record)
        return True


def _age(installation: Installation) -> tuple[float, str]:
    return installation.installed_at_s or installation.since_s, installation.id
