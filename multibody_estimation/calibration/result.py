# SPDX-License-Identifier: Apache-2.0
"""`Calibration`: what a calibration found, how sure it is, and the YAML file a robot loads at start."""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import yaml

from multibody_estimation.calibration.model import AXES, gravity_map
from multibody_estimation.errors import EstimationError, did_you_mean

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibrated sensor: ``w = C (r - o - k_T (T - T0))``, force in N then torque in N m, in the sensor's axes."""

    matrix: np.ndarray
    """C in N and N m per count; shape (6, 6)."""
    offset: np.ndarray
    """o in counts; shape (6,)."""
    body: np.ndarray
    """``[m, m c]`` of the body behind the sensor in kg and kg m; shape (4,)."""
    covariance: np.ndarray
    """Of the 36 entries of C, columns stacked, then of ``body``; shape (40, 40)."""
    temperature_coefficient: np.ndarray = field(default_factory=lambda: np.zeros(6))
    """k_T in counts per kelvin; shape (6,)."""
    reference_temperature: float = math.nan
    """T0 in degrees Celsius; nan where no temperature was measured."""
    accelerometer_bias: np.ndarray = field(default_factory=lambda: np.zeros(3))
    """m/s^2 in the sensor's axes, to be taken from every reading; shape (3,)."""
    carried: np.ndarray = field(default_factory=lambda: np.zeros(4))
    """``[m, m c]`` carried besides the body since the last tare, in kg and kg m; shape (4,)."""
    offsets: dict[str, np.ndarray] = field(default_factory=dict)
    """Offset of each dataset in counts."""
    residuals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """RMS of calibrated minus expected wrench per dataset, in N and N m."""
    strain_noise: tuple[float, ...] = (math.nan,) * 6
    """Standard deviation of a sample in counts, as found in the residuals; length 6."""
    chi2: float = math.nan
    """Mean squared residual in units of the given noise; 1 when noise and model are right."""
    method: str = ''
    serial: str = ''
    """Serial number of the sensor."""
    date: str = ''
    """UTC, ISO 8601."""
    notes: tuple[str, ...] = ()
    """Sentences about what was found in the data."""

    def __post_init__(self) -> None:
        for name, shape in (('matrix', (6, 6)), ('offset', (6,)), ('body', (4,)), ('covariance', (40, 40)),
                            ('temperature_coefficient', (6,)), ('accelerometer_bias', (3,)), ('carried', (4,))):  # fmt: skip
            array = np.asarray(getattr(self, name), dtype=float)
            if array.shape != shape or not np.isfinite(array).all():
                raise EstimationError(f'Calibration: {name} must be {shape} finite numbers; it has the shape {array.shape}.')
            object.__setattr__(self, name, array)
        if np.linalg.cond(self.matrix / np.linalg.norm(self.matrix, axis=1, keepdims=True)) > 1e10:
            raise EstimationError('Calibration: the matrix is singular, so some wrench would not be seen. Add loads and repeat.')
        if not self.date:
            object.__setattr__(self, 'date', datetime.now(UTC).isoformat(timespec='seconds'))

    @property
    def standard_deviation(self) -> np.ndarray:
        """Of each entry of the matrix, in N and N m per count; shape (6, 6)."""
        return np.sqrt(np.diag(self.covariance)[:36]).reshape(6, 6).T

    @property
    def mass(self) -> tuple[float, float]:
        """Mass of the body and its standard deviation, kg."""
        return float(self.body[0]), float(np.sqrt(self.covariance[36, 36]))

    @property
    def center_of_mass(self) -> np.ndarray:
        """Of the body, in m in the sensor's axes; shape (3,)."""
        return self.body[1:] / self.body[0]

    def wrench(self, strain: np.ndarray, temperature: float | np.ndarray | None = None) -> np.ndarray:
        """Return the wrench in N and N m for counts of shape (..., 6)."""
        r = np.asarray(strain, dtype=float) - self.offset
        if temperature is not None and np.isfinite(self.reference_temperature):
            warm = np.nan_to_num(np.asarray(temperature, dtype=float) - self.reference_temperature)
            r = r - warm[..., None] * self.temperature_coefficient
        return r @ self.matrix.T

    def compensated(self, wrench: np.ndarray, acceleration: np.ndarray, load: np.ndarray | None = None) -> np.ndarray:
        """Take the weight of the body and what it carries (or of a load ``[m, m c]``) off a wrench (..., 6) at rest.

        The wrench is what the sensor exerts on the body, so what is left is minus what the surroundings do to it.
        """
        weighed = self.body + (self.carried if load is None else np.asarray(load))
        return wrench - (np.asarray(acceleration) - self.accelerometer_bias) @ gravity_map(weighed).T

    def wrench_covariance(self, strain: np.ndarray) -> np.ndarray:
        """Covariance of one calibrated wrench from matrix and strain noise, N and N m; shape (6, 6)."""
        r = np.asarray(strain, dtype=float) - self.offset
        J = np.kron(r[None], np.eye(6))
        noise = np.nan_to_num(np.square(self.strain_noise))
        return J @ self.covariance[:36, :36] @ J.T + self.matrix * noise @ self.matrix.T

    def secondary(self, factory: np.ndarray) -> np.ndarray:
        """Return the 6x6 matrix C2 that robots apply to the wrench of the factory matrix, ``f = C2 (C_w r)``: ``C C_w^-1``."""
        return np.linalg.solve(np.asarray(factory, dtype=float).T, self.matrix.T).T

    def save(self, path: str | Path, *, samples: list[dict] | None = None) -> Path:
        """Write the YAML file; a half-written file never takes the place of a whole one."""
        path = Path(path)
        document = {
            'format': FORMAT, 'kind': 'force_torque_calibration', 'date': self.date, 'serial': self.serial, 'method': self.method,
            'units': 'wrench = matrix (strain - offset - temperature_coefficient (T - reference_temperature)); N, N m, counts, K',
            'axes': list(AXES), 'matrix': self.matrix.tolist(), 'standard_deviation': self.standard_deviation.tolist(),
            'offset': self.offset.tolist(), 'body': self.body.tolist(), 'center_of_mass': self.center_of_mass.tolist(),
            'temperature_coefficient': self.temperature_coefficient.tolist(), 'reference_temperature': self.reference_temperature,
            'accelerometer_bias': self.accelerometer_bias.tolist(), 'carried': self.carried.tolist(),
            'strain_noise': [float(s) for s in self.strain_noise],
            'chi2': float(self.chi2), 'offsets': {k: np.asarray(v).tolist() for k, v in self.offsets.items()},
            'residuals': {k: [float(x) for x in v] for k, v in self.residuals.items()}, 'notes': list(self.notes),
            'covariance': self.covariance.tolist(),
        }  # fmt: skip
        if samples is not None:
            document['samples'] = samples
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + '.part')
        part.write_text(yaml.safe_dump(document, sort_keys=False, width=130), encoding='utf-8')
        part.replace(path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> 'Calibration':
        """Read what `save` wrote."""
        document = read_document(path)
        names = ('matrix', 'offset', 'body', 'covariance', 'temperature_coefficient', 'accelerometer_bias')
        for name in names:
            if name not in document:
                raise EstimationError(f"{path}: the key '{name}' is missing.{did_you_mean(name, document)}")
        try:
            return cls(
                **{name: np.array(document[name], dtype=float) for name in names},
                carried=np.array(document.get('carried', np.zeros(4)), dtype=float),
                reference_temperature=float(document.get('reference_temperature', math.nan)),
                offsets={k: np.array(v, dtype=float) for k, v in document.get('offsets', {}).items()},
                residuals={k: (float(v[0]), float(v[1])) for k, v in document.get('residuals', {}).items()},
                strain_noise=tuple(float(x) for x in document.get('strain_noise', (math.nan,) * 6)),
                chi2=float(document.get('chi2', math.nan)),
                method=str(document.get('method', '')),
                serial=str(document.get('serial', '')),
                date=str(document.get('date', '')),
                notes=tuple(document.get('notes', ())),
            )
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise EstimationError(f'{path}: is damaged ({error}). Take a copy, or calibrate again.') from None

    def __str__(self) -> str:
        mass, std = self.mass
        c = ', '.join(f'{1e3 * x:.1f}' for x in self.center_of_mass)
        lines = [f'Calibration of {self.serial or "the sensor"}, {self.method}, {self.date}: body {mass:.4f} +- {std:.4f} kg, '
                 f'centre of mass ({c}) mm']  # fmt: skip
        lines.append('  N and N m per 1000 counts, with standard deviations')
        for axis, row, dev in zip(AXES, 1e3 * self.matrix, 1e3 * self.standard_deviation):
            lines.append(f'  {axis}  ' + '  '.join(f'{x:9.4f} +- {s:.4f}' for x, s in zip(row, dev)))
        for name, (force, torque) in self.residuals.items():
            lines.append(f'  {name}: off by {force:.3f} N, {torque:.4f} N m (RMS)')
        return '\n'.join(lines + [f'  {note}' for note in self.notes])


def read_document(path: str | Path) -> dict:
    """Return the mapping in a calibration file, checked to be one."""
    try:
        document = yaml.safe_load(Path(path).read_text(encoding='utf-8'))
    except (OSError, yaml.YAMLError) as error:
        raise EstimationError(f'{path}: cannot be read as a calibration ({error}).') from None
    if not isinstance(document, dict) or document.get('kind') != 'force_torque_calibration':
        raise EstimationError(f"{path} is no calibration file: it lacks 'kind: force_torque_calibration'.")
    if document.get('format') != FORMAT:
        raise EstimationError(f'{path} has format {document.get("format")}; this version reads format {FORMAT}.')
    return document
