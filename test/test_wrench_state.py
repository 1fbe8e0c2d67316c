# SPDX-License-Identifier: Apache-2.0
"""State and dynamics together: derivatives, Gauss-Newton against a dense solver, marginal covariances, filter and fixed lag."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.tree import Joint, Link, build
from multibody_estimation.wrench import Prior, SubMass, WrenchSensor, WrenchSetup, compile_wrench, estimate_state, track_states
from multibody_estimation.wrench.dense import covariances, draw_samples, prior_rows
from multibody_estimation.wrench.equations import flatten, matrices, residuals, shape, unflatten


def robot():
    rng = np.random.default_rng(3)
    links, joints = [Link('base', 3.0, (0.0, 0.01, 0.02), (0.02, 0.03, 0.02))], []
    for i, parent in enumerate(['base', 'l0', 'base', 'l2']):
        links.append(Link(f'l{i}', 1.0 + 0.3 * i, tuple(0.05 * rng.normal(size=3)), (0.01, 0.012, 0.009)))
        kind = ['revolute', 'prismatic', 'fixed', 'revolute'][i]
        joints.append(
            Joint(
                f'j{i}',
                parent,
                f'l{i}',
                kind,
                tuple(rng.normal(size=3)),
                tuple(0.2 * rng.normal(size=3)),
                tuple(rng.normal(size=3)),
            )
        )
    return build(links, joints, floating=True)


def sensors():
    rng = np.random.default_rng(4)
    frame = lambda: {'position': tuple(0.1 * rng.normal(size=3)), 'rpy': tuple(rng.normal(size=3))}  # noqa: E731
    out = [WrenchSensor(f'acc_{x}', 'accelerometer', x, 0.1, **frame()) for x in ('base', 'l0', 'l1', 'l3')]
    out += [WrenchSensor(f'gyr_{x}', 'gyroscope', x, 0.02, **frame()) for x in ('base', 'l1', 'l3')]
    out += [WrenchSensor('ft', 'force_torque', 'j2', 0.3, **frame()), WrenchSensor('tau', 'joint_torque', 'j1', 0.2)]
    out += [
        WrenchSensor('inside', 'force_torque', 'l0', 0.3, sub_mass=SubMass(0.4, (0.01, 0.0, 0.02), (1e-3, 1e-3, 2e-3)), **frame())
    ]
    out += [WrenchSensor(f'ddq_{j}', 'joint_acceleration', j, 1.0) for j in ('j0', 'j3')]
    return tuple(out)


@pytest.fixture(scope='module')
def program():
    setup = WrenchSetup(sensors(), contacts={'l3': Prior(10.0), 'base': Prior(100.0)}, contact_free=Prior(0.05), equation_noise={'*': 0.1},
                        motion_noise={'*': 0.05}, joint_acceleration={'*': Prior(5.0)}, joint_noise=(0.01, 0.3))  # fmt: skip
    return compile_wrench(robot(), setup)


@pytest.fixture(scope='module')
def sample(program):
    rng = np.random.default_rng(1)
    q, dq, om = 0.5 * rng.normal(size=(1, 3)), rng.normal(size=(1, 3)), rng.normal(size=(1, 3))
    d, y = draw_samples(program, q, dq, om, seed=2)
    return np.concatenate([q[0], dq[0], om[0]]), d[0], y[0]


def test_derivative_of_the_equations_by_the_state_equals_finite_differences(program, sample):
    x, d, _ = sample
    s = shape(program)

    def value(x):
        r = residuals(program, unflatten(s, jnp.asarray(d)), x[:3], x[3:6], x[6:])
        return jnp.concatenate([r.equation.ravel(), r.motion.ravel(), r.measurement])

    J = np.asarray(jax.jit(jax.jacfwd(value))(jnp.asarray(x)))
    f = jax.jit(value)
    h = 1e-5
    for k in range(9):
        e = h * np.eye(9)[k]
        # Fourth order: the truncation error is far below the rounding.
        fd = (8 * (np.asarray(f(x + e)) - np.asarray(f(x - e))) - (np.asarray(f(x + 2 * e)) - np.asarray(f(x - 2 * e)))) / (
            12 * h
        )
        np.testing.assert_allclose(J[:, k], fd, atol=2e-8 * max(np.abs(fd).max(), 1.0))
    # D and Y depend on q: the derivative must hold what they do to d, not of the biases alone.
    rest = unflatten(s, jnp.zeros(len(d)))
    bias = jax.jit(jax.jacfwd(lambda x: jnp.concatenate([v.ravel() for v in residuals(program, rest, x[:3], x[3:6], x[6:])])))
    zero = np.asarray(bias(jnp.asarray(x)))
    assert np.abs(J[:, :3] - zero[:, :3]).max() > 1.0


def test_gauss_newton_with_marginal_covariances_equals_a_dense_solver(program, sample):
    x, d, y = sample
    rng = np.random.default_rng(3)
    std = np.concatenate([np.full(3, 0.05), np.full(3, 0.2), np.full(3, 0.5)])
    x0 = x + std * rng.normal(size=9)
    blocks = [('external_wrench', 'l3'), ('joint_acceleration', 'j1'), ('joint_torque', 'j0')]
    found = estimate_state(program, x0, np.diag(std**2), y, blocks=blocks)
    assert found.converged

    s = shape(program)
    SD, Sy = covariances(program)
    WD, Wy = np.linalg.inv(np.linalg.cholesky(SD)), np.linalg.inv(np.linalg.cholesky(Sy))
    U, u = prior_rows(program)
    keep = np.array([k for k in range(5) if k != s.base])

    def whitened(z):
        d, x = z[: len(sample[1])], z[len(sample[1]) :]
        r = residuals(program, unflatten(s, d), x[:3], x[3:6], x[6:])
        e = jnp.concatenate([r.equation.ravel(), r.motion[keep].ravel()])
        return jnp.concatenate([WD @ e, Wy @ (r.measurement - y), U @ d - u, (x - x0) / std])

    value, slope = jax.jit(whitened), jax.jit(jax.jacfwd(whitened))
    best = least_squares(
        lambda z: np.asarray(value(z)),
        np.concatenate([d, x0]),
        jac=lambda z: np.asarray(slope(z)),
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-13,
    )
    n = len(d)
    np.testing.assert_allclose(found.state, best.x[n:], atol=1e-6)
    J = np.asarray(slope(best.x))
    C = np.linalg.inv(J.T @ J)
    np.testing.assert_allclose(found.covariance, C[n:, n:], rtol=1e-4, atol=1e-8)
    at = 30 + 6 * program.link_names.index('l3')
    np.testing.assert_allclose(
        found.dynamics_covariance('external_wrench', 'l3'), C[at : at + 6, at : at + 6], rtol=1e-4, atol=1e-7
    )
    at = n - 3 + 1
    assert found.dynamics_covariance('joint_acceleration', 'j1')[0, 0] == pytest.approx(C[at, at], rel=1e-4)
    # Conditional covariances would be smaller: the state is not known.
    H = J.T @ J
    assert np.linalg.inv(H[n:, n:])[0, 0] < 0.95 * found.covariance[0, 0]
    rates = np.concatenate([np.arange(n - 3, n), 6 * s.base + 3 + np.arange(3)])
    Cu, Cxu = found.rates_covariance()
    np.testing.assert_allclose(Cu, C[np.ix_(rates, rates)], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(Cxu, C[n:][:, rates], rtol=1e-4, atol=1e-6)


def test_missing_sensors_widen_the_state(program, sample):
    x, _, y = sample
    P = np.diag(np.concatenate([np.full(3, 0.05), np.full(3, 0.2), np.full(3, 0.5)]) ** 2)
    all_there = estimate_state(program, x, P, y)
    torn = y.copy()
    torn[[program.setup.rows[f'gyr_{k}'].start for k in ('base', 'l1', 'l3')]] = np.nan
    without = estimate_state(program, x, P, torn)
    assert (np.diag(without.covariance)[3:] > np.diag(all_there.covariance)[3:]).all()
    nothing = estimate_state(program, x, P, np.full_like(y, np.nan))
    # Without sensors the equations tell nothing of the state but what the priors on d say of it: the covariance stays near the prior.
    assert (np.diag(nothing.covariance) <= np.diag(P) * (1 + 1e-9)).all()


@pytest.fixture(scope='module')
def motion(program):
    """A smooth motion of 0.7 s with a force that grows and shrinks on l3."""
    rng = np.random.default_rng(9)
    T, h, s = 70, 0.01, shape(program)
    t = np.arange(T) * h
    phase, rate, size = (
        6 * rng.uniform(size=(6, 3)),
        2 * np.pi * rng.uniform(0.3, 1.2, size=(6, 3)),
        0.3 * rng.normal(size=(6, 3)),
    )
    wave = rate * t[:, None, None] + phase
    Q, V, A = (size * np.sin(wave)).sum(-1), (size * rate * np.cos(wave)).sum(-1), (-size * rate**2 * np.sin(wave)).sum(-1)
    q, dq, ddq, om, al = Q[:, :3], V[:, :3], A[:, :3], V[:, 3:], A[:, 3:]
    nl, n = 5, 3
    size_d = 18 * nl - 6 + n
    k = program.link_names.index('l3')
    y = np.zeros((T, program.setup.size))
    std = np.concatenate([np.sqrt(np.diag(x.sensor.covariance())) for x in program.terms])
    for i in range(T):
        D, bD, Y, bY = matrices(program, q[i], dq[i], om[i])
        d = np.zeros(size_d)
        d[-n:] = ddq[i]
        d[6 * s.base : 6 * s.base + 6] = np.concatenate([[0, 0, 9.81], al[i]])
        d[6 * nl + 6 * k : 6 * nl + 6 * k + 6] = [5 * np.sin(3 * t[i]), 1, 0, 0, 0.2, 0]
        known = np.concatenate(
            [
                np.setdiff1d(np.arange(6 * nl, 12 * nl), 6 * nl + 6 * s.base + np.arange(6)),
                np.arange(size_d - n, size_d),
                6 * s.base + np.arange(6),
            ]
        )
        free = np.setdiff1d(np.arange(size_d), known)
        d[free] = np.linalg.solve(D[:, free], -bD - D @ d)
        y[i] = Y @ d + bY + std * rng.normal(size=len(std))
    return t, q, dq, om, q + 0.01 * rng.normal(size=q.shape), dq + 0.3 * rng.normal(size=dq.shape), y


def test_filter_and_fixed_lag_beat_the_encoders_with_honest_covariances(program, motion):
    t, q, dq, om, seen_q, seen_dq, y = motion
    filtered = track_states(program, t, seen_q, seen_dq, y, om)
    lagged = track_states(program, t, seen_q, seen_dq, y, om, lag=8)
    np.testing.assert_allclose(lagged.time, t)
    after = slice(15, None)
    rms = lambda x: np.sqrt((x[after] ** 2).mean())  # noqa: E731
    assert rms(filtered.position - q) < 0.5 * rms(seen_q - q)
    assert rms(filtered.velocity - dq) < 0.25 * rms(seen_dq - dq)
    assert rms(lagged.velocity - dq) < rms(filtered.velocity - dq)
    for track in (filtered, lagged):
        z = np.concatenate([track.position - q, track.velocity - dq, track.base_velocity - om], 1) / track.deviation()
        assert 0.5 < rms(z) < 1.5


def test_filter_names_what_it_cannot_use(program, motion):
    t, _, _, _, seen_q, seen_dq, y = motion
    with pytest.raises(EstimationError, match="no position of joint 'j1'"):
        torn = seen_q.copy()
        torn[0, 1] = np.nan
        track_states(program, t, torn, seen_dq, y)
    with pytest.raises(EstimationError, match='Time does not advance'):
        track_states(program, t * 0, seen_q, seen_dq, y)
    with pytest.raises(EstimationError, match='positive definite'):
        estimate_state(program, np.zeros(9), np.zeros((9, 9)), y[0])
    flat = flatten(shape(program), unflatten(shape(program), jnp.arange(87.0)))
    np.testing.assert_array_equal(np.asarray(flat), np.arange(87.0))
