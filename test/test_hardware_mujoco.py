# SPDX-License-Identifier: Apache-2.0
"""The iCub in MuJoCo: its sensors against pinocchio's equations of the same URDF, its pushes against what it reports as truth."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('mujoco', reason='the optional extra mujoco is not installed')
pytest.importorskip('icub_models', reason='icub-models is not installed')
pin = pytest.importorskip('pinocchio', reason='pinocchio is the oracle')

from multibody_estimation.errors import EstimationError  # noqa: E402
from multibody_estimation.hardware.collect import collect  # noqa: E402
from multibody_estimation.hardware.device import make_device  # noqa: E402
from multibody_estimation.hardware.mujoco_icub import MujocoIcub, Push  # noqa: E402

PUSHES = (
    Push('l_hand', 0.0, 9.0, (3.0, -4.0, -10.0), point=(0.01, 0.02, -0.03)),
    Push('chest', 0.0, 9.0, (0.0, 5.0, 0.0), moment=(0.1, 0.2, -0.3)),
)
QUIET = dict.fromkeys([f'{x}_noise' for x in ('encoder', 'velocity', 'accelerometer', 'gyroscope', 'force', 'torque')], 0.0)


def oracle(device, standing):
    """Pinocchio's model of the same file, with the F/T joints movable so that their forces appear, and the state in its order."""
    text = Path(device.urdf).read_text()
    text = re.sub(r'(<joint name="\w+_ft_sensor" type=")fixed(">)', r'\1revolute\2<limit effort="1" velocity="1" lower="-1" upper="1"/>', text)  # fmt: skip
    model = pin.buildModelFromXML(text, pin.JointModelFreeFlyer()) if standing else pin.buildModelFromXML(text)
    s, q, v, a = device.state(), pin.neutral(model), np.zeros(model.nv), np.zeros(model.nv)
    R = s['base_rotation']
    if standing:
        q[:3], q[3:7] = s['base_position'], pin.Quaternion(R).coeffs()
        v[:3], v[3:6] = R.T @ s['base_velocity'], s['base_spin']
        a[:3], a[3:6] = R.T @ s['base_acceleration'] - np.cross(v[3:6], v[:3]), s['base_spin_rate']
    for k, name in enumerate(device.joints):
        joint = model.joints[model.getJointId(name)]
        q[joint.idx_q], v[joint.idx_v], a[joint.idx_v] = (s[x][k] for x in ('position', 'velocity', 'acceleration'))
    return model, q, v, a


@pytest.mark.parametrize('standing', [False, True])
def test_sensors_and_truth_satisfy_pinocchios_equations(standing):
    device = MujocoIcub(
        realtime=False, standing=standing, pushes=PUSHES, amplitude=0.2, frequency=0.5, settle=0.3, rate=20, **QUIET
    )
    with device:
        for _ in range(7):
            samples = {s.topic: s.parts for s in device.read(0.0)}
        model, q, v, a = oracle(device, standing)
        data = model.createData()
        wrenches = np.array(samples['truth/wrenches']['']).reshape(-1, 6)
        external = [pin.Force.Zero() for _ in range(model.njoints)]
        for link, wrench in zip(device.links, wrenches):
            frame = model.frames[model.getFrameId(link)]
            external[frame.parentJoint] += frame.placement.act(pin.Force(wrench))
        tau = pin.rnea(model, data, q, v, a, pin.StdVec_Force(external))
        if standing:
            np.testing.assert_allclose(tau[:6], 0, atol=1e-8)  # nothing but the reported wrenches holds the robot
            assert wrenches[device.links.index('l_foot'), 2] < -50  # its z axis looks down, the floor pushes up
        for name in ('l_arm_ft', 'r_arm_ft', 'l_leg_ft', 'r_foot_ft'):
            expected = -data.f[model.getJointId(f'{name}_sensor')].vector  # child_to_parent
            np.testing.assert_allclose(samples[f'ft/{name}/wrench'][''], expected, atol=1e-8)
        pin.forwardKinematics(model, data, q, v, a)
        for name in device.imus:
            frame = model.getFrameId(name)
            down = pin.updateFramePlacement(model, data, frame).rotation.T @ model.gravity.linear
            acceleration = pin.getFrameClassicalAcceleration(model, data, frame, pin.ReferenceFrame.LOCAL).linear - down
            rotation = pin.getFrameVelocity(model, data, frame, pin.ReferenceFrame.LOCAL).angular
            np.testing.assert_allclose(samples[f'imu/{name}/data_raw']['/accelerometer'], acceleration, atol=1e-8)
            np.testing.assert_allclose(samples[f'imu/{name}/data_raw']['/gyroscope'], rotation, atol=1e-9)
        assert np.abs(v).max() > 0.05


def test_a_push_is_reported_as_truth_and_felt_by_the_sensor_above_it():
    window = collect(MujocoIcub(realtime=False, pushes=('l_hand:0.5:1:0,0,-10',), settle=1.5, rate=50, seed=1), 1.4)
    truth = window['truth/wrenches']
    force = truth.values[:, [truth.columns.index(f'l_hand.f{x}') for x in 'xyz']]
    size = np.linalg.norm(force, axis=1)
    t = window.seconds('truth/wrenches')
    np.testing.assert_allclose(size[(t > 0.6) & (t < 1.4)], 10, atol=1e-9)
    np.testing.assert_array_equal(size[t < 0.5], 0)
    felt = window['ft/l_arm_ft/wrench'].values[:, :3]
    late = felt[t > 1.0].mean(axis=0) - felt[t < 0.5].mean(axis=0)
    assert abs(np.linalg.norm(late) - 10) < 0.5
    other = window['ft/r_arm_ft/wrench'].values[:, :3]
    assert np.linalg.norm(other[t > 1.0].mean(axis=0) - other[t < 0.5].mean(axis=0)) < 0.3
    noise = window['imu/head_imu_0/gyroscope'].values.std(axis=0)
    assert (noise > 1e-3).all() and (noise < 4e-3).all()


def test_standing_it_keeps_its_feet_on_the_floor_and_carries_its_weight():
    window = collect(MujocoIcub(realtime=False, standing=True, settle=1.5, rate=20), 1.0)
    truth = window['truth/wrenches'].values.reshape(-1, 39, 6)
    links = [c.split('.')[0] for c in window['truth/wrenches'].columns[::6]]
    weight = -sum(truth[:, links.index(foot), 2] for foot in ('l_foot', 'r_foot'))
    np.testing.assert_allclose(weight, 33.0616727 * 9.81, rtol=0.01)
    assert set(np.flatnonzero(np.abs(truth).max(axis=(0, 2)) > 1e-9)) == {links.index('l_foot'), links.index('r_foot')}


def test_what_cannot_be_done_is_said():
    with pytest.raises(EstimationError, match="Cannot push 'l_hnd'.*Did you mean 'l_hand'"):
        MujocoIcub(pushes=('l_hnd:1:1:0,0,1',))
    with pytest.raises(EstimationError, match='is no push'):
        MujocoIcub(pushes=('l_hand',))
    with pytest.raises(EstimationError, match="no robot 'iCub'"):
        MujocoIcub(model='iCub')
    with pytest.raises(EstimationError, match='must divide 1000'):
        MujocoIcub(rate=300)


def test_its_options_may_come_as_texts_and_its_samples_become_messages():
    device = make_device('mujoco', ['pushes=l_hand:0:1:0,0,-10;r_hand:0:1:1,2,3', 'rate=20', 'realtime=false', 'settle=0.1'])
    assert [p.link for p in device.pushes] == ['l_hand', 'r_hand'] and device.pushes[1].force == (1.0, 2.0, 3.0)
    assert len(make_device('mujoco', {'pushes': 'l_hand:0:1:0,0,-10'}).pushes) == 1
    pytest.importorskip('rclpy', reason='ROS 2 is not installed')
    messages = pytest.importorskip('multibody_estimation.nodes.messages', reason='the interfaces are not built')
    makers = {c.topic: messages.maker(c)[1] for c in device.channels}
    with device:
        device.read(0.0)
        made = {s.topic: makers[s.topic](s) for s in device.read(0.0)}
        truth = device.external_wrenches()
    told = made['truth/wrenches']
    row = list(told.link_names).index('l_hand')
    assert abs(np.linalg.norm([told.wrenches[row].force.x, told.wrenches[row].force.y, told.wrenches[row].force.z]) - 10) < 1e-9
    assert truth.shape == (39, 6) and made['ft/l_arm_ft/wrench'].header.frame_id == 'l_upper_arm'
    assert made['imu/head_imu_0/data_raw'].orientation_covariance[0] == -1
