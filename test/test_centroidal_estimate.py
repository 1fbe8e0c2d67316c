# SPDX-License-Identifier: Apache-2.0
"""The front door of the centroidal estimator, and the way from contact sensors to it."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from multibody_estimation.centroidal import (
    Measurement,
    ProcessNoise,
    StateLayout,
    acceleration_at,
    estimate_centroidal,
    load_centroidal,
    make_sample,
    start_lag_smoother,
    sum_wrenches,
)
from multibody_estimation.centroidal.gait import NOISE, measure, walking_gait
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import Signal, Window

USUAL = ('center_of_mass', 'contact_wrench', 'angular_momentum')


@pytest.fixture(scope='module')
def gait():
    return walking_gait(301)


@pytest.fixture(scope='module')
def window(gait):
    signals = [
        Signal.from_seconds(m.block, m.time, m.values, noise=NOISE[m.block])
        for m in measure(gait, USUAL, np.random.default_rng(0))
    ]
    steps = np.flatnonzero(np.r_[True, np.diff(gait.anchor[:, 0]) != 0])
    return Window.gather([*signals, Signal.from_seconds('contact_anchor', gait.time[steps], gait.anchor[steps])])


@pytest.fixture(scope='module')
def estimate(window):
    return estimate_centroidal(window, mass=56.0, noise=ProcessNoise(force=85.0, moment=4.2))


def test_a_window_gives_the_motion(gait, estimate):
    error = (estimate.states - gait.states) / np.sqrt(np.diagonal(estimate.covariance, axis1=1, axis2=2))
    assert np.sqrt(np.mean(error**2)) < 1.3
    assert np.sqrt(np.mean((estimate['center_of_mass'] - gait.states[:, :3]) ** 2)) < 1e-3
    assert all(0.8 < size < 1.1 for size in estimate.misfit.values())


def test_it_prints_plots_and_saves_itself(estimate, tmp_path):
    assert 'Converged' in str(estimate) and 'center_of_mass' in str(estimate)
    estimate.plot(truth=estimate.states).savefig(tmp_path / 'motion.png', dpi=40)
    assert (tmp_path / 'motion.png').stat().st_size > 1000
    estimate.save(tmp_path / 'motion.npz')
    again = load_centroidal(tmp_path / 'motion.npz')
    np.testing.assert_array_equal(again.states, estimate.states)
    assert str(again) == str(estimate)


def test_momentum_is_physical_where_the_mass_is_estimated(gait):
    """With a nominal mass 10 % too low, momentum and force come out as the sensors and the true mass have them."""
    rng = np.random.default_rng(1)
    data = measure(gait, (*USUAL, 'linear_momentum', 'acceleration'), rng)
    found = estimate_centroidal(data, mass=50.4, layout=StateLayout(mass=True))
    deviation = found.deviation('mass_ratio')[150, 0]
    assert abs(found['mass_ratio'][150, 0] - 56.0 / 50.4) < max(5 * deviation, 1e-3)
    assert np.sqrt(np.mean((found['force'] - gait.states[:, 9:12]) ** 2)) < 4
    assert np.sqrt(np.mean((found['linear_momentum'] - gait.states[:, 3:6]) ** 2)) < 0.5


def test_wrenches_of_two_feet_sum_with_their_shared_noise():
    """Mean and covariance against a Monte Carlo over the sensors' own noise."""
    rng = np.random.default_rng(2)
    rotations, positions, anchor = Rotation.random(2, random_state=3).as_matrix(), rng.normal(size=(2, 3)), rng.normal(size=3)
    clean, noise = rng.normal(size=(2, 6)), rng.random((2, 6)) + 0.5
    draws = 40000
    noisy = clean + rng.normal(size=(draws, 2, 6)) * noise
    total = np.zeros((draws, 6))
    for i in range(2):
        force = noisy[:, i, :3] @ rotations[i].T
        total[:, :3] += force
        total[:, 3:] += noisy[:, i, 3:] @ rotations[i].T + np.cross(positions[i] - anchor, force)
    summed = sum_wrenches(np.zeros(1), clean[None], rotations[None], positions[None], anchor[None], noise)
    scale = np.sqrt(np.diag(summed.covariance[0]))
    np.testing.assert_allclose((total.mean(axis=0) - summed.values[0]) / scale, 0, atol=0.03)
    np.testing.assert_allclose(np.cov(total.T) / np.outer(scale, scale), summed.covariance[0] / np.outer(scale, scale), atol=0.03)


def test_acceleration_moves_along_a_spinning_body():
    """A body turns by R(t) about a moving point: second differences of another point's path."""
    step, lever = 1e-4, np.array([0.3, -0.2, 0.5])
    times = np.array([-step, 0.0, step])
    rate, bend = np.array([0.7, -1.1, 0.4]), np.array([2.0, 1.0, -3.0])
    # rotation vectors small around t = 0, where R = 1, omega = rate and alpha = bend
    turn = Rotation.from_rotvec(times[:, None] * rate + times[:, None] ** 2 / 2 * bend)
    base = times[:, None] ** 2 / 2 * np.array([1.0, 2.0, 3.0])
    path = base + turn.apply(lever)
    expected = (path[0] - 2 * path[1] + path[2]) / step**2
    gravity = np.array([0.0, 0.0, -9.81])
    specific = np.array([[1.0, 2.0, 3.0]]) - gravity
    np.testing.assert_allclose(acceleration_at(specific, rate[None], bend[None], lever[None], gravity)[0], expected, atol=1e-5)


def test_bad_input_is_answered_with_a_sentence(gait, window):
    still = Measurement('contact_wrench', gait.time, np.zeros((301, 6)), 1.0)
    com = Measurement('center_of_mass', gait.time, gait.states[:, :3], 0.01)
    with pytest.raises(EstimationError, match='No contact at all: nothing measures'):
        estimate_centroidal([com], mass=56.0)
    with pytest.raises(EstimationError, match='No contact at all: the contact force never exceeds'):
        estimate_centroidal([com, still], mass=56.0)
    with pytest.raises(EstimationError, match='mass of 0'):
        estimate_centroidal(window, mass=0.0)
    with pytest.raises(EstimationError, match='none of the signals'):
        estimate_centroidal(Window.gather([Signal('encoders', np.arange(3), np.zeros(3))]), mass=1.0)
    with pytest.raises(EstimationError, match='noise is not known'):
        estimate_centroidal(Window.gather([Signal('center_of_mass', np.arange(3), np.zeros((3, 3)))]), mass=1.0)
    with pytest.raises(EstimationError, match='is empty'):
        estimate_centroidal([], mass=1.0)
    with pytest.raises(EstimationError, match='At least one|at least one'):
        sum_wrenches(
            np.zeros(1), np.zeros((1, 0, 6)), np.zeros((1, 0, 3, 3)), np.zeros((1, 0, 3)), np.zeros((1, 3)), np.zeros((0, 6))
        )
    first = make_sample(('center_of_mass',), 0.0, {'center_of_mass': (np.zeros(3), 0.01)})
    with pytest.raises(EstimationError, match='lag of 0'):
        start_lag_smoother(first, lag=0, mass=1.0)
    with pytest.raises(EstimationError, match='started without'):
        make_sample(('center_of_mass',), 0.0, {'acceleration': (np.zeros(3), 0.01)})
