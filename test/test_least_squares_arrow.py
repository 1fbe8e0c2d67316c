# SPDX-License-Identifier: Apache-2.0
"""Arrow-shaped linear algebra against dense numpy, the box program against scipy."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import arrow, available
from multibody_estimation.least_squares import box_qp, parameter_information, state_covariance

STAGES, UNKNOWNS, WIDTH, BORDER, BLOCK = 31, 2, 3, 3, 4


def rows(seed=0):
    """Random window and stage rows, and the dense Jacobian and residual that they stand for."""
    rng = np.random.default_rng(seed)
    groups, dense, residual = [], [], []
    for width in (WIDTH, 1):
        m = STAGES - width + 1
        J, r = rng.normal(size=(2, width * UNKNOWNS + BORDER, m)), rng.normal(size=(2, m))
        groups.append((width, J, r))
        for k in range(m):
            for a in range(2):
                row = np.zeros(STAGES * UNKNOWNS + BORDER)
                row[k * UNKNOWNS : (k + width) * UNKNOWNS] = J[a, : width * UNKNOWNS, k]
                row[STAGES * UNKNOWNS :] = J[a, width * UNKNOWNS :, k]
                dense.append(row)
                residual.append(r[a, k])
    return groups, np.array(dense), np.array(residual)


def system(make):
    groups, J, r = rows()
    total = None
    for width, block, res in groups:
        part = make(jnp.asarray(block), jnp.asarray(res), unknowns=UNKNOWNS, width=width, stages=STAGES, block=BLOCK)
        total = part if total is None else total + part
    spare = np.zeros((16, BLOCK))
    spare[-1, 2:] = 1.0  # 31 stages of 2 fill 15.5 blocks
    D = total.D + jax.vmap(jnp.diag)(jnp.asarray(spare))
    return arrow.Arrow(D, total.E, total.C, total.P), J, r


KERNELS = pytest.mark.skipif(not available('arrow_factor'), reason='no compiled kernels')
BOTH = [
    pytest.param((arrow.assemble_twin, arrow.factor_twin, arrow.back_twin), id='twin'),
    pytest.param((arrow.assemble, arrow.factor, arrow.back), id='kernel', marks=KERNELS),
]


@pytest.mark.parametrize('functions', BOTH)
def test_step_equals_dense_solve(functions):
    assemble, factor, back = functions
    a, J, r = system(assemble)
    fac = factor(a, jnp.float64(0.0), jnp.ones((16, BLOCK)))
    step = np.linalg.solve(np.asarray(fac.S), -np.asarray(fac.g))
    x = np.asarray(back(fac, jnp.asarray(step))).ravel()[: STAGES * UNKNOWNS]
    expected = np.linalg.lstsq(J, -r, rcond=None)[0]
    np.testing.assert_allclose(np.concatenate([x, step]), expected, atol=1e-11)
    assert bool(fac.ok)
    np.testing.assert_allclose(float(a.P[-1, -1]), r @ r, rtol=1e-13)


@KERNELS
@pytest.mark.parametrize(('blocks', 'size'), [(65, 24), (100, 13), (64, 12), (3, 24)])
def test_kernel_equals_twin_for_wide_blocks(blocks, size):
    rng = np.random.default_rng(size)
    D = rng.normal(size=(blocks, size, size))
    D = D @ D.transpose(0, 2, 1) + 6 * size * np.eye(size)
    a = arrow.Arrow(*map(jnp.asarray, (D, rng.normal(size=D.shape), rng.normal(size=(blocks, size, 14)), 1e4 * np.eye(14))))
    metric = jnp.ones((blocks, size))
    kernel, twin = arrow.factor(a, jnp.float64(0.1), metric), arrow.factor_twin(a, jnp.float64(0.1), metric)
    np.testing.assert_allclose(kernel.S, twin.S, atol=1e-10)
    np.testing.assert_allclose(kernel.g, twin.g, atol=1e-10)
    step = jnp.asarray(rng.normal(size=13))
    np.testing.assert_allclose(arrow.back(kernel, step), arrow.back_twin(twin, step), atol=1e-12)


@pytest.mark.parametrize('factor', [arrow.factor_twin, pytest.param(arrow.factor, marks=KERNELS)])
def test_indefinite_matrix_is_reported(factor):
    a, _, _ = system(arrow.assemble_twin)
    bad = arrow.Arrow(a.D.at[7].add(-1e3 * jnp.eye(BLOCK)), a.E, a.C, a.P)
    assert not bool(factor(bad, jnp.float64(0.0), jnp.ones((16, BLOCK))).ok)


def test_covariances_equal_dense_inverse():
    a, J, _ = system(arrow.assemble_twin)
    metric = np.zeros((16, BLOCK))
    inverse = np.linalg.inv(J.T @ J)
    info = parameter_information(a, jnp.asarray(metric), np.zeros(BORDER, dtype=int))
    np.testing.assert_allclose(info.covariance, inverse[-BORDER:, -BORDER:], rtol=1e-8)
    assert info.blind == ()
    n = STAGES * UNKNOWNS
    blocks = np.asarray(state_covariance(a, jnp.asarray(metric)))
    expected = np.linalg.inv((J.T @ J)[:n, :n])
    for k in range(15):
        np.testing.assert_allclose(blocks[k], expected[4 * k : 4 * k + 4, 4 * k : 4 * k + 4], rtol=1e-7, atol=1e-12)


def test_blind_direction_is_found():
    groups, _, _ = rows()
    total = None
    for width, J, r in groups:
        J = J.copy()
        J[:, -1] = 2 * J[:, -2]  # only p1 + 2 p2 is seen
        part = arrow.assemble_twin(jnp.asarray(J), jnp.asarray(r), unknowns=2, width=width, stages=STAGES, block=BLOCK)
        total = part if total is None else total + part
    a = arrow.Arrow(total.D.at[-1, 2:, 2:].add(jnp.eye(2)), total.E, total.C, total.P)
    info = parameter_information(a, jnp.zeros((16, BLOCK)), np.zeros(3, dtype=int))
    assert len(info.blind) == 1
    direction = info.blind[0] / info.blind[0][2]
    np.testing.assert_allclose(direction, [0, -2, 1], atol=1e-6)
    assert np.isinf(info.covariance[1, 1]) and np.isinf(info.covariance[2, 2]) and np.isfinite(info.covariance[0, 0])


@pytest.mark.parametrize('seed', range(20))
def test_box_program_equals_scipy(seed):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 12))
    A, b = rng.normal(size=(p + 5, p)), rng.normal(size=p + 5)
    lower, upper = -rng.uniform(0, 0.3, p), rng.uniform(0, 0.3, p)
    d, held = box_qp(A.T @ A, A.T @ b, lower, upper)
    expected = lsq_linear(A, -b, bounds=(lower, upper), method='bvls', tol=1e-14).x
    np.testing.assert_allclose(d, expected, atol=1e-9)
    assert np.all((held == 0) | np.isclose(d, np.where(held < 0, lower, upper)))
