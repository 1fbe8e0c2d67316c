# SPDX-License-Identifier: Apache-2.0
"""The compiled inverse dynamics, mass matrix and forward dynamics against their JAX twins: values, batches of every kind, derivatives both ways."""

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import tree_dynamics
from multibody_estimation.tree import dynamics
from multibody_estimation.tree.bodies import bodies
from multibody_estimation.tree.forward_dynamics import _articulated

pytestmark = pytest.mark.skipif(not tree_dynamics.ready(), reason='the compiled kernels were not built')


def robot(floating):
    """One of every kind of joint, a branch, and a fixed joint."""
    kinds = ['revolute', 'prismatic', 'spherical', 'fixed', 'floating', 'revolute']
    rng = np.random.default_rng(3)
    links = [tree.Link('link0', 2.0, (0.1, 0, 0), (0.2, 0.3, 0.4))]
    joints = []
    for i, kind in enumerate(kinds):
        links.append(
            tree.Link(f'link{i + 1}', rng.uniform(0.5, 2), tuple(0.2 * rng.normal(size=3)), rng.uniform(0.2, 0.3, size=3))
        )
        joints.append(
            tree.Joint(f'joint{i}', f'link{[0, 1, 2, 1, 4, 5][i]}', f'link{i + 1}', kind, tuple(rng.normal(size=3)),
                       tuple(rng.normal(size=3)), tuple(rng.normal(size=3)), armature=0.1 * i)
        )  # fmt: skip
    return tree.build(links, joints, floating=floating, gravity_tilt=(0.1, -0.2))


def samples(model, *shape):
    rng = np.random.default_rng(7)
    q = rng.normal(size=(*shape, model.nq))
    v, a = rng.normal(size=(2, *shape, model.nv))
    return jnp.asarray(q), jnp.asarray(v), jnp.asarray(a)


@pytest.fixture(scope='module', params=[False, True], ids=['fixed', 'floating'])
def model(request):
    return robot(request.param)


def twin(model, q, v, a):
    return dynamics._inverse_dynamics(model, q, v, a, np.zeros((0, 6)))


def forward_twin(model, q, v, tau):
    return _articulated(model, q, v, tau, np.zeros((0, 6)))


def close(a, b, tolerance=1e-11):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * max(1.0, np.abs(y).max())), a, b)


@pytest.mark.parametrize('n', [1, 9, 15])
def test_batches_of_any_size_equal_the_twin(model, n):
    q, v, a = samples(model, n)
    torques, expected = jax.jit(jax.vmap(lambda *x: (tree.inverse_dynamics(model, *x), twin(model, *x))))(q, v, a)
    close(torques, expected)
    inertia, expected = jax.jit(jax.vmap(lambda q: (tree.mass_matrix(model, q), dynamics._mass_matrix(model, q))))(q)
    close(inertia, expected)
    accelerations, expected = jax.jit(jax.vmap(lambda *x: (tree.forward_dynamics(model, *x), forward_twin(model, *x))))(q, v, a)
    close(accelerations, expected, 1e-9)


def test_nested_batches_and_shared_arguments_equal_the_twin(model):
    q, v, a = samples(model, 3, 5)
    nested = jax.jit(jax.vmap(jax.vmap(lambda q, v, a: tree.inverse_dynamics(model, q, v, a), (0, 0, None)), (0, None, 0)))
    expected = jax.jit(jax.vmap(jax.vmap(lambda q, v, a: twin(model, q, v, a), (0, 0, None)), (0, None, 0)))
    close(nested(q, v[0], a[:, 0]), expected(q, v[0], a[:, 0]))


def test_batches_of_models_equal_the_twin(model):
    q, v, a = samples(model, 4)
    mass = jnp.asarray(model.mass) * jnp.linspace(0.5, 2, 4)[:, None]
    gravity = jnp.asarray(model.gravity) * jnp.linspace(-1, 2, 4)[:, None]

    def both(m, g, q, v, a):
        other = model.replace(mass=m, gravity=g)
        mine = tree.inverse_dynamics(other, q, v, a), tree.mass_matrix(other, q), tree.forward_dynamics(other, q, v, a)
        return mine, (twin(other, q, v, a), dynamics._mass_matrix(other, q), forward_twin(other, q, v, a))

    close(*jax.jit(jax.vmap(both))(mass, gravity, q, v, a), 1e-9)


def test_angles_far_from_zero_are_reduced_exactly():
    model = tree.build(
        [tree.Link('base'), tree.Link('arm', 1.0, (0.3, 0, 0), (0.1, 0.1, 0.1))],
        [tree.Joint('turn', 'base', 'arm', axis=(0, 1, 0))],
    )
    angles = np.r_[np.linspace(-20, 20, 4001), 1e4 + np.linspace(0, 7, 50), -9.9e4, 3e5, -1e9]
    torque = jax.vmap(lambda q: tree.inverse_dynamics(model, q[None], np.zeros(1), np.zeros(1))[0])(jnp.asarray(angles))
    np.testing.assert_allclose(torque, -9.81 * 0.3 * np.cos(angles), atol=2e-15)


def test_derivatives_in_both_modes_are_those_of_the_twin(model):
    q, v, a = (x[0] for x in samples(model, 1))

    def through(f):
        return lambda mass, q, v, a: f(model.replace(mass=mass), q, v, a)

    mass = jnp.asarray(model.mass)
    for mode in (jax.jacfwd, jax.jacrev):
        close(
            jax.jit(mode(through(tree.inverse_dynamics), (0, 1, 2, 3)))(mass, q, v, a),
            jax.jit(mode(through(twin), (0, 1, 2, 3)))(mass, q, v, a),
        )
    close(
        jax.jit(jax.jacfwd(lambda q: tree.mass_matrix(model, q)))(q),
        jax.jit(jax.jacfwd(lambda q: dynamics._mass_matrix(model, q)))(q),
    )


def test_derivatives_of_forward_dynamics_are_those_of_the_articulated_sweeps():
    model = robot(True)
    q, v, tau = (x[0] for x in samples(model, 1))
    wrench = jnp.linspace(-1, 1, 6)

    def through(mass, v, tau, wrench):
        return tree.forward_dynamics(model.replace(mass=mass), q, v, tau, {'link2': wrench})

    def sweeps(mass, v, tau, wrench):
        other = model.replace(mass=mass)
        return _articulated(other, q, v, tau, dynamics.wrenches_on_bodies(other, bodies(other), {'link2': wrench}))

    mass = jnp.asarray(model.mass)
    close(*(jax.jit(jax.jacfwd(f, (0, 1, 2, 3)))(mass, v, tau, wrench) for f in (through, sweeps)), 1e-8)
    loss = jax.jit(jax.grad(lambda v: (through(mass, v, tau, wrench) ** 2).sum()))(v)
    close(loss, jax.jit(jax.grad(lambda v: (sweeps(mass, v, tau, wrench) ** 2).sum()))(v), 1e-8)


def test_second_derivatives_and_derivatives_of_batches_exist():
    model = robot(True)
    q, v, a = samples(model, 3)
    direct = jax.jit(jax.hessian(lambda v: tree.inverse_dynamics(model, q[0], v, a[0]).sum()))(v[0])
    close(direct, jax.jit(jax.hessian(lambda v: twin(model, q[0], v, a[0]).sum()))(v[0]))
    gradient = jax.jit(jax.grad(lambda v: (jax.vmap(lambda q, v, a: tree.inverse_dynamics(model, q, v, a))(q, v, a) ** 2).sum()))(
        v
    )
    close(gradient, jax.jit(jax.grad(lambda v: (jax.vmap(lambda q, v, a: twin(model, q, v, a))(q, v, a) ** 2).sum()))(v))
