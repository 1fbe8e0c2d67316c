# SPDX-License-Identifier: Apache-2.0
"""`Journal`: finished runs, one line of JSON each, on the disk before the next is taken; a crash costs at most the line being written.

Only the process that leads the study writes it, and holds a lock meanwhile, so no run is written twice.
"""

import contextlib
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.reporting.writing import REASONS

__all__ = ['Journal', 'refused']


def refused(path: Path, error: OSError) -> EstimationError:
    """The sentence for a file that cannot be written."""
    return EstimationError(f'{path} cannot be written: {REASONS.get(error.errno or 0, error.strerror or str(error))}.')


class Journal:
    """Context manager over the file; `rows` holds what is there, by key, the newest of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        self._file = -1

    def __enter__(self) -> 'Journal':
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise refused(self.path, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise EstimationError(f'{self.path}: another study is writing it. Wait for it, or choose another --output.') from None
        except OSError:  # a file system without locks
            pass
        try:
            self._read()
        except BaseException:
            os.close(self._file)
            raise
        return self

    def _read(self) -> None:
        text = self.path.read_bytes() if self.path.is_file() else b''
        whole = text.rfind(b'\n') + 1
        for number, line in enumerate(text[:whole].splitlines(), start=1):
            try:
                row = json.loads(line)
                self.rows[row['key']] = row
            except (ValueError, KeyError, TypeError):
                raise EstimationError(
                    f'{self.path} line {number} is no result of a study. Remove that line, or choose another --output.'
                ) from None
        if whole < len(text):  # a line that a crash cut off: that run is done again
            try:
                os.ftruncate(self._file, whole)
            except OSError as error:
                raise refused(self.path, error) from None

    def add(self, row: dict[str, Any]) -> None:
        """Append a row; returns when it is on the disk, or says why it cannot be, leaving the file as it was."""
        line = (json.dumps(row, ensure_ascii=False) + '\n').encode()
        before = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise refused(self.path, error) from None
        self.rows[row['key']] = row

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._file)
