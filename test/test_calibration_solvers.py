# SPDX-License-Identifier: Apache-2.0
"""Force/torque calibration: recovery, rank table, noise behaviour, bad input."""

from dataclasses import replace

import numpy as np
import pytest

from multibody_estimation.calibration import (
    Calibration,
    Dataset,
    Load,
    Noise,
    StrainSensor,
    calibrate_force_torque,
    check_data,
    choose_ridge,
    plan,
    rank,
    rank_in_words,
    recalibrate,
)  # fmt: skip
from multibody_estimation.calibration.enough import UNKNOWN_BODY
from multibody_estimation.calibration.likelihood import likelihood
from multibody_estimation.calibration.model import GRAVITY, gravity_map
from multibody_estimation.calibration.offset import offset_by_ellipsoid, offset_by_regression
from multibody_estimation.calibration.one_stage import one_stage
from multibody_estimation.calibration.simulated import random_orientations
from multibody_estimation.calibration.two_stage import two_stage
from multibody_estimation.errors import EstimationError

TWO = (Load(), Load(1.0, (0.1, 0, 0.05)), Load(0.8, (0, 0.1, 0.05)))
FOUR = (*TWO, Load(2.0, (-0.1, 0, 0.1)), Load(2.0, (0, -0.1, 0.0)))
SENSOR = StrainSensor.random(0, quantised=False)


def record(loads, n, seed=0, noisy=True, sensor=SENSOR):
    rng = np.random.default_rng(seed)
    return [sensor.dataset(load, random_orientations(n, rng), rng if noisy else None) for load in loads]


def wrench_error(matrix, sensor=SENSOR):
    """Error of the calibrated wrench over the wrench, on a load no dataset had."""
    w = random_orientations(300, np.random.default_rng(99)) @ gravity_map(sensor.body + Load(0.7, (0.04, 0.03, 0.08)).inertia).T
    return np.linalg.norm(np.linalg.solve(sensor.matrix, w.T).T @ matrix.T - w) / np.linalg.norm(w)


@pytest.mark.parametrize('solve', [one_stage, two_stage])
def test_least_squares_is_exact_without_noise(solve):
    matrix, body, offsets = solve(record(TWO, 4, noisy=False))
    np.testing.assert_allclose(matrix, SENSOR.matrix, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(body, SENSOR.body, atol=1e-9)
    np.testing.assert_allclose(offsets, np.tile(SENSOR.offset, (3, 1)), atol=1e-6)


def test_likelihood_is_exact_without_noise():
    datasets = record(TWO, 6, noisy=False)
    start = SENSOR.matrix * (1 + 0.05 * np.random.default_rng(3).normal(size=(6, 6))), 1.1 * SENSOR.body
    fit = likelihood(datasets, Noise(1.0, 0.005), start)
    np.testing.assert_allclose(fit.matrix, SENSOR.matrix, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fit.body, SENSOR.body, atol=1e-7)


def test_likelihood_is_the_minimum_of_the_full_problem():
    """Independent oracle: scipy over matrix, body, offsets and every true gravity."""
    from scipy.optimize import least_squares

    datasets = record(TWO, 6, seed=5)
    start = two_stage(datasets)
    fit = likelihood(datasets, Noise(10.0, 0.05), start[:2])
    scale = np.abs(fit.matrix).mean(axis=1, keepdims=True)

    def residual(x):
        C, body, o, g = x[:36].reshape(6, 6) * scale, x[36:40], x[40:58].reshape(3, 6), x[58:].reshape(3, 6, 3)
        parts = []
        for k, d in enumerate(datasets):
            R = np.linalg.solve(C, gravity_map(body + d.load.inertia))
            parts += [(d.strain - g[k] @ R.T - o[k]).ravel() / 10, (d.acceleration - g[k]).ravel() / 0.05]
        return np.concatenate(parts)

    x0 = np.concatenate([(start[0] / scale).ravel(), start[1], start[2].ravel(), *(d.acceleration.ravel() for d in datasets)])
    full = least_squares(residual, x0, x_scale='jac', xtol=1e-14, ftol=1e-14, gtol=1e-12)
    np.testing.assert_allclose(fit.chi2 * (6 * (18 - 3) - 40), 2 * full.cost, rtol=1e-6)
    np.testing.assert_allclose(fit.body, full.x[36:40], rtol=1e-3, atol=1e-5)


def test_rank_table():
    a, b, c = Load(1.0, (0.1, 0, 0.05)), Load(0.8, (0, 0.1, 0.05)), Load(0.7, (0.03, 0.05, 0.1))
    center = UNKNOWN_BODY[1:] / UNKNOWN_BODY[0]
    line = (Load(), Load(1.0, tuple(center + [0.1, 0, 0])), Load(0.5, tuple(center + [-0.07, 0, 0])))
    table = {(Load(),): 18, (Load(), a): 33, (a, b): 33, line: 34, (Load(), a, b): 40, (a, b, c): 40}
    assert {loads: rank(loads) for loads in table} == table
    assert 'second mass whose centre is not on the line' in rank_in_words((Load(), a))
    assert 'not on the line' in rank_in_words(line)


def test_offset_by_three_ways():
    d = record(TWO, 400)[1]
    for offset in (offset_by_regression(d).offset, offset_by_regression(d, project=False).offset, offset_by_ellipsoid(d)):
        np.testing.assert_allclose(offset, SENSOR.offset, atol=6.0)
    flat = offset_by_regression(d).singular_values
    assert flat[2] > 3 * flat[3] and flat[3] < 15


def test_two_stage_and_likelihood_shrink_where_one_stage_does_not():
    error = {n: [] for n in (200, 3200)}
    for n, rows in error.items():
        for seed in range(8):
            datasets = record(TWO, n, seed)
            start = two_stage(datasets)
            rows.append(
                [wrench_error(m) for m in (one_stage(datasets)[0], start[0], likelihood(datasets, Noise(), start[:2]).matrix)]
            )
    few, many = (np.mean(error[n], axis=0) for n in error)
    assert many[0] > 0.7 * few[0]
    # Sixteen times the samples: a quarter of the error.
    assert np.all(many[1:] < 0.4 * few[1:]) and np.all(many[1:] > 0.15 * few[1:])
    assert np.all(many[1:] < 0.2 * many[0])


def test_intervals_cover():
    inside = []
    for seed in range(60):
        datasets = record(FOUR, 60, seed)
        fit = likelihood(datasets, Noise(), two_stage(datasets)[:2])
        off = np.concatenate([(fit.matrix - SENSOR.matrix).T.ravel(), fit.body - SENSOR.body])
        inside.append(np.abs(off) < 1.96 * np.sqrt(np.diag(fit.covariance)))
    assert 0.93 < np.mean(inside) < 0.97


def test_intervals_of_the_verb_cover_with_noise_bias_and_drift_found_in_the_data():
    inside = []
    for seed in range(60):
        sensor = StrainSensor.random(seed % 5, quantised=False, acceleration_bias=(0.1, -0.1, 0.05))
        rng = np.random.default_rng([seed, 3])
        datasets = [sensor.dataset(load, random_orientations(16, rng), rng, temperature=rng.uniform(20, 30, 16)) for load in FOUR]
        result = calibrate_force_torque(datasets)
        off = np.concatenate([(result.matrix - sensor.matrix).T.ravel(), result.body - sensor.body])
        inside.append(np.abs(off) < 1.96 * np.sqrt(np.diag(result.covariance)))
    assert 0.93 < np.mean(inside) < 0.97


def test_ellipsoid_of_the_counts_shows_a_bias_that_was_not_taken_out():
    sensor = replace(SENSOR, acceleration_bias=(0.6, -0.5, 0.4), strain_noise=3.0, acceleration_noise=0.01)
    datasets = record(FOUR, 60, sensor=sensor)
    seen = calibrate_force_torque(datasets, remove_bias=False)
    assert any('Without the accelerometer the offset' in note for note in seen.notes)
    assert calibrate_force_torque(datasets).notes == ()


def test_temperature_that_moves_with_too_few_samples_is_noted():
    rng = np.random.default_rng(0)
    sensor = replace(SENSOR, drift=np.zeros(6))
    datasets = [sensor.dataset(load, random_orientations(6, rng), rng, temperature=rng.uniform(20, 35, 6)) for load in TWO]
    result = calibrate_force_torque(datasets)
    assert any('drift is not taken out' in note for note in result.notes) and not result.temperature_coefficient.any()


def test_verb_handles_bias_drift_and_quantisation(tmp_path):
    sensor = StrainSensor.random(3, acceleration_bias=(0.12, -0.08, 0.05), strain_noise=2.0, acceleration_noise=0.01)
    rng = np.random.default_rng(0)
    datasets = [sensor.dataset(load, random_orientations(120, rng), rng, temperature=rng.uniform(20, 35, 120)) for load in FOUR]
    result = calibrate_force_torque(datasets, serial='SG3', factory=1.05 * sensor.matrix)
    assert wrench_error(result.matrix, sensor) < 0.01
    np.testing.assert_allclose(result.accelerometer_bias, sensor.acceleration_bias, atol=0.005)
    np.testing.assert_allclose(result.temperature_coefficient, sensor.drift, atol=0.15)
    np.testing.assert_allclose(result.body, sensor.body, rtol=0.02, atol=5e-4)
    again = Calibration.load(result.save(tmp_path / 'sg3.yaml'))
    for name in ('matrix', 'offset', 'covariance', 'body', 'temperature_coefficient'):
        np.testing.assert_array_equal(getattr(again, name), getattr(result, name))
    assert (again.serial, again.date, again.residuals) == ('SG3', result.date, result.residuals)
    d = datasets[2]
    left = again.compensated(again.wrench(d.strain, d.temperature), d.acceleration, d.load.inertia)
    assert np.sqrt(np.mean(left[:, :3] ** 2)) < 0.2 and np.sqrt(np.mean(left[:, 3:] ** 2)) < 0.02
    np.testing.assert_allclose(result.secondary(sensor.matrix) @ sensor.matrix, result.matrix, rtol=1e-10)


def test_recalibration_is_the_published_minimum_and_finds_the_drift():
    rng = np.random.default_rng(0)
    r, T = rng.normal(size=(200, 6)) * 500, rng.uniform(20, 40, 200)
    factory, drift = SENSOR.matrix * 1.1, rng.normal(size=6) * 0.1
    w = r @ SENSOR.matrix.T + np.outer(T - T.mean(), drift) + 3.0
    fit = recalibrate(r, w, factory, ridge=0.0, temperature=T)
    np.testing.assert_allclose(fit.matrix, SENSOR.matrix, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fit.temperature_coefficient, drift, atol=1e-9)
    np.testing.assert_allclose(fit.wrench(r, T), w, atol=1e-8)
    # Published normal equations, entry ridge, centred.
    X, Y = r - r.mean(axis=0), w - w.mean(axis=0)
    expected = np.linalg.solve(X.T @ X / 200 + 7.0 * np.eye(6), X.T @ Y / 200 + 7.0 * factory.T).T
    np.testing.assert_allclose(recalibrate(r, w, factory, ridge=7.0, scaled=False).matrix, expected, rtol=1e-9)
    assert choose_ridge((r, w), [(r[:50], r[:50] @ factory.T)], factory) == 100.0


def test_planner_reaches_the_wanted_accuracy_with_fewer_samples_than_chance():
    proposals = plan(SENSOR.matrix, SENSOR.body, TWO, wanted=0.05)
    assert proposals[-1].accuracy <= 0.05 < proposals[-2].accuracy
    rng = np.random.default_rng(1)
    chance = [SENSOR.dataset(load, random_orientations(len(proposals) // 3, rng), None) for load in TWO]
    assert check_data(chance).relative > 0.05
    taken = [SENSOR.dataset(load, GRAVITY * np.array([p.direction for p in proposals if p.load == load]), None) for load in TWO]
    assert check_data(taken).relative < 0.055
    assert 'up points along' in str(proposals[0])


def bad_cases():
    good = record(TWO, 20)
    swapped = replace(good[1], strain=good[1].strain[:, [0, 4, 2, 3, 1, 5]])
    saturated = replace(good[1], strain=np.where(np.arange(120).reshape(20, 6) == 62, 32767.0, good[1].strain))
    flipped = replace(good[2], load=replace(TWO[2], center_of_mass=(0, -0.1, -0.05)))
    plane = replace(good[0], acceleration=good[0].acceleration * [1, 1, 0])
    return {
        'at least four orientations': [
            replace(good[0], strain=good[0].strain[:3], acceleration=good[0].acceleration[:3]),
            *good[1:],
        ],
        'fewer than four independent': [plane, *good[1:]],
        'second mass whose centre': good[:2],
        'nothing fixes the scale': good[:1],
        'channel 2 is saturated in sample 10': [good[0], saturated, good[2]],
        'channels 1 and 4 look swapped': [good[0], swapped, good[2]],
        'wrong sign': [good[0], good[1], flipped],
        'no samples': [],
    }


@pytest.mark.parametrize('sentence', bad_cases())
def test_bad_data_is_a_sentence(sentence):
    with pytest.raises(EstimationError, match=sentence):
        calibrate_force_torque(bad_cases()[sentence])


def test_factory_matrix_shows_swapped_and_reversed():
    datasets = record(TWO, 60)
    order = [3, 1, 2, 0, 4, 5]
    swapped = [replace(d, strain=d.strain[:, order]) for d in datasets]
    with pytest.raises(EstimationError, match='Channels 0 and 3 are swapped'):
        calibrate_force_torque(swapped, factory=SENSOR.matrix)
    reversed_ = [replace(d, acceleration=-d.acceleration) for d in datasets]
    with pytest.raises(EstimationError, match='accelerometer is reversed'):
        calibrate_force_torque(reversed_, factory=SENSOR.matrix)


def test_bad_loads_are_sentences():
    with pytest.raises(EstimationError, match='positive'):
        Load(-0.5, (0, 0, 0.1))
    with pytest.raises(EstimationError, match='metres'):
        Load(0.5, (0, 0, 100))
    with pytest.raises(EstimationError, match='not finite'):
        Dataset(Load(), np.full((5, 6), np.nan), np.ones((5, 3)))
