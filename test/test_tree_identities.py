# SPDX-License-Identifier: Apache-2.0
"""Identities that any rigid-body dynamics obeys, derivatives against finite differences, the unrolled form against the general one."""

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry.quaternion import from_matrix
from multibody_estimation.geometry.spatial import rotation_from_quaternion
from multibody_estimation.tree.bodies import true_gravity
from multibody_estimation.tree.compiled import topology


def robot(floating=True, kinds=('revolute', 'prismatic', 'spherical', 'fixed', 'revolute', 'revolute'), seed=5):
    """A branching robot with offset axes."""
    rng = np.random.default_rng(seed)
    links, joints = [tree.Link('link0', 2.0, (0.1, 0, 0), (0.2, 0.3, 0.4))], []
    for i, kind in enumerate(kinds):
        X = rng.normal(size=(3, 3)) * 0.2
        second = X @ X.T + 1e-3 * np.eye(3)
        links.append(
            tree.Link(f'link{i + 1}', rng.uniform(0.5, 2), tuple(0.2 * rng.normal(size=3)), np.trace(second) * np.eye(3) - second)
        )
        joints.append(tree.Joint(
            f'joint{i}', f'link{[0, 1, 2, 1, 4, 5][i]}', f'link{i + 1}', kind, tuple(rng.normal(size=3)), tuple(rng.normal(size=3)),
            tuple(rng.normal(size=3)), armature=0.05 * i, damping=0.1 * i, stiffness=0.3, spring_rest=0.1))  # fmt: skip
    return tree.build(links, joints, floating=floating, gravity_tilt=(0.1, -0.2))


@pytest.fixture(scope='module', params=[False, True], ids=['fixed', 'floating'])
def model(request):
    return robot(request.param)


@pytest.fixture(scope='module')
def state(model):
    rng = np.random.default_rng(0)
    q = np.asarray(tree.advance(model, tree.neutral_position(model), rng.normal(size=model.nv)))
    return q, *rng.normal(size=(2, model.nv))


def moved(model, q, v, time):
    return tree.advance(model, q, jnp.asarray(v) * time)


def test_mass_matrix_is_symmetric_and_positive_definite(model, state):
    M = np.asarray(tree.mass_matrix(model, state[0]))
    np.testing.assert_array_equal(M, M.T)
    assert np.linalg.eigvalsh(M)[0] > 1e-3


def test_kinetic_energy_is_half_of_velocity_mass_velocity(model, state):
    q, v, _ = state
    np.testing.assert_allclose(tree.kinetic_energy(model, q, v), v @ tree.mass_matrix(model, q) @ v / 2, rtol=1e-13)


def test_rate_of_the_mass_matrix_less_twice_coriolis_does_no_work(model, state):
    # v'(dM/dt - 2C)v = 0 with C v = bias - gravity, for all v: the diagonal of a skew matrix. Skewness off the diagonal follows by
    # polarisation: f(v) = v' dM/dt(v) v - 2 v' C(v) v is cubic, and vanishing for all v it vanishes in every coefficient.
    q = state[0]

    @jax.jit
    def leak(v):
        _, rate = jax.jvp(lambda t: tree.mass_matrix(model, moved(model, q, v, t)), (0.0,), (1.0,))
        coriolis = tree.bias_forces(model, q, v) - tree.gravity_torques(model, q)
        return v @ rate @ v - 2 * v @ coriolis, v @ rate @ v

    for v in np.random.default_rng(1).normal(size=(10, model.nv)):
        difference, size = leak(v)
        assert abs(difference) < 1e-11 * max(1.0, abs(size))
        assert abs(size) > 1e-3


def test_coriolis_matrix_of_christoffel_symbols_makes_a_skew_matrix():
    model = robot(False, ('revolute', 'prismatic', 'revolute', 'fixed', 'revolute', 'revolute'))
    q, v = np.random.default_rng(2).normal(size=(2, model.nv))
    dM = np.asarray(jax.jit(jax.jacfwd(lambda q: tree.mass_matrix(model, q)))(q))  # (i, j, k) = dM_ij/dq_k
    C = 0.5 * (dM @ v + np.einsum('ikj,k->ij', dM, v) - np.einsum('jki,k->ij', dM, v))
    np.testing.assert_allclose(C @ v, tree.bias_forces(model, q, v) - tree.gravity_torques(model, q), atol=1e-12)
    skew = dM @ v - 2 * C
    np.testing.assert_allclose(skew, -skew.T, atol=1e-12)


def test_inverse_and_forward_dynamics_are_inverses(model, state):
    q, v, a = state
    wrenches = {'link2': np.arange(6.0), 'link4': -np.ones(6)}
    torque = tree.inverse_dynamics(model, q, v, a, wrenches)
    np.testing.assert_allclose(jax.jit(tree.forward_dynamics)(model, q, v, torque, wrenches), a, atol=1e-11)
    np.testing.assert_allclose(tree.mass_matrix(model, q) @ a + tree.bias_forces(model, q, v, wrenches), torque, atol=1e-11)


def test_regressor_times_parameters_is_inverse_dynamics(model, state):
    q, v, a = state
    Y = jax.jit(tree.joint_torque_regressor)(model, q, v, a)
    assert Y.shape == (model.nv, 10 * len(model.link_names))
    rotor = tree.inverse_dynamics(model, q, v, a) - tree.inverse_dynamics(model.replace(armature=0 * model.armature), q, v, a)
    np.testing.assert_allclose(
        Y @ tree.inertial_parameters(model).ravel() + rotor, tree.inverse_dynamics(model, q, v, a), atol=1e-11
    )


def test_regressor_is_the_derivative_with_respect_to_the_parameters(model, state):
    q, v, a = state
    p = jnp.asarray(tree.inertial_parameters(model))
    torques = jax.jit(jax.jacfwd(lambda p: tree.inverse_dynamics(tree.with_inertial_parameters(model, p), q, v, a)))
    np.testing.assert_allclose(torques(p).reshape(model.nv, -1), tree.joint_torque_regressor(model, q, v, a), atol=1e-11)


def test_inertial_parameters_go_there_and_back(model):
    p = tree.inertial_parameters(model)
    again = tree.with_inertial_parameters(model, p)
    for field in ('mass', 'center_of_mass', 'inertia'):
        np.testing.assert_allclose(getattr(again, field), getattr(model, field), atol=1e-14)


def test_power_of_the_torques_is_the_rate_of_energy(model, state):
    q, v, a = state
    torque = np.asarray(tree.inverse_dynamics(model, q, v, a) - tree.spring_torques(model, q))

    def energy(t):  # velocity v + a t along the motion: exact to first order, which is what the rate needs
        here = moved(model, q, v, t)
        return tree.kinetic_energy(model, here, v + a * t) + tree.potential_energy(model, here)

    _, rate = jax.jit(lambda: jax.jvp(energy, (0.0,), (1.0,)))()
    np.testing.assert_allclose(v @ torque, rate, atol=1e-11)


def test_wrench_power_is_that_of_the_moving_link(model, state):
    q, v, _ = state
    wrench = np.array([1.0, -2.0, 0.5, 0.3, 0.2, -0.7])
    velocity = tree.velocities(model, q, v)[model.link_index('link4')]
    np.testing.assert_allclose(v @ tree.external_forces(model, q, {'link4': wrench}), wrench @ velocity, rtol=1e-12)
    # At a fixed joint, at the link's origin and in world axes the Jacobian says the same.
    R = tree.link_pose(model, q, 'link4')[:3, :3]
    J = tree.jacobian(model, q, 'link4')
    np.testing.assert_allclose(
        J.T @ jnp.concatenate([R @ wrench[:3], R @ wrench[3:]]), tree.external_forces(model, q, {'link4': wrench}), atol=1e-12
    )


def test_momentum_rate_is_contact_plus_weight(model, state):
    q, v, a = state
    rate = tree.centroidal_momentum_rate(model, q, v, a)

    def momentum(t):
        return tree.centroidal_momentum(model, moved(model, q, v, t), v + a * t)

    np.testing.assert_allclose(rate, jax.jvp(momentum, (0.0,), (1.0,))[1], atol=1e-11)
    if model.floating:
        # The base wrench of inverse dynamics, moved to the centre of mass, and the weight make the momentum change.
        f = np.asarray(tree.inverse_dynamics(model, q, v, a))[:6]
        R = np.asarray(rotation_from_quaternion(q[3:7]))
        force, arm = R @ f[:3], q[:3] - np.asarray(tree.center_of_mass(model, q))
        weight = np.asarray(tree.total_mass(model) * true_gravity(model))
        np.testing.assert_allclose(rate, np.r_[force + weight, R @ f[3:] + np.cross(arm, force)], atol=1e-10)


def test_derivatives_agree_with_finite_differences():
    model, rng = robot(), np.random.default_rng(0)
    q = np.asarray(tree.advance(model, tree.neutral_position(model), rng.normal(size=model.nv)))
    v, a = rng.normal(size=(2, model.nv))
    step = 1e-6

    def everything(d, dv, da, dm):
        here = tree.advance(model, q, d)
        other = model.replace(mass=model.mass + dm)
        return jnp.concatenate([
            tree.inverse_dynamics(other, here, v + dv, a + da), tree.forward_dynamics(other, here, v + dv, a + da),
            tree.mass_matrix(other, here).ravel(), tree.centroidal_momentum(other, here, v + dv),
            tree.accelerations(other, here, v + dv, a + da).ravel()])  # fmt: skip

    zeros = [jnp.zeros(model.nv)] * 3 + [jnp.zeros(len(model.link_names))]
    run = jax.jit(everything)
    forward = jax.jit(jax.jacfwd(everything, (0, 1, 2, 3)))(*zeros)
    for k, J in enumerate(forward):
        assert np.isfinite(J).all()
        for i in range(J.shape[1]):
            ends = [list(zeros), list(zeros)]
            ends[0][k], ends[1][k] = zeros[k].at[i].set(step), zeros[k].at[i].set(-step)
            numeric = (run(*ends[0]) - run(*ends[1])) / (2 * step)
            np.testing.assert_allclose(J[:, i], numeric, atol=2e-7 * max(1.0, np.abs(numeric).max()))


def test_the_unrolled_form_equals_the_general_one():
    model = robot(False, ('revolute', 'prismatic', 'revolute', 'fixed', 'prismatic', 'revolute'))
    q, v, a = np.random.default_rng(4).normal(size=(3, model.nv, 11))
    general = jax.vmap(lambda *x: tree.inverse_dynamics(model, *x), 1, 1)(q, v, a)
    np.testing.assert_allclose(tree.small.inverse_dynamics(model, q, v, a), general, atol=1e-12)
    numbers = {
        'link2.mass': 1.7,
        'link2.inertia.xy': 0.01,
        'joint0.armature': 0.3,
        'joint1.placement.x': 0.5,
        'joint2.placement.yaw': 0.3,
        'gravity.tilt_x': 0.2,
    }
    changed = model
    for name, x in numbers.items():
        changed = tree.set_leaf(changed, name, x)
        assert float(tree.get_leaf(changed, name)) == x
    traced = jax.jit(lambda n: tree.small.inverse_dynamics(model, q, v, a, n))(numbers)
    general = jax.jit(jax.vmap(lambda *x: tree.inverse_dynamics(changed, *x), 1, 1))(q, v, a)
    np.testing.assert_allclose(traced, general, atol=1e-12)


@pytest.mark.parametrize('base', ['link3', 'link6'])
def test_a_tree_held_by_another_link_moves_the_same(base):
    one = robot(True, ('revolute', 'prismatic', 'revolute', 'fixed', 'prismatic', 'revolute'))
    links = [tree.Link(n, one.mass[i], one.center_of_mass[i], one.inertia[i]) for i, n in enumerate(one.link_names)]
    rebuilt = _rebuild(one, links, base)
    rng = np.random.default_rng(6)
    q = np.asarray(tree.advance(one, tree.neutral_position(one), rng.normal(size=one.nv)))
    v, a = rng.normal(size=(2, one.nv))
    R, p = tree.forward_kinematics(one, q)
    k = one.link_index(base)
    q2 = np.r_[p[k], from_matrix(R[k]), q[7:]]
    v2 = np.r_[tree.velocities(one, q, v)[k], v[6:]]
    A = np.array(tree.accelerations(one, q, v, a)[k])
    A[:3] -= np.cross(v2[3:6], v2[:3])  # the velocity vector holds the base's velocity in the base's own axes
    a2 = np.r_[A, a[6:]]
    there = np.r_[np.zeros(6), a[6:]]  # no base wrench: then the joints feel the same whichever link is called the base

    @jax.jit
    def seen(model, q, v, a):
        order = np.array([model.link_index(n) for n in one.link_names])
        R, p = tree.forward_kinematics(model, q)
        return {
            'poses': (R[order], p[order]),
            'velocities': tree.velocities(model, q, v)[order],
            'accelerations': tree.accelerations(model, q, v, a)[order],
            'momentum rate': tree.centroidal_momentum_rate(model, q, v, a),
            'energy': tree.kinetic_energy(model, q, v) + tree.potential_energy(model, q),
            'joint accelerations': tree.forward_dynamics(model, q, v, there)[6:],
        }

    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-10), seen(rebuilt, q2, v2, a2), seen(one, q, v, a))


def _rebuild(one, links, base):
    joints = []
    for i, name in enumerate(one.structure.link_joint_names):
        if not name:
            continue
        moving = name in one.joint_names
        j = one.joint_names.index(name) if moving else 0
        joints.append(tree.Joint(
            name, one.link_names[one.parents[i]], one.link_names[i], one.joint_types[j] if moving else 'fixed', tuple(one.axis[j]),
            tuple(one.placement[i]), tuple(one.placement_rpy[i]), armature=one.armature[j] if moving else 0.0,
            stiffness=one.stiffness[j], spring_rest=one.spring_rest[j]))  # fmt: skip
    tilt = tuple(one.gravity_tilt)
    return tree.build(links, joints, floating=True, base=base, order=one.joint_names, gravity_tilt=tilt)


def test_every_joint_stands_once_in_what_the_kernel_is_told(model):
    top = topology(model.structure)
    assert sorted(top.iv[1:].tolist()) == sorted({model.joint_velocities(n).start for n in model.joint_names})
    assert (top.parent[1:] < np.arange(1, len(top.parent))).all()
