# SPDX-License-Identifier: Apache-2.0
"""What an estimate is worth: coverage, influence, weights, external forces, prediction, tracking over a moving horizon."""

from dataclasses import replace

import numpy as np
import pytest

from multibody_estimation import robots, tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import (
    Encoder,
    Fit,
    Input,
    Parameter,
    Robot,
    choose_weight,
    identify,
    influence,
    moving_horizon,
    predict,
    predict_windows,
    prepare,
    simulate,
    track,
)
from multibody_estimation.identification.inertia import NAMES, from_log_cholesky, log_cholesky
from multibody_estimation.identification.weight import minus_log_evidence
from multibody_estimation.window import Signal, Window

NOISE = 1e-3


def torque(t):
    w = 2 * np.pi * t
    return 0.25 * np.sin(0.6 * w) + 0.2 * np.sin(1.3 * w + 1) + 0.1 * np.sign(np.sin(0.9 * w))


def pendulum(factor=1.0):
    links = [tree.Link('base'), tree.Link('rod', 0.4, (0, 0, -0.2), (4e-3, 4e-3, 1e-4))]
    joints = [tree.Joint('hinge', 'base', 'rod', axis=(0, 1, 0), damping=0.02, coulomb=0.01, friction_velocity=0.05)]
    parameters = tuple(
        Parameter(n, v * factor, lower=lo, upper=up, scale=abs(v), unit=u)
        for n, v, lo, up, u in (
            ('rod.center_of_mass.z', -0.2, -2.0, -0.01, 'm'), ('rod.inertia.yy', 4e-3, 1e-5, 1.0, 'kg m^2'),
            ('hinge.damping', 0.02, 0.0, 1.0, 'N m s/rad'), ('hinge.coulomb', 0.01, 0.0, 1.0, 'N m'),
        )
    )  # fmt: skip
    return Robot(
        'pendulum', tree.build(links, joints), (Input(joint='hinge'),), (Encoder(joints=('hinge',), noise=NOISE),), parameters
    )


def recording(seed, **more):
    return simulate(pendulum(), torque, seconds=4, rate=100, start=[0.3], seed=seed, **more)


@pytest.fixture(scope='module')
def window():
    return recording(0)


@pytest.fixture(scope='module')
def fit(window):
    return identify(pendulum(1.4), window)


def test_intervals_hold_the_truth_as_often_as_they_say(fit, window):
    problem, truth = fit.problem, np.array([p.start for p in pendulum().parameters])
    clean = recording(0, noise=False)['encoders']
    rng, inside = np.random.default_rng(5), []
    for _ in range(200):
        y = clean.values + NOISE * rng.normal(size=clean.values.shape)
        noisy = Window.gather([replace(clean, values=y), window['command']])
        again = identify(pendulum(1.4), noisy, problem=problem)
        inside.append(np.abs(again.values - truth) < 1.96 * again.std)
    share = np.mean(inside, axis=0)
    assert 0.92 < np.mean(share) < 0.98 and share.min() > 0.89, share


def test_influence_predicts_what_a_new_fit_finds(fit, window):
    told = influence(fit, ('weight', 'rod.mass', 'hinge.friction_velocity'))
    robot = pendulum(1.4)
    for k, change in enumerate(({'weight': 1.1e-3}, 'rod.mass', 'hinge.friction_velocity')):
        if isinstance(change, dict):
            other = identify(robot, window, **change, tolerance=1e-8)
        else:
            value = 1.02 * float(tree.get_leaf(robot.model, change))
            other = identify(replace(robot, model=tree.set_leaf(robot.model, change, value)), window, tolerance=1e-8)
        factor = np.log(1.1) if k == 0 else np.log(1.02)
        moved, expected = (other.values - fit.values) / fit.std, told.in_std[:, k] * factor
        np.testing.assert_allclose(moved, expected, rtol=0.15, atol=0.02 + 0.02 * np.abs(expected).max())
    assert 'std' in str(told)


def test_step_influence_is_what_deferred_correction_takes_out(fit, window):
    told = influence(fit, ('step',)).in_std[:, 0]
    plain = identify(pendulum(1.4), window, correction=False, tolerance=1e-8)
    moved = (plain.values - fit.values) / fit.std
    # The error grows with the square of the step: d/dlog h = 2 x error.
    np.testing.assert_allclose(2 * moved, told, rtol=0.2, atol=0.05)


def test_external_force_is_found_with_its_uncertainty():
    push = lambda t: np.array([0.15 * np.exp(-0.5 * ((t - 2.0) / 0.15) ** 2)])  # noqa: E731
    robot = pendulum()
    data = recording(3, external=push)
    states = track(robot, data, weight=5.0)
    motion = states.motion
    middle = motion.time[1:-1]
    truth = push(middle)[0]
    assert motion.external[0].max() > 0.1
    assert np.abs(motion.external[0] - truth).max() < 4 * motion.external_std[0].max()
    assert abs(np.trapezoid(motion.external[0] - truth, middle)) < 0.1 * np.trapezoid(truth, middle)
    clean = simulate(robot, torque, seconds=4, rate=100, start=[0.3], noise=False, external=push)['encoders'].values[:, 0]
    off = (motion.positions[0] - clean) / motion.positions_std[0]
    assert 0.6 < np.sqrt(np.mean(off**2)) < 1.3


def white_force(deviation, seed):
    """A joint force that is new at every sample (100 Hz), and its values."""
    kicks = deviation * np.random.default_rng(seed).normal(size=401)
    return lambda t: kicks[np.minimum((t / 0.01).astype(int), 400)][None], kicks


def test_external_forces_of_the_assumed_size_are_covered():
    inertia, weight = 4e-3 + 0.4 * 0.04, 5.0
    force, kicks = white_force(2**0.5 * weight * inertia, 8)
    motion = track(pendulum(), recording(3, external=force), weight=weight).motion
    # A second difference sees the mean of the force before and after the stage.
    error = (motion.external[0] - (kicks[:-2] + kicks[1:-1]) / 2) / motion.external_std[0]
    assert 0.6 < np.sqrt(np.mean(error**2)) < 1.4


def test_evidence_finds_the_size_of_white_model_errors():
    inertia = 4e-3 + 0.4 * 0.04
    data = recording(4, external=white_force(0.6 * inertia, 2)[0])
    choice = choose_weight(pendulum(), data, method='evidence', weights=(0.02, 0.1, 0.5, 2.5, 12.0))
    assert choice.best == 0.5, str(choice)
    fits = [identify(pendulum(), data, weight=w) for w in (0.02, 0.5)]
    assert minus_log_evidence(fits[0]) > minus_log_evidence(fits[1])


def test_leave_one_out_ranks_weights_and_needs_two():
    data = [recording(seed) for seed in (6, 7)]
    choice = choose_weight(pendulum(1.2), data, weights=(0.01, 100.0))
    assert choice.best == 0.01 and 'at the end of what was tried' in str(choice)
    with pytest.raises(EstimationError, match='at least two recordings'):
        choose_weight(pendulum(), data[:1])


def test_windows_are_predicted_within_the_noise(fit):
    held_out = recording(11)
    for starts in ('smoothed', 'causal'):
        errors = predict_windows(fit, held_out, seconds=0.2, starts=starts)
        assert errors.error['hinge'] < 1.3 * NOISE and errors.count > 15
    with pytest.raises(EstimationError, match="starts is 'casual'.*causal"):
        predict_windows(fit, held_out, starts='casual')


def test_causal_starts_do_not_see_the_window(fit):
    data = recording(12)
    spoiled = data['encoders'].values.copy()
    spoiled[201:] += 5.0  # from 2.01 s on
    late = Window.gather([replace(data['encoders'], values=spoiled), data['command']])
    a = predict_windows(fit, data, seconds=0.25, starts='causal').each['hinge']
    b = predict_windows(fit, late, seconds=0.25, starts='causal').each['hinge']
    np.testing.assert_allclose(a[:6], b[:6], rtol=1e-6)  # windows that end before
    assert b[8] > 10 * a[8]


def test_moving_horizon_follows_the_state(fit):
    data = recording(13)
    clean = recording(13, noise=False)['encoders'].values[:, 0]
    states = moving_horizon(fit, data, horizon=0.5, every=0.25)
    assert len(states) == 15
    off = [(s.position[0] - clean[int(round(s.time * 100))]) / s.position_std[0] for s in states]
    assert np.sqrt(np.mean(np.square(off))) < 2
    assert all(np.isfinite(s.speed_std).all() and np.isfinite(s.external_std).all() for s in states)


def test_another_window_needs_no_new_compilation(fit, window):
    form = fit.problem.form
    compiled = form.chain.normal._cache_size()
    again = identify(pendulum(1.4), recording(20), problem=fit.problem)
    short = identify(pendulum(1.4), recording(21).cut(0.0, 3.5), problem=fit.problem)
    assert again.converged and short.converged and again.problem.form is form
    assert form.chain.normal._cache_size() == compiled
    fresh = identify(pendulum(1.2), recording(22))  # the same robot, asked for anew
    assert fresh.problem.form is form and form.chain.normal._cache_size() == compiled


def test_several_recordings_count_together(fit):
    both = identify(pendulum(1.3), [recording(1), recording(2), recording(3)])
    assert both.converged
    np.testing.assert_allclose(both.std / fit.std, 3**-0.5, rtol=0.15)


def test_finer_step_and_shadow_parameters(fit, window):
    fine = identify(pendulum(1.3), window, step=0.005)
    assert fine.converged
    assert np.abs((fine.values - fit.values) / fit.std).max() < 0.2
    shadow = identify(pendulum(1.3), window, evaluation='semi_implicit')
    assert np.abs((shadow.values - fit.values) / fit.std).max() > 3
    with pytest.raises(EstimationError, match="evaluation is 'simplectic'"):
        identify(pendulum(), window, evaluation='simplectic')


def test_log_cholesky_numbers_are_bodies_that_can_exist():
    rng = np.random.default_rng(0)
    for _ in range(50):
        body = from_log_cholesky(rng.normal(size=10))
        I = np.array([[body['inertia.' + ''.join(sorted(a + b))] for b in 'xyz'] for a in 'xyz'], dtype=float)
        moments = np.linalg.eigvalsh(I)
        assert body['mass'] > 0 and moments[0] > 0 and moments[0] + moments[1] > moments[2]
    model = pendulum().model
    back = from_log_cholesky(list(log_cholesky(model, 'rod').values()))
    assert float(back['mass']) == pytest.approx(0.4) and float(back['inertia.zz']) == pytest.approx(1e-4)


def test_log_cholesky_inertia_is_identified_and_stays_possible(window):
    start = pendulum()
    other = replace(start, model=start.model)
    for leaf, value in (('rod.mass', 0.3), ('rod.inertia.xx', 2.5e-3), ('rod.inertia.yy', 2.5e-3)):
        other = replace(other, model=tree.set_leaf(other.model, leaf, value))
    names = [f'rod.log_cholesky.{n}' for n in NAMES]
    fit = identify(other, window, [Parameter(n, scale=0.3) for n in names] + list(start.parameters[2:]))
    assert fit.converged and fit.blind  # torques alone cannot tell all ten
    moments = np.linalg.eigvalsh(np.asarray(fit.robot.model.inertia[1]))
    assert moments[0] > 0 and moments[0] + moments[1] > moments[2]
    m, c, I = (np.asarray(getattr(fit.robot.model, k))[1] for k in ('mass', 'center_of_mass', 'inertia'))
    # What the torque does tell: inertia about the hinge and the first moment.
    assert I[1, 1] + m * (c[0] ** 2 + c[2] ** 2) == pytest.approx(4e-3 + 0.4 * 0.04, rel=0.01)
    assert m * c[2] == pytest.approx(-0.08, rel=0.01)
    with pytest.raises(EstimationError, match='rod: .* no body can have this inertia'):
        log_cholesky(tree.set_leaf(start.model, 'rod.inertia.xx', 1.0), 'rod')


def test_prior_pulls_and_log_transform_agrees(fit, window):
    robot = pendulum(1.4)
    known = tuple(replace(p, prior=(0.03, 1e-7)) if p.name == 'hinge.damping' else p for p in robot.parameters)
    pulled = identify(robot, window, known)
    assert pulled['hinge.damping'] == pytest.approx(0.03, rel=0.01)
    logs = tuple(replace(p, transform='log') if p.name == 'rod.inertia.yy' else p for p in robot.parameters)
    same = identify(robot, window, logs)
    assert np.abs((same.values - fit.values) / fit.std).max() < 0.05
    np.testing.assert_allclose(same.std, fit.std, rtol=0.02)


def test_saved_fit_tracks_like_the_fit(fit, window, tmp_path):
    fit.save(tmp_path / 'fit.yaml')
    loaded = Fit.load(tmp_path / 'fit.yaml', pendulum())
    a, b = track(fit, window), track(loaded, window)
    np.testing.assert_allclose(a.positions, b.positions, atol=1e-9)
    ahead = predict(loaded, window, start=1.0, seconds=0.5)
    assert ahead.error['hinge'] < 2 * NOISE and 'Predicted 0.49 s' in str(ahead)
    with pytest.raises(EstimationError, match='Nothing to predict from 9'):
        predict(loaded, window, start=9.0)


def test_bad_recordings_are_named(window):
    t, y = window.seconds('encoders'), window['encoders'].values
    command = window['command']
    with pytest.raises(EstimationError, match='too few'):
        identify(pendulum(), Window.gather([Signal.from_seconds('encoders', t[:3], y[:3], columns=('hinge',)), command]))
    back = t.copy()
    back[50] = t[40]
    shuffled = Window.gather([Signal.from_seconds('encoders', back, y, columns=('hinge',)), command])
    assert any('runs backwards' in str(d) and 'sample 50' in str(d) for d in shuffled.defects)
    with pytest.raises(EstimationError, match="no column 'hinge'"):
        two = Signal.from_seconds('encoders', t, np.hstack([y, y]), columns=('a', 'b'))
        identify(pendulum(), Window.gather([two, command]))
    with pytest.raises(EstimationError, match='weight -1.0 must be above zero'):
        identify(pendulum(), window, weight=-1.0)
    with pytest.raises(EstimationError, match='time step -0.01'):
        prepare(pendulum(), window, step=-0.01)
    with pytest.raises(EstimationError, match='No recording'):
        identify(pendulum(), [])


def test_thirteen_parameters_from_clean_data_of_the_own_scheme():
    from scipy.optimize import fsolve

    robot = robots.furuta(truth=True)
    model = robot.model
    h, n = 0.01, 700
    t = h * np.arange(n)
    tau = 0.2 * torque(t) + 0.02 * np.sin(2 * np.pi * 3.1 * t)
    inverse = _inverse_dynamics(model)
    q = [np.array([0.0, 0.4]), np.array([0.0, 0.4])]
    for k in range(1, n - 1):  # the scheme itself, solved forward: ID(q_k, central v, central a) = input
        mean = (tau[k - 1] + tau[k]) / 2 + 1e-3

        def rest(x, k=k, mean=mean):
            return inverse(q[k], (x - q[k - 1]) / (2 * h), (x - 2 * q[k] + q[k - 1]) / h**2) - np.array([mean, 0.0])

        q.append(fsolve(rest, 2 * q[k] - q[k - 1], xtol=1e-12))
    y = np.array(q) + [0, 0.03]
    encoders = Signal.from_seconds('encoders', t, y, columns=('arm', 'pendulum'))
    data = Window.gather([encoders, Signal.from_seconds('command', t, tau)])
    start = robots.furuta()
    half = {p.name: p.start * (1.5 if k % 2 else 0.5) for k, p in enumerate(robot.parameters)}
    fit = identify(start, data, start=half, correction=False, tolerance=1e-12)
    truth = np.array([p.start for p in robot.parameters])
    assert len(truth) == 13 and fit.converged and fit.iterations <= 20, fit.iterations
    assert np.abs(fit.values / truth - 1).max() < 1e-6, fit.values / truth - 1


def _inverse_dynamics(model):
    """Independent of the unrolled equations: the general functions of `tree`, one sample at a time."""
    from multibody_estimation._jax import jax

    def force(q, v, a):
        return tree.inverse_dynamics(model, q, v, a) - tree.joint_torques(model, q, v)

    compiled = jax.jit(force)
    return lambda q, v, a: np.asarray(compiled(q, v, a))
