# SPDX-License-Identifier: Apache-2.0
"""Eleven parameters of a Furuta pendulum from 10 s at 200 Hz, against single shooting with scipy and numba."""

import json

import numpy as np

from benchmarks.furuta_identification import load, lumped, ours, scipy_shooting


def main():
    """Run both on the same recording and print the comparison."""
    d = load('anchor')
    fit, seconds, first = ours(d)
    print(fit)
    peer = scipy_shooting(d)
    out = {'name': 'furuta_anchor', 'ours': seconds, 'peers': {}, 'ratio': None, 'holds': None, 'first_call': first,
           'iterations': fit.iterations, 'model': 'tree'}  # fmt: skip
    if peer is None:
        print('numba is not installed: no peer.')
    else:
        parameters, std, time, rms = peer
        exact, std, _, _ = scipy_shooting(d, substeps=4, start=parameters)
        off = float(np.abs((lumped(fit.values) - exact) / std).max())
        theirs = float(np.abs((parameters - exact) / std).max())
        print(
            f'scipy + numba: {time:.3f} s, rms {rms:.3f} sigma. Ours {seconds:.3f} s; from the optimum of an accurate integrator: ours {off:.3f}, scipy {theirs:.3f} std at most.'
        )
        out |= {
            'peers': {'scipy_numba': time},
            'ratio': seconds / time,
            'off_in_std': off,
            'peer_off_in_std': theirs,
            'holds': bool(seconds < 0.2 * time and fit.converged and off < 0.1),
        }
    print(json.dumps(out))


if __name__ == '__main__':
    main()
