# SPDX-License-Identifier: Apache-2.0
"""The long Furuta recording from the given start; the peer is single shooting with scipy and numba, which does not reach the optimum."""

import json

import numpy as np

from benchmarks.furuta_identification import load, ours, scipy_shooting, unlumped


def main():
    """Run both on the same recording and print the comparison."""
    d = load('long')
    fit, seconds, first = ours(d, repeats=3)
    print(fit)
    off = float(np.abs((fit.values - unlumped(d['p_true'])) / fit.std).max())
    peer = scipy_shooting(d)
    peers = {}
    if peer is None:
        print('numba is not installed: no peer.')
    else:
        print(f'scipy + numba: {peer[2]:.2f} s, ends at rms {peer[3]:.2f} sigma (ours {fit.noise_ratio["encoders"]:.2f}).')
        peers = {'scipy_numba': peer[2], 'scipy_numba_rms_sigma': peer[3]}
    print('CasADi is not run here yet: the target against it is not judged.')
    print(json.dumps({'name': 'furuta_long', 'ours': seconds, 'peers': peers, 'ratio': None, 'holds': None, 'converged': fit.converged,
                      'off_truth_in_std': off, 'first_call': first, 'iterations': fit.iterations}))  # fmt: skip


if __name__ == '__main__':
    main()
