# SPDX-License-Identifier: Apache-2.0
"""How often the 95 % intervals hold the truth, over 1000 noise draws of the easy Furuta recording."""

import json
import sys

import numpy as np

from benchmarks.furuta_identification import NAMES, load, recording, robot_of, unlumped
from multibody_estimation.identification import identify, prepare


def main():
    """Identify from the given start for every draw and count."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    d = load('anchor')
    robot, truth, rng = robot_of(d), unlumped(d['p_true']), np.random.default_rng(2024)
    problem, inside, converged, off = prepare(robot, recording(d)), [], 0, []
    for _ in range(count):
        y = d['y_clean'] + float(d['sigma']) * rng.normal(size=d['y_clean'].shape)
        fit = identify(robot, recording(d, y), problem=problem)
        z = (fit.values - truth) / fit.std
        converged += fit.converged
        off.append(z)
        inside.append(np.abs(z) < 1.959964)
    each = np.mean(inside, axis=0)
    total = float(np.mean(inside))
    for name, share, spread in zip(NAMES, each, np.std(off, axis=0)):
        print(f'  {name:<26} {100 * share:5.1f} %   standard deviation of (estimate - truth) / std: {spread:.3f}')
    print(
        f'{converged} of {count} converged; 95 % intervals hold the truth in {100 * total:.2f} % ({100 * each.min():.1f} to {100 * each.max():.1f}).'
    )
    holds = 0.94 <= total <= 0.97 and each.min() >= 0.92 and each.max() <= 0.985
    print(json.dumps({'name': 'furuta_coverage', 'ours': total, 'peers': {'nominal': 0.95}, 'ratio': total / 0.95, 'draws': count,
                      'lowest': float(each.min()), 'highest': float(each.max()), 'converged': converged,
                      'holds': bool(holds) if count >= 1000 else None}))  # fmt: skip


if __name__ == '__main__':
    main()
