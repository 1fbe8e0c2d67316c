# SPDX-License-Identifier: Apache-2.0
"""What is needed to repeat a run: recordings with their fingerprints, settings, starts, versions."""

import hashlib
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import yaml

from multibody_estimation.reporting.page import Section, bullets, listing, paragraph, table
from multibody_estimation.window import Window

__all__ = ['fingerprint', 'provenance', 'recordings', 'versions']

PACKAGES = ('jax', 'jaxlib', 'numpy', 'scipy')


def fingerprint(window: Window) -> str:
    """First 16 hexadecimal digits of the SHA-256 of all stamps and values, in the order of the signals' names."""
    digest = hashlib.sha256()
    for name in sorted(window.signals):
        signal = window.signals[name]
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(signal.stamps, dtype='<i8').tobytes())
        digest.update(np.ascontiguousarray(signal.values, dtype='<f8').tobytes())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Versions of everything that computes."""
    import multibody_estimation
    from multibody_estimation._jax import jax

    out = {'multibody_estimation': multibody_estimation.__version__, 'python': platform.python_version()}
    for name in PACKAGES:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = 'unknown'
    out['device'] = jax.default_backend()
    out['machine'] = f'{platform.system()} {platform.machine()}'
    return out


def plain(value: Any) -> Any:
    """The same as YAML can hold it."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def recordings(windows: Sequence[Window], held_out: Window | None = None) -> list[str]:
    """Table of the recordings and what is wrong with them, as HTML."""
    rows, defects = [], []
    for window, used in [*((w, 'fitted') for w in windows), *([(held_out, 'held out')] if held_out is not None else [])]:
        signals = ', '.join(f'{n} ({len(s)} at {s.rate:.4g} Hz)' for n, s in window.signals.items())
        rows.append([window.source or 'given in memory', used, f'{window.duration:.2f} s', signals, fingerprint(window)])
        defects += [str(d) for d in window.defects]
    if not rows:
        return []
    out = [table(['recording', 'use', 'length', 'signals', 'SHA-256'], rows, words=(1, 3, 4))]
    if defects:
        out += [paragraph('Defects in the recordings:'), bullets(defects[:30])]
    if len(defects) > 30:
        out.append(paragraph(f'and {len(defects) - 30} more.'))
    return out


def provenance(fit: Any, windows: Sequence[Window], held_out: Window | None = None) -> Section:
    """Recordings, settings and versions of an identification."""
    own = {p.name: p for p in (fit.problem.binding.parameters if fit.problem is not None else fit.robot.parameters)}
    document = {
        'settings': fit.settings,
        'start': {n: own[n].start for n in fit.names if n in own},
        'versions': versions(),
        'made': datetime.now(UTC).isoformat(timespec='seconds'),
        'command': ' '.join(sys.argv) if sys.argv and sys.argv[0] else '',
    }
    chosen = ', '.join(f'{k}={fit.settings[k]!r}' for k in ('weight', 'step', 'evaluation') if k in fit.settings)
    code = (
        f'import multibody_estimation as me\n\nfit = me.identify(robot, window, {chosen})\n'
        "fit.report('again.html')"
    )  # fmt: skip
    text = yaml.safe_dump(plain(document), sort_keys=False, allow_unicode=True)
    return Section(
        'To repeat it', (*recordings(windows, held_out), listing(code), listing(text, 'Settings, starts and versions'))
    )
