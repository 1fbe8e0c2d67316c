# SPDX-License-Identifier: Apache-2.0
"""Forty random starts, every inertia and friction up to three times too large or too small, on the easy and the hard recording.

No peer: shooting fails from the given start of the hard one already.
"""

import json

import numpy as np

from benchmarks.furuta_identification import load, recording, robot_of, unlumped
from multibody_estimation.identification import identify, prepare


def main():
    """Count how many starts reach the optimum of the given start."""
    reached, iterations = {}, []
    for name in ('anchor', 'hard'):
        d = load(name)
        window, robot = recording(d), robot_of(d)
        problem = prepare(robot, window)
        best = identify(robot, window, problem=problem)
        rng, good = np.random.default_rng(0), 0
        for _ in range(40):
            start = unlumped(d['p_true'])
            start[:9] *= 3.0 ** rng.uniform(-1, 1, 9)
            start[9:] = 0
            other = problem.starting_at(start)
            fit = identify(robot, window, problem=other)
            iterations.append(fit.iterations)
            good += bool(fit.converged and np.abs((fit.values - best.values) / best.std).max() < 0.1)
        reached[name] = good
        print(f'{name}: {good} of 40 random starts reach the optimum.')
    print(json.dumps({'name': 'furuta_starts', 'ours': min(reached.values()), 'peers': {}, 'ratio': None, 'reached': reached,
                      'median_iterations': float(np.median(iterations)), 'holds': all(v == 40 for v in reached.values())}))  # fmt: skip


if __name__ == '__main__':
    main()
