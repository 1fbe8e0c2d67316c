# SPDX-License-Identifier: Apache-2.0
"""What cannot be a model, and what cannot be asked of one, is refused in a sentence with the element, the rule and the file line."""

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError

INERTIAL = '<inertial><mass value="1"/><origin xyz="0 0 0.1"/><inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>'
ARM = f"""<robot name="arm">
<link name="base"/>
<link name="upper">{INERTIAL}</link>
<link name="lower">{INERTIAL}</link>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
  <limit lower="-1" upper="2" effort="10" velocity="3"/><dynamics damping="0.2" friction="0.3"/></joint>
<joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.3" rpy="0 0 0.1"/><axis xyz="0 2 0"/></joint>
<sensor name="wrist_ft" type="force_torque"><parent joint="elbow"/>
  <force_torque><frame>sensor</frame><measure_direction>parent_to_child</measure_direction></force_torque><origin xyz="0 0 0.1"/></sensor>
<sensor name="imu" type="imu"><parent link="lower"/><origin xyz="0 0.2 0"/></sensor>
</robot>
"""


def said(action, *words):
    with pytest.raises(EstimationError) as error:
        action()
    for word in words:
        assert word in str(error.value), f'{word!r} is not in: {error.value}'


def test_a_urdf_is_read_whole():
    model = tree.load_urdf(ARM)
    assert model.joint_names == ('shoulder', 'elbow') and model.sensor_names == ('wrist_ft', 'imu')
    assert (model.lower[0], model.upper[0], model.effort_limit[0], model.velocity_limit[0]) == (-1, 2, 10, 3)
    assert (model.lower[1], model.upper[1]) == (-np.inf, np.inf)
    assert (model.damping[0], model.coulomb[0]) == (0.2, 0.3)
    np.testing.assert_allclose(model.axis, [[0, 1, 0], [0, 1, 0]])
    assert model.structure.sensor_joints == ('elbow', '')
    assert [model.link_names[k] for k in (model.structure.sensor_links[0], model.structure.sensor_acts_on[0])] == [
        'lower',
        'lower',
    ]
    at_zero = tree.sensor_pose(model, np.zeros(2), 'imu')
    np.testing.assert_allclose(at_zero[:3, 3], [-0.2 * np.sin(0.1), 0.2 * np.cos(0.1), 0.3], atol=1e-15)


def test_a_force_torque_sensor_keeps_its_place_when_the_tree_is_held_elsewhere():
    model = tree.load_urdf(
        ARM.replace('<link name="base"/>', f'<link name="base">{INERTIAL}</link>'), base='lower', floating=True
    )
    s = model.structure
    assert (model.link_names[s.sensor_links[0]], model.link_names[s.sensor_acts_on[0]], s.sensor_joints[0]) == (
        'lower',
        'lower',
        'elbow',
    )


def test_joints_stand_in_the_order_of_the_user_and_others_are_locked():
    assert tree.load_urdf(ARM, joints=['elbow', 'shoulder']).joint_names == ('elbow', 'shoulder')
    locked = tree.load_urdf(ARM, joints=['elbow'])
    assert locked.nv == 1
    full = tree.load_urdf(ARM)
    np.testing.assert_allclose(tree.link_pose(locked, [0.4], 'lower'), tree.link_pose(full, [0.0, 0.4], 'lower'), atol=1e-15)


@pytest.mark.parametrize('old, new, words', [
    (f'<link name="lower">{INERTIAL}', '<link name="lower">', ['line 4', "link 'lower'", 'no <inertial>', "'elbow'"]),
    ('<mass value="1"/>', '<mass value="-1"/>', ['line 3', "link 'upper'", 'negative']),
    ('<mass value="1"/>', '', ['line 3', "link 'upper'", '<mass>']),
    ('izz="0.01"', 'izz="0.03"', ['line 3', "link 'upper'", 'principal moments', 'sum of the two others']),
    ('ixx="0.01"', 'ixx="-0.01"', ['line 3', "link 'upper'", 'principal moment']),
    ('ixx="0.01"', 'ixx="nan"', ['line 3', "link 'upper'", 'finite']),
    ('ixx="0.01"', 'ixx="abc"', ['line 3', "link 'upper'", 'not a number']),
    ('xyz="0 0 0.3"', 'xyz="0 0 inf"', ['line 7', "joint 'elbow'", 'finite']),
    ('xyz="0 0 0.3"', 'xyz="0 0.3"', ['line 7', "joint 'elbow'", '3 numbers']),
    ('<child link="lower"/>', '<child link="upper"/>', ['line 7', "joint 'elbow'", 'kinematic loop']),
    ('<parent link="base"/>', '<parent link="lower"/>', ['kinematic loop']),
    ('<link name="base"/>', '<link name="base"/><link name="alone"/>', ['one root', "'base'", "'alone'", 'line 2']),
    ('<link name="lower">', '<link name="upper">', ['line 4', "link 'upper'", 'unique']),
    ('<child link="lower"/>', '<child link="lowr"/>', ['line 7', "'lowr'", "Did you mean 'lower'"]),
    ('type="continuous"', 'type="planar"', ['line 7', "joint 'elbow'", "'planar'", 'not supported']),
    ('<axis xyz="0 1 0"/>', '<axis xyz="0 0 0"/>', ['line 5', "joint 'shoulder'", 'axis is zero']),
    ('lower="-1" upper="2"', 'lower="3" upper="2"', ['line 5', "joint 'shoulder'", 'limit']),
    ('damping="0.2"', 'damping="-0.2"', ['line 5', "joint 'shoulder'", 'damping']),
    ('<parent joint="elbow"/>', '<parent joint="elbw"/>', ['line 8', "sensor 'wrist_ft'", "Did you mean 'elbow'"]),
    ('<axis xyz="0 2 0"/>', '<axis xyz="0 2 0"/><mimic joint="shoulder"/>', ['line 7', "joint 'elbow'", "mimics joint 'shoulder'"]),
    ('<mass value="1"/>', '<mass/>', ['line 3', "link 'upper'", 'value']),
    ('<parent link="base"/>', '', ['line 5', "joint 'shoulder'", 'no <parent']),
    ('</robot>', '', ['not valid XML', 'line']),
])  # fmt: skip
def test_a_wrong_urdf_is_refused_with_its_line(tmp_path, old, new, words):
    assert old in ARM
    path = tmp_path / 'arm.urdf'
    path.write_text(ARM.replace(old, new, 1))
    said(lambda: tree.load_urdf(path), 'arm.urdf', *words)


def test_a_file_that_is_not_there_is_said():
    said(lambda: tree.load_urdf('no/such.urdf'), "no URDF file 'no/such.urdf'")


@pytest.fixture(scope='module')
def model():
    return tree.load_urdf(ARM)


@pytest.mark.parametrize('ask, words', [
    (lambda m: m.joint_index('elbo'), ["no joint 'elbo'", "Did you mean 'elbow'"]),
    (lambda m: tree.link_pose(m, [0, 0], 'lowr'), ["no link 'lowr'", "'lower'"]),
    (lambda m: tree.jacobian(m, [0, 0], 'hand'), ["no link 'hand'", 'Known: base']),
    (lambda m: tree.sensor_pose(m, [0, 0], 'imi'), ["no sensor 'imi'", "'imu'"]),
    (lambda m: tree.mass_matrix(m, [0, 0, 0]), ['position', '(3,)', '2 numbers', 'shoulder, elbow']),
    (lambda m: tree.inverse_dynamics(m, [0, 0], [0], [0, 0]), ['velocity', '(1,)', '2 numbers']),
    (lambda m: tree.forward_dynamics(m, [0, 0], [0, 0], [0, 0, 0]), ['torque', '(3,)']),
    (lambda m: tree.mass_matrix(m, np.zeros((5, 2))), ['(5, 2)', 'vmap']),
    (lambda m: tree.mass_matrix(m, [0, np.nan]), ['number 1', 'position', 'finite']),
    (lambda m: tree.inverse_dynamics(m, [0, 0], [np.inf, 0], [0, 0]), ['number 0', 'velocity', 'finite']),
    (lambda m: tree.inverse_dynamics(m, [0, 0], [0, 0], [0, 0], {'hand': np.zeros(6)}), ["no link 'hand'"]),
    (lambda m: tree.inverse_dynamics(m, [0, 0], [0, 0], [0, 0], {'lower': np.zeros(3)}), ["wrench on 'lower'", '(3,)', '(6,)']),
    (lambda m: tree.inverse_dynamics(m, [0, 0], [0, 0], [0, 0], np.zeros((2, 6))), ['(2, 6)', '(3, 6)']),
    (lambda m: tree.get_leaf(m, 'lower.maas'), ["'lower.maas'", "'lower.mass'"]),
    (lambda m: tree.small.inverse_dynamics(m, np.zeros((3, 4)), np.zeros((2, 4)), np.zeros((2, 4))), ['3 rows', '2 joints']),
    (lambda m: tree.load_urdf(ARM, base='hand'), ["no link 'hand'", 'base']),
    (lambda m: tree.load_urdf(ARM, joints=['elbow', 'wrist']), ["no joint 'wrist'"]),
    (lambda m: tree.load_urdf(ARM, joints=['elbow', 'elbow']), ["'elbow' stands twice"]),
    (lambda m: tree.load_urdf(ARM, friction_law='sticky'), ["'sticky'", "'stick'"]),
    (lambda m: tree.build([], []), ['at least one link']),
    (lambda m: tree.build([tree.Link('a'), tree.Link('b')], [tree.Joint('j', 'a', 'b')]), ["link 'b'", 'no inertia', "'j'"]),
    (lambda m: tree.build([tree.Link('a'), tree.Link('b', 1.0, (0, 0, 0), (1, 1))], [tree.Joint('j', 'a', 'b')]), ["link 'b'", 'diagonal of 3']),
])  # fmt: skip
def test_a_wrong_request_is_refused_with_its_name(model, ask, words):
    said(lambda: ask(model), *words)
