# SPDX-License-Identifier: Apache-2.0
"""Message definitions without a ROS installation: the standard ones of the `rosbags` library and our own from ``msg/``."""

import contextlib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from multibody_estimation.errors import EstimationError

PACKAGE = 'multibody_estimation'

STANDARD = Stores.ROS2_HUMBLE
"""The oldest distribution that is served; the messages used here have not changed since."""


def interface_folder(package: Path | None = None) -> Path:
    """Return the folder with our ``*.msg`` files: of the source tree, or of ``share/`` beside wherever the package is installed."""
    package = Path(__file__).resolve().parents[1] if package is None else package
    candidates = [package.parent / 'msg', *(p / 'share' / PACKAGE / 'msg' for p in package.parents)]
    for folder in candidates:
        if (folder / 'ActuatorCommand.msg').is_file():
            return folder
    raise EstimationError(
        f'The message definitions of {PACKAGE} are not beside {package}: no share/{PACKAGE}/msg above it. Install the package again.'
    )


@cache
def own_definitions() -> Mapping[str, str]:
    """Our message types with their text, by full name such as ``multibody_estimation/msg/RawStrain``."""
    return {f'{PACKAGE}/msg/{p.stem}': p.read_text(encoding='utf-8') for p in sorted(interface_folder().glob('*.msg'))}


def make_typestore(stored: Mapping[str, str] | None = None) -> Any:
    """Return a type store that knows the standard messages and our own; shared, do not register anything in it.

    stored: definitions that came with a bag (full name to text); they win over ours, for the bag was written with them.
    """
    return _make(tuple(sorted((stored or {}).items())))


@lru_cache(maxsize=8)
def _make(stored: tuple[tuple[str, str], ...]) -> Any:
    store = get_typestore(STANDARD)
    for name, text in stored:
        with contextlib.suppress(Exception):  # a definition that was damaged or is none: ours serve instead
            found = get_types_from_msg(text, name)
            store.register({k: v for k, v in found.items() if k not in store.fielddefs})
    if any(name not in store.fielddefs for name in own_names()):
        for name, text in own_definitions().items():
            if name not in store.fielddefs:
                store.register(get_types_from_msg(text, name))
    return store


def typestore() -> Any:
    """The type store for writing."""
    return make_typestore()


def own_names() -> tuple[str, ...]:
    """Full names of our message types that a bag may hold."""
    return tuple(
        f'{PACKAGE}/msg/{n}' for n in ('ActuatorCommand', 'LinkWrenches', 'MultibodyState', 'ParameterEstimate', 'RawStrain')
    )
