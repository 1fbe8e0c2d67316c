# SPDX-License-Identifier: Apache-2.0
"""The robot file and the URDF written back: what they take, what they refuse and in which words, and the round trip."""

import numpy as np
import pytest

import multibody_estimation as me
from multibody_estimation import tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.robots.robot_file import load_robot, read_robot_file
from multibody_estimation.robots.urdf_writer import write_urdf

URDF = """<?xml version="1.0"?>
<!-- two links, hand-made -->
<robot name="arm2">
  <link name="base"/>
  <link name="upper">
    <inertial><mass value="0.5"/><origin xyz="0 0 -0.1" rpy="0.3 0 0.1"/>
      <inertia ixx="0.002" iyy="0.0021" izz="0.0003" ixy="0" ixz="1e-5" iyz="0"/></inertial>
    <visual><geometry><box size="1 1 1"/></geometry></visual>
  </link>
  <link name='lower'><inertial><mass   value = '0.3' /><origin xyz="0 0 -0.1"/>
    <inertia ixx="0.001" iyy="0.001" izz="0.0001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/><dynamics damping="0.02"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/><origin xyz="0 0 -0.2"/><axis xyz="0 1 0"/></joint>
</robot>
"""
FILE = """urdf: arm.urdf
inputs: {command: {topic: /motor/command, joint: shoulder, kind: torque, delay: 4 ms}}
sensors: {encoders: {topic: /joint_states, joints: [shoulder, elbow], noise: 0.1 deg}}
joints: {elbow: {armature: 1.0e-4}}
estimate:
  shoulder.damping: {start: 0.01, lower: 0, upper: 1}
  lower.mass: {}
  lower.center_of_mass: {axes: [z]}
  elbow.coulomb: {}
fix: [lower.mass]
settings: {weight: 0.1, step: 5 ms}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'arm.urdf').write_text(URDF)
    (tmp_path / 'arm.yaml').write_text(FILE)
    return tmp_path


def test_a_robot_file_says_what_the_urdf_cannot(folder):
    file = read_robot_file(folder / 'arm.yaml')
    robot = file.robot
    assert file.topics == {'command': '/motor/command', 'encoders': '/joint_states'}
    assert [p.name for p in robot.parameters] == ['shoulder.damping', 'lower.mass', 'lower.center_of_mass.z', 'elbow.coulomb']
    by = {p.name: p for p in robot.parameters}
    assert by['shoulder.damping'].unit == 'N m s/rad' and by['shoulder.damping'].start == 0.01
    assert by['lower.mass'].start == 0.3 and by['lower.mass'].fixed and by['lower.mass'].unit == 'kg'
    assert by['elbow.coulomb'].start > 0, 'friction that starts at its bound does not move'
    assert robot.inputs[0].delay == pytest.approx(0.004) and robot.sensors[0].noise == pytest.approx(np.radians(0.1))
    assert float(tree.get_leaf(robot.model, 'elbow.armature')) == 1e-4
    assert robot.settings == {'weight': 0.1, 'step': 0.005}
    assert me.load_robot(folder / 'arm.yaml').name == robot.name


@pytest.mark.parametrize(
    ('old', 'new', 'line', 'said'),
    [
        ('shoulder.damping', 'shoulder.dampin', 6, "Did you mean 'shoulder.damping'?"),
        ('lower.mass: {}', 'lowr.mass: {}', 7, "Did you mean 'lower.mass'?"),
        ('noise: 0.1 deg', 'noise: 0.1 kg', 3, "unit 'kg' does not fit"),
        ('delay: 4 ms', 'delay: 4 apples', 2, "unit 'apples' does not fit"),
        ('noise: 0.1 deg', 'noise: little', 3, 'a number'),
        ('inputs:', 'input:', 2, "Did you mean 'inputs'?"),
        ('kind: torque', 'kind: torqe', 2, "Did you mean 'torque'?"),
        ('joint: shoulder', 'joint: sholder', 2, "Did you mean 'shoulder'?"),
        ('axes: [z]', 'axes: [w]', 8, "'w' is not possible"),
        ('start: 0.01', 'start: 2', 6, 'exclude the start'),
        ('joints: {elbow: {armature', 'joints: {elbw: {armature', 4, "Did you mean 'elbow'?"),
        ('fix: [lower.mass]', 'fix: [upper.mass]', 10, 'is not under estimate'),
        ('urdf: arm.urdf', 'urdf: arn.urdf', 1, 'no URDF'),
        ('settings: {weight: 0.1', 'settings: {weigth: 0.1', 11, "Did you mean 'weight'?"),
        ('lower.mass: {}', 'lower.mass: {}\n  lower.mass: {}', 8, 'is there twice'),
    ],
)
def test_mistakes_are_named_with_their_line(folder, old, new, line, said):
    assert old in FILE
    (folder / 'bad.yaml').write_text(FILE.replace(old, new, 1))
    with pytest.raises(EstimationError) as error:
        load_robot(folder / 'bad.yaml')
    assert f'bad.yaml line {line}:' in str(error.value) and said in str(error.value), error.value


def test_missing_parts_are_named(folder):
    (folder / 'bad.yaml').write_text('urdf: arm.urdf\n')
    with pytest.raises(EstimationError, match="'sensors' is missing"):
        load_robot(folder / 'bad.yaml')
    (folder / 'bad.yaml').write_text('')
    with pytest.raises(EstimationError, match='is empty'):
        load_robot(folder / 'bad.yaml')
    (folder / 'bad.yaml').write_text('urdf: [a')
    with pytest.raises(EstimationError, match='no YAML'):
        load_robot(folder / 'bad.yaml')
    with pytest.raises(EstimationError, match='cannot be read'):
        load_robot(folder / 'none.yaml')


def test_inertial_stands_for_ten_possible_numbers(folder):
    (folder / 'ten.yaml').write_text(FILE.replace('lower.mass: {}', 'upper.inertial: {}').replace('fix: [lower.mass]\n', ''))
    names = [p.name for p in load_robot(folder / 'ten.yaml').parameters]
    assert sum('upper.log_cholesky.' in n for n in names) == 10


def changed(model):
    new = {'lower.mass': 0.37, 'lower.center_of_mass.z': -0.123456789012345, 'upper.inertia.xx': 0.00205, 'upper.inertia.xz': 2e-5,
           'shoulder.damping': 0.031, 'elbow.coulomb': 0.007, 'elbow.placement.x': 0.001}  # fmt: skip
    for name, value in new.items():
        model = tree.set_leaf(model, name, value)
    return model


def test_the_urdf_written_back_gives_the_same_dynamics(folder):
    model = changed(tree.load_urdf(folder / 'arm.urdf'))
    written = tree.load_urdf(write_urdf(model, folder / 'arm.urdf', folder / 'out' / 'new.urdf', origin='a test'))
    rng = np.random.default_rng(0)
    for _ in range(5):
        q, v, a = rng.standard_normal((3, 2))
        np.testing.assert_allclose(
            tree.inverse_dynamics(written, q, v, a), tree.inverse_dynamics(model, q, v, a), rtol=1e-12, atol=1e-14
        )
    for field in ('damping', 'coulomb', 'mass', 'center_of_mass', 'placement'):
        np.testing.assert_allclose(getattr(written, field), getattr(model, field), rtol=0, atol=0)
    np.testing.assert_allclose(written.inertia, model.inertia, rtol=1e-13, atol=1e-18)


def test_nothing_else_of_the_urdf_changes(folder):
    model = tree.load_urdf(folder / 'arm.urdf')
    same = write_urdf(model, folder / 'arm.urdf', folder / 'same.urdf').read_text()
    assert same.replace('\n<!-- identified by multibody_estimation -->', '') == URDF
    one = tree.set_leaf(model, 'lower.mass', 0.4)
    text = write_urdf(one, folder / 'arm.urdf', folder / 'one.urdf').read_text()
    assert text.replace('\n<!-- identified by multibody_estimation -->', '') == URDF.replace("value = '0.3'", "value = '0.4'")


def test_a_file_for_another_robot_is_refused(folder):
    other = tree.build(
        [tree.Link('a'), tree.Link('b', 1.0, inertia=(1, 1, 1))],
        [
            tree.Joint('shoulder', 'a', 'b'),
        ],
    )
    with pytest.raises(EstimationError):
        write_urdf(other, folder / 'arm.urdf', folder / 'x.urdf')
