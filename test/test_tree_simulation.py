# SPDX-License-Identifier: Apache-2.0
"""Simulation against closed forms, brute force and conservation laws; friction that really sticks."""

import itertools

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.tree.sticking import stick_or_slide

BOTH = pytest.mark.parametrize('integrator', ['rk4', 'symplectic'])


def slider(**numbers):
    """A mass of 2 kg on a horizontal rail."""
    return tree.build(
        [tree.Link('rail'), tree.Link('mass', 2.0, (0, 0, 0), (0.01, 0.01, 0.01))],
        [tree.Joint('slide', 'rail', 'mass', 'prismatic', (1, 0, 0), **numbers)],
        friction_law='stick',
    )


def double_pendulum(law='smooth', **numbers):
    links = [tree.Link('base'), tree.Link('a', 1.0, (0, 0, -0.3), (0.01,) * 3), tree.Link('b', 0.5, (0, 0, -0.2), (0.01,) * 3)]
    joints = [
        tree.Joint('shoulder', 'base', 'a', axis=(0, 1, 0), **numbers),
        tree.Joint('elbow', 'a', 'b', axis=(0, 1, 0), position=(0, 0, -0.5), **numbers),
    ]
    return tree.build(links, joints, friction_law=law)


def astronaut():
    """A floating body with a ball joint, a hinge and a slide, and no gravity."""
    links = [tree.Link(n, m, c, (0.3, 0.2, 0.25)) for n, m, c in [
        ('trunk', 3.0, (0.1, 0, 0)), ('leg', 1.0, (0, 0, -0.4)), ('arm', 0.7, (0.2, 0, 0)), ('hand', 0.4, (0.1, 0.1, 0))]]  # fmt: skip
    joints = [
        tree.Joint('hip', 'trunk', 'leg', 'spherical', position=(0, 0, -0.3)),
        tree.Joint('shoulder', 'trunk', 'arm', axis=(0, 0, 1), position=(0, 0.2, 0.3)),
        tree.Joint('wrist', 'arm', 'hand', 'prismatic', axis=(1, 0, 0), stiffness=20.0),
    ]
    return tree.build(links, joints, floating=True, gravity=(0, 0, 0))


def energies(model, motion):
    return np.array(
        jax.vmap(lambda q, v: tree.kinetic_energy(model, q, v) + tree.potential_energy(model, q))(
            motion.position, motion.velocity
        )
    )


@BOTH
def test_sliding_mass_stops_where_friction_says_and_stays_there_exactly(integrator):
    model, speed, force = slider(coulomb=1.5), 0.8, 1.5
    motion = tree.simulate(model, [0.0], [speed], 3.0, 1e-3, integrator=integrator)
    stop = speed / (force / 2.0)
    moving = motion.time < stop
    np.testing.assert_allclose(
        motion.position[moving, 0],
        speed * motion.time[moving] - force / 4 * motion.time[moving] ** 2,
        atol=1e-12 if integrator == 'rk4' else 1e-6,
    )
    rest = motion.time > stop + 2e-3
    assert (motion.velocity[rest] == 0).all()
    assert (motion.position[rest] == motion.position[-1]).all()
    assert abs(motion.position[-1, 0] - speed**2 / force) < (1e-9 if integrator == 'rk4' else 2e-6)


@BOTH
def test_mass_at_rest_moves_only_when_the_drive_exceeds_breakaway(integrator):
    model = slider(coulomb=1.0, stribeck=0.5, stribeck_velocity=0.05)
    ramp = np.linspace(0, 3, 3000)[:, None]  # N, over 3 s: breakaway at 1.5 N
    motion = tree.simulate(model, [0.2], [0.0], 3.0, 1e-3, command=ramp, integrator=integrator)
    before = motion.time[:-1] <= 1.499
    assert (motion.velocity[:-1][before] == 0).all()
    assert (motion.position[:-1][before] == 0.2).all()
    assert motion.velocity[-1, 0] > 0.5


@BOTH
def test_pendulum_with_dry_friction_comes_to_rest_off_the_vertical_and_holds(integrator):
    model = double_pendulum('stick', coulomb=0.5)
    motion = tree.simulate(model, [1.0, 0.5], [0.0, 0.0], 6.0, 1e-3, integrator=integrator)
    assert (motion.velocity[-500:] == 0).all()
    holding = np.asarray(tree.gravity_torques(model, motion.position[-1]))
    assert (np.abs(holding) <= 0.5).all() and np.abs(holding).max() > 1e-3
    fine = tree.simulate(model, [1.0, 0.5], [0.0, 0.0], 6.0, 1e-4, integrator=integrator)
    np.testing.assert_allclose(motion.position[-1], fine.position[-1], atol=1e-4)


def test_one_joint_sticks_while_another_slides():
    model = double_pendulum('stick', coulomb=0.0)
    model = model.replace(coulomb=np.array([8.0, 0.0]))  # holds the shoulder, not the elbow
    motion = tree.simulate(model, [0.3, 1.0], [0.0, 0.0], 2.0, 1e-3)
    assert (motion.position[:, 0] == 0.3).all()
    alone = tree.simulate(tree.build(
        [tree.Link('a'), tree.Link('b', 0.5, (0, 0, -0.2), (0.01,) * 3)],
        [tree.Joint('elbow', 'a', 'b', axis=(0, 1, 0), rpy=(0, 0.3, 0))]), [1.0], [0.0], 2.0, 1e-3)  # fmt: skip
    np.testing.assert_allclose(motion.position[:, 1], alone.position[:, 0], atol=1e-9)


def test_sticking_is_the_one_state_that_brute_force_finds():
    rng = np.random.default_rng(0)
    solve = jax.jit(stick_or_slide)
    for _ in range(60):
        n = 4
        X = rng.normal(size=(n, n))
        M, b, c = X @ X.T + 0.3 * np.eye(n), 2 * rng.normal(size=n), rng.uniform(0.2, 2, size=n)
        found = []
        for state in itertools.product([-1, 0, 1], repeat=n):
            way = np.array(state, float)
            free = way != 0
            x = np.zeros(n)
            x[free] = np.linalg.solve(M[np.ix_(free, free)], (b - c * way)[free]) if free.any() else []
            friction = M @ x - b
            if (x * way >= 0).all() and (np.abs(friction[~free]) <= c[~free]).all():
                found.append((x, ~free))
        x, held, _ = solve(M, b, c, np.ones(n, bool), np.zeros(n))
        assert len(found) == 1
        np.testing.assert_allclose(x, found[0][0], atol=1e-12)
        assert (np.asarray(held) == found[0][1]).all()


def test_runge_kutta_is_of_fourth_order_also_for_quaternions():
    model, rng = astronaut(), np.random.default_rng(1)
    q, v = tree.neutral_position(model), rng.normal(size=model.nv)
    ends = [tree.simulate(model, q, v, 0.4, h).position[-1] for h in (0.02, 0.01, 0.005, 0.00125)]
    errors = [np.abs(x - ends[-1]).max() for x in ends[:3]]
    assert 12 < errors[0] / errors[1] < 20 and 12 < errors[1] / errors[2] < 20


def test_symplectic_rule_is_of_second_order():
    model = double_pendulum()
    ends = [tree.simulate(model, [1.0, 0.5], [0, 0], 0.5, h, integrator='symplectic').position[-1] for h in (0.01, 0.005, 0.0025)]
    true = tree.simulate(model, [1.0, 0.5], [0, 0], 0.5, 0.0005).position[-1]
    errors = [np.abs(x - true).max() for x in ends]
    assert 3.5 < errors[0] / errors[1] < 4.5 and 3.5 < errors[1] / errors[2] < 4.5


@BOTH
def test_momentum_is_conserved_in_free_flight(integrator):
    model, rng = astronaut(), np.random.default_rng(2)
    motion = tree.simulate(model, tree.neutral_position(model), 0.8 * rng.normal(size=model.nv), 2.0, 2e-3, integrator=integrator)

    def about_the_origin(q, v):
        h = tree.centroidal_momentum(model, q, v)
        return jnp.concatenate([h[:3], h[3:] + jnp.cross(tree.center_of_mass(model, q), h[:3])])

    momentum = np.array(jax.jit(jax.vmap(about_the_origin))(motion.position, motion.velocity))
    assert np.abs(momentum[0]).min() > 0.05
    np.testing.assert_allclose(
        momentum, np.broadcast_to(momentum[0], momentum.shape), rtol=0, atol=1e-10 if integrator == 'symplectic' else 1e-8
    )
    norms = np.linalg.norm(motion.position[:, [3, 4, 5, 6]], axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-14)


def test_energy_of_the_symplectic_rule_oscillates_but_does_not_drift():
    model = double_pendulum()
    energy = energies(model, tree.simulate(model, [1.0, 0.5], [0, 0], 60.0, 5e-3, integrator='symplectic'))
    wave = np.ptp(energy[:2000])
    assert np.ptp(energy) < 1.5 * wave and wave < 1e-3
    assert abs(energy[-2000:].mean() - energy[:2000].mean()) < 0.1 * wave


def test_motor_gain_back_emf_and_delay():
    model = slider(motor_gain=4.0, back_emf=3.0, damping=1.0, motor_delay=0.05)
    motion = tree.simulate(model, [0.0], [0.0], 5.0, 1e-3, command=np.full((5000, 1), 2.0))
    assert (motion.velocity[:51] == 0).all() and motion.velocity[52, 0] > 0
    late = motion.time[51:] - 0.05
    np.testing.assert_allclose(motion.velocity[51:, 0], 2.0 * (1 - np.exp(-4.0 / 2.0 * late)), atol=1e-10)


def test_feedback_is_a_function_and_runs_compiled():
    model = slider()
    motion = tree.simulate(model, [1.0], [0.0], 20.0, 1e-3, command=_spring_and_damper)
    assert abs(motion.position[-1, 0]) < 1e-6


def _spring_and_damper(time, position, velocity):
    return -8.0 * position - 4.0 * velocity


@pytest.mark.parametrize('arguments, words', [
    ({'integrator': 'euler'}, 'no integrator'),
    ({'step': 0.0}, 'step'),
    ({'command': np.zeros((3, 1))}, 'need (10, 1)'),
    ({'command': np.full((10, 1), np.nan)}, 'step 0'),
    ({'command': lambda t, q, v: jnp.zeros(2)}, '(1,) is needed'),
    ({'command': np.full((10, 1), 1e305)}, 'broke down'),
])  # fmt: skip
def test_what_cannot_be_simulated_is_said(arguments, words):
    with pytest.raises(EstimationError) as error:
        tree.simulate(slider(), [0.0], [0.0], **({'duration': 0.01, 'step': 1e-3} | arguments))
    assert words in str(error.value)
