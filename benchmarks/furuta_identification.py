# SPDX-License-Identifier: Apache-2.0
"""Shared by the Furuta benchmarks: the recordings, the robot, and the peers (scipy + numba shooting, CasADi + Ipopt)."""

import os
import sys
import time
from pathlib import Path

import numpy as np

from multibody_estimation._jax import jnp, static, value
from multibody_estimation.identification import Encoder, Input, Parameter, Robot, identify, prepare
from multibody_estimation.window import Signal, Window

NAMES = ['A', 'B', 'H', 'J', 'G', 'b1', 'b2', 'c1', 'c2', 'command.offset', 'encoders.offset.pendulum']


@value
class Pendulum:
    """Rotary pendulum in lumped parameters."""

    A: float
    B: float
    H: float
    J: float
    G: float
    b1: float
    b2: float
    c1: float
    c2: float
    joint_names: tuple = static(default=('arm', 'pendulum'))

    def inverse_dynamics(self, q, qd, qdd):
        s, c, (w, v) = jnp.sin(q[1]), jnp.cos(q[1]), qd
        arm = (self.A + self.B * s * s) * qdd[0] + self.H * c * qdd[1] + 2 * self.B * s * c * w * v - self.H * s * v * v
        rod = self.H * c * qdd[0] + self.J * qdd[1] - self.B * s * c * w * w + self.G * s
        return jnp.stack([arm + self.b1 * w + self.c1 * jnp.tanh(w / 0.05), rod + self.b2 * v + self.c2 * jnp.tanh(v / 0.05)])


def load(name):
    """Recording by name, from the folder in MULTIBODY_ESTIMATION_DATA; ends the run with a sentence where it is absent."""
    folder = os.environ.get('MULTIBODY_ESTIMATION_DATA')
    path = Path(folder or '.') / 'furuta_synthetic' / f'furuta_{name}.npz'
    if not folder or not path.exists():
        print(f'{path} is not there: set MULTIBODY_ESTIMATION_DATA to the folder that holds furuta_synthetic/.')
        print(f'{{"name": "furuta_{name}", "ours": null, "peers": {{}}, "ratio": null, "holds": null}}')
        sys.exit(0)
    with np.load(path) as d:
        return {k: d[k] for k in d.files}


def ours(d, start=None, repeats=5):
    """Fit with the package; returns the fit, the fastest solve in seconds (compiled), and the first one."""
    p0 = d['p_start'] if start is None else start
    truth = dict(zip(NAMES, map(float, d['p_true'])))
    window = Window.gather(
        [
            Signal.from_seconds('encoders', d['t'], d['y'], columns=('arm', 'pendulum')),
            Signal.from_seconds('command', d['t'], d['tau']),
        ],
        truth=truth,
    )
    lower, scale = [1e-6] * 5 + [0.0] * 4 + [-1.0] * 2, [None] * 9 + [1e-3, 0.03]
    parameters = tuple(Parameter(n, float(v), lower=lo, scale=s) for n, v, lo, s in zip(NAMES, p0, lower, scale))
    robot = Robot(
        'furuta',
        Pendulum(*map(float, p0[:9])),
        (Input(joint='arm'),),
        (Encoder(joints=('arm', 'pendulum'), noise=float(d['sigma'])),),
        parameters,
    )
    begin = time.perf_counter()
    problem = prepare(robot, [window], robot.parameters, None)
    fit = identify(robot, window, problem=problem)
    first = time.perf_counter() - begin
    times = [identify(robot, window, problem=problem).seconds for _ in range(repeats)]
    return fit, min(times), first


def scipy_shooting(d):
    """Single shooting with scipy.optimize.least_squares and a numba Runge-Kutta simulation; (parameters, std, seconds) or None."""
    try:
        import numba
    except ImportError:
        return None
    from scipy.optimize import least_squares
    from scipy.signal import savgol_filter

    y, tau, h, sigma, p0, eps = d['y'], d['tau'], float(d['dt']), float(d['sigma']), d['p_start'], float(d['eps'])
    n = len(tau)

    @numba.njit(fastmath=True)
    def rates(x, u, p, o):
        s, c, w, v = np.sin(x[1]), np.cos(x[1]), x[2], x[3]
        m11, m12 = p[0] + p[1] * s * s, p[2] * c
        r1 = u + p[9] - p[5] * w - p[7] * np.tanh(w / eps) - 2 * p[1] * s * c * w * v + p[2] * s * v * v
        r2 = -p[6] * v - p[8] * np.tanh(v / eps) + p[1] * s * c * w * w - p[4] * s
        det = m11 * p[3] - m12 * m12
        o[0], o[1], o[2], o[3] = w, v, (p[3] * r1 - m12 * r2) / det, (m11 * r2 - m12 * r1) / det

    @numba.njit(fastmath=True)
    def simulate(x0, p, out):
        x, a, b, c, e = x0.copy(), np.empty(4), np.empty(4), np.empty(4), np.empty(4)
        for k in range(n):
            out[k, 0], out[k, 1] = x[0], x[1] + p[10]
            rates(x, tau[k], p, a)
            rates(x + h / 2 * a, tau[k], p, b)
            rates(x + h / 2 * b, tau[k], p, c)
            rates(x + h * c, tau[k], p, e)
            x = x + h / 6 * (a + 2 * b + 2 * c + e)

    scale = np.where(p0 != 0, np.abs(p0), np.array([0] * 9 + [1e-3, 1e-2]))
    x0 = np.r_[savgol_filter(y, 31, 3, axis=0)[0], savgol_filter(y, 31, 3, deriv=1, delta=h, axis=0)[0]]
    out = np.empty((n, 2))
    simulate(x0, p0, out)  # compile, not counted

    def residual(z):
        simulate(z[11:], z[:11] * scale, out)
        return np.nan_to_num(((out - y) / sigma).ravel(), nan=1e6, posinf=1e6, neginf=-1e6)

    lower = np.r_[np.zeros(9), -np.inf, -0.5 / scale[10], np.full(4, -np.inf)]
    begin = time.perf_counter()
    s = least_squares(residual, np.r_[p0 / scale, x0], bounds=(lower, np.inf), x_scale='jac', max_nfev=300)
    seconds = time.perf_counter() - begin
    std = np.sqrt(np.abs(np.diag(np.linalg.pinv(s.jac.T @ s.jac))))[:11] * scale
    return s.x[:11] * scale, std, seconds, float(np.sqrt(2 * s.cost / (2 * n)))
