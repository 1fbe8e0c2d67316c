# SPDX-License-Identifier: Apache-2.0
"""Motions that a textbook knows: free fall, spinning bodies, pendulums, sag, sticking and sliding, rolling, impact, limits."""

import numpy as np
import pytest
from scipy.special import ellipk

from multibody_estimation._jax import jnp
from multibody_estimation.maximal.assemble import place
from multibody_estimation.maximal.build import Body, Contact, Joint, multibody
from multibody_estimation.maximal.forces import momentum
from multibody_estimation.maximal.inverse_dynamics import advance
from multibody_estimation.maximal.model import State
from multibody_estimation.maximal.rollout import simulate
from multibody_estimation.robots import mechanisms

G = 9.81


def at(model, coordinates):
    """State at rest with given joint coordinates."""
    pose = place(model, jnp.asarray(coordinates, dtype=float))
    return model.state(pose, jnp.zeros((len(model.bodies), 6)))


@pytest.fixture(scope='module')
def body():
    return multibody([Body('wingnut', 1.0, (1e-3, 2e-3, 3e-3))])


def test_a_free_body_falls_down(body):
    r = simulate(body, body.rest_state(), None, 100, time_step=1e-3)
    assert r.state.velocity[0, 2, -1] == pytest.approx(-G * 0.1, rel=1e-12)
    # velocities lead by half a step: z = -g (t^2 + h t)/2
    assert r.state.pose[0, 2, -1] == pytest.approx(-G * (0.1**2 + 1e-4) / 2, rel=1e-12)


def test_a_spinning_wingnut_flips_over_and_keeps_momentum_and_energy():
    """Dzhanibekov: spin about the middle axis is unstable, world angular momentum stays to round-off, energy does not drift."""
    model = multibody([Body('wingnut', 1.0, (1e-3, 2e-3, 3e-3))], gravity=(0, 0, 0))
    h = 1e-3
    start = model.state(model.reference, np.array([[0, 0, 0, 0.01, 5.0, 0.01]]))
    r = simulate(model, start, None, 20000, time_step=h)
    spin = r.state.velocity[0, 4]
    assert spin.min() < -4.9 and spin.max() > 4.9  # it flips, and back
    # velocities belong to the middle of the interval that they ended
    L = np.asarray(momentum(model, State(advance(r.state.pose, r.state.velocity, -h / 2), r.state.velocity)))
    assert np.abs(L - L[:, :1]).max() < 1e-12 * np.abs(L).max()
    E = np.asarray(r.energy.kinetic)
    assert np.ptp(E) < 1.1 * (5.0 * h) ** 2 / 24 * E[0]  # a wave of second order
    assert abs(E[-5000:].mean() - E[:5000].mean()) < 1e-7 * E[0]


def period(angle, time):
    """Mean time between upward zero crossings."""
    k = np.flatnonzero((angle[:-1] < 0) & (angle[1:] >= 0))
    t = time[k] - angle[k] * (time[k + 1] - time[k]) / (angle[k + 1] - angle[k])
    return (t[-1] - t[0]) / (len(t) - 1)


def test_the_pendulum_has_the_period_of_the_elliptic_integral():
    model = mechanisms.pendulum()
    swing = 0.5
    r = simulate(model, at(model, [swing]), None, 10000, time_step=1e-3)
    omega = np.sqrt(0.3 * G * 0.125 / (0.3 * 0.25**2 / 3))
    exact = 4 / omega * ellipk(np.sin(swing / 2) ** 2)
    assert period(np.asarray(r.coordinates[0]), np.asarray(r.time)) == pytest.approx(exact, rel=2e-5)
    E = np.asarray(r.energy.total)
    assert abs(E[-2000:].mean() - E[:2000].mean()) < 2e-4 * 0.3 * G * 0.125


def test_joints_sag_by_compliance_times_load():
    model = mechanisms.pendulum(compliance=1e-5, damping=4e-3)
    r = simulate(model, model.rest_state(), None, 2000, time_step=1e-3)
    np.testing.assert_allclose(np.linalg.norm(r.joint_forces[:3, -1]), 0.3 * G, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(r.violation[:3, -1]), 1e-5 * 0.3 * G, rtol=1e-9)


@pytest.mark.parametrize('share', [0.0, 0.5, 0.95, 1.05, 1.5])
def test_a_block_sticks_below_the_friction_angle_and_slides_above_it(share):
    mu = 0.5
    angle = share * np.arctan(mu)
    model = mechanisms.incline(angle, friction=mu)
    r = simulate(model, model.rest_state(), None, 500, time_step=1e-3)
    assert int(r.unsolved) == 0
    v = np.asarray(r.state.velocity[0, 0])
    np.testing.assert_allclose(np.asarray(r.contact_normal[:, -1]).sum(), G * np.cos(angle), rtol=1e-4)
    if share < 1:
        assert -1e-9 < v[-1] < 1e-4 * share + 1e-9  # sticking creeps, slower than the creep speed
    else:
        a = (v[-1] - v[-301]) / 0.3
        np.testing.assert_allclose(a, G * (np.sin(angle) - mu * np.cos(angle)), rtol=1e-4)
    assert np.abs(r.state.velocity[0, 1]).max() < 1e-9


def test_a_sliding_block_stops_after_the_right_way():
    model = mechanisms.incline(0.0, friction=0.3)
    start = model.state(model.reference, np.array([[1.0, 0, 0, 0, 0, 0]]))
    r = simulate(model, start, None, 500, time_step=1e-3)
    assert r.state.pose[0, 0, -1] == pytest.approx(1 / (2 * 0.3 * G), rel=5e-3)
    assert abs(float(r.state.velocity[0, 0, -1])) < 1e-4


def test_dry_friction_of_a_joint_holds_exactly_up_to_its_limit():
    model = multibody(
        [Body('wheel', 1.0, (0.01, 0.01, 0.02))], [Joint('axle', 'hinge', 'world', 'wheel', coulomb=0.5, gain=1.0, creep=1e-4)]
    )
    held = simulate(model, model.rest_state(), np.array([0.49]), 500)
    assert abs(float(held.speeds[0, -1])) < 1e-4
    np.testing.assert_allclose(held.axis_forces[0, -1], -0.49, rtol=1e-6)
    slips = simulate(model, model.rest_state(), np.array([0.60]), 500)
    np.testing.assert_allclose(slips.speeds[0, -1], 0.1 / 0.02 * 0.5, rtol=1e-2)
    np.testing.assert_allclose(slips.axis_forces[0, -1], -0.5, rtol=1e-9)


def test_load_dependent_friction_stops_a_pendulum_wheel_as_coulomb_says():
    """A horizontal axle under weight m g: friction torque mu r m g (2.23), constant deceleration of a balanced wheel."""
    load = 0.02
    model = multibody(
        [Body('wheel', 2.0, (0.01, 0.02, 0.01))], [Joint('axle', 'hinge', 'world', 'wheel', axis=(0, 1, 0), load_radius=load)]
    )
    start = model.state(model.reference, np.array([[0, 0, 0, 0, 10.0, 0]]))
    r = simulate(model, start, None, 400)
    slow = (float(r.speeds[0, 100]) - float(r.speeds[0, -1])) / 0.3
    np.testing.assert_allclose(slow, load * 2.0 * G / 0.02, rtol=1e-6)


def test_a_ball_rolls_down_a_slope_with_five_sevenths():
    angle, radius = 0.2, 0.1
    g = (G * np.sin(angle), 0, -G * np.cos(angle))
    ball = Body('ball', 1.0, (0.4 * radius**2,) * 3, (0, 0, radius))
    touching = multibody([ball], contacts=[Contact('floor', 'ball', 'world', (0, 0, radius), radius, friction=0.5)], gravity=g)
    joined = multibody([ball], [Joint('floor', 'rolling', 'world', 'ball', at_second=(0, 0, radius), viscous=1e5)], gravity=g)
    slip = multibody([ball], contacts=[Contact('floor', 'ball', 'world', (0, 0, radius), radius, friction=0.02)], gravity=g)
    for model, expected in ((touching, 5 / 7 * g[0]), (joined, 5 / 7 * g[0]), (slip, g[0] + 0.02 * g[2])):
        r = simulate(model, model.rest_state(), None, 500)
        a = (r.state.velocity[0, 0, -1] - r.state.velocity[0, 0, 200]) / 0.3
        np.testing.assert_allclose(a, expected, rtol=2e-3)


@pytest.mark.parametrize('make', [mechanisms.sphere_stack, mechanisms.box_stack])
def test_stacks_stand_and_carry_their_weight(make):
    model = make()
    r = simulate(model, model.rest_state(), None, 300)
    assert int(r.unsolved) == 0
    masses = np.asarray(model.mass)
    force = np.asarray(r.contact_normal[:, -1])
    n = len(force) // 2
    np.testing.assert_allclose([force[:n].sum(), force[n:].sum()], [masses.sum() * G, masses[1] * G], rtol=1e-3)
    assert np.abs(r.state.pose[:, :3, -1] - model.reference[:, :3]).max() < 1e-4


def test_a_dropped_ball_touches_down_and_stays_above_the_floor():
    model = multibody(
        [Body('ball', 1.0, (4e-3,) * 3, (0, 0, 0.3))],
        contacts=[Contact('floor', 'ball', 'world', (0, 0, 0.3), 0.1, friction=0.5)],
    )
    r = simulate(model, model.rest_state(), None, 600)
    height = np.asarray(r.state.pose[0, 2]) - 0.1
    falls = np.sqrt(2 * 0.2 / G)
    assert height[int(1000 * (falls - 0.01))] > 0.01 and float(r.contact_normal[0, int(1000 * falls) - 20]) == 0.0
    assert height.min() > -1e-3 and abs(height[-1]) < 1e-5
    np.testing.assert_allclose(r.contact_normal[0, -1], G, rtol=1e-6)


def test_joint_limits_hold():
    model = mechanisms.pendulum(lower=-0.3, upper=0.2)
    r = simulate(model, at(model, [0.1]), None, 1500, time_step=1e-3)
    x = np.asarray(r.coordinates[0])
    assert x.max() < 0.2 + 1e-3 and x.min() > -0.3 - 1e-3
    pushed = mechanisms.pendulum(lower=-0.3, upper=0.2, gain=1.0)
    r = simulate(pushed, at(pushed, [0.1]), np.array([1.0]), 1500, time_step=1e-3)
    np.testing.assert_allclose(r.coordinates[0, -1], 0.2, atol=1e-5)
    np.testing.assert_allclose(r.limit_forces[1, -1], 1.0 - 0.3 * G * 0.125 * np.sin(0.2), rtol=1e-4)


def test_motors_reach_the_speeds_of_their_laws():
    def wheel(**motor):
        return multibody([Body('wheel', 1.0, (0.01, 0.01, 0.02))], [Joint('axle', 'hinge', 'world', 'wheel', **motor)])

    dc = wheel(gain=0.05, back_emf=0.02)  # V: no-load speed gain/back_emf, time constant J/back_emf = 1 s
    r = simulate(dc, dc.rest_state(), np.array([12.0]), 2000, time_step=1e-3)
    np.testing.assert_allclose(r.speeds[0, -1], 30 * (1 - np.exp(-2.0)), rtol=1e-3)
    servo = wheel(gain=1e4, back_emf=1e4)  # velocity motor: effort k (target - speed), implicit at any k
    r = simulate(servo, servo.rest_state(), np.array([3.0]), 5, time_step=1e-2)
    np.testing.assert_allclose(r.speeds[0, -1], 3.0, rtol=1e-9)
    rotor = wheel(gain=1.0, armature=0.06)
    r = simulate(rotor, rotor.rest_state(), np.array([0.4]), 100, time_step=1e-3)
    np.testing.assert_allclose(r.speeds[0, -1], 0.4 / 0.08 * 0.1, rtol=1e-9)


def test_a_loop_with_redundant_rows_swings_as_a_compound_pendulum():
    """A hanging parallelogram: the coupler only shifts, so inertia and weight about the cranks' angle are known exactly."""
    model = mechanisms.four_bar(gain=None)
    assert len(model.rows) == 20  # for 17 degrees of freedom to lock
    x = np.pi - 0.7
    start = model.state(place(model, jnp.array([x, -x, x, x])), np.zeros((3, 6)))
    r = simulate(model, start, None, 3000, time_step=1e-3)
    inertia, weight = 2 * 0.2 * 0.1**2 / 3 + 0.3 * 0.1**2, (2 * 0.2 * 0.05 + 0.3 * 0.1) * G
    exact = 4 / np.sqrt(weight / inertia) * ellipk(np.sin(0.35) ** 2)
    angle = np.angle(-np.exp(1j * np.asarray(r.coordinates)))
    assert period(angle[0], np.asarray(r.time)) == pytest.approx(exact, rel=1e-4)
    np.testing.assert_allclose(angle[0], angle[3], atol=1e-4)
    assert np.abs(r.violation).max() < 5e-5
    rigid = simulate(mechanisms.four_bar(gain=None, compliance=0.0), start, None, 3000, time_step=1e-3)
    np.testing.assert_allclose(np.angle(-np.exp(1j * np.asarray(rigid.coordinates[0]))), angle[0], atol=1e-3)
    E = np.asarray(r.energy.total)
    assert abs(E[-600:].mean() - E[:600].mean()) < 5e-3 * np.ptp(np.asarray(r.energy.kinetic))


def test_a_cart_pole_is_pushed_along_its_rail():
    model = mechanisms.cart_pole(viscous=0.0)
    r = simulate(model, model.rest_state(), np.array([1.0]), 2000)
    # total momentum along the rail is force times time
    p = np.asarray(momentum(model, r.state))[0]
    np.testing.assert_allclose(p[-1], 2.0, rtol=1e-3)
    assert np.abs(r.violation).max() < 1e-5
