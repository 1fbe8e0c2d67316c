# SPDX-License-Identifier: Apache-2.0
"""Guided collection: where to turn the body next, and whether what is seen now is worth taking."""

from collections.abc import Sequence

import numpy as np

from multibody_estimation.calibration.enough import rank
from multibody_estimation.calibration.gating import Sample, datasets_of
from multibody_estimation.calibration.model import Load
from multibody_estimation.calibration.planner import plan, sphere_points
from multibody_estimation.calibration.session import Session, angle, noise_floor
from multibody_estimation.calibration.two_stage import two_stage


def next_direction(session: Session, load: Load, dataset: str = '') -> np.ndarray:
    """Where up should point in the sensor's axes for the next sample, unit vector (3,).

    D-optimal with the calibration in force or the factory matrix as the guess; without either, as far as possible from the
    orientations this dataset has (the first is the sensor upright).
    """
    name = dataset or str(load)
    here = [s.acceleration for s in session.samples if s.dataset == name]
    matrix = session.calibration.matrix if session.calibration is not None else session.factory
    if matrix is not None:
        body = session.calibration.body if session.calibration is not None else np.array([1.0, 0, 0, 0.05])
        taken = [(d.load, d.acceleration) for d in datasets_of(session.samples)]
        steps = plan(matrix, body, [load], taken=taken, wanted=1e-9, max_samples=1)
        if steps:
            return steps[0].direction
    if not here:
        return np.array([0.0, 0.0, 1.0])
    candidates = sphere_points(200)
    units = np.array([a / np.linalg.norm(a) for a in here])
    return candidates[int(np.argmin(np.max(candidates @ units.T, axis=1)))]


def what_next(session: Session, *, wanted: float = 0.05, at_most: int = 60) -> str:
    """Say which sample to take next and how many the wanted accuracy still needs; empty where it is reached or cannot be told.

    Chooses among the loads used so far, with the calibration in force, or a first one from the samples, as the guess.
    """
    datasets = datasets_of(session.samples)
    matrix, body = None, None
    if session.calibration is not None:
        matrix, body = session.calibration.matrix, session.calibration.body
    elif datasets and rank([d.load for d in datasets]) == 40 and all(len(d) >= 4 for d in datasets):
        matrix, body, _ = two_stage(datasets)
    if matrix is None or body is None or not datasets or not np.linalg.cond(matrix) < 1e12:
        return ''
    loads = list(dict.fromkeys(d.load for d in datasets))
    taken = [(d.load, d.acceleration) for d in datasets]
    steps = plan(matrix, body, loads, taken=taken, wanted=wanted, noise=noise_floor(session.samples), max_samples=at_most)
    if not steps:
        return ''
    reached = steps[-1].accuracy <= wanted
    count = f'{len(steps)} more samples reach' if reached else f'even {len(steps)} more samples do not reach'
    return f'Next: {steps[0]} With the loads used, {count} {100 * wanted:g} % per row.'


def worth_taking(samples: Sequence[Sample], dataset: str, acceleration: np.ndarray, apart: float) -> float:
    """Angle in degrees by which this orientation falls short of being ``apart`` from every one the dataset has; 0 where it is."""
    near = min((angle(s.acceleration, acceleration) for s in samples if s.dataset == dataset), default=180.0)
    return max(0.0, apart - near)


def instruction(wanted: np.ndarray, seen: np.ndarray | None) -> str:
    """Say in words how to turn the body: where up should point, and where it points now."""
    axis = int(np.argmax(np.abs(wanted)))
    sign = '+' if wanted[axis] > 0 else '-'
    close = f', mostly {sign}{"xyz"[axis]}' if abs(wanted[axis]) > 0.8 else ''
    text = f'Turn the sensor so that up points along ({", ".join(f"{x:.2f}" for x in wanted)}) of its axes{close}'
    if seen is None or not np.linalg.norm(seen) > 0:
        return f'{text}.'
    return f'{text}; it is {angle(wanted, seen):.0f} degrees away.'
