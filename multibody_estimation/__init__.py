# SPDX-License-Identifier: Apache-2.0
"""Multibody estimation: what a robot is and what it feels, with honest uncertainty.

Names are loaded when they are first used, so that ``import multibody_estimation`` and the command line start fast.
"""

from importlib import import_module
from pkgutil import extend_path

# The messages generated from msg/, srv/ and action/ are installed under the same package name; this makes both visible when
# Python runs from the source tree.
__path__ = extend_path(__path__, __name__)

__version__ = '0.1.0'

_FRONT_DOOR = {
    'EstimationError': 'errors',
    'CentroidalEstimate': 'centroidal',
    'OnlineCentroidal': 'centroidal',
    'estimate_centroidal': 'centroidal',
    'load_centroidal_setup': 'centroidal',
    'Calibration': 'calibration',
    'calibrate_force_torque': 'calibration',
    'Fit': 'identification',
    'Parameter': 'identification',
    'Robot': 'identification',
    'check': 'identification.check',
    'choose_weight': 'identification',
    'identify': 'identification',
    'moving_horizon': 'identification',
    'predict': 'identification',
    'predict_windows': 'identification',
    'simulate': 'identification',
    'track': 'identification',
    'load_robot': 'robots.robot_file',
    'load_urdf': 'tree',
    'write_urdf': 'robots.urdf_writer',
    'WrenchEstimate': 'wrench',
    'WrenchEstimator': 'wrench',
    'WrenchSetup': 'wrench',
    'estimate_wrenches': 'wrench',
    'learn_covariances': 'wrench',
    'load_wrench': 'wrench',
    'Progress': 'reporting.progress',
    'calibration_report': 'reporting.calibration',
    'centroidal_report': 'reporting.centroidal',
    'identification_report': 'reporting.identification',
    'wrench_report': 'reporting.wrenches',
    'Signal': 'window',
    'Window': 'window',
    'read_bag': 'recording.bag',
    'read_csv': 'recording.csv',
    'write_bag': 'recording.write',
}
"""Public name to the module that defines it."""

__all__ = [*_FRONT_DOOR, 'robots']


def __getattr__(name: str):
    if name == 'robots':
        return import_module('.robots', __name__)
    if name in _FRONT_DOOR:
        return getattr(import_module(f'.{_FRONT_DOOR[name]}', __name__), name)
    raise AttributeError(f"multibody_estimation has no '{name}'")


def __dir__():
    return sorted([*globals(), *__all__])
