# SPDX-License-Identifier: Apache-2.0
"""Sensors of every kind: predictions against independent formulas, and what they add to an identification."""

from dataclasses import replace

import numpy as np
import pytest

from multibody_estimation import robots, tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import (
    Accelerometer,
    Custom,
    Encoder,
    ForceTorque,
    Gyroscope,
    Input,
    JointTorque,
    Parameter,
    Position,
    Robot,
    identify,
    simulate,
    track,
)
from multibody_estimation.identification.observations import NUMBERS
from multibody_estimation.identification.sensing import reading
from multibody_estimation.window import Window

LENGTH, MASS = 0.3, 0.4


def torque(t):
    w = 2 * np.pi * t
    return 0.25 * np.sin(0.6 * w) + 0.2 * np.sin(1.3 * w + 1) + 0.1 * np.sin(2.9 * w)


def pendulum(*sensors, parameters=()):
    """A rod about the world's y axis, hanging down at zero; its point at the tip is LENGTH below the joint."""
    links = [tree.Link('base'), tree.Link('rod', MASS, (0, 0, -0.2), (4e-3, 4e-3, 1e-4))]
    joints = [tree.Joint('hinge', 'base', 'rod', axis=(0, 1, 0), damping=0.02)]
    encoder = Encoder(joints=('hinge',), noise=1e-3)
    return Robot('pendulum', tree.build(links, joints), (Input(joint='hinge'),), (encoder, *sensors), parameters)


def read(sensor, q, qd, qdd, lag=0.0):
    numbers = {k: getattr(sensor, k) for k in NUMBERS if hasattr(sensor, k)}
    n = len(q)
    return np.asarray(reading(sensor, numbers, pendulum().model, np.array([q]), np.array([qd]), np.array([qdd]), np.full(n, lag)))


@pytest.fixture(scope='module')
def states():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 7))


def test_readings_equal_formulas_of_a_pendulum(states):
    q, w, a = states
    tip = read(Position(link='rod', position=(0, 0, -LENGTH)), q, w, a)
    np.testing.assert_allclose(tip, [-LENGTH * np.sin(q), 0 * q, -LENGTH * np.cos(q)], atol=1e-12)
    gyro = read(Gyroscope(link='rod', bias=(0.1, 0.2, 0.3)), q, w, a)
    np.testing.assert_allclose(gyro, [0.1 + 0 * q, 0.2 + w, 0.3 + 0 * q], atol=1e-12)
    acc = read(Accelerometer(link='rod', position=(0, 0, -LENGTH)), q, w, a)
    # Along the rod: centripetal, plus gravity's share; across: tangential. World up in rod axes is (-sin q, 0, cos q).
    np.testing.assert_allclose(acc, [-LENGTH * a - 9.81 * np.sin(q), 0 * q, LENGTH * w**2 + 9.81 * np.cos(q)], atol=1e-12)
    turned = read(Accelerometer(link='rod', position=(0, 0, -LENGTH), rpy=(0, 0, np.pi / 2)), q, w, a)
    np.testing.assert_allclose(turned, [acc[1], -acc[0], acc[2]], atol=1e-12)


def test_wrench_through_the_joint_holds_the_rod(states):
    q, w, a = states
    wrench = read(ForceTorque(link='rod'), q, w, a)
    # Newton on the centre of mass, 0.2 below the joint; Euler about the joint.
    force = [MASS * (-0.2 * a - 9.81 * np.sin(q)), 0 * q, MASS * (0.2 * w**2 + 9.81 * np.cos(q))]
    np.testing.assert_allclose(wrench[:3], force, atol=1e-12)
    np.testing.assert_allclose(wrench[4], (4e-3 + MASS * 0.04) * a + MASS * 9.81 * 0.2 * np.sin(q), atol=1e-12)
    demanded = read(JointTorque(joints=('hinge',)), q, w, a)
    np.testing.assert_allclose(demanded[0], wrench[4] + 0.02 * w, atol=1e-12)


def test_delay_moves_the_reading_back_in_time(states):
    q, w, a = states
    early = read(Encoder(joints=('hinge',)), q, w, a, lag=-0.01)
    np.testing.assert_allclose(early[0], q - 0.01 * w + 0.5e-4 * a, atol=1e-12)


@pytest.fixture(scope='module')
def furnished():
    """A robot with all sensors at rates and delays of their own, and a recording of it."""
    sensors = (
        Gyroscope(link='rod', noise=5e-3, bias=(0.0, 0.03, 0.0)),
        Accelerometer(link='rod', position=(0, 0, -LENGTH), noise=0.3, bias=(0.2, 0.0, 0.0), delay=0.005),
        Position(link='rod', position=(0, 0, -LENGTH), noise=1e-3),
        JointTorque(joints=('hinge',), noise=2e-3),
        ForceTorque(link='rod', noise=(0.02, 0.02, 0.02, 2e-3, 2e-3, 2e-3)),
    )
    parameters = (
        Parameter('rod.mass', 0.4, lower=0.01, upper=5, scale=0.4), Parameter('rod.center_of_mass.z', -0.2, lower=-1, upper=0, scale=0.2),
        Parameter('rod.inertia.yy', 4e-3, lower=1e-5, upper=1, scale=4e-3), Parameter('hinge.damping', 0.02, lower=0, upper=1, scale=0.02),
        Parameter('imu/gyroscope.bias.y', 0.03, scale=0.03), Parameter('imu/accelerometer.bias.x', 0.2, scale=0.1),
        Parameter('encoders.offset.hinge', 0.01, scale=0.01),
    )  # fmt: skip
    robot = pendulum(*sensors, parameters=parameters)
    rates = {'imu/gyroscope': 400.0, 'tip': 50.0, 'ft/wrench': 100.0}
    window = simulate(robot, torque, seconds=6, rate=200, rates=rates, start=[0.3], seed=1)
    return robot, window


def test_all_sensors_together_tell_all_parameters(furnished):
    robot, window = furnished
    start = {p.name: p.start * (1.4 if k % 2 else 0.7) for k, p in enumerate(robot.parameters)}
    fit = identify(robot, window, start=start)
    assert fit.converged, fit.sentence
    off = (fit.values - [p.start for p in robot.parameters]) / fit.std
    assert np.abs(off).max() < 3.5, dict(zip(fit.names, off))
    assert all(0.9 < r < 1.1 for r in fit.noise_ratio.values()), fit.noise_ratio
    # Torques and wrenches tell the mass itself; encoders and a known torque cannot tell more than ratios to it.
    assert fit.std[0] < 0.01 * fit['rod.mass']


def test_missing_samples_are_missed_and_said(furnished):
    robot, window = furnished
    gone = {}
    for name, signal in window.signals.items():
        keep = np.ones(len(signal), bool)
        if name != 'command':
            keep[len(signal) // 3 : len(signal) // 3 + len(signal) // 20] = False
            keep[::7] = False
        gone[name] = signal.take(keep)
    holes = Window.gather(gone.values(), truth=window.truth)
    assert any(d.kind == 'gap' for d in holes.defects)
    fit = identify(robot, holes)
    assert fit.converged
    off = (fit.values - [p.start for p in robot.parameters]) / fit.std
    assert np.abs(off).max() < 3.5


def test_huber_keeps_outliers_out():
    robot = robots.furuta(truth=True, tilt=False)
    window = simulate(robot, lambda t: 0.3 * torque(t), seconds=5, start=[0, 0.4])
    signal = window['encoders']
    values = signal.values.copy()
    bad = np.random.default_rng(0).choice(len(values), 40, replace=False)
    values[bad, 1] += np.random.default_rng(1).normal(size=40)
    spoiled = Window.gather([replace(signal, values=values), window['command']], truth=window.truth)
    truth = np.array([p.start for p in robot.parameters])
    plain = identify(robot, spoiled)
    robust = identify(replace(robot, sensors=(replace(robot.sensors[0], huber=2.0),)), spoiled)
    clean = identify(robot, window)
    assert robust.converged
    away = [np.abs((f.values - truth) / clean.std).max() for f in (plain, robust, clean)]
    assert away[0] > 20 and away[1] < 5 and away[2] < 4, away


def test_quantised_encoders_and_unknown_delays():
    robot = robots.furuta(truth=True, tilt=False, noise=5e-4, quantisation=2 * np.pi / 4096)
    late = replace(robot, inputs=(replace(robot.inputs[0], delay=0.0065),))
    more = (*late.parameters, Parameter('command.delay', 0.0065, lower=0, upper=0.05, scale=1e-3))
    late = late.with_parameters(*more)
    window = simulate(late, lambda t: 0.3 * torque(t), seconds=5, start=[0, 0.4])
    fit = identify(late, window, start={'command.delay': 0.001, 'arm.damping': 1.5e-3})
    assert fit.converged
    off = (fit.values - [p.start for p in more]) / fit.std
    assert np.abs(off).max() < 5, dict(zip(fit.names, off))  # quantisation is no white noise
    assert fit['command.delay'] == pytest.approx(0.0065, abs=1e-4)


def test_own_sensor_is_a_function_of_state_and_model(furnished):
    robot, window = furnished
    height = Custom('height', noise=1e-3, function=lambda model, q, qd, qdd: q[:1] ** 2, names=('z',))
    own = replace(pendulum(height), parameters=robot.parameters[1:4])
    data = simulate(own, torque, seconds=3, start=[0.3])
    assert identify(own, data).converged


def test_sensor_mistakes_are_named():
    with pytest.raises(EstimationError, match='on which link'):
        Gyroscope()
    with pytest.raises(EstimationError, match="no link 'rood'.*Did you mean 'rod'"):
        track(pendulum(Gyroscope(link='rood', noise=1.0)), simulate(pendulum(), torque, seconds=1))
    with pytest.raises(EstimationError, match='without encoders'):
        replace(pendulum(), sensors=(Gyroscope(link='rod'),))
    with pytest.raises(EstimationError, match="no signal 'tip'"):
        track(pendulum(Position(link='rod', noise=1.0)), simulate(pendulum(), torque, seconds=1, start=[0.5]))
