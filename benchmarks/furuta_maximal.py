# SPDX-License-Identifier: Apache-2.0
"""The easy Furuta recording in maximal coordinates: the `maximal` form, and the two-residual `paper` form at compliance 1e-4.

Peer: single shooting with scipy and numba.
"""

import json
import sys

import numpy as np

from benchmarks.furuta_identification import load, recording, robot_of, scipy_shooting, unlumped
from multibody_estimation.identification import identify


def main():
    """Both forms and the peer on the same recording; ``--stiffness`` adds compliances from 1e-4 to 1e-9."""
    d = load('anchor')
    window, robot, truth = recording(d), robot_of(d), unlumped(d['p_true'])
    first = identify(robot, window, form='maximal')
    fit = min((identify(robot, window, form='maximal') for _ in range(2)), key=lambda f: f.seconds)
    print(fit)
    out = {'name': 'furuta_maximal', 'ours': fit.seconds, 'peers': {}, 'ratio': None, 'holds': None, 'first_call': first.seconds,
           'iterations': fit.iterations, 'off_truth_in_std': float(np.abs((fit.values - truth) / fit.std).max())}  # fmt: skip
    if '--stiffness' in sys.argv:
        for compliance in (1e-4, 1e-6, 1e-7, 1e-9):
            other = identify(robot, window, form='maximal', compliance=compliance)
            away = float(np.abs((other.values - fit.values) / fit.std).max())
            print(
                f'compliance {compliance:g}: {other.iterations} iterations, {away:.3f} standard deviations from that of 1e-8. {other.sentence}'
            )
            out[f'compliance_{compliance:g}'] = {
                'iterations': other.iterations,
                'away_in_std': away,
                'converged': other.converged,
            }
    if '--paper' in sys.argv:
        paper = identify(robot, window, form='paper', weight=1e-2)
        print(paper)
        out['paper'] = {'seconds': paper.seconds, 'iterations': paper.iterations, 'converged': paper.converged,
                        'worst_percent': float(100 * np.abs(paper.values / truth - 1)[:9].max())}  # fmt: skip
    peer = scipy_shooting(d)
    if peer is not None:
        print(f'scipy + numba: {peer[2]:.3f} s; ours {fit.seconds:.3f} s.')
        out |= {
            'peers': {'scipy_numba': peer[2]},
            'ratio': fit.seconds / peer[2],
            'holds': bool(fit.converged and fit.seconds <= peer[2]),
        }
    print(json.dumps(out))


if __name__ == '__main__':
    main()
