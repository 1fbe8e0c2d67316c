# SPDX-License-Identifier: Apache-2.0
"""Covariances learned from data, and intervals that cover what they promise."""

import dataclasses

import numpy as np
import pytest

from multibody_estimation.errors import EstimationError
from multibody_estimation.tree import Joint, Link, build
from multibody_estimation.wrench import (
    Prior,
    WrenchSensor,
    WrenchSetup,
    compile_wrench,
    learn_covariances,
    load_wrench_setup,
    save_wrench_setup,
    solve,
)
from multibody_estimation.wrench.dense import draw_samples
from multibody_estimation.wrench.estimator import base_velocity_from_gyroscopes

COUNT = 900


def robot():
    rng = np.random.default_rng(3)
    links, joints = [Link('base', 3.0, (0.0, 0.01, 0.02), (0.02, 0.03, 0.02))], []
    for i, parent in enumerate(['base', 'l0', 'base', 'l2']):
        links.append(Link(f'l{i}', 1.0 + 0.3 * i, tuple(0.05 * rng.normal(size=3)), (0.01, 0.012, 0.009)))
        kind = ['revolute', 'prismatic', 'fixed', 'revolute'][i]
        joints.append(
            Joint(
                f'j{i}',
                parent,
                f'l{i}',
                kind,
                tuple(rng.normal(size=3)),
                tuple(0.2 * rng.normal(size=3)),
                tuple(rng.normal(size=3)),
            )
        )
    return build(links, joints, floating=True)


def truth():
    rng = np.random.default_rng(4)
    frame = lambda: {'position': tuple(0.1 * rng.normal(size=3)), 'rpy': tuple(rng.normal(size=3))}  # noqa: E731
    sensors = [
        WrenchSensor(f'acc_{x}_{k}', 'accelerometer', x, 0.1, share='acc', **frame())
        for x in ('base', 'l0', 'l1', 'l2', 'l3')
        for k in range(2)
    ]
    sensors += [WrenchSensor('gyr', 'gyroscope', 'base', (0.01, 0.02, 0.03), **frame())]
    sensors += [WrenchSensor('ft', 'force_torque', 'j2', (0.5, 0.4, 0.3, 0.2, 0.2, 0.3), **frame())]
    sensors += [WrenchSensor(f'ddq_{j}', 'joint_acceleration', j, 0.3, share='ddq') for j in ('j0', 'j1', 'j3')]
    sensors += [WrenchSensor(f'tau_{j}', 'joint_torque', j, 0.25, share='tau') for j in ('j0', 'j1', 'j3')]
    sensors += [WrenchSensor('touch', 'external_wrench', 'l3', (0.1, 0.1, 0.1, 0.05, 0.05, 0.05))]
    contacts = {'l3': Prior((10.0,) * 3 + (3.0,) * 3), 'base': Prior(20.0)}
    return WrenchSetup(
        tuple(sensors),
        contacts=contacts,
        contact_free=Prior(0.02),
        equation_noise={'*': 0.05},
        motion_noise={'*': 0.1},
        joint_acceleration={'*': Prior(3.0)},
    )


@pytest.fixture(scope='module')
def data():
    rng = np.random.default_rng(6)
    model, setup = robot(), truth()
    program = compile_wrench(model, setup)
    state = 0.5 * rng.normal(size=(COUNT, 3)), rng.normal(size=(COUNT, 3)), rng.normal(size=(COUNT, 3))
    d, y = draw_samples(program, *state, seed=1)
    return model, setup, program, state, d, y


def variance_ratio(learned, setup, name):
    true = {s.share or s.name: s.covariance() for s in setup.sensors}[name]
    return learned.deviations[name] ** 2 / np.diag(true)


def test_planted_sensor_covariances_are_recovered_and_the_evidence_never_falls(data):
    model, setup, _, state, _, y = data
    start = setup.replace(
        sensors=tuple(dataclasses.replace(s, noise=3 * np.sqrt(np.diag(s.covariance()))) for s in setup.sensors)
    )
    torn = y.copy()
    torn[::7, setup.rows['acc_l0_0']] = np.nan  # missing samples are dropped, not zeroed
    learned = learn_covariances(model, start, *state, torn, learn=['acc', 'gyr', 'ddq', 'tau'], shape='scalar', iterations=60)
    assert (np.diff(learned.evidence) >= -1e-6).all()
    assert learned.evidence[-1] > learned.evidence[0] + 1000
    for name in ('acc', 'ddq', 'tau'):
        assert variance_ratio(learned, setup, name) == pytest.approx(1.0, abs=0.1), name
    # The gyroscope's noise is not the same on all axes: one number for all is their mean.
    assert learned.deviations['gyr'][0] ** 2 == pytest.approx(np.mean([1e-4, 4e-4, 9e-4]), rel=0.1)
    assert 'acc' in str(learned)


def test_planted_variances_of_each_axis_and_of_the_equations_are_recovered(data):
    model, setup, _, state, _, y = data
    sensors = tuple(
        dataclasses.replace(s, noise=2 * np.sqrt(np.diag(s.covariance()))) if s.name in ('ft', 'gyr') else s
        for s in setup.sensors
    )
    start = setup.replace(sensors=sensors, motion_noise={'*': 0.3})
    learned = learn_covariances(model, start, *state, y, learn=['ft', 'gyr', 'motion_noise'], iterations=60)
    assert (np.diff(learned.evidence) >= -1e-6).all()
    # 900 samples tell a variance to 4.7 %: the mean over the axes of a sensor is judged, each axis more loosely.
    for name in ('ft', 'gyr'):
        assert variance_ratio(learned, setup, name).mean() == pytest.approx(1.0, abs=0.1), name
        assert np.abs(variance_ratio(learned, setup, name) - 1).max() < 0.2, name
    # Its angular part, 0.1 rad/s^2, hides behind accelerometers on levers of 0.1 m, 1 rad/s^2: only the linear part is told well.
    assert (learned.deviations['motion_noise'][:3] ** 2 / 0.01).mean() == pytest.approx(1.0, abs=0.1)


def test_a_covariance_stays_above_its_floor_and_says_so(data):
    model, setup, _, state, _, y = data
    clean = y.copy()
    part = tuple(x[:60] for x in state)
    learned = learn_covariances(model, setup, *part, clean[:60], learn=['gyr'], floor={'gyr': 0.5}, iterations=4)
    np.testing.assert_allclose(learned.deviations['gyr'], 0.5)
    assert learned.floored == ('gyr',)


def test_learned_setup_survives_a_file(data, tmp_path):
    model, setup, _, state, _, y = data
    part = tuple(x[:60] for x in state)
    learned = learn_covariances(model, setup, *part, y[:60], learn=['ft'], shape='full', iterations=4)
    path = save_wrench_setup(learned.setup, tmp_path / 'setup.yaml')
    again = load_wrench_setup(path, model)
    for a, b in zip(learned.setup.sensors, again.sensors):
        np.testing.assert_allclose(a.covariance(), b.covariance(), rtol=1e-12)
    a, b = (solve(compile_wrench(model, s), *(x[:3] for x in state), y[:3]).external_wrenches for s in (learned.setup, again))
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_95_percent_intervals_of_external_wrenches_cover_93_to_97_percent(data):
    _, _, program, state, d, y = data
    links = program.link_names
    found = solve(program, *state, y, blocks=[('external_wrench', x) for x in links])
    nl = len(links)
    inside = []
    for k, link in enumerate(links):
        z = (found.wrench(link) - d[:, 6 * nl + 6 * k : 6 * nl + 6 * k + 6]) / found.deviation('external_wrench', link)
        inside.append(np.abs(z) < 1.959964)
        assert 0.93 < inside[-1].mean() < 0.97, link
    assert 0.94 < np.mean(inside) < 0.96


def test_gyroscopes_tell_the_turning_of_a_floating_base(data):
    model, setup, program, state, _, y = data
    om = base_velocity_from_gyroscopes(program, state[0], state[1], y)
    assert np.sqrt(((om - state[2]) ** 2).mean()) < 0.03
    with pytest.raises(EstimationError, match='no gyroscope tells it'):
        torn = y.copy()
        torn[5, setup.rows['gyr']] = np.nan
        base_velocity_from_gyroscopes(program, state[0], state[1], torn)


def test_learning_names_what_is_not_there(data):
    model, setup, _, state, _, y = data
    with pytest.raises(EstimationError, match="no sensor or group 'accc'.*Did you mean 'acc'"):
        learn_covariances(model, setup, *state, y, learn=['accc'])
    with pytest.raises(EstimationError, match="'ft' has no sample"):
        torn = y[:5].copy()
        torn[:, setup.rows['ft']] = np.nan
        learn_covariances(model, setup, *(x[:5] for x in state), torn, learn=['ft'])
