# SPDX-License-Identifier: Apache-2.0
"""The hard Furuta recording (over the top, chaotic for shooting) from the given start.

Peer: CasADi + Ipopt, Gauss-Newton multiple shooting. Shooting with scipy and numba is run beside it and fails.
"""

import importlib.util
import json
import sys

import numpy as np

from benchmarks.furuta_identification import casadi, load, lumped, ours, scipy_shooting, unlumped


def main():
    """Run all on the same recording and print the comparison."""
    d = load('hard')
    fit, seconds, first_call = ours(d, repeats=5)
    print(fit)
    off = float(np.abs((fit.values - unlumped(d['p_true'])) / fit.std).max())
    out = {'name': 'furuta_hard', 'ours': seconds, 'peers': {}, 'ratio': None, 'holds': None, 'converged': fit.converged,
           'off_truth_in_std': off, 'first_call': first_call, 'iterations': fit.iterations}  # fmt: skip
    peer = None
    if importlib.util.find_spec('casadi') is None:
        print('CasADi is not installed: no peer.')
    else:
        peer = casadi(d)
    if peer is not None:
        worst = float(np.abs(peer[0] / d['p_true'] - 1)[:9].max())
        mine = float(np.abs(lumped(fit.values) / d['p_true'] - 1)[:9].max())
        print(f'CasADi: {peer[1]:.2f} s (build {peer[2]:.2f} s), rms {peer[3]:.3f} sigma, {peer[4]}; worst of nine parameters off by '
              f'{100 * worst:.2f} % (ours {100 * mine:.2f} %).')  # fmt: skip
        out |= {'ratio': seconds / peer[1], 'holds': bool(seconds < 0.1 * peer[1] and fit.converged and off < 4)}
        out['peers'] = {'casadi_gauss_newton': peer[1], 'casadi_status': peer[4]}
    if '--shooting' in sys.argv and (shot := scipy_shooting(d)) is not None:
        print(f'scipy + numba: {shot[2]:.2f} s, ends at rms {shot[3]:.2f} sigma (ours {fit.noise_ratio["encoders"]:.2f}).')
        out['peers'] |= {'scipy_numba': shot[2], 'scipy_numba_rms_sigma': shot[3]}
    print(json.dumps(out))


if __name__ == '__main__':
    main()
