# SPDX-License-Identifier: Apache-2.0
"""Factorise and solve 1000 blocks of 24 x 24 with a border of 13, against the rate of dgemm on 24 x 24 matrices."""

import json
import os
import time

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import arrow

FLOP_PER_BLOCK = 62.9e3


def fastest(f, repeats=15):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(f())
        times.append(time.perf_counter() - begin)
    return min(times)


def main():
    """Time the kernel, its twin and dgemm in one run."""
    n, b, p = 1000, 24, 13
    rng = np.random.default_rng(0)
    D = rng.normal(size=(n, b, b))
    D = D @ D.transpose(0, 2, 1) + 4 * b * np.eye(b)
    a = arrow.Arrow(*map(jnp.asarray, (D, rng.normal(size=(n, b, b)), rng.normal(size=(n, b, p + 1)), 1e6 * np.eye(p + 1))))
    metric, step = jnp.ones((n, b)), jnp.zeros(p)
    times = {}
    for name, factor, back in (('kernel', arrow.factor, arrow.back), ('twin', arrow.factor_twin, arrow.back_twin)):
        f, s = jax.jit(factor), jax.jit(back)
        factored = f(a, jnp.float64(0.0), metric)
        times[name] = fastest(lambda f=f: f(a, jnp.float64(0.0), metric)) + fastest(lambda s=s, x=factored: s(x, step))
    x = [np.asfortranarray(rng.normal(size=(b, b))) for _ in range(2)]
    from scipy.linalg.blas import dgemm

    out = np.zeros((b, b), order='F')
    count = 20000
    begin = time.perf_counter()
    for _ in range(count):
        dgemm(1.0, x[0], x[1], c=out, overwrite_c=1)
    rate = 2 * b**3 * count / (time.perf_counter() - begin)
    cores = min(2, os.cpu_count() or 1)
    floor = n * FLOP_PER_BLOCK / (27e9 * cores)
    print(f'kernel {1e3 * times["kernel"]:.2f} ms, twin {1e3 * times["twin"]:.2f} ms; dgemm from Python {rate / 1e9:.1f} GFLOP/s, '
          f'floor at 27 GFLOP/s x {cores} cores {1e3 * floor:.2f} ms')  # fmt: skip
    print(json.dumps({'name': 'arrow_solve', 'ours': times['kernel'], 'peers': {'floor': floor, 'jax_twin': times['twin']},
                      'ratio': times['kernel'] / floor, 'holds': bool(times['kernel'] < 3 * floor)}))  # fmt: skip


if __name__ == '__main__':
    main()
