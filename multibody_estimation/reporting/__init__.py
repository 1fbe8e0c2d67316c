# SPDX-License-Identifier: Apache-2.0
"""Reports: self-contained HTML pages that people look at before they read."""

from importlib import import_module

_NAMES = {
    'Progress': 'progress',
    'Report': 'page',
    'Trace': 'fit_search',
    'calibration_report': 'calibration',
    'centroidal_report': 'centroidal',
    'check_writable': 'writing',
    'identification_report': 'identification',
    'wrench_report': 'wrenches',
}

__all__ = [*_NAMES]


def __getattr__(name: str):
    # Loaded when first used: the figures of a calibration need no identification, and the other way round.
    if name in _NAMES:
        return getattr(import_module(f'.{_NAMES[name]}', __name__), name)
    raise AttributeError(f"multibody_estimation.reporting has no '{name}'")
