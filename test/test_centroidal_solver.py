# SPDX-License-Identifier: Apache-2.0
"""The centroidal smoother against finite differences, a Kalman smoother, a sparse KKT solver, crocoddyl and statistics."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import splu
from scipy.stats import chi2

from multibody_estimation._jax import jax, jnp
from multibody_estimation.centroidal.ddp import CONVERGED, Settings, cost, derivatives, solve
from multibody_estimation.centroidal.gait import NOISE, draw_gait, measure, walking_gait
from multibody_estimation.centroidal.lag import make_sample, push, start_lag_smoother
from multibody_estimation.centroidal.model import BLOCKS, StateLayout, chain, jacobian, predict, second_order
from multibody_estimation.centroidal.problem import Measurement, ProcessNoise, assemble
from multibody_estimation.centroidal.robust import Loss
from multibody_estimation.errors import EstimationError
from multibody_estimation.kernels import available, ddp_sweep

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.centroidal_peers import Plain, crocoddyl_solver, ekf, rts  # noqa: E402

USUAL = ('center_of_mass', 'contact_wrench', 'angular_momentum')
TIGHT = Settings(tolerance=1e-10)
FULL = StateLayout(external_wrench=True, com_offset=True, wrench_bias=True, mass=True)
PRIOR_SPREAD = np.repeat([0.02, 5.0, 1.0, 30.0, 5.0], 3)
PARTS = ('center_of_mass', 'linear_momentum', 'angular_momentum', 'force', 'moment')
NOISE_DENSITY = ProcessNoise(force=85.0, moment=4.2)


def prior_around(state, rng=None):
    mean = state[:15] + (0 if rng is None else rng.normal(size=15) * PRIOR_SPREAD)
    return {p: (mean[3 * i : 3 * i + 3], PRIOR_SPREAD[3 * i : 3 * i + 3]) for i, p in enumerate(PARTS)}


@pytest.fixture(scope='module')
def gait():
    return walking_gait(301)


@pytest.fixture(scope='module')
def problem(gait):
    rng = np.random.default_rng(0)
    return assemble(measure(gait, USUAL, rng), mass=56.0, noise=NOISE_DENSITY, prior=prior_around(gait.states[0], rng))


@pytest.fixture(scope='module')
def solution(problem):
    return solve(problem, TIGHT)


@pytest.mark.parametrize('layout', [StateLayout(), FULL], ids=['centroidal', 'all states'])
@pytest.mark.parametrize('block', BLOCKS)
def test_derivatives_of_every_sensor(layout, block):
    rng = np.random.default_rng(1)
    scale = np.ones(layout.size)
    x, o, m, g = rng.normal(size=layout.size) * scale + 1, rng.normal(size=3), 56.0, np.array([0.1, 0.2, -9.81])
    pull = rng.normal(size=BLOCKS[block])

    def slope(x):
        return np.asarray(jacobian(layout, block, jnp.asarray(x), o, m, g)).T @ pull

    def see(x):
        return np.asarray(predict(layout, block, jnp.asarray(x), o, m, g))

    step = 1e-5
    numeric = np.stack([(see(x + step * e) - see(x - step * e)) / (2 * step) for e in np.eye(layout.size)], axis=1)
    np.testing.assert_allclose(jacobian(layout, block, jnp.asarray(x), o, m, g), numeric, atol=2e-8)
    bend = np.stack([(slope(x + step * e) - slope(x - step * e)) / (2 * step) for e in np.eye(layout.size)], axis=1)
    exact = second_order(layout, block, jnp.asarray(x), o, jnp.asarray(pull))
    np.testing.assert_allclose(np.zeros_like(bend) if exact is None else exact, bend, atol=2e-8)


def test_the_derivative_printed_in_the_report_is_not_one():
    # Both satisfy H x = 2 c x f + tau (Euler's identity), so only a derivative test tells them apart.
    x = np.arange(1.0, 16.0)
    right = np.asarray(jacobian(StateLayout(), 'contact_wrench', jnp.asarray(x), np.zeros(3), 1.0, np.zeros(3)))[3:]
    printed = right.copy()
    printed[:, 0:3], printed[:, 9:12] = 0, 2 * right[:, 9:12]
    np.testing.assert_allclose(printed @ x, right @ x)
    assert np.abs(printed - right).max() > 1


@pytest.mark.parametrize('curvature', [False, True])
def test_gradient_of_the_cost_by_autodiff(problem, curvature):
    problem = replace(problem, loss=Loss('student'))
    states = problem.guess + 0.01
    inputs = jnp.zeros(problem.noise_information.shape)
    lx, _ = derivatives(problem, states, curvature)
    gradient = jax.grad(lambda x: cost(problem, x, inputs))(states)
    gradient = gradient.at[0].add(-problem.prior_information @ (states[0] - problem.prior_mean))
    np.testing.assert_allclose(lx, gradient, rtol=1e-9, atol=1e-7)


def test_linear_sensors_give_the_kalman_smoother_in_one_step(gait):
    rng = np.random.default_rng(2)
    blocks = (
        'center_of_mass',
        'linear_momentum',
        'angular_momentum',
        'angular_momentum_rate',
        'linear_momentum_rate',
        'acceleration',
    )
    problem = assemble(measure(gait, blocks, rng), mass=56.0, noise=NOISE_DENSITY, prior=prior_around(gait.states[0], rng))
    plain = Plain(problem)
    means, covariances = rts(plain, ekf(plain))
    found = solve(problem, Settings(tolerance=1e-6))
    assert int(found.status) == CONVERGED
    assert int(found.iterations) == 0, 'the first linear pass is already the answer'
    scale = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    np.testing.assert_allclose((found.states - means) / scale, 0, atol=1e-9)
    relative = np.abs(found.covariance - covariances) / (scale[:, :, None] * scale[:, None, :])
    assert relative.max() < 1e-9


def kkt_gauss_newton(plain, iterations=12):
    """Equality-constrained Gauss-Newton by sparse LU on states, inputs and multipliers: no Riccati recursion anywhere."""
    n, nx, nw = len(plain.A), len(plain.mean), plain.B.shape[2]
    X, W = plain.roll(plain.mean, np.zeros((n, nw))), np.zeros((n, nw))
    size = (n + 1) * nx
    forward = sp.eye(size, format='csr')[nx:] - sp.hstack([sp.block_diag(list(plain.A)), sp.csr_matrix((n * nx, nx))])
    D = sp.hstack([forward, -sp.block_diag(list(plain.B))]).tocsc()
    for _ in range(iterations):
        hessians, gradients = [], []
        for k, x in enumerate(X):
            h = plain.jacobian(x, plain.o[k])
            hessians.append(h.T @ plain.Ri[k] @ h + (plain.P0i if k == 0 else 0))
            gradients.append(h.T @ plain.Ri[k] @ (plain.sense(x, plain.o[k]) - plain.y[k]))
        gradients[0] = gradients[0] + plain.P0i @ (X[0] - plain.mean)
        gradient = np.concatenate([*gradients, np.einsum('kij,kj->ki', plain.Qi, W).ravel()])
        K = sp.bmat([[sp.block_diag([*hessians, *plain.Qi]), D.T], [D, None]]).tocsc()
        gap = (X[1:] - np.einsum('kij,kj->ki', plain.A, X[:-1]) - np.einsum('kij,kj->ki', plain.B, W) - plain.b).ravel()
        step = splu(K).solve(-np.r_[gradient, gap])[: size + n * nw]
        X, W = X + step[:size].reshape(X.shape), W + step[size:].reshape(W.shape)
    return X, W


def test_equals_sparse_kkt_gauss_newton(problem, solution):
    X, W = kkt_gauss_newton(Plain(problem))
    np.testing.assert_allclose(solution.states, X, atol=1e-9)
    np.testing.assert_allclose(solution.inputs, W, atol=1e-9)


def test_equals_sparse_kkt_with_all_states_sensors_and_irregular_stamps(gait):
    rng = np.random.default_rng(14)
    states = np.hstack([gait.states, np.zeros((301, 15)), np.ones((301, 1))])
    rows = np.sort(rng.choice(301, 16, replace=False))
    some = replace(gait, time=gait.time[rows], states=states[rows], anchor=gait.anchor[rows], layout=FULL)
    problem = assemble(measure(some, tuple(BLOCKS), rng), mass=56.0, noise=NOISE_DENSITY, layout=FULL, switches=[some.time[9]])
    assert np.ptp(np.diff(problem.time)) > 0.01
    found = solve(problem, TIGHT)
    X, W = kkt_gauss_newton(Plain(problem), iterations=8)
    scale = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    np.testing.assert_allclose((found.states - X) / scale, 0, atol=2e-6)  # Gauss-Newton from far is still on its way
    np.testing.assert_allclose(found.inputs, W, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('solver', ['FDDP', 'DDP'])
def test_equals_crocoddyl(problem, solution, solver):
    pytest.importorskip('crocoddyl')
    X, _, lowest = crocoddyl_solver(Plain(problem), solver)()
    np.testing.assert_allclose(solution.states, X, atol=1e-9)
    assert float(solution.cost) == pytest.approx(lowest, rel=1e-12)


def test_second_order_reaches_the_same_point(problem, solution):
    full = solve(problem, Settings(second_order=True, tolerance=1e-10))
    assert int(full.status) == CONVERGED
    np.testing.assert_allclose(full.states, solution.states, atol=1e-9)


def test_converges_from_a_blind_roll_out(problem, solution):
    structure = chain(problem.layout)
    n, nw = problem.noise_information.shape
    still = ddp_sweep.Gains(jnp.zeros((n, nw)), jnp.zeros((n, nw, 15)), *[jnp.zeros(())] * 5)
    start = ddp_sweep.forward(
        structure, problem.entries, problem.offsets, problem.guess, jnp.zeros((n, nw)), still, jnp.zeros(()), problem.prior_mean
    )
    for settings in (TIGHT, Settings(second_order=True, tolerance=1e-10)):
        found = solve(problem, settings, start)
        assert int(found.status) == CONVERGED
        np.testing.assert_allclose(found.states, solution.states, atol=1e-9)


@pytest.mark.parametrize('layout', [StateLayout(), FULL], ids=['fixed sizes', 'any size'])
def test_the_kernel_gives_what_its_twin_gives(layout):
    if not available('ddp_backward'):
        pytest.skip('the kernels were not built')
    rng = np.random.default_rng(3)
    structure, nx, nw, n = chain(layout), layout.size, len(layout.inputs), 12
    entries, offsets, w = rng.normal(size=(n, 12)) * 0.1, rng.normal(size=(n, nx)), rng.normal(size=(n, nw))
    root = rng.normal(size=(n + 1, nx, nx))
    args = [
        jnp.asarray(v) for v in (entries, rng.normal(size=(n + 1, nx)), root @ root.swapaxes(1, 2), w, rng.random((n, nw)) + 1)
    ]
    ours, twin = (
        ddp_sweep.backward(structure, *args, jnp.asarray(0.3)),
        ddp_sweep.backward_twin(structure, *args, jnp.asarray(0.3)),
    )
    for one, other in zip(ours, twin, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    bad = [*args[:2], -args[2], *args[3:]]
    assert ddp_sweep.backward(structure, *bad, jnp.zeros(())).good == 0
    assert ddp_sweep.backward_twin(structure, *bad, jnp.zeros(())).good == 0
    states = jnp.asarray(rng.normal(size=(n + 1, nx)))
    roll = (args[0], jnp.asarray(offsets), states, args[3], twin, jnp.asarray(0.5), states[0] + 1)
    for one, other in zip(ddp_sweep.forward(structure, *roll), ddp_sweep.forward_twin(structure, *roll), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    first = jnp.asarray(root[0] @ root[0].T)
    one = ddp_sweep.covariance(structure, args[0], twin, first)
    np.testing.assert_allclose(one, ddp_sweep.covariance_twin(structure, args[0], twin, first), rtol=1e-9, atol=1e-9)


def test_shifting_the_world_shifts_only_the_center_of_mass(gait, problem, solution):
    shift = np.array([12.0, -7.0, 3.0])
    moved = replace(
        problem,
        values=problem.values | {'center_of_mass': problem.values['center_of_mass'] + shift},
        anchor=problem.anchor + shift,
        prior_mean=problem.prior_mean.at[:3].add(shift),
        guess=problem.guess.at[:, :3].add(shift),
    )
    found = solve(moved, TIGHT)
    np.testing.assert_allclose(found.states[:, :3] - shift, solution.states[:, :3], atol=1e-9)
    np.testing.assert_allclose(found.states[:, 3:], solution.states[:, 3:], atol=1e-8)
    np.testing.assert_allclose(found.covariance, solution.covariance, rtol=1e-6, atol=1e-9)


def test_errors_are_as_large_as_the_covariance_says():
    """NEES over 50 motions drawn from the model, at one sample each so that the draws are independent: chi2(15 * 50)."""
    rng, layout, time = np.random.default_rng(4), StateLayout(), np.arange(61) * 0.005
    mean = walking_gait(2).states[0]
    nees = []
    for _ in range(50):
        truth = draw_gait(rng, mean, PRIOR_SPREAD, np.repeat([85.0, 4.2], 3), time, 56.0, layout)
        found = solve(assemble(measure(truth, USUAL, rng), mass=56.0, noise=NOISE_DENSITY, prior=prior_around(mean)))
        error = np.asarray(found.states[30] - truth.states[30])
        nees.append(error @ np.linalg.solve(found.covariance[30], error))
    low, high = chi2.ppf([0.025, 0.975], 15 * 50)
    assert low < np.sum(nees) < high


@pytest.fixture(scope='module')
def all_sensors(gait):
    rng = np.random.default_rng(12)
    return assemble(measure(gait, tuple(BLOCKS), rng), mass=56.0, noise=NOISE_DENSITY, prior=prior_around(gait.states[0], rng))


@pytest.mark.parametrize(('lost', 'others'), [*((b, 'usual') for b in USUAL), *((b, 'all') for b in BLOCKS)])
def test_a_sensor_may_drop_out(gait, problem, all_sensors, lost, others):
    """0.5 s without one sensor: still converges, and the states there stay within 6 of their larger deviations."""
    problem = problem if others == 'usual' else all_sensors
    there = np.ones(301, bool)
    there[100:200] = False
    information = problem.information | {lost: problem.information[lost] * there[:, None, None]}
    values = problem.values | {lost: jnp.where(there[:, None], problem.values[lost], 1e6)}
    found = solve(replace(problem, information=information, values=values))
    whole = solve(problem)
    assert int(found.status) == CONVERGED
    deviation = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    before = np.sqrt(np.diagonal(whole.covariance, axis1=1, axis2=2))
    assert (deviation >= before * (1 - 1e-3)).all()
    assert (deviation[150] > 1.001 * before[150]).any()
    assert (np.abs(found.states - gait.states) / deviation).max() < 6


def test_other_rates_and_irregular_stamps(gait):
    rng = np.random.default_rng(5)
    com, wrench, momentum = measure(gait, USUAL, rng)
    some = np.sort(rng.choice(301, 120, replace=False))
    com = Measurement(com.block, com.time[some], com.values[some], com.covariance[some])
    every = slice(0, None, 3)
    momentum = Measurement(momentum.block, momentum.time[every], momentum.values[every], momentum.covariance[every])
    problem = assemble([com, wrench, momentum], mass=56.0, noise=NOISE_DENSITY)
    assert len(problem.time) == 301
    assert int((np.abs(problem.information['center_of_mass']).sum(axis=(1, 2)) > 0).sum()) == 120
    found = solve(problem)
    assert int(found.status) == CONVERGED
    assert np.sqrt(np.mean((found.states[:, :3] - gait.states[:, :3]) ** 2)) < 2e-3


def test_robust_losses_survive_outliers(gait):
    rng = np.random.default_rng(6)
    com, wrench, momentum = measure(gait, USUAL, rng)
    spoiled = com.values.copy()
    spoiled[rng.choice(301, 30, replace=False)] += rng.normal(size=(30, 3)) * 0.5
    data = [Measurement(com.block, com.time, spoiled, com.covariance), wrench, momentum]
    error = {}
    for kind in ('none', 'huber', 'student'):
        found = solve(assemble(data, mass=56.0, noise=NOISE_DENSITY, prior=prior_around(gait.states[0]), loss=Loss(kind)))
        assert int(found.status) == CONVERGED
        error[kind] = np.sqrt(np.mean((found.states[:, :3] - gait.states[:, :3]) ** 2))
    assert error['huber'] < 0.5 * error['none']
    assert error['student'] < 0.3 * error['none']


def test_optional_states_are_found():
    """Pushed with 40 N, kinematics 2 cm off, mass 5 % off: the errors fit the covariance and the wrong numbers are seen."""
    rng = np.random.default_rng(7)
    layout = StateLayout(external_wrench=True, com_offset=True, mass=True)
    base = walking_gait(301)
    states = np.zeros((301, layout.size))
    states[:, :15] = base.states
    states[:, layout['external_force']] = [40.0, -10.0, 5.0]
    states[:, layout['com_offset']] = [0.02, -0.015, 0.0]
    states[:, layout['mass_ratio']] = 1.05
    gait = replace(base, states=states, layout=layout)
    blocks = (*USUAL, 'linear_momentum', 'acceleration')
    problem = assemble(measure(gait, blocks, rng), mass=56.0, noise=NOISE_DENSITY, layout=layout)
    found = solve(problem)
    assert int(found.status) == CONVERGED
    error, deviation = found.states - states, np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    assert (np.abs(error / deviation)[150] < 5).all()
    offset = layout['com_offset']
    assert np.abs(error[150, offset][:2]).max() < 0.01
    assert abs(float(error[150, -1])) < 0.03
    second = solve(problem, Settings(second_order=True))
    np.testing.assert_allclose(second.states, found.states, atol=1e-4)


def test_a_bias_of_the_feet_is_found():
    """The summed wrench is 12 N and 5 N m off: momentum and acceleration tell, and the errors fit the covariance."""
    layout, base = StateLayout(wrench_bias=True), walking_gait(301)
    states = np.hstack([base.states, np.tile([12.0, -6.0, 9.0, 5.0, -3.0, 2.0], (301, 1))])
    gait = replace(base, states=states, layout=layout)
    data = measure(gait, (*USUAL, 'linear_momentum', 'acceleration'), np.random.default_rng(13))
    found = solve(assemble(data, mass=56.0, noise=NOISE_DENSITY, layout=layout))
    assert int(found.status) == CONVERGED
    error, deviation = found.states - states, np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    assert (np.abs(error / deviation)[150] < 5).all()
    assert np.abs(error[150, layout['bias_force']]).max() < 3
    assert (deviation[150, layout['bias_force']] < 2).all()


def test_momentum_keeps_step_with_a_changing_force():
    """A swing c = a sin(w t) with all its derivatives known: momentum must not run half a sample behind the force."""
    time, mass, sway, rate = np.arange(201) * 0.01, 56.0, 0.05, 2 * np.pi
    zero = np.zeros(201)
    c = np.stack([sway * np.sin(rate * time), zero, zero + 0.8], axis=1)
    p = mass * np.stack([sway * rate * np.cos(rate * time), zero, zero], axis=1)
    f = mass * np.stack([-sway * rate**2 * np.sin(rate * time), zero, zero + 9.81], axis=1)
    wrench = np.hstack([f, np.cross(c, f)])
    data = [Measurement('center_of_mass', time, c, 1e-3), Measurement('contact_wrench', time, wrench, np.repeat([0.5, 0.05], 3))]
    found = solve(assemble(data, mass=mass, noise=NOISE_DENSITY))
    half_a_sample = 0.005 * np.abs(f[:, 0]).max()
    assert np.abs(found.states[20:-20, 3] - p[20:-20, 0]).max() < 0.03 * half_a_sample


def samples_of(data):
    blocks = tuple(m.block for m in data)
    for k, time in enumerate(data[0].time):
        yield make_sample(blocks, time, {m.block: (m.values[k], m.covariance[k]) for m in data}, data[1].anchor[k])


def test_fixed_lag_equals_batch_when_the_lag_spans_all_data(gait):
    rng = np.random.default_rng(8)
    data = [Measurement(m.block, m.time[:25], m.values[:25], m.covariance[:25], m.anchor[:25]) for m in measure(gait, USUAL, rng)]
    prior = prior_around(gait.states[0], rng)
    batch = solve(assemble(data, mass=56.0, noise=NOISE_DENSITY, prior=prior), TIGHT)
    first, *rest = samples_of(data)
    smoother = start_lag_smoother(first, lag=30, mass=56.0, noise=NOISE_DENSITY, prior=prior)
    for sample in rest:
        smoother, window, newest = push(smoother, sample, TIGHT)
    assert int(newest) == 24
    np.testing.assert_allclose(window.states[:25], batch.states, atol=1e-9)
    np.testing.assert_allclose(window.covariance[:25], batch.covariance, rtol=1e-6, atol=1e-9)


def test_fixed_lag_loses_nothing_with_linear_sensors(gait):
    """The arrival cost is exact: the newest state of a window of 6 equals that of a smoother over everything so far."""
    rng = np.random.default_rng(9)
    blocks = ('center_of_mass', 'linear_momentum', 'angular_momentum', 'angular_momentum_rate')
    data = [Measurement(m.block, m.time[:40], m.values[:40], m.covariance[:40]) for m in measure(gait, blocks, rng)]
    prior = prior_around(gait.states[0], rng)
    batch = solve(assemble(data, mass=56.0, noise=NOISE_DENSITY, prior=prior))
    first, *rest = samples_of(data)
    smoother = start_lag_smoother(first, lag=5, mass=56.0, noise=NOISE_DENSITY, prior=prior)
    for sample in rest:
        smoother, window, newest = push(smoother, sample)
    np.testing.assert_allclose(window.states[newest], batch.states[-1], rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(window.covariance[newest], batch.covariance[-1], rtol=1e-6, atol=1e-9)


def test_noise_grows_at_contact_switches(gait):
    rng = np.random.default_rng(10)
    problem = assemble(measure(gait, USUAL, rng), mass=56.0, noise=NOISE_DENSITY, switches=[0.5])
    information = np.asarray(problem.noise_information)[:, 0]
    near = np.abs((gait.time[:-1] + gait.time[1:]) / 2 - 0.5) < 0.015
    np.testing.assert_allclose(information[near] * 50, information[0])
    np.testing.assert_allclose(information[gait.time[:-1] > 0.53], information[0])


ONE = np.zeros((2, 3))
BAD = {
    'not positive definite': lambda: Measurement('center_of_mass', [0, 1], ONE, np.diag([1.0, -1.0, 1.0])),
    'needs a noise|positive definite': lambda: Measurement('center_of_mass', [0, 1], ONE, 0.0),
    'time runs backwards': lambda: Measurement('center_of_mass', [1, 0], ONE, 1.0),
    'recording is empty: no measurement': lambda: assemble([], mass=1.0),
    'recording is empty. Leave': lambda: Measurement('center_of_mass', [], np.zeros((0, 3)), 1.0),
    'mass of 0': lambda: assemble([Measurement('center_of_mass', [0, 1], ONE, 1.0)], mass=0.0),
    'mass of -3': lambda: assemble([Measurement('center_of_mass', [0, 1], ONE, 1.0)], mass=-3),
    "Did you mean 'center_of_mass'": lambda: Measurement('center_of_mas', [0, 1], ONE, 1.0),
    'sample 1 is not finite': lambda: Measurement('center_of_mass', [0, 1], [[0, 0, 0], [0, np.nan, 0]], 1.0),
    'needs a prior': lambda: assemble([Measurement('angular_momentum', [0, 1], ONE, 1.0)], mass=1.0),
    'only one instant': lambda: assemble([Measurement('center_of_mass', [0], ONE[:1], 1.0)], mass=1.0),
    'No loss': lambda: Loss('hubert'),
    'above zero': lambda: ProcessNoise(force=-1.0),
}


@pytest.mark.parametrize('sentence', BAD)
def test_bad_input_is_answered_with_a_sentence(sentence):
    with pytest.raises(EstimationError, match=sentence):
        BAD[sentence]()


def test_simulated_noise_is_what_it_says(gait):
    com = measure(gait, ('center_of_mass',), np.random.default_rng(11))[0]
    assert np.std(com.values - gait.states[:, :3]) == pytest.approx(NOISE['center_of_mass'], rel=0.1)
