# SPDX-License-Identifier: Apache-2.0
"""A real Furuta pendulum (Quanser Qube): identified on chirps, judged on chirps left out and on swing-ups that no fit has seen.

The weight is chosen by leave-one-recording-out on the chirps alone. Window starts: `smoothed` states see the whole recording, `causal` ones
only what came before the window. Peer: a naive shooting fit on the same windows (ten parameters, starts from zero-phase derivatives).
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.signal import savgol_filter

from multibody_estimation import robots
from multibody_estimation.identification import choose_weight, identify, predict_windows, prepare
from multibody_estimation.recording.csv import read_csv

MAPPING = {
    'time': 't',
    'signals': {
        'encoders': {'unit': 'rad', 'columns': {'arm': 'q0', 'pendulum': 'q1'}},
        'command': {'unit': 'V', 'columns': {'arm': 'u_volt'}},
    },
}
LIMITS = {'causal': (0.0088, 0.0062), 'smoothed': (0.0045, 0.0044), 'swing_up': (0.017, 0.017)}
JOINTS = ('arm', 'pendulum')


def load(folder):
    """All recordings of a folder of the data, or the end of the run with a sentence."""
    root = os.environ.get('MULTIBODY_ESTIMATION_DATA')
    files = sorted((Path(root or '.') / 'qube' / folder).glob('*.csv'))
    if not root or not files:
        print(f'qube/{folder} is not there: set MULTIBODY_ESTIMATION_DATA to the folder that holds qube/.')
        print('{"name": "qube", "ours": null, "peers": {}, "ratio": null, "holds": null}')
        sys.exit(0)
    return [read_csv(f, MAPPING) for f in files]


def pooled(errors):
    """Root mean square over recordings of equal length, (arm, pendulum)."""
    return tuple(float(np.sqrt(np.mean([e.error[j] ** 2 for e in errors]))) for j in JOINTS)


def arrays(window):
    """Time step, volts (n,), angles (n, 2)."""
    t = window.seconds('encoders')
    return float(np.median(np.diff(t))), window['command'].values[:, 0], window['encoders'].values


def simulate(p, x, volts, h):
    """Angles (w, m, 2) of m windows from states x (m, 4) under held volts (w, m); Runge-Kutta 4 with two substeps."""
    A, B, H, J, G, b1, b2, c1, c2, offset = p

    def rates(x, u):
        s, c, w, v = np.sin(x[:, 1]), np.cos(x[:, 1]), x[:, 2], x[:, 3]
        m11, m12 = A + B * s * s, H * c
        r1 = 0.005 * u + offset - b1 * w - c1 * np.tanh(w / 0.05) - 2 * B * s * c * w * v + H * s * v * v
        r2 = -b2 * v - c2 * np.tanh(v / 0.05) + B * s * c * w * w - G * s
        det = m11 * J - m12 * m12
        return np.stack([w, v, (J * r1 - m12 * r2) / det, (m11 * r2 - m12 * r1) / det], 1)

    out = np.empty((len(volts), len(x), 2))
    for k, u in enumerate(volts):
        out[k] = x[:, :2]
        for _ in range(2):
            dt = h / 2
            a = rates(x, u)
            b = rates(x + dt / 2 * a, u)
            c = rates(x + dt / 2 * b, u)
            x = x + dt / 6 * (a + 2 * b + 2 * c + rates(x + dt * c, u))
    return out


def windows_of(recordings, seconds):
    """Starts (m, 4), volts (w, m) and angles (w, m, 2) of windows one after another, starts by zero-phase derivatives."""
    x, u, y = [], [], []
    for window in recordings:
        h, volts, angles = arrays(window)
        rates = savgol_filter(angles, 11, 3, deriv=1, delta=h, axis=0)
        w = int(round(seconds / h))
        for s in range(2, len(volts) - w + 1, w):
            x.append(np.r_[angles[s], rates[s]])
            u.append(volts[s : s + w])
            y.append(angles[s : s + w])
    return np.array(x), np.array(u).T, np.array(y).transpose(1, 0, 2), h


def naive(train, tests):
    """Shooting over windows of 0.2 s; errors (arm, pendulum) of each test set."""
    x, u, y, h = windows_of(train, 0.2)
    p0 = np.array([4.0e-4, 1.33e-4, 1.3e-4, 1.33e-4, 1.5e-2, 2.2e-4, 1e-5, 1e-4, 1e-5, 1e-6])
    scale = np.array([2e-4, 1e-4, 1e-4, 1e-4, 1e-2, 1e-4, 1e-5, 1e-4, 1e-5, 1e-4])

    def residual(z):
        with np.errstate(all='ignore'):
            return np.clip(np.nan_to_num(simulate(z * scale, x, u, h) - y, nan=1e3), -1e3, 1e3).ravel()

    lower = np.r_[np.full(5, 1e-6), np.zeros(4), -1] / scale
    p = least_squares(residual, p0 / scale, bounds=(lower, np.inf), x_scale='jac', max_nfev=60).x * scale
    found = []
    for recordings in tests:
        x, u, y, h = windows_of(recordings, 0.2)
        found.append(tuple(np.sqrt(np.mean((simulate(p, x, u, h) - y) ** 2, axis=(0, 1)))))
    return found


def main():
    """Choose the weight, identify, predict, compare."""
    chirps = load('qq_chrip_10to0Hz_+1.5V_250Hz_10s')
    swings = {name: load(name) for name in ('qq-su_ectrl_250Hz_5s', 'qq-su_ectrl_250Hz_7s')}
    robot = robots.qube()
    choice = choose_weight(robot, chirps, weights=(0.1, 0.3, 1.0, 3.0), starts='smoothed')
    print(choice)
    weight = choice.best
    # Left-out chirps, with the starts' own weight chosen in the same way.
    problem, left_out = None, {}
    for i, chirp in enumerate(chirps):
        rest = [c for k, c in enumerate(chirps) if k != i]
        problem = problem or prepare(robot, rest)
        fit = identify(robot, rest, weight=weight, problem=problem)
        for key, options in {
            ('smoothed', 0.2): {},
            ('smoothed', 1.0): {},
            ('causal', 0.2): {'weight': 3 * weight},
            ('causal', 0.2, 10): {'weight': 10 * weight},
            ('causal', 0.2, 30): {'weight': 30 * weight},
        }.items():
            error = predict_windows(fit, chirp, starts=key[0], seconds=key[1], **options)
            left_out.setdefault(key, []).append(error)
    table = {key: pooled(errors) for key, errors in left_out.items()}
    best_key = min((k for k in table if k[0] == 'causal'), key=lambda k: sum(x**2 for x in table[k]))
    follow = weight * (best_key[2] if len(best_key) > 2 else 3)
    print(f'Causal starts are tracked with an allowed error of {follow:g} rad/s^2 (smallest left-out error).')
    fit = identify(robot, chirps, weight=weight)
    print(fit)
    result = {
        'chirp_smoothed': table[('smoothed', 0.2)],
        'chirp_causal': table[best_key],
        'chirp_smoothed_1s': table[('smoothed', 1.0)],
    }
    for name, runs in swings.items():
        short = name.split('_')[-1]
        for key, options in (('smoothed', {}), ('causal', {'weight': follow})):
            for seconds in (0.2, 1.0):
                errors = predict_windows(fit, runs, starts=key, seconds=seconds, **options)
                result[f'swing_up_{short}_{key}' + ('_1s' if seconds == 1.0 else '')] = tuple(errors.error[j] for j in JOINTS)
    rest = [naive([c for k, c in enumerate(chirps) if k != i], [[chirps[i]]])[0] for i in range(len(chirps))]
    peer = {'chirp': tuple(float(np.sqrt(np.mean([r[j] ** 2 for r in rest]))) for j in range(2))}
    for name, error in zip(swings, naive(chirps, list(swings.values()))):
        peer[f'swing_up_{name.split("_")[-1]}'] = tuple(float(x) for x in error)
    for name, (arm, pendulum) in [*result.items(), *((f'naive shooting, {k}', v) for k, v in peer.items())]:
        print(f'  {name:<32} arm {1e3 * arm:8.2f}   pendulum {1e3 * pendulum:8.2f} mrad')

    def within(error, limit):
        return all(e <= x for e, x in zip(error, LIMITS[limit]))

    holds = within(result['chirp_causal'], 'causal') and within(result['chirp_smoothed'], 'smoothed')
    holds = holds and all(within(result[f'swing_up_{s}_smoothed'], 'swing_up') for s in ('5s', '7s'))
    ratio = max(a / b for a, b in zip(result['chirp_causal'], peer['chirp']))
    print(json.dumps({'name': 'qube', 'ours': result, 'peers': {'naive_shooting': peer}, 'ratio': ratio, 'weight': weight,
                      'track_weight': follow, 'seconds': fit.seconds, 'holds': bool(holds)}))  # fmt: skip


if __name__ == '__main__':
    main()
