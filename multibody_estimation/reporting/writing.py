# SPDX-License-Identifier: Apache-2.0
"""Files for people: whole or not at all, and a sentence with the name where a folder or a disk refuses."""

import contextlib
import errno
import os
from pathlib import Path

from multibody_estimation.errors import EstimationError

__all__ = ['check_writable', 'write_file']

REASONS = {
    errno.ENOSPC: 'the disk is full. Free some space, or write elsewhere',
    errno.EDQUOT: 'your quota on this disk is used up. Free some space, or write elsewhere',
    errno.EFBIG: 'the file would be larger than the limit that is set for this process',
    errno.EACCES: 'the folder or file may not be written to. Choose another place, or change its permissions',
    errno.EPERM: 'the folder or file may not be written to. Choose another place, or change its permissions',
    errno.EROFS: 'the disk is read-only. Choose another place',
    errno.EEXIST: 'a part of its path is a file, not a folder',
    errno.ENOTDIR: 'a part of its path is a file, not a folder',
    errno.EISDIR: 'it is a folder. Give the name of a file in it',
    errno.ENAMETOOLONG: 'its name is too long',
}


def _refused(path: Path, error: OSError) -> EstimationError:
    reason = REASONS.get(error.errno or 0, error.strerror or str(error))
    return EstimationError(f'{path} cannot be written: {reason}.')


def check_writable(path: str | Path) -> Path:
    """Refuse now what could not be written later; makes the folder. For use before a long run."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, '')
        if path.exists() and not path.is_file():
            return path
        part = _part(path)
        with part.open('wb') as file:
            file.write(b' ')
        part.unlink()
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, '')
    except OSError as error:
        raise _refused(path, error) from None
    return path


def _part(path: Path) -> Path:
    return path.with_name(f'.{path.name}.{os.getpid()}.part')


def write_file(path: str | Path, text: str) -> Path:
    """Write text; what stood there before stays until the new text is whole on the disk."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, '')
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_text(text, encoding='utf-8')
            return path
        part = _part(path)
        try:
            with part.open('w', encoding='utf-8') as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        raise _refused(path, error) from None
    return path
