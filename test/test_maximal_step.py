# SPDX-License-Identifier: Apache-2.0
"""The step against other ways of solving it, its derivatives, and whole motions against MuJoCo and against joint coordinates."""

import dataclasses

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.maximal import inverse_dynamics
from multibody_estimation.maximal import spook as module
from multibody_estimation.maximal.assemble import place, project
from multibody_estimation.maximal.convert import from_tree, tree_state
from multibody_estimation.maximal.inverse_dynamics import advance
from multibody_estimation.maximal.model import State
from multibody_estimation.maximal.rollout import simulate
from multibody_estimation.robots import mechanisms

H = 2e-3
step = jax.jit(lambda model, state, inputs: module.step(model, state, inputs, H))
residual = jax.jit(
    lambda model, state, V, inputs: inverse_dynamics.impulse_residual(model, state, V, inputs, H, evaluation='spook').impulse
)
slope = jax.jit(
    lambda model, state, V, inputs: jax.jacfwd(
        lambda x: inverse_dynamics.impulse_residual(model, state, x, inputs, H, evaluation='spook').impulse
    )(V)
)


def disturbed(model, seed, pose=1e-5, velocity=0.3):
    rng = np.random.default_rng(seed)
    n = len(model.bodies)
    moved = advance(model.reference, jnp.asarray(pose * rng.normal(size=(n, 6))), 1.0)
    return State(moved, jnp.asarray(velocity * rng.normal(size=(n, 6))))


MODELS = {
    'furuta': lambda: mechanisms.furuta(),
    'loaded bearings': lambda: mechanisms.double_pendulum(coulomb=1e-3, load_radius=5e-3, gain=1.0),
    'limits': lambda: mechanisms.double_pendulum(lower=-0.1, upper=0.1),
    'loop with friction': lambda: mechanisms.four_bar(coulomb=0.01),
    'block': lambda: mechanisms.incline(0.3),
    'balls': lambda: mechanisms.sphere_stack(),
}


@pytest.mark.parametrize('name', MODELS)
def test_inverse_dynamics_finds_no_impulse_missing_after_a_step(name):
    """P(v*) = 0: Lemke with Schur complements against closed-form clips, in stick, slip, contact and at limits."""
    model = MODELS[name]()
    u = jnp.ones(len(model.actuated))
    state = disturbed(model, 0)
    # P = M_S (V - V*), so round-off in V is seen through the stiffest row
    softest = [*np.asarray(model.compliance), *np.asarray(model.contact_compliance), *([1e-7] if model.limited else [])]
    stiff = H**2 * (1 + 4 * 4e-3 / H) / (4 * min(softest))
    for _ in range(20):
        out = step(model, state, u)
        assert int(out.status) == 0
        left = np.abs(residual(model, state, out.state.velocity, u)).max()
        assert left < 1e-11 * stiff * np.abs(out.state.velocity).max()
        state = out.state


@pytest.mark.parametrize('name', ['furuta', 'loop with friction'])
def test_semismooth_newton_on_the_inverse_dynamics_finds_the_same_velocity(name):
    model = MODELS[name]()
    n, u = 6 * len(model.bodies), jnp.ones(len(model.actuated))
    model = dataclasses.replace(model, compliance=model.compliance * 0 + 1e-6)  # Newton in V sees 1/compliance
    for seed in range(5):
        state = disturbed(model, seed)
        V = np.asarray(state.velocity)
        for _ in range(60):
            P = np.asarray(residual(model, state, jnp.asarray(V), u)).ravel()
            d = np.linalg.solve(np.asarray(slope(model, state, jnp.asarray(V), u)).reshape(n, n), P).reshape(V.shape)
            V = V - d
            if np.abs(d).max() < 1e-11:
                break
        np.testing.assert_allclose(step(model, state, u).state.velocity, V, atol=1e-8)


@pytest.mark.parametrize(('regime', 'volts', 'speed'), [('stick', 0.1, 0.0), ('slip', 3.0, 4.0)])
def test_derivatives_of_a_whole_step_agree_with_finite_differences(regime, volts, speed):
    model = mechanisms.furuta(compliance=1e-6)
    numbers = jnp.array([p.nominal for p in mechanisms.FURUTA])
    hinges = jnp.array([0.4, 0.0 if regime == 'stick' else 1.0])

    def move(x):
        """New tangent state for 13 numbers, input, tangent of pose (12) and velocity (12)."""
        changed = mechanisms.furuta_with(model, x[:13])
        pose = advance(start.pose, x[14:26].reshape(2, 6), 1.0)
        out = module.step(changed, State(pose, start.velocity + x[26:].reshape(2, 6)), x[13:14], H).state
        return jnp.concatenate([inverse_dynamics.difference(out.pose, start.pose).ravel(), out.velocity.ravel()])

    pose = place(model, hinges)
    rates = jnp.array([[0, 0, 0, 0, 0, speed], [0, 0, 0, 1.5 * speed, 0, speed]])
    start = project(model, State(pose, rates))
    x = jnp.concatenate([numbers, jnp.array([volts]), jnp.zeros(24)])
    axis = step(mechanisms.furuta_with(model, numbers), start, jnp.array([volts])).axis / H
    assert (abs(float(axis[0])) < 3.9e-3) == (regime == 'stick')
    rng = np.random.default_rng(0)
    scale = np.concatenate([np.asarray(numbers), [1.0], np.full(12, 1e-5), np.full(12, 1e-3)])
    f, forward = jax.jit(move), jax.jit(lambda x, d: jax.jvp(move, (x,), (d,))[1])
    backward = jax.jit(lambda x, y: jax.vjp(move, x)[1](y)[0])
    for _ in range(6):
        d = jnp.asarray(rng.normal(size=38) * scale)
        e = 1e-4
        # fourth-order central difference
        numeric = (8 * (f(x + e * d) - f(x - e * d)) - (f(x + 2 * e * d) - f(x - 2 * e * d))) / (12 * e)
        exact = forward(x, d)
        np.testing.assert_allclose(exact, numeric, rtol=1e-5, atol=1e-7 * np.abs(numeric).max())
        y = jnp.asarray(rng.normal(size=24))
        np.testing.assert_allclose(backward(x, y) @ d, y @ exact, rtol=1e-9, atol=1e-12)


def test_a_batch_of_states_and_a_batch_of_models_equal_single_steps():
    model = mechanisms.furuta()
    states = [disturbed(model, s) for s in range(3)]
    u = jnp.array([0.5, -3.0, 6.0])
    singles = [step(model, s, u[k : k + 1]) for k, s in enumerate(states)]
    batch = State(*(jnp.stack([getattr(s, f) for s in states], -1) for f in ('pose', 'velocity')))
    together = module.step(model, batch, u[None], H)
    numbers = jnp.array([[p.nominal * s for p in mechanisms.FURUTA] for s in (1.0, 1.1, 0.9)])
    mapped = jax.vmap(
        lambda n, p, v, u: module.step(mechanisms.furuta_with(model, n), State(p, v), u[None], H), (0, -1, -1, 0), 0
    )
    mapped = mapped(numbers, batch.pose, batch.velocity, u)
    for k, s in enumerate(singles):
        np.testing.assert_allclose(together.state.velocity[..., k], s.state.velocity, atol=1e-12)
        other = step(mechanisms.furuta_with(model, numbers[k]), states[k], u[k : k + 1])
        np.testing.assert_allclose(mapped.state.velocity[k], other.state.velocity, atol=1e-12)


def orders(errors):
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def mujoco_positions(xml, qpos, ctrl, seconds):
    import mujoco

    m = mujoco.MjModel.from_xml_string(xml)
    d = mujoco.MjData(m)
    d.qpos[:] = qpos
    if m.nu:
        d.ctrl[:] = ctrl
    for _ in range(round(seconds / m.opt.timestep)):
        mujoco.mj_step(m, d)
    return d.qpos.copy()


HEAD = '<mujoco><option integrator="RK4" timestep="0.0005" gravity="0 0 -9.81"><flag contact="disable"/></option><worldbody>'


def test_a_double_pendulum_converges_to_mujocos_with_first_order():
    pytest.importorskip('mujoco')
    rod = '<inertial pos="0 0 -0.125" mass="0.3" diaginertia="0.0015625 0.0015625 0.00001875"/>'
    xml = (
        f'{HEAD}<body><joint name="a" axis="0 1 0"/>{rod}<body pos="0 0 -0.25"><joint name="b" axis="0 1 0"/>{rod}'
        '</body></body></worldbody></mujoco>'
    )
    truth = mujoco_positions(xml, [1.0, 0.5], None, 0.5)
    errors = []
    for k in range(4):
        h = 2e-3 / 2**k
        model = mechanisms.double_pendulum(compliance=1e-10, damping=2 * h)
        start = State(place(model, jnp.array([1.0, 0.5])), jnp.zeros((2, 6)))
        r = simulate(model, start, None, 250 * 2**k, time_step=h)
        errors.append(np.abs(np.asarray(r.coordinates[:, -1]) - truth).max())
    assert errors[-1] < 5e-3
    assert (np.abs(orders(errors) - 1) < 0.25).all(), (errors, orders(errors))


def test_a_furuta_pendulum_converges_to_mujocos_with_first_order():
    pytest.importorskip('mujoco')
    xml = (
        f'{HEAD}<body><joint name="arm" axis="0 0 1" damping="0.0014"/><inertial pos="0 0 0" mass="0.2" diaginertia="0.002 0.002 0.002"/>'
        '<body pos="0.2 0 0"><joint name="rod" axis="1 0 0" damping="0.0001"/>'
        '<inertial pos="0 0 -0.15" mass="0.1" diaginertia="0.00075 0.000748 0.000004"/></body></body></worldbody>'
        '<actuator><motor joint="arm" gear="0.01"/></actuator></mujoco>'
    )
    truth = mujoco_positions(xml, [0.2, 1.2], 4.0, 0.6)
    still = {'arm.coulomb': 0.0, 'pendulum.coulomb': 0.0, 'tilt.x': 0.0, 'tilt.y': 0.0}
    errors = []
    for k in range(4):
        h = 2e-3 / 2**k
        model = mechanisms.furuta(still, compliance=1e-9, damping=2 * h)
        start = State(place(model, jnp.array([0.2, 1.2])), jnp.zeros((2, 6)))
        r = simulate(model, start, np.array([4.0]), 300 * 2**k, time_step=h)
        errors.append(np.abs(np.asarray(r.coordinates[:, -1]) - truth).max())
    assert errors[-1] < 5e-3
    assert (np.abs(orders(errors) - 1) < 0.25).all(), (errors, orders(errors))


def rollout(model, q, v, tau, seconds, count=400):
    """Joint-coordinate motion by RK4."""

    def rate(x):
        return jnp.concatenate([x[model.nv :], tree.forward_dynamics(model, x[: model.nv], x[model.nv :], tau)])

    def rk4(x, _):
        h = seconds / count
        k1 = rate(x)
        k2 = rate(x + h / 2 * k1)
        k3 = rate(x + h / 2 * k2)
        k4 = rate(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.jit(lambda x: jax.lax.scan(rk4, x, None, length=count)[0])(jnp.concatenate([q, v]))


@pytest.fixture(scope='module')
def arm():
    example = pytest.importorskip('example_robot_data')
    return tree.load_urdf(example.getModelPath('ur_description/urdf/ur5_robot.urdf') + '/ur_description/urdf/ur5_robot.urdf')


def test_a_urdf_arm_accelerates_from_rest_as_its_tree_does(arm):
    rng = np.random.default_rng(0)
    q, tau = jnp.asarray(rng.uniform(-1, 1, arm.nq)), jnp.asarray(rng.normal(size=arm.nv))
    exact = np.asarray(tree.forward_dynamics(arm, q, jnp.zeros(arm.nv), tau))
    errors = []
    for compliance in (1e-8, 1e-10, 1e-12):
        model = from_tree(arm, compliance=compliance)
        start = tree_state(arm, q, jnp.zeros(arm.nv))
        h = 1e-4
        r = simulate(model, start, tau, 1, time_step=h)
        errors.append(np.abs(np.asarray(r.speeds[:, -1]) / h - exact).max() / np.abs(exact).max())
    assert errors[-1] < 1e-3 and errors[0] > errors[1] > errors[2], errors


def test_a_urdf_arm_moves_as_its_tree_does_in_the_stiff_limit(arm):
    rng = np.random.default_rng(1)
    q, v, tau = (
        jnp.asarray(rng.uniform(-1, 1, arm.nq)),
        jnp.asarray(rng.normal(size=arm.nv)),
        jnp.asarray(rng.normal(size=arm.nv)),
    )
    exact = np.asarray(rollout(arm, q, v, tau, 0.2))
    errors = []
    for k in range(3):
        h = 2e-3 / 2**k
        model = from_tree(arm, compliance=1e-11, damping=2 * h)
        r = simulate(model, tree_state(arm, q, v), tau, 100 * 2**k, time_step=h)
        errors.append(np.abs(np.asarray(r.coordinates[:, -1]) - exact[: arm.nq]).max())
    assert errors[-1] < 5e-3 and (np.abs(orders(errors) - 1) < 0.3).all(), (errors, orders(errors))


@pytest.mark.parametrize(('regime', 'angle'), [('stick', 0.2), ('slip', 0.6)])
def test_derivatives_of_contact_agree_with_finite_differences(regime, angle):
    """Velocity after a step of a block on a slope, by its friction, mass, slope and velocity."""
    model = mechanisms.incline(angle)
    settled = simulate(model, model.rest_state(), None, 100, time_step=H).state
    start = State(settled.pose[..., -1], settled.velocity[..., -1])
    assert (float(start.velocity[0, 0]) > 1e-2) == (regime == 'slip')

    def move(x):
        g = 9.81 * jnp.stack([jnp.sin(angle + x[2]), 0.0, -jnp.cos(angle + x[2])])
        other = dataclasses.replace(model, contact_friction=model.contact_friction + x[0], mass=model.mass + x[1], gravity=g)
        return module.step(other, State(start.pose, start.velocity + x[3:9]), jnp.zeros(0), H).state.velocity.ravel()

    x, e = jnp.zeros(9), 1e-4
    f, forward, backward = jax.jit(move), jax.jit(jax.jacfwd(move)), jax.jit(jax.jacrev(move))
    scale = np.array([0.01, 0.1, 0.01, *[1e-4] * 6])
    exact = np.asarray(forward(x)) * scale
    numeric = np.stack([(f(x + e * d) - f(x - e * d)) / (2 * e) for d in np.diag(scale)], axis=1)
    np.testing.assert_allclose(exact, numeric, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(backward(x), forward(x), rtol=1e-7, atol=1e-9)
    assert (np.abs(exact[0, 0]) > 1e-5) == (regime == 'slip')  # friction's coefficient acts only while sliding


def test_rollouts_differentiate_both_ways_and_batch_over_parameters():
    model = mechanisms.furuta()
    nominal = jnp.array([p.nominal for p in mechanisms.FURUTA])
    start = State(place(model, jnp.array([0.0, 1.0])), jnp.zeros((2, 6)))

    def last(x):
        return simulate(mechanisms.furuta_with(model, x), start, np.array([3.0]), 20, time_step=H).coordinates[:, -1]

    J = jax.jit(jax.jacfwd(last))(nominal)
    np.testing.assert_allclose(jax.jit(jax.jacrev(last))(nominal), J, rtol=1e-6, atol=1e-9)
    batch = nominal * jnp.array([1.0, 1.0 + 1e-6, 1.0 - 1e-6])[:, None]
    out = jax.jit(jax.vmap(last))(batch)
    np.testing.assert_allclose((out[1] - out[2]) / 2e-6, J @ nominal, rtol=1e-4, atol=1e-7)
