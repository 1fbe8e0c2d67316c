# SPDX-License-Identifier: Apache-2.0
"""The verb: datasets in, `Calibration` out, with every check a technician needs before trusting it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from multibody_estimation.calibration.accelerometer import accelerometer_bias, corrected, estimate_noise, temperature_drift
from multibody_estimation.calibration.enough import check_data, coverage, rank, rank_in_words
from multibody_estimation.calibration.likelihood import Likelihood, likelihood
from multibody_estimation.calibration.model import GRAVITY, SATURATION, Dataset, Noise, check_datasets, gravity_map
from multibody_estimation.calibration.offset import offset_by_ellipsoid
from multibody_estimation.calibration.one_stage import one_stage
from multibody_estimation.calibration.result import Calibration
from multibody_estimation.calibration.two_stage import two_stage
from multibody_estimation.errors import EstimationError, did_you_mean

METHODS = {'likelihood': two_stage, 'two_stage': two_stage, 'one_stage': one_stage}


def calibrate_force_torque(
    datasets: Sequence[Dataset],
    *,
    method: str = 'likelihood',
    noise: Noise | None = None,
    floor: Noise | None = None,
    factory: np.ndarray | None = None,
    serial: str = '',
    saturation: float = SATURATION,
    remove_bias: bool = True,
) -> Calibration:
    """Calibrate a strain sensor from static samples with known loads.

    ``noise`` of a sample is found in the data where it is not given; with four or five orientations per load there is little to
    find it in, and ``floor`` (standard errors of the averages) is what it cannot be less than. ``factory`` is the matrix the sensor came with, in N and N m
    per count: used to notice swapped channels and a reversed accelerometer, never to shape the estimate.
    """
    if method not in METHODS:
        raise EstimationError(f"'{method}' is no method of calibration.{did_you_mean(method, METHODS)}")
    check_datasets(datasets, saturation=saturation)
    loads = [d.load for d in datasets]
    if rank(loads) < 40:
        raise EstimationError(rank_in_words(loads))
    names = [d.name for d in datasets]
    if len(set(names)) < len(names):
        raise EstimationError('Two datasets have the same name; put their samples together or name them apart.')

    notes: list[str] = []
    bias, radius = accelerometer_bias(datasets) if remove_bias else (np.zeros(3), GRAVITY)
    if abs(radius / GRAVITY - 1) > 0.005:
        notes.append(
            f'The accelerometer reads {radius:.3f} m/s^2 at rest instead of {GRAVITY:.3f}: a scale error of '
            f'{100 * (radius / GRAVITY - 1):.1f} %, which is in the matrix too. Calibrate the accelerometer first.'
        )
    drift = temperature_drift(datasets)
    if drift is None and (warm := [d.temperature for d in datasets if d.temperature is not None]):
        moved = float(np.ptp(np.concatenate(warm)))
        if moved > 3.0:
            notes.append(
                f'The temperature moved by {moved:.1f} K, which these samples cannot tell from the loads: its drift is not taken out. '
                'Take at least eight orientations per load while the sensor warms up.'
            )
    clean = corrected(datasets, bias, drift)
    given, noise = noise is not None, noise or _noise(estimate_noise(clean, drift=drift is not None), floor)
    enough = check_data(clean, noise)
    if not enough.enough:
        raise EstimationError(' '.join(enough.sentences))

    matrix, body, offsets = METHODS[method](clean)
    fit = likelihood(clean, noise, two_stage(clean)[:2], drift=drift is not None)
    if method == 'likelihood':
        matrix, body, offsets = fit.matrix, fit.body, fit.offsets
    if body[0] <= 0:
        raise EstimationError(
            f'The body comes out with a mass of {body[0]:.3f} kg. A load has the wrong mass, or its centre the wrong sign.'
        )
    _consistent(clean, noise, fit)
    if factory is not None:
        _compare_with_factory(matrix, np.asarray(factory, dtype=float), clean)

    notes += _check_offsets(clean, offsets, noise)
    offset, words = _one_offset(offsets, [len(d) for d in clean], noise)
    notes += words
    residuals = {d.name: _residual(d, matrix, body, o) for d, o in zip(clean, offsets)}
    scale = 1.0 if given else max(fit.chi2, 1e-12)
    result = Calibration(
        matrix, offset, body, fit.covariance * scale, accelerometer_bias=bias, offsets=dict(zip(names, offsets)), residuals=residuals,
        strain_noise=noise.strain, chi2=fit.chi2, method=method, serial=serial, notes=tuple(notes),
    )  # fmt: skip
    if drift is not None:
        result = replace(result, temperature_coefficient=drift[0], reference_temperature=drift[1])
    return result


def _noise(found: Noise, floor: Noise | None) -> Noise:
    if floor is None:
        return found
    return Noise(tuple(np.maximum(found.strain, floor.strain)), max(found.acceleration, floor.acceleration))


def _residual(d: Dataset, matrix: np.ndarray, body: np.ndarray, offset: np.ndarray) -> tuple[float, float]:
    """RMS of calibrated minus expected wrench, per axis, in N and N m."""
    e = (d.strain - offset) @ matrix.T - d.acceleration @ gravity_map(body + d.load.inertia).T
    return float(np.sqrt(np.mean(e[:, :3] ** 2))), float(np.sqrt(np.mean(e[:, 3:] ** 2)))


def _one_offset(offsets: np.ndarray, counts: Sequence[int], noise: Noise) -> tuple[np.ndarray, list[str]]:
    """Mean offset where the datasets agree on it, otherwise that of the last one, with a sentence."""
    weights = np.array(counts, dtype=float) / np.sum(counts)
    mean = weights @ offsets
    # Offset and map share the noise of the orientations' mean; a factor of five allows for it.
    apart = np.abs(offsets - mean) / (np.array(noise.strain) / np.sqrt(np.array(counts)[:, None]))
    if apart.max() < 5 * 3:
        return mean, []
    k, channel = np.unravel_index(np.argmax(np.abs(offsets - offsets[-1])), offsets.shape)
    moved = abs(offsets[k, channel] - offsets[-1, channel])
    return offsets[-1], [
        f'The offset moved by {moved:.0f} counts (channel {channel}) between datasets; the last one is used. Tare after mounting.'
    ]


def _check_offsets(datasets: Sequence[Dataset], offsets: np.ndarray, noise: Noise) -> list[str]:
    """Compare with the centres of the ellipsoids, which need no accelerometer: a sentence where they are elsewhere."""
    for d, o in zip(datasets, offsets):
        if len(d) < 20 or coverage(d.acceleration) < 0.5:
            continue
        try:
            apart = np.abs(offset_by_ellipsoid(d) - o)
        except EstimationError:
            continue
        allowed = np.maximum(8 * np.array(noise.strain), 0.03 * d.strain.std(axis=0).max())
        if (apart > allowed).any():
            channel = int(np.argmax(apart / allowed))
            return [
                f"Without the accelerometer the offset of '{d.name}' comes out {apart[channel]:.0f} counts elsewhere (channel {channel}): the "
                'accelerometer has a bias that changes, or it turned against the sensor. Check how it is mounted.'
            ]
    return []


def _consistent(datasets: Sequence[Dataset], noise: Noise, fit: Likelihood) -> None:
    """Raise a sentence where the datasets contradict each other by far more than their noise, naming the likeliest mistake."""
    estimated = estimate_noise(datasets)
    # What each dataset alone leaves is noise; what remains beyond it when they share one matrix is contradiction.
    alone = float(np.mean(np.square(estimated.strain) / np.square(noise.strain)))
    # With hardly more orientations than unknowns the noise itself is a guess, so only gross contradiction counts.
    free = sum(len(d) - 4 for d in datasets)
    if fit.chi2 < (4 if free >= 12 else 100) * max(alone, 1.0):
        return

    def cost(changed: Sequence[Dataset]) -> float:
        try:
            return likelihood(changed, noise, two_stage(changed)[:2], max_iterations=15).chi2
        except (EstimationError, np.linalg.LinAlgError):
            return np.inf

    best, words = fit.chi2, ''
    for k, d in enumerate(datasets):
        others = list(datasets)
        for i, j in combinations(range(6), 2):
            order = np.arange(6)
            order[[i, j]] = j, i
            others[k] = replace(d, strain=d.strain[:, order])
            if (c := cost(others)) < best:
                best, words = c, f"channels {i} and {j} look swapped in dataset '{d.name}'"
        if d.load.mass:
            x, y, z = d.load.center_of_mass
            flipped = replace(d.load, center_of_mass=(-x, -y, -z))
            others[k] = replace(d, load=flipped)
            if (c := cost(others)) < best:
                best, words = c, f"the centre of the load of dataset '{d.name}' looks to have the wrong sign"
    what = (
        f': {words}' if best < 0.1 * fit.chi2 else '. A load is not what was said, the body was touched, or a cable was changed'
    )
    raise EstimationError(
        f'The datasets contradict each other ({np.sqrt(fit.chi2):.0f} times the noise){what}. Correct it or remove the samples.'
    )


def _compare_with_factory(matrix: np.ndarray, factory: np.ndarray, datasets: Sequence[Dataset]) -> None:
    """Raise a sentence where the new matrix is the factory's with two channels swapped, one reversed, or all reversed."""
    if factory.shape != (6, 6):
        raise EstimationError(f'The factory matrix must be 6 x 6, not {factory.shape}.')
    size = np.linalg.norm(factory, axis=1, keepdims=True)
    A, B = matrix / size, factory / size

    def far(X: np.ndarray) -> float:
        return float(np.linalg.norm(X - B))

    if far(-A) < 0.3 * far(A):
        raise EstimationError(
            'The matrix is the negative of the factory matrix: the accelerometer is reversed. At rest it must read +9.81 m/s^2 upwards.'
        )
    for i in range(6):
        order = A.copy()
        order[:, i] *= -1
        if far(order) < 0.3 * far(A):
            raise EstimationError(f'Channel {i} is reversed against the factory matrix. Check its wiring.')
    for i, j in combinations(range(6), 2):
        order = A.copy()
        order[:, [i, j]] = order[:, [j, i]]
        if far(order) < 0.3 * far(A):
            raise EstimationError(f'Channels {i} and {j} are swapped against the factory matrix. Check the cable, then repeat.')
