# SPDX-License-Identifier: Apache-2.0
"""Identification of a two-joint mechanism whose equations are written by hand, on data of an accurate integrator."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from multibody_estimation._jax import jnp, static, value
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import Encoder, Fit, Input, Parameter, Robot, identify, prepare, track
from multibody_estimation.window import Signal, Window

TRUTH = {'A': 6.004e-3, 'B': 2.994e-3, 'H': 3e-3, 'J': 3e-3, 'G': 0.14715, 'b1': 1e-3, 'b2': 1e-4, 'c1': 4e-3, 'c2': 5e-4,
         'command.offset': 1e-3, 'encoders.offset.pendulum': 0.03}  # fmt: skip
NOISE, STEP, COUNT = 2e-3, 0.005, 1000


@value
class Pendulum:
    """Rotary pendulum in lumped parameters (kg m^2, N m, N m s/rad)."""

    A: float
    B: float
    H: float
    J: float
    G: float
    b1: float
    b2: float
    c1: float
    c2: float
    idle: float = 1.0
    joint_names: tuple = static(default=('arm', 'pendulum'))

    def inverse_dynamics(self, q, qd, qdd):
        s, c, (w, v) = jnp.sin(q[1]), jnp.cos(q[1]), qd
        arm = (self.A + self.B * s * s) * qdd[0] + self.H * c * qdd[1] + 2 * self.B * s * c * w * v - self.H * s * v * v
        rod = self.H * c * qdd[0] + self.J * qdd[1] - self.B * s * c * w * w + self.G * s
        return jnp.stack([arm + self.b1 * w + self.c1 * jnp.tanh(w / 0.05), rod + self.b2 * v + self.c2 * jnp.tanh(v / 0.05)])


def torque(t):
    w = 2 * np.pi * t
    return (
        0.035 * np.sin(0.45 * w + 0.3) + 0.03 * np.sin(1.05 * w) + 0.02 * np.sin(1.9 * w + 1) + 0.015 * np.sign(np.sin(0.27 * w))
    )


def simulate(p, t):
    """Angles (n, 2) by scipy with a held torque, independent of the package."""
    u = torque(t)

    def rates(x, u):
        s, c, w, v = np.sin(x[1]), np.cos(x[1]), x[2], x[3]
        M = np.array([[p['A'] + p['B'] * s * s, p['H'] * c], [p['H'] * c, p['J']]])
        f = [u + p['command.offset'] - p['b1'] * w - p['c1'] * np.tanh(w / 0.05) - 2 * p['B'] * s * c * w * v + p['H'] * s * v * v,
             -p['b2'] * v - p['c2'] * np.tanh(v / 0.05) + p['B'] * s * c * w * w - p['G'] * s]  # fmt: skip
        return np.concatenate([x[2:], np.linalg.solve(M, f)])

    x, out = np.array([0, 0.4, 0, 0.0]), []
    for k in range(len(t)):
        out.append(x[:2])
        x = solve_ivp(lambda _, y, u=u[k]: rates(y, u), (0, STEP), x, rtol=1e-9, atol=1e-11).y[:, -1]
    return np.array(out) + [0, p['encoders.offset.pendulum']]


def robot(factor=1.4):
    names = list(TRUTH)
    start = [TRUTH[n] * (factor if i % 2 else 1 / factor) for i, n in enumerate(names[:9])] + [0.0, 0.0]
    scale = [None] * 9 + [1e-3, 0.03]
    lower = [1e-6] * 5 + [0.0] * 4 + [-1.0, -1.0]
    parameters = tuple(Parameter(n, s, lower=lo, scale=c) for n, s, lo, c in zip(names, start, lower, scale))
    return Robot(
        'pendulum', Pendulum(*start[:9]), (Input(joint='arm'),), (Encoder(joints=('arm', 'pendulum'), noise=NOISE),), parameters
    )


@pytest.fixture(scope='module')
def clean():
    t = STEP * np.arange(COUNT)
    return t, simulate(TRUTH, t)


def recording(t, y):
    encoders = Signal.from_seconds('encoders', t, y, columns=('arm', 'pendulum'), unit='rad')
    return Window.gather([encoders, Signal.from_seconds('command', t, torque(t), unit='N m')], truth=TRUTH)


@pytest.fixture(scope='module')
def window(clean):
    t, y = clean
    return recording(t, y + NOISE * np.random.default_rng(3).normal(size=y.shape))


@pytest.fixture(scope='module')
def fit(window):
    return identify(robot(), window)


def test_estimates_lie_within_their_uncertainty(fit):
    assert fit.converged, fit.sentence
    off = (fit.values - [TRUTH[n] for n in fit.names]) / fit.std
    assert np.abs(off).max() < 3.5, dict(zip(fit.names, off))
    assert 0.9 < fit.noise_ratio['encoders'] < 1.1
    assert fit.blind == ()


def test_clean_data_give_the_truth(clean):
    sharp = identify(robot(1.5), recording(*clean), tolerance=1e-12)
    off = sharp.values / [TRUTH[n] for n in sharp.names] - 1
    assert np.abs(off[:5]).max() < 1e-4 and np.abs(off).max() < 5e-3


def test_starts_three_times_off_reach_the_same_optimum(window, fit):
    rng = np.random.default_rng(0)
    problem = prepare(robot(), [window], robot().parameters, None)
    for _ in range(5):
        factors = 3.0 ** rng.uniform(-1, 1, 9)
        other = problem.starting_at([TRUTH[n] * f for n, f in zip(TRUTH, factors)] + [0.0, 0.0])
        again = identify(robot(), window, problem=other)
        assert again.converged
        assert np.abs((again.values - fit.values) / fit.std).max() < 0.1


def test_table_and_file(fit, tmp_path):
    text = str(fit)
    assert 'Converged' in text and 'encoders: residuals are' in text and 'off by' in text
    fit.save(tmp_path / 'fit.yaml')
    again = Fit.load(tmp_path / 'fit.yaml', robot())
    np.testing.assert_allclose(again.values, fit.values)
    np.testing.assert_allclose(again.covariance, fit.covariance)
    assert float(again.robot.model.A) == pytest.approx(fit['A'])
    with pytest.raises(EstimationError, match='no saved fit'):
        Fit.load(tmp_path / 'missing.yaml', robot())


def test_prediction_and_tracking(fit, window, clean):
    ahead = fit.predict(window, start=3.0, seconds=1.0)
    assert ahead.error['arm'] < 2 * NOISE and ahead.error['pendulum'] < 2 * NOISE
    states = track(fit, window)
    truth = clean[1].T - np.array([[0], [TRUTH['encoders.offset.pendulum']]])
    assert np.sqrt(np.mean((states.positions - truth) ** 2)) < 0.5 * NOISE


def test_what_the_data_cannot_tell_is_said(window):
    given = robot()
    both = (*given.parameters, Parameter('command.gain', 1.0, lower=0.1, upper=10.0))
    scaled = identify(given, window, both)
    assert any('only combinations' in s for s in scaled.blind), scaled.blind
    assert np.isinf(scaled.std[scaled.names.index('command.gain')])
    nothing = identify(given, window, (*given.parameters, Parameter('idle', 1.0, lower=0.0)))
    assert any('idle: nothing in the recording depends on it' in s for s in nothing.blind)


def test_progress_and_cancel(window):
    seen = []
    identify(robot(), window, progress=lambda *a: seen.append(a))
    assert len(seen) > 3 and all(len(a) == 3 for a in seen)
    stopped = identify(robot(), window, cancelled=lambda: True)
    assert not stopped.converged and 'Cancelled' in stopped.sentence


def test_bad_input_is_named(window, clean):
    t, y = clean
    with pytest.raises(EstimationError, match='bounds .* exclude the start'):
        Parameter('A', 2.0, lower=0, upper=1)
    with pytest.raises(EstimationError, match="Did you mean 'b1'"):
        identify(robot(), window, [Parameter('bb1', 1.0)])
    with pytest.raises(EstimationError, match='holds arm and pendulum still'):
        identify(robot(), recording(t, 0 * y))
    with pytest.raises(EstimationError, match='do not fit'):
        Signal.from_seconds('encoders', t, y[:-1])
    holes = y.copy()
    holes[[3, 77]] = np.nan
    assert [d.index for d in recording(t, holes).defects if d.kind == 'nan'] == [3, 77]
    with pytest.raises(EstimationError, match='noise is unknown'):
        blunt = robot()
        identify(replace(blunt, sensors=(Encoder(joints=('arm', 'pendulum')),)), window)
    with pytest.raises(EstimationError, match="no joint 'elbow'"):
        identify(replace(robot(), inputs=(Input(joint='elbow'),)), window)
    with pytest.raises(EstimationError, match='No parameter is free'):
        identify(robot(), window, fix=list(TRUTH))
