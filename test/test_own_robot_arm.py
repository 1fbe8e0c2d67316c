# SPDX-License-Identifier: Apache-2.0
"""A UR5 that MuJoCo moves, with friction, rotors and noise, its URDF 30 % off: the arm form against finite differences and against the truth."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import multibody_estimation as me  # noqa: E402
from multibody_estimation import tree  # noqa: E402

pytest.importorskip('example_robot_data', reason='pip install example-robot-data')
from benchmarks import arm_data  # noqa: E402


@pytest.fixture(scope='module')
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp('arm')
    window, clean = arm_data.measure(folder, 1, 5.0)
    robot = arm_data.robot(arm_data.start_model(), clean['torque_noise'])
    return folder, robot, window, me.identify(robot, window)


def test_torques_of_an_unseen_motion_are_predicted(measured):
    """Against Pinocchio with the true numbers; the start is 44 % off."""
    pin = pytest.importorskip('pinocchio')
    folder, _, _, fit = measured
    model = pin.buildModelFromUrdf(str(folder / 'ur5_true.urdf'))
    data = model.createData()
    q, v, a = (x[:: 5 * arm_data.FINE] for x in arm_data.fourier(2, 10.0))
    true = np.array([pin.rnea(model, data, *s) for s in zip(q, v, a)]) + arm_data.ARMATURE * a
    found = np.array([tree.inverse_dynamics(fit.robot.model, *s) for s in zip(q, v, a)])
    size = np.sqrt(np.mean(true**2, axis=0))
    assert np.sqrt(np.mean(((found - true) / size) ** 2)) < 0.05


def test_friction_is_found(measured):
    _, _, _, fit = measured
    for name, truth in (('damping', arm_data.DAMPING), ('coulomb', arm_data.COULOMB)):
        np.testing.assert_allclose([fit[f'{j}.{name}'] for j in arm_data.JOINTS], truth, rtol=0.05)


def test_every_link_is_a_body_that_can_exist(measured):
    model = measured[3].robot.model
    for link in arm_data.LINKS:
        k = model.link_index(link)
        x, y, z = np.linalg.eigvalsh(np.asarray(model.inertia)[k])
        assert float(model.mass[k]) > 0 and x > 0 and x + y >= z * (1 - 1e-12)


def test_what_the_data_cannot_tell_is_counted_and_stays_at_the_start(measured):
    _, robot, _, fit = measured
    assert len(fit.blind) == 1 and 'stay where the start has them' in fit.blind[0]
    # The mass of the first moving link is felt by no joint: it turns about the vertical.
    start = float(robot.model.mass[robot.model.link_index('shoulder_link')])
    assert float(fit.robot.model.mass[fit.robot.model.link_index('shoulder_link')]) == pytest.approx(start, rel=0.05)


def test_derivatives_are_those_of_the_forces(measured):
    """Jacobian rows against central differences of the residual, state by state and parameter by parameter."""
    _, _, _, fit = measured
    problem, z = fit.problem, np.asarray(fit.solution.parameters)
    q = np.asarray(fit.solution.states)
    data = problem.data(1.0, reference=np.ones((6, q.shape[1] - 2)))
    _, J = (np.asarray(x) for x in problem.form.rows(q, z, data))
    rows = lambda q, z: np.asarray(problem.form.rows(q, z, data)[0])  # noqa: E731
    for i in (0, 7, 33, 59, 60, 61, 62, 77):
        e = 1e-5 * np.eye(len(z))[i]
        slope = (rows(q, z + e) - rows(q, z - e)) / 2e-5
        np.testing.assert_allclose(J[:, 18 + i], slope, rtol=1e-5, atol=1e-5 * max(np.abs(slope).max(), 1e-3))
    for joint in (0, 3):
        k, e = 500, np.zeros_like(q)
        e[joint, k] = 1e-8
        slope = (rows(q + e, z) - rows(q - e, z)) / 2e-8
        for part, window in ((2, k - 2), (1, k - 1), (0, k)):  # window w spans stages w, w+1, w+2
            np.testing.assert_allclose(
                J[:, 6 * part + joint, window], slope[:, window], rtol=1e-4, atol=1e-5 * np.abs(slope).max()
            )


def test_lengths_are_refused_in_one_sentence(measured):
    _, robot, window, _ = measured
    with pytest.raises(me.EstimationError, match='taken from the URDF'):
        me.identify(robot.with_parameters(me.Parameter('elbow_joint.placement.x', 0.0, scale=0.1)), window)


def test_motion_and_report_of_an_arm(measured, tmp_path):
    *_, fit = measured
    motion = fit.motion
    for std in (motion.positions_std, motion.speeds_std):
        assert np.isfinite(std).all() and (std > 0).all()
    assert np.isfinite(motion.external_std).all()
    assert np.median(motion.positions_std) < 2e-4, 'smoothing makes encoders of 0.1 mrad no worse'
    page = fit.report(tmp_path / 'report.html')
    assert page.stat().st_size > 50_000
