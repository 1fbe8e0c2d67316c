# SPDX-License-Identifier: Apache-2.0
"""`Finding`: something in a recording to look at before it is used."""

from dataclasses import dataclass

__all__ = ['Finding']


@dataclass(frozen=True)
class Finding:
    """Something to look at."""

    kind: str
    """``gap``, ``nan``, ``saturation``, ``quantisation``, ``still``, ``sign``, ``swap``, ``degrees``, ``delay``."""
    where: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence
