# SPDX-License-Identifier: Apache-2.0
"""The calibration as robots load it: a second 6x6 matrix on top of the factory's, temperature coefficients and offset.

Whole-body estimators of the iCub family apply ``f = C2 f_in - o + k_T (T - T0)`` to the wrench ``f_in = C_w r`` of the factory
matrix, and read these numbers from the groups below (yarprobotinterface XML, row by row).
"""

from pathlib import Path

import numpy as np

from multibody_estimation.calibration.result import Calibration
from multibody_estimation.errors import EstimationError


def secondary_parameters(calibration: Calibration, factory: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return C2 (6, 6), offset o (6,) in N and N m, k_T (6,) in N/K and N m/K, and T0 in degrees Celsius (0 where k_T is zero)."""
    factory = np.asarray(factory, dtype=float)
    if factory.shape != (6, 6) or np.linalg.matrix_rank(factory) < 6:
        raise EstimationError('The factory matrix must be 6 x 6 and invertible.')
    known = np.isfinite(calibration.reference_temperature)
    k = -calibration.matrix @ calibration.temperature_coefficient if known else np.zeros(6)
    return (
        calibration.secondary(factory),
        calibration.matrix @ calibration.offset,
        k,
        calibration.reference_temperature if known else 0.0,
    )


def robot_xml(calibration: Calibration, factory: np.ndarray, sensor: str) -> str:
    """Return the XML groups for one sensor, e.g. ``l_arm_ft_sensor``."""
    if not sensor or any(c in '<>&"' or c.isspace() for c in sensor):
        raise EstimationError(f"'{sensor}' is no name of a sensor for an XML file.")
    C2, offset, k, T0 = secondary_parameters(calibration, factory)

    def group(name: str, numbers: np.ndarray) -> list[str]:
        # A number without a fractional dot would be read as an integer.
        text = ','.join(f'{x:.12g}' if '.' in f'{x:.12g}' or 'e' in f'{x:.12g}' else f'{x:.1f}' for x in numbers)
        return [f'<group name="{name}">', f'  <param name="{sensor}">({text})</param>', '</group>']

    lines = [f'<!-- sensor {calibration.serial or "without serial number"}, {calibration.method}, {calibration.date} -->']
    lines += group('FT_SECONDARY_CALIBRATION', C2.ravel())
    lines += group('FT_TEMPERATURE_COEFFICIENTS', np.append(k, T0))
    lines += group('FT_OFFSET', offset)
    return '\n'.join(lines) + '\n'


def save_robot_xml(calibration: Calibration, factory: np.ndarray, sensor: str, path: str | Path) -> Path:
    """Write `robot_xml` to a file."""
    path = Path(path)
    path.write_text(robot_xml(calibration, factory, sensor), encoding='utf-8')
    return path
