# SPDX-License-Identifier: Apache-2.0
"""Friction, springs, motors, gravity's tilt and the names of numbers: closed forms and exact bookkeeping."""

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.tree.bodies import true_gravity

NUMBERS = {'damping': 0.3, 'coulomb': 0.5, 'stribeck': 0.2, 'stribeck_velocity': 0.1, 'friction_velocity': 0.02, 'stiffness': 4.0,
           'spring_rest': 0.25, 'motor_gain': 1.5, 'back_emf': 0.07}  # fmt: skip


def robot(law='smooth', floating=False):
    links = [tree.Link(n, 1.0, (0, 0, 0.1), (0.02, 0.02, 0.02)) for n in ('base', 'a', 'b', 'c')]
    joints = [
        tree.Joint('turn', 'base', 'a', axis=(0, 1, 0), **NUMBERS),
        tree.Joint('ball', 'a', 'b', 'spherical', **NUMBERS),
        tree.Joint('slide', 'b', 'c', 'prismatic', **NUMBERS),
    ]
    sensors = [tree.Sensor('imu', 'imu', 'c', (0.1, 0, 0))]
    return tree.build(links, joints, sensors, friction_law=law, floating=floating)


@pytest.mark.parametrize('floating', [False, True])
def test_friction_springs_and_motors_follow_their_laws(floating):
    model, base = robot(floating=floating), 6 * floating
    v = np.r_[np.ones(base), [0.05, -0.2, 0.0, 3.0, -0.01]]
    n = NUMBERS
    u = v[base:]
    dry = n['coulomb'] + n['stribeck'] * np.exp(-((u / n['stribeck_velocity']) ** 2))
    expected = -n['damping'] * u - dry * np.tanh(u / n['friction_velocity'])
    np.testing.assert_allclose(tree.friction_torques(model, v), np.r_[np.zeros(base), expected], atol=1e-15)
    exact = np.asarray(tree.friction_torques(robot('stick', floating), v))[base:]
    np.testing.assert_allclose(exact, -n['damping'] * u - dry * np.sign(u), atol=1e-15)
    q = tree.neutral_position(model)
    q[7 * floating], q[-1] = 0.4, -0.3
    spring = np.zeros(model.nv)
    spring[base], spring[-1] = -4.0 * (0.4 - 0.25), -4.0 * (-0.3 - 0.25)  # a ball joint has no spring
    np.testing.assert_allclose(tree.spring_torques(model, q), spring, atol=1e-15)
    command = np.arange(5.0)
    motors = np.r_[np.zeros(base), 1.5 * command - 0.07 * u]
    np.testing.assert_allclose(tree.motor_torques(model, command, v), motors, atol=1e-15)
    total = np.asarray(tree.friction_torques(model, v)) + spring + motors
    np.testing.assert_allclose(tree.joint_torques(model, q, v, command), total, atol=1e-14)


def test_friction_has_finite_derivatives_at_rest():
    model = robot()
    slope = jax.jacfwd(lambda v: tree.friction_torques(model, v))(jnp.zeros(model.nv))
    np.testing.assert_allclose(np.diag(slope), -0.3 - 0.7 / 0.02)


def test_gravity_is_tilted_about_x_after_y():
    model = robot().replace(gravity_tilt=np.array([0.3, -0.2]))
    x, y = 0.3, -0.2
    Rx = np.array([[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]])
    Ry = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    np.testing.assert_allclose(true_gravity(model), Rx @ Ry @ model.gravity, atol=1e-15)
    q = tree.neutral_position(model)
    straight = model.replace(gravity=Rx @ Ry @ model.gravity, gravity_tilt=np.zeros(2))
    np.testing.assert_allclose(tree.gravity_torques(model, q), tree.gravity_torques(straight, q), atol=1e-14)


def test_every_name_stands_for_its_own_number():
    model = robot()
    flat = np.concatenate([np.ravel(x) for x in jax.tree.leaves(model)])
    places = set()
    for name in tree.leaf_names(model):
        changed = tree.set_leaf(model, name, 123.0)
        assert float(tree.get_leaf(changed, name)) == 123.0
        moved = np.flatnonzero(np.concatenate([np.ravel(x) for x in jax.tree.leaves(changed)]) != flat)
        off_diagonal = name.split('.')[-2:][0] == 'inertia' and name[-1] != name[-2]
        assert len(moved) == (2 if off_diagonal else 1)
        assert not places & set(moved.tolist())
        places |= set(moved.tolist())
    assert len(places) == flat.size - 6  # nothing is without a name but the placement of the base, which no joint holds


def test_numbers_can_be_traced_and_differentiated_by_name():
    model, q = robot(), np.r_[0.3, 1, 0, 0, 0, 0.1]
    slope = jax.jit(jax.grad(lambda m: tree.gravity_torques(tree.set_leaf(model, 'c.mass', m), q)[0]))(1.0)
    step = 1e-4
    ends = [tree.gravity_torques(tree.set_leaf(model, 'c.mass', 1.0 + d), q)[0] for d in (step, -step)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-8)
