# SPDX-License-Identifier: Apache-2.0
"""Time and memory of one identification over the length of the recording: a straight line through zero."""

import json
import sys
import time

import numpy as np

from multibody_estimation import robots
from multibody_estimation._jax import jax
from multibody_estimation.identification import identify, prepare, simulate

COUNTS = (1024, 2048, 5120, 10240, 20480)


def torque(t):
    """An excitation that does not repeat."""
    w = 2 * np.pi * t
    return (
        0.035 * np.sin(0.45 * w + 0.3) + 0.03 * np.sin(1.05 * w) + 0.02 * np.sin(1.9 * w + 1) + 0.015 * np.sign(np.sin(0.27 * w))
    )


def compiled_bytes(problem, data):
    """Memory of the compiled linearisation and factorisation: arguments, results, temporaries."""
    from multibody_estimation.least_squares import factorise

    q, z = problem.start(), problem.binding.scaled(problem.binding.starts())
    total = 0
    normal = problem.form.chain.normal.lower(q, z, data).compile()
    arrow = jax.eval_shape(problem.form.chain.linearise, q, z, data)
    factor = factorise.lower(arrow, 1.0, problem.metric).compile()
    for program in (normal, factor):
        use = program.memory_analysis()
        total += use.argument_size_in_bytes + use.output_size_in_bytes + use.temp_size_in_bytes
    return total


def main():
    """Per-iteration time and memory at each length, and how far each is from the best line through zero."""
    times, memory = [], []
    longest = max(COUNTS)
    whole = simulate(robots.furuta(truth=True), torque, seconds=(longest - 1) / 200, start=[0, 0.4], fine=10)
    robot = robots.furuta()
    for count in COUNTS:
        window = whole.cut(0.0, (count - 0.5) / 200)
        problem = prepare(robot, window)
        assert len(problem.grid) == count
        identify(robot, window, problem=problem)
        each, runs = [], []
        for _ in range(4 if count > 6000 else 10):
            # Processor time: what others do on the machine at the same time does not count.
            begin = time.process_time()
            runs.append(identify(robot, window, problem=problem))
            each.append((time.process_time() - begin) / runs[-1].iterations)
        times.append(min(each))
        memory.append(compiled_bytes(problem, problem.data(1e-3)))
        print(
            f'  n {count:>6}: {1e3 * times[-1]:8.2f} ms of processor time per iteration ({1e3 * min(f.seconds / f.iterations for f in runs):.2f} ms wall), {memory[-1] / 2**20:8.1f} MiB, {runs[0].iterations} iterations',
            flush=True,
        )
    n = np.array(COUNTS, dtype=float)

    def departure(y):
        y = np.array(y)
        slope = np.sum(y / n) / len(n)  # relative least squares through zero
        return float(np.abs(y / (slope * n) - 1).max()), float(slope)

    (t, slope), (m, bytes_each) = departure(times), departure(memory)
    print(
        f'Farthest from a line through zero: time {100 * t:.1f} %, memory {100 * m:.1f} %. {1e6 * slope:.2f} us and {bytes_each / 1024:.1f} KiB per stage.'
    )
    print(json.dumps({'name': 'scaling', 'ours': t, 'peers': {'line': 0.15}, 'ratio': t / 0.15, 'memory_departure': m,
                      'seconds_per_stage_and_iteration': slope, 'holds': bool(t <= 0.15 and m <= 0.15)}))  # fmt: skip


if __name__ == '__main__':
    sys.exit(main())
