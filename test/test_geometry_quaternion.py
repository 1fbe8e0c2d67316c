# SPDX-License-Identifier: Apache-2.0
"""Quaternions against SciPy's rotations, laws of the exponential, and derivatives at the identity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import quaternion as qt

exp, log = jax.jit(qt.exp), jax.jit(qt.log)
boxplus, boxminus = jax.jit(qt.boxplus), jax.jit(qt.boxminus)
vectors = st.tuples(*[st.floats(-3, 3)] * 3).map(np.array)


def scipy(q):
    """Rotation of a scalar-first quaternion."""
    return Rotation.from_quat(np.roll(np.asarray(q), -1, axis=-1))


def random_quaternions(n, seed=0):
    q = np.random.default_rng(seed).normal(size=(n, 4))
    return jnp.asarray(q / np.linalg.norm(q, axis=1, keepdims=True))


def test_products_rotations_and_matrices_agree_with_scipy():
    p, q = random_quaternions(50), random_quaternions(50, 1)
    v = np.random.default_rng(2).normal(size=(50, 3))
    np.testing.assert_allclose(qt.to_matrix(p), scipy(p).as_matrix(), atol=1e-14)
    np.testing.assert_allclose(qt.to_matrix(qt.multiply(p, q)), (scipy(p) * scipy(q)).as_matrix(), atol=1e-14)
    np.testing.assert_allclose(qt.rotate(p, jnp.asarray(v)), scipy(p).apply(v), atol=1e-14)
    back = qt.from_matrix(qt.to_matrix(p))
    np.testing.assert_allclose(back, np.where(np.asarray(p[:, :1]) < 0, -p, p), atol=1e-14)


@pytest.mark.parametrize('axis', range(3))
def test_half_turns_survive_the_way_through_a_matrix(axis):
    R = Rotation.from_rotvec(np.pi * np.eye(3)[axis]).as_matrix()
    np.testing.assert_allclose(qt.to_matrix(qt.from_matrix(jnp.asarray(R))), R, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(vectors)
def test_exponential_agrees_with_scipy_and_the_logarithm_undoes_it(v):
    q = exp(v)
    np.testing.assert_allclose(qt.to_matrix(q), Rotation.from_rotvec(v).as_matrix(), atol=1e-13)
    np.testing.assert_allclose(log(q), Rotation.from_rotvec(v).as_rotvec(), atol=1e-12)
    np.testing.assert_allclose(log(-q), log(q), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(vectors, vectors, st.floats(-9, 0))
def test_boxplus_undoes_boxminus_down_to_tiny_steps(r, turn, power):
    size = 10.0**power
    start = jnp.concatenate([jnp.asarray(r), random_quaternions(1, 5)[0]])
    step = jnp.concatenate([jnp.asarray(r), jnp.asarray(turn) * 0.5]) * size
    np.testing.assert_allclose(boxminus(boxplus(start, step), start), step, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize('size', [0.0, 1e-12, 1e-6, 1e-3, 1.9e-3, 2.1e-3, 1e-2, 1.0, 3.0])
def test_derivatives_are_right_at_and_around_the_identity(size):
    """Both branches and their seam, in both modes, against complex-step-free closed forms of dExp."""
    v = jnp.asarray(size * np.array([0.6, -0.64, 0.48]))
    forward, backward = jax.jacfwd(qt.exp)(v), jax.jacrev(qt.exp)(v)
    assert np.isfinite(forward).all()
    np.testing.assert_allclose(forward, backward, atol=1e-15)
    # dExp by the right Jacobian: d(q) = q * (0, Jr dv / 2)
    K = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    t = max(size, 1e-300)
    a, b = ((1 - np.cos(t)) / t**2, (t - np.sin(t)) / t**3) if size > 1e-2 else (0.5 - t * t / 24, 1 / 6 - t * t / 120)
    right = np.eye(3) - a * K + b * K @ K
    expected = np.stack([qt.multiply(exp(v), jnp.asarray(np.r_[0, right[:, i] / 2])) for i in range(3)], axis=1)
    np.testing.assert_allclose(forward, expected, atol=1e-9 if size > 1e-3 else 1e-12)
    round_trip = jax.jacfwd(lambda x: qt.log(qt.exp(x)))(v)
    np.testing.assert_allclose(round_trip, np.eye(3), atol=1e-9)


def test_second_derivatives_exist_at_the_identity():
    assert np.isfinite(jax.hessian(lambda x: jnp.sum(qt.exp(x) ** 3))(jnp.zeros(3))).all()
    assert np.isfinite(jax.hessian(lambda x: jnp.sum(qt.log(qt.exp(x)) ** 3))(jnp.zeros(3))).all()


def test_angular_velocity_in_the_body_frame_advances_from_the_right():
    """The one convention: e+ = e Exp(h w) with w in body axes."""
    e, w, h = random_quaternions(1, 8)[0], jnp.array([0.3, -2.0, 1.0]), 1e-6
    rate = (qt.to_matrix(qt.multiply(e, qt.exp(h * w))) - qt.to_matrix(e)) / h
    K = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
    np.testing.assert_allclose(rate, np.asarray(qt.to_matrix(e)) @ K, atol=1e-5)
