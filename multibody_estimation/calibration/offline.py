# SPDX-License-Identifier: Apache-2.0
"""The same session from recordings: which stretches of which signals belong to which load, from a plan or from a saved calibration."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from multibody_estimation.calibration.gating import static_stretches
from multibody_estimation.calibration.model import Load
from multibody_estimation.calibration.readings import Readings
from multibody_estimation.calibration.session import Session, take_between
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.window import NANOSECONDS, Window


@dataclass(frozen=True)
class Stretch:
    """A part of a recording in which one load was on, or (``exact``) one sample as it was taken."""

    dataset: str
    load: Load
    begin: int
    """Nanoseconds."""
    end: int
    """Nanoseconds, excluded."""
    exact: bool = False


@dataclass(frozen=True)
class Plan:
    """Where in a recording what was done."""

    stretches: tuple[Stretch, ...]
    serial: str = ''
    strain: str = ''
    imu: str = ''
    seconds: float = 1.0


def rotation_matrix(quaternion: Sequence[float]) -> np.ndarray:
    """Rotation (3, 3) of a quaternion (x, y, z, w) that turns vectors of the IMU's axes into the sensor's."""
    q = np.asarray(quaternion, dtype=float)
    if q.shape != (4,) or not np.isfinite(q).all() or not np.linalg.norm(q) > 1e-6:
        raise EstimationError(f'The rotation of the IMU is a quaternion (x, y, z, w), not {list(quaternion)}.')
    x, y, z, w = q / np.linalg.norm(q)
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def parse_load(text: str) -> Load:
    """Load from ``empty`` or ``MASS@X,Y,Z`` in kg and m, e.g. ``0.5@0,0,0.1``."""
    if text.strip() in ('', 'empty', '0'):
        return Load()
    mass, at, center = text.partition('@')
    try:
        if not at:
            raise ValueError
        return Load(float(mass), tuple(float(x) for x in center.split(',')))  # type: ignore[arg-type]
    except EstimationError:
        raise
    except ValueError:
        raise EstimationError(f"'{text}' is no load. Write `empty`, or mass in kg and centre in m as 0.5@0,0,0.1.") from None


def find_signals(window: Window, strain: str = '', imu: str = '') -> tuple[str, str]:
    """Names of the strain signal and the IMU in a window; found where there is only one of each."""
    strains = [n for n in window if n.endswith('/strain') or n == 'strain']
    imus = [n.removesuffix('/accelerometer') for n in window if n.endswith('/accelerometer')]
    for what, given, known in (('strain signal', strain, strains), ('IMU', imu, imus)):
        if given and given not in known:
            raise EstimationError(f"{window.source or 'The window'} has no {what} '{given}'.{did_you_mean(given, known)}")
        if not given and len(known) != 1:
            found = f'{len(known)} of them: {", ".join(known)}' if known else 'none'
            raise EstimationError(f'{window.source or "The window"}: which {what}? There is {found}. Name it (--strain, --imu).')
    return strain or strains[0], imu or imus[0]


def read_plan(path: str | Path, window: Window) -> Plan:
    """Read a plan: a saved calibration (its samples are taken again), or datasets with their spans in seconds, as below.

    ::

        serial: SG3                # optional: serial, strain, imu (names of signals), seconds (length of a sample)
        datasets:
          empty: {from: 0, to: 60}
          front: {mass: 1.0, center_of_mass: [0.1, 0, 0.05], from: 60, to: 120}
    """
    try:
        document = yaml.safe_load(Path(path).read_text(encoding='utf-8'))
    except (OSError, yaml.YAMLError) as error:
        raise EstimationError(f'{path} cannot be read as YAML ({error}).') from None
    if not isinstance(document, dict):
        raise EstimationError(f'{path} is no plan: it must be a mapping with `datasets:`.')
    try:
        if document.get('kind') == 'force_torque_calibration':
            rows = document.get('samples') or []
            stretches = tuple(
                Stretch(str(s['dataset']), Load(s['mass'], tuple(s['center_of_mass'])), int(s['begin']), int(s['end']), True)
                for s in rows
            )
            if not rows:
                raise EstimationError(f'{path} holds no samples; give a plan with `datasets:` instead.')
            return Plan(stretches, str(document.get('serial', '')))
        _known(document, ('serial', 'strain', 'imu', 'seconds', 'datasets'), str(path))
        stretches = tuple(
            _stretch(str(name), entry or {}, window, path) for name, entry in (document.get('datasets') or {}).items()
        )
    except EstimationError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EstimationError(f'{path}: a number or a name is missing or malformed ({error!r}).') from None
    if not stretches:
        raise EstimationError(f'{path} names no dataset. Give at least three, e.g. `empty: {{from: 0, to: 60}}`.')
    return Plan(stretches, str(document.get('serial', '')), str(document.get('strain', '')), str(document.get('imu', '')),
                float(document.get('seconds', 1.0)))  # fmt: skip


def _known(mapping: dict, names: Sequence[str], where: str) -> None:
    for key in mapping:
        if key not in names:
            raise EstimationError(f"{where}: '{key}' is no key of a plan.{did_you_mean(str(key), names)}")


def _stretch(name: str, entry: dict, window: Window, path: str | Path) -> Stretch:
    _known(entry, ('mass', 'center_of_mass', 'from', 'to'), f"{path}, dataset '{name}'")
    begin, end = float(entry.get('from', 0.0)), float(entry.get('to', window.duration + 1.0))
    if not begin < end:
        raise EstimationError(f"{path}, dataset '{name}': it ends ({end:g} s) before it begins ({begin:g} s).")
    x, y, z = (float(c) for c in entry.get('center_of_mass', (0, 0, 0)))
    load = Load(float(entry.get('mass', 0.0)), (x, y, z))
    return Stretch(name, load, window.start + int(begin * NANOSECONDS), window.start + int(end * NANOSECONDS))


def collect(session: Session, readings: Readings, plan: Plan, *, apart: float = 10.0) -> Session:
    """Take the samples of a plan: exact ones as they were, in others every stretch at rest in a new orientation."""
    for stretch in plan.stretches:
        if stretch.exact:
            spans = [(stretch.begin, stretch.end)]
        else:
            part = readings.between(stretch.begin, stretch.end)
            spans = static_stretches(part, plan.seconds, session.gates, apart=apart)
            if not spans:
                raise EstimationError(
                    f"Dataset '{stretch.dataset}': the body is never at rest for {plan.seconds:g} s in its part of the recording. "
                    'Hold it still longer, shorten the samples (--seconds) or correct the span.'
                )
        for begin, end in spans:
            session, _ = take_between(session, readings, begin, end, stretch.load, stretch.dataset)
    return session
