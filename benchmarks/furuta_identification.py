# SPDX-License-Identifier: Apache-2.0
"""Shared by the Furuta benchmarks: the recordings, the robot, and the peers (scipy + numba shooting, CasADi + Ipopt)."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from multibody_estimation import tree
from multibody_estimation.identification import Encoder, Input, Parameter, Robot, identify, prepare
from multibody_estimation.window import Signal, Window

MASS, IZZ = 0.1, 4e-6  # of the pendulum: not identifiable, taken as known
SETTINGS = [  # name, lower bound, upper bound, scale
    ('arm_link.inertia.zz', 1e-6, np.inf, None), ('rod.inertia.yy', 1e-6, np.inf, None), ('pendulum.placement.x', 1e-2, np.inf, None),
    ('rod.inertia.xx', 1e-6, np.inf, None), ('rod.center_of_mass.z', -np.inf, -1e-2, None), ('arm.damping', 0, np.inf, None),
    ('pendulum.damping', 0, np.inf, None), ('arm.coulomb', 0, np.inf, None), ('pendulum.coulomb', 0, np.inf, None),
    ('command.offset', -1, 1, 1e-3), ('encoders.offset.pendulum', -1, 1, 0.03),
]  # fmt: skip
NAMES = [row[0] for row in SETTINGS]


def lumped(x):
    """Lumped parameters A B H J G b1 b2 c1 c2 tau0 phi0 of the peers from those of the tree."""
    arm, iyy, length, ixx, z = x[:5]
    reach = -z
    return np.array([arm + MASS * length**2 + IZZ, MASS * reach**2 + iyy - IZZ, MASS * length * reach, ixx + MASS * reach**2,
                     MASS * 9.81 * reach, *x[5:]])  # fmt: skip


def unlumped(p):
    """The inverse of `lumped`, kept inside the bounds."""
    reach = p[4] / (MASS * 9.81)
    length = p[2] / (MASS * reach)
    inertia = [p[0] - MASS * length**2 - IZZ, p[1] - MASS * reach**2 + IZZ, length, p[3] - MASS * reach**2, -reach]
    for i in (0, 1, 3):
        inertia[i] = max(inertia[i], 1e-4)
    return np.array([*inertia, *p[5:]])


def tree_model():
    """Arm about the vertical, pendulum about the arm's axis; the estimated numbers are set by the parameters."""
    links = [
        tree.Link('base'),
        tree.Link('arm_link', 0.1, (0, 0, 0), (2e-3,) * 3),
        tree.Link('rod', MASS, (0, 0, -0.1), (1e-3, 1e-3, IZZ)),
    ]
    joints = [
        tree.Joint('arm', 'base', 'arm_link', friction_velocity=0.05),
        tree.Joint('pendulum', 'arm_link', 'rod', axis=(1, 0, 0), position=(0.1, 0, 0), friction_velocity=0.05),
    ]
    return tree.build(links, joints, name='furuta')


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


def recording(d, y=None):
    """The recording as a window; ``y``: other readings."""
    return Window.gather(
        [
            Signal.from_seconds('encoders', d['t'], d['y'] if y is None else y, columns=('arm', 'pendulum')),
            Signal.from_seconds('command', d['t'], d['tau']),
        ],
        truth=dict(zip(NAMES, map(float, unlumped(d['p_true'])))),
    )


def robot_of(d, start=None):
    """The tree with its eleven parameters; ``start``: lumped ones other than those of the recording."""
    x0 = unlumped(d['p_start'] if start is None else start)
    parameters = tuple(Parameter(n, float(v), lower=lo, upper=up, scale=s) for v, (n, lo, up, s) in zip(x0, SETTINGS))
    encoder = Encoder(joints=('arm', 'pendulum'), noise=float(d['sigma']))
    return Robot('furuta', tree_model(), (Input(joint='arm'),), (encoder,), parameters)


def ours(d, start=None, repeats=5):
    """Fit with the package; returns the fit, the fastest solve in seconds (compiled), and the first one."""
    window, robot = recording(d), robot_of(d, start)
    begin = time.perf_counter()
    problem = prepare(robot, window)
    fit = identify(robot, window, problem=problem)
    first = time.perf_counter() - begin
    times = [identify(robot, window, problem=problem).seconds for _ in range(repeats)]
    return fit, min([fit.seconds, *times]), first


def process_seconds(*arguments):
    """Wall time of a whole process that runs this module with some arguments."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, '-m', 'benchmarks.furuta_identification', *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def casadi(d, count=0, start=None):
    """CasADi + Ipopt, Gauss-Newton multiple shooting at every sample; (parameters, solve seconds, build seconds, rms in sigma, status) or None.

    ``count``: use only so many samples; ``start``: other parameters to start from.
    """
    try:
        import casadi as ca
    except ImportError:
        return None
    from scipy.signal import savgol_filter

    begin = time.perf_counter()
    count = count or len(d['tau'])
    y, tau, dt, sigma, eps = d['y'][:count], d['tau'][:count], float(d['dt']), float(d['sigma']), float(d['eps'])
    p0 = d['p_start'] if start is None else start
    scale = np.where(d['p_start'] != 0, np.abs(d['p_start']), np.array([0] * 9 + [1e-3, 1e-2]))
    x, z, u = ca.SX.sym('x', 4), ca.SX.sym('z', 11), ca.SX.sym('u')
    p = z * scale

    def rates(x):
        s, c, w, v = ca.sin(x[1]), ca.cos(x[1]), x[2], x[3]
        m11, m12 = p[0] + p[1] * s * s, p[2] * c
        r1 = u + p[9] - p[5] * w - p[7] * ca.tanh(w / eps) - 2 * p[1] * s * c * w * v + p[2] * s * v * v
        r2 = -p[6] * v - p[8] * ca.tanh(v / eps) + p[1] * s * c * w * w - p[4] * s
        det = m11 * p[3] - m12 * m12
        return ca.vertcat(w, v, (p[3] * r1 - m12 * r2) / det, (m11 * r2 - m12 * r1) / det)

    a = rates(x)
    b = rates(x + dt / 2 * a)
    c = rates(x + dt / 2 * b)
    e = rates(x + dt * c)
    step = ca.Function('step', [x, u, z], [x + dt / 6 * (a + 2 * b + 2 * c + e)])
    X, Z = ca.MX.sym('X', 4, count), ca.MX.sym('Z', 11)
    after = step.map(count - 1)(X[:, :-1], tau[:-1][None], ca.repmat(Z, 1, count - 1))
    gaps = ca.vec((X[:, 1:] - after) * np.array([1e2, 1e2, 1e1, 1e1])[:, None])
    r = ca.vec((X[:2, :] + ca.vertcat(ca.DM(0), Z[10] * scale[10]) - y.T) / sigma)
    unknowns = ca.veccat(Z, X)
    J = ca.jacobian(r, unknowns)
    factor, multipliers = ca.MX.sym('factor'), ca.MX.sym('multipliers', gaps.shape[0])
    H = ca.Function('H', [unknowns, ca.MX.sym('none', 0), factor, multipliers], [factor * ca.triu(J.T @ J) / count])
    options = {
        'ipopt.print_level': 0,
        'print_time': False,
        'ipopt.max_iter': 300,
        'ipopt.tol': 1e-6,
        'ipopt.sb': 'yes',
        'hess_lag': H,
    }
    solver = ca.nlpsol('S', 'ipopt', {'x': unknowns, 'f': 0.5 * ca.sumsqr(r) / count, 'g': gaps}, options)
    build = time.perf_counter() - begin
    begin = time.perf_counter()
    ys, vs = (savgol_filter(y, 31, 3, deriv=k, delta=dt, axis=0) for k in (0, 1))
    lower = np.r_[np.full(9, 1e-3), -np.inf, -50, np.full(4 * count, -np.inf)]
    out = solver(x0=np.r_[p0 / scale, np.c_[ys, vs].ravel()], lbx=lower, lbg=0, ubg=0)
    seconds = time.perf_counter() - begin
    found = np.array(out['x']).ravel()[:11] * scale
    return found, seconds, build, float(np.sqrt(float(out['f']))), solver.stats()['return_status']


def scipy_shooting(d, substeps=1, start=None):
    """Single shooting with scipy.optimize.least_squares and a numba Runge-Kutta simulation.

    Returns (parameters, std, seconds, rms in sigma), or None without numba. ``substeps`` > 1 from the optimum of 1 (``start``) gives
    the optimum of an accurate integrator.
    """
    try:
        import numba
    except ImportError:
        return None
    from scipy.optimize import least_squares
    from scipy.signal import savgol_filter

    y, tau, h, sigma, p0, eps = d['y'], d['tau'], float(d['dt']), float(d['sigma']), d['p_start'], float(d['eps'])
    n, h = len(tau), h / substeps

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
            for _ in range(substeps):
                rates(x, tau[k], p, a)
                rates(x + h / 2 * a, tau[k], p, b)
                rates(x + h / 2 * b, tau[k], p, c)
                rates(x + h * c, tau[k], p, e)
                x = x + h / 6 * (a + 2 * b + 2 * c + e)

    scale = np.where(p0 != 0, np.abs(p0), np.array([0] * 9 + [1e-3, 1e-2]))
    x0 = np.r_[savgol_filter(y, 31, 3, axis=0)[0], savgol_filter(y, 31, 3, deriv=1, delta=h * substeps, axis=0)[0]]
    out = np.empty((n, 2))
    simulate(x0, p0, out)  # compile, not counted

    def residual(z):
        simulate(z[11:], z[:11] * scale, out)
        return np.nan_to_num(((out - y) / sigma).ravel(), nan=1e6, posinf=1e6, neginf=-1e6)

    lower = np.r_[np.zeros(9), -np.inf, -0.5 / scale[10], np.full(4, -np.inf)]
    begin = time.perf_counter()
    s = least_squares(
        residual, np.r_[(p0 if start is None else start) / scale, x0], bounds=(lower, np.inf), x_scale='jac', max_nfev=300
    )
    seconds = time.perf_counter() - begin
    std = np.sqrt(np.abs(np.diag(np.linalg.pinv(s.jac.T @ s.jac))))[:11] * scale
    return s.x[:11] * scale, std, seconds, float(np.sqrt(2 * s.cost / (2 * n)))


if __name__ == '__main__':
    if sys.argv[1] == 'casadi':
        print(casadi(load(sys.argv[2])))
    else:
        recorded = load(sys.argv[2])
        print(identify(robot_of(recorded), recording(recorded)))
