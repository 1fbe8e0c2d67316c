# SPDX-License-Identifier: Apache-2.0
"""Impulse residuals against the Spook equations written out densely in NumPy, and against the trees' inverse dynamics."""

import numpy as np
import pytest
from scipy.optimize import fsolve
from scipy.spatial.transform import Rotation

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.maximal import inverse_dynamics
from multibody_estimation.maximal.constraints import axis_rows, constraint_jacobian, constraint_values
from multibody_estimation.maximal.forces import mass_matrix
from multibody_estimation.maximal.inverse_dynamics import advance, difference
from multibody_estimation.maximal.laws import mean_clip
from multibody_estimation.maximal.model import State
from multibody_estimation.maximal.rows import dense
from multibody_estimation.robots import mechanisms

H = 5e-3
impulse_residual = jax.jit(inverse_dynamics.impulse_residual, static_argnames='evaluation')
impulse_residuals = jax.jit(inverse_dynamics.impulse_residuals)
window_residual = jax.jit(inverse_dynamics.window_residual)


def _state(model, seed, spread=0.1):
    rng = np.random.default_rng(seed)
    n = len(model.bodies)
    pose = advance(model.reference, jnp.asarray(spread * rng.normal(size=(n, 6))), 1.0)
    return State(pose, jnp.asarray(rng.normal(size=(n, 6))))


def _free_spin(J, w, h):
    """Angular velocity after a step of a free body: R J w at the middle of the interval is kept."""
    before = Rotation.from_rotvec(-h / 2 * w).apply(J @ w)

    def miss(x):
        return (Rotation.from_rotvec(h / 2 * x).apply(J @ x) - before) / np.abs(J).max()

    return fsolve(miss, w, xtol=1e-13)


def _spook(model, state, inputs, h):
    """v+, multipliers and M_S by a dense solve of the KKT system of joint rows (no dry friction)."""
    n = len(model.bodies)
    G, g = np.asarray(constraint_jacobian(model, state.pose)), np.asarray(constraint_values(model, state.pose))
    D = np.asarray(dense(axis_rows(model, state.pose), n))
    M, v = np.asarray(mass_matrix(model)), np.asarray(state.velocity).ravel()
    ups = 1 / (1 + 4 * np.asarray(model.damping) / h)
    S = np.diag(4 / h**2 * np.asarray(model.compliance) * ups)
    drag = np.asarray(model.viscous + model.back_emf)
    f = np.zeros((n, 6))
    tx, ty = np.asarray(model.tilt)
    f[:, :3] = np.asarray(model.mass)[:, None] * 9.81 * np.array([-np.sin(ty), np.sin(tx) * np.cos(ty), -np.cos(tx) * np.cos(ty)])
    for b in range(n):
        w, J = v[6 * b + 3 : 6 * b + 6], M[6 * b + 3 : 6 * b + 6, 6 * b + 3 : 6 * b + 6]
        f[b, 3:] += J @ (_free_spin(J, w, h) - w) / h
    motor = np.zeros(len(model.axes))
    motor[list(model.actuated)] = np.asarray(model.gain)[list(model.actuated)] * inputs
    effort = M @ v + h * (f.ravel() + D.T @ motor)
    K = np.block([[M + h * D.T @ np.diag(drag) @ D, -G.T], [G, S]])
    x = np.linalg.solve(K, np.concatenate([effort, -4 / h * ups * g + ups * (G @ v)]))
    stiff = np.divide(1.0, np.diag(S), out=np.zeros(len(g)), where=np.diag(S) > 0)
    return x[: 6 * n], x[6 * n :], M + h * D.T @ np.diag(drag) @ D + G.T @ np.diag(stiff) @ G


@pytest.fixture(scope='module')
def smooth():
    """Furuta pendulum without dry friction."""
    model = mechanisms.furuta({'arm.coulomb': 0.0, 'pendulum.coulomb': 0.0}, compliance=1e-6)
    return model, _state(model, 1), np.array([3.0])


def test_residual_is_zero_at_the_velocity_of_the_spook_equations_and_linear_around_it(smooth):
    model, state, u = smooth
    V, lam, MS = _spook(model, state, u, H)
    n = len(model.bodies)
    r = impulse_residual(model, state, jnp.asarray(V.reshape(n, 6)), u, H, evaluation='spook')
    size = np.abs(MS).max() * np.abs(V).max()
    assert np.abs(r.impulse).max() < 1e-14 * size
    np.testing.assert_allclose(r.multipliers, lam, rtol=1e-8, atol=1e-10 * np.abs(lam).max())
    d = np.random.default_rng(0).normal(size=6 * n)
    away = impulse_residual(model, state, jnp.asarray((V + d).reshape(n, 6)), u, H, evaluation='spook').impulse
    np.testing.assert_allclose(np.ravel(away), MS @ d, rtol=1e-9, atol=1e-13 * size)


def test_both_residuals_are_the_velocity_and_position_errors_times_the_same_matrix(smooth):
    model, state, u = smooth
    V, _, MS = _spook(model, state, u, H)
    n = len(model.bodies)
    rng = np.random.default_rng(5)
    dv, dq = 1e-2 * rng.normal(size=(n, 6)), 1e-2 * rng.normal(size=(n, 6))
    after = State(advance(state.pose, jnp.asarray(V.reshape(n, 6) + dq), H), jnp.asarray(V.reshape(n, 6) + dv))
    dp_u, dp_q = impulse_residuals(model, state, after, u, H)
    np.testing.assert_allclose(np.ravel(dp_u), MS @ dv.ravel(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(np.ravel(dp_q), MS @ dq.ravel(), rtol=1e-7, atol=1e-9)


def test_multipliers_as_unknowns_give_the_same_residual_and_allow_rigid_joints(smooth):
    model, state, u = smooth
    n = len(model.bodies)
    V, lam, _ = _spook(model, state, u, H)
    V = jnp.asarray(V.reshape(n, 6))
    r = impulse_residual(model, state, V, u, H, evaluation='spook', multipliers=jnp.asarray(lam))
    assert np.abs(r.impulse).max() < 1e-12 and np.abs(r.constraint).max() < 1e-12
    rigid = mechanisms.furuta({'arm.coulomb': 0.0, 'pendulum.coulomb': 0.0}, compliance=0.0)
    V, lam, _ = _spook(rigid, state, u, H)
    r = impulse_residual(rigid, state, jnp.asarray(V.reshape(n, 6)), u, H, evaluation='spook', multipliers=jnp.asarray(lam))
    assert np.abs(r.impulse).max() < 1e-12 and np.abs(r.constraint).max() < 1e-11


@pytest.mark.parametrize('evaluation', ['symmetric', 'spook'])
def test_trailing_time_axes_equal_single_calls(evaluation):
    model = mechanisms.furuta()
    states = [_state(model, s) for s in range(4)]
    n = len(model.bodies)
    rng = np.random.default_rng(0)
    V, u = jnp.asarray(rng.normal(size=(n, 6, 4))), jnp.asarray(rng.normal(size=(1, 4)))
    batch = State(jnp.stack([s.pose for s in states], -1), jnp.stack([s.velocity for s in states], -1))
    together = impulse_residual(model, batch, V, u, H, evaluation=evaluation)
    for k, s in enumerate(states):
        alone = impulse_residual(model, s, V[..., k], u[:, k], H, evaluation=evaluation)
        for a, b in zip(together, alone):
            np.testing.assert_allclose(a[..., k], b, rtol=1e-12, atol=1e-15 * np.abs(b).max())
    mapped = jax.vmap(lambda p, v, V, u: impulse_residual(model, State(p, v), V, u, H, evaluation=evaluation), -1, -1)
    for a, b in zip(together, mapped(batch.pose, batch.velocity, V, u)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_dry_friction_is_one_clip_per_axis():
    model = mechanisms.furuta()
    bare = mechanisms.furuta({'arm.coulomb': 0.0, 'pendulum.coulomb': 0.0})
    state = _state(model, 2, 0.0)
    n = len(model.bodies)
    for spin, share in ((3.0, 1.0), (-3.0, -1.0), (4e-3, 0.4)):  # creep speed is 1e-2 rad/s
        V = jnp.zeros((n, 6)).at[:, 5].set(spin)  # arm and rod turn together about the vertical
        u = np.zeros(1)
        d = impulse_residual(model, state, V, u, H, evaluation='spook').impulse
        d = d - impulse_residual(bare, state, V, u, H, evaluation='spook').impulse
        expected = np.zeros((n, 6))
        expected[0, 5] = share * H * 4e-3
        np.testing.assert_allclose(d, expected, atol=1e-12)


def test_window_residual_is_second_order_on_the_true_motion():
    """Poses along an exact motion of the tree with its exact joint forces: halving the step quarters residual / step."""
    from multibody_estimation import tree

    links = [
        tree.Link('base'),
        tree.Link('arm', 0.2, (0, 0, 0), (2e-3,) * 3),
        tree.Link('rod', 0.1, (0, 0, -0.15), (7.5e-4, 7.48e-4, 4e-6)),
    ]
    joints = [tree.Joint('arm', 'base', 'arm'), tree.Joint('pendulum', 'arm', 'rod', axis=(1, 0, 0), position=(0.2, 0, 0))]
    t_model = tree.build(links, joints)
    zero = dict.fromkeys(
        ('arm.viscous', 'pendulum.viscous', 'arm.coulomb', 'pendulum.coulomb', 'tilt.x', 'tilt.y', 'motor.back_emf'), 0.0
    )
    model = mechanisms.furuta(zero | {'motor.gain': 1.0}, compliance=0.0, damping=0.0)

    @jax.jit
    def pose(q):
        R, p = tree.forward_kinematics(t_model, q)
        from multibody_estimation.geometry import quaternion

        e = quaternion.from_matrix(R[1:])
        com = p[1:] + jnp.einsum('bij,bj->bi', R[1:], jnp.asarray(t_model.center_of_mass[1:]))
        return jnp.concatenate([com, e], axis=1)

    def rate(x, u):
        return jnp.concatenate([x[2:], tree.forward_dynamics(t_model, x[:2], x[2:], jnp.array([u, 0.0]))])

    @jax.jit
    def flow(x, t):
        def rk4(x, _):
            h = t / 8
            k1 = rate(x, 0.05)
            k2 = rate(x + h / 2 * k1, 0.05)
            k3 = rate(x + h / 2 * k2, 0.05)
            k4 = rate(x + h * k3, 0.05)
            return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return jax.lax.scan(rk4, x, None, length=8)[0]

    x = jnp.array([0.3, 1.1, 2.0, -3.0])
    sizes = []
    for h in (4e-3, 2e-3, 1e-3):
        poses = tuple(pose(flow(x, k * h)[:2]) for k in (-1, 0, 1))
        zero_force = jnp.zeros(len(model.rows))
        r = window_residual(model, poses, zero_force, jnp.array([0.05]), h)
        # The joint forces are those that fit best; what they cannot explain is the residual of the motion itself.
        G = np.asarray(constraint_jacobian(model, poses[1]))
        f, *_ = np.linalg.lstsq(h * G.T, np.ravel(r.impulse), rcond=None)
        left = window_residual(model, poses, jnp.asarray(f), jnp.array([0.05]), h)
        sizes.append(np.abs(left.impulse).max() / h)
        assert np.abs(left.constraint).max() < 0.1 * h**2 * 25
    assert 3.5 < sizes[0] / sizes[1] < 4.5 and 3.5 < sizes[1] / sizes[2] < 4.5


def test_difference_and_advance_are_inverse():
    model = mechanisms.furuta()
    a, b = _state(model, 7, 0.5).pose, _state(model, 8, 0.5).pose
    back = advance(a, difference(b, a), 1.0)
    same = np.where(np.sum(np.asarray(back[:, 3:] * b[:, 3:]), axis=1) < 0, -1.0, 1.0)
    np.testing.assert_allclose(back[:, :3], b[:, :3], atol=1e-14)
    np.testing.assert_allclose(back[:, 3:], same[:, None] * b[:, 3:], atol=1e-14)


def test_an_unknown_evaluation_is_refused():
    model = mechanisms.furuta()
    with pytest.raises(EstimationError, match="evaluation is 'mid'"):
        impulse_residual(model, model.rest_state(), jnp.zeros((2, 6)), np.zeros(1), H, evaluation='mid')


def test_mean_friction_is_the_integral_of_the_clip():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=200) * 3, rng.normal(size=200) * 3
    b[:40] = a[:40] + 1e-9 * rng.normal(size=40)
    creep = 0.7
    path = a + (b - a) * ((np.arange(20000) + 0.5) / 20000)[:, None]
    np.testing.assert_allclose(mean_clip(a, b, creep), np.clip(path / creep, -1, 1).mean(axis=0), atol=1e-6)
    slope = jax.grad(lambda b: jnp.sum(mean_clip(jnp.asarray(a), b, creep)))(jnp.asarray(b))
    h = 1e-6
    far = np.abs(a - b) > 1e-3
    numeric = (mean_clip(a, b + h, creep) - mean_clip(a, b - h, creep)) / (2 * h)
    np.testing.assert_allclose(np.asarray(slope)[far], np.asarray(numeric)[far], atol=1e-6)
    assert np.isfinite(slope).all() and np.abs(slope).max() <= 0.5 / creep + 1e-9
