# SPDX-License-Identifier: Apache-2.0
"""Lemke's algorithm against an independent pivoting method, its derivative against finite differences, friction against a clip."""

import numpy as np
import pytest

from multibody_estimation._jax import jax, jnp
from multibody_estimation.maximal.lcp import RAY, SOLVED, solve_lcp

solve = jax.jit(solve_lcp)


def murty(A, b, most=10000):
    """Least-index principal pivoting (Murty 1974): finite for every P-matrix, and shares nothing with Lemke's path."""
    n = len(b)
    active = np.zeros(n, bool)
    for _ in range(most):
        z = np.zeros(n)
        if active.any():
            z[active] = np.linalg.solve(A[np.ix_(active, active)], -b[active])
        w = A @ z + b
        wrong = np.flatnonzero(np.where(active, z, w) < -1e-12 * (1 + np.abs(b).max()))
        if not len(wrong):
            return z
        active[wrong[0]] ^= True
    raise AssertionError('no solution')


def projected_gauss_seidel(A, b, sweeps=20000):
    """Projected Gauss-Seidel, for symmetric positive definite A."""
    z = np.zeros(len(b))
    for _ in range(sweeps):
        old = z.copy()
        for i in range(len(b)):
            z[i] = max(0.0, z[i] - (A[i] @ z + b[i]) / A[i, i])
        if np.abs(z - old).max() < 1e-15:
            break
    return z


def p_matrix(rng, n):
    """Unsymmetric with a positive definite symmetric part, badly scaled by rows: a P-matrix that is not positive definite."""
    B, C = rng.normal(size=(n, n)), rng.normal(size=(n, n))
    scale = 10 ** rng.uniform(-1, 1, size=n)
    return (B @ B.T + 0.1 * np.eye(n) + C - C.T) * scale[:, None]


@pytest.mark.parametrize('n', [1, 2, 5, 10, 16])
def test_a_thousand_p_matrices_agree_with_murtys_method(n):
    rng = np.random.default_rng(n)
    A = np.stack([p_matrix(rng, n) for _ in range(200)], axis=-1)
    b = rng.normal(size=(n, 200)) * 10 ** rng.uniform(-3, 3, size=200)
    s = solve(jnp.asarray(A), jnp.asarray(b))
    assert (np.asarray(s.status) == SOLVED).all()
    for k in range(200):
        z = murty(A[..., k], b[:, k])
        np.testing.assert_allclose(s.z[:, k], z, rtol=1e-7, atol=1e-9 * (np.abs(z).max() + 1e-300))


def test_positive_definite_problems_agree_with_projected_gauss_seidel():
    rng = np.random.default_rng(0)
    for _ in range(20):
        B = rng.normal(size=(6, 6))
        A, b = B @ B.T + np.eye(6), rng.normal(size=6)
        np.testing.assert_allclose(solve(A, b).z, projected_gauss_seidel(A, b), atol=1e-11)


def test_a_batch_equals_single_problems():
    rng = np.random.default_rng(4)
    A = np.stack([p_matrix(rng, 5) for _ in range(7)], axis=-1)
    b = rng.normal(size=(5, 7))
    together = solve(jnp.asarray(A), jnp.asarray(b))
    mapped = jax.vmap(solve_lcp, -1, -1)(jnp.asarray(A), jnp.asarray(b))
    for k in range(7):
        alone = solve(A[..., k], b[:, k])
        np.testing.assert_allclose(together.z[:, k], alone.z, atol=1e-12)
        np.testing.assert_allclose(mapped.z[:, k], alone.z, atol=1e-12)
        assert together.pivots[k] == alone.pivots


def complementary(A, b, s, tolerance=1e-9):
    scale = np.abs(b).max() + 1
    w = A @ np.asarray(s.z) + b
    assert s.status == SOLVED
    assert (np.asarray(s.z) >= 0).all() and (w > -tolerance * scale).all() and np.abs(s.z * w).max() < tolerance * scale


def test_degenerate_problems_are_solved_without_cycling():
    rng = np.random.default_rng(1)
    for k in range(100):
        n = 6
        V = rng.integers(-1, 2, size=(3, n)).astype(float)  # rank 3: every right-hand side has ties
        A = V.T @ V
        z0 = (rng.integers(0, 3, size=n) * (rng.random(n) < 0.5)).astype(float)
        b = -A @ z0 + (z0 == 0) * rng.integers(0, 2, size=n)  # solvable by construction
        if k % 2:
            A, b = np.round(A), np.round(b)
        complementary(A, b, solve(A, b))
    complementary(np.eye(4), np.zeros(4), solve(np.eye(4), np.zeros(4)))
    complementary(np.ones((4, 4)), -np.ones(4), solve(np.ones((4, 4)), -np.ones(4)))  # all rows tied
    # Kostreva's example, on which least-index rules for sufficient matrices cycle
    A = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 2.0], [2.0, 0.0, 1.0]])
    complementary(A, -np.ones(3), solve(A, -np.ones(3)))


def test_a_problem_without_solution_ends_on_a_ray():
    assert solve(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([1.0, -1.0])).status == RAY
    assert solve(-np.eye(2), -np.ones(2)).status == RAY


def test_derivatives_agree_with_central_differences_in_both_modes():
    rng = np.random.default_rng(2)
    for _ in range(10):
        A, b = p_matrix(rng, 5), rng.normal(size=5)
        dA, db = rng.normal(size=(5, 5)), rng.normal(size=5)
        s = solve(A, b)
        if np.abs(np.asarray(s.z - s.w)).min() < 1e-3:
            continue  # next to a kink
        h = 1e-6
        difference = (solve(A + h * dA, b + h * db).z - solve(A - h * dA, b - h * db).z) / (2 * h)
        _, forward = jax.jvp(lambda A, b: solve_lcp(A, b).z, (A, b), (dA, db))
        np.testing.assert_allclose(forward, difference, atol=1e-8 * (1 + np.abs(difference).max()), rtol=1e-7)
        up = rng.normal(size=5)
        _, back = jax.vjp(lambda A, b: solve_lcp(A, b).z, A, b)
        gA, gb = back(jnp.asarray(up))
        np.testing.assert_allclose(np.sum(gA * dA) + gb @ db, up @ forward, rtol=1e-10)


def test_the_friction_pair_is_a_clip():
    """T6: lam1 - lam2 of the pair problem is clip(-u/s, -F, F)."""
    rng = np.random.default_rng(6)
    u, s, F = rng.normal(size=500), 10 ** rng.uniform(-2, 2, 500), rng.uniform(0, 2, 500)
    one, zero = np.ones(500), np.zeros(500)
    A = np.array([[s, zero, one], [zero, s, one], [-one, -one, 1e-10 * one]])
    z = np.asarray(solve(jnp.asarray(A), jnp.asarray([u, -u, F])).z)
    np.testing.assert_allclose(z[0] - z[1], np.clip(-u / s, -F, F), atol=1e-8)
