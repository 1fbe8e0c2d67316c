# SPDX-License-Identifier: Apache-2.0
"""Eleven parameters of a Furuta pendulum from 10 s at 200 Hz, with the general tree model.

Peers: single shooting with scipy and numba (solve), CasADi + Ipopt (whole process, from nothing to a printed result).
"""

import json

import numpy as np

from benchmarks.furuta_identification import casadi, load, lumped, ours, process_seconds, scipy_shooting


def main():
    """Run all on the same recording and print the comparison."""
    d = load('anchor')
    fit, seconds, first = ours(d, repeats=9)
    print(fit)
    out = {'name': 'furuta_anchor', 'ours': seconds, 'peers': {}, 'ratio': None, 'holds': None, 'first_call': first,
           'iterations': fit.iterations, 'model': 'tree'}  # fmt: skip
    peer = scipy_shooting(d)
    if peer is None:
        print('numba is not installed: no peer.')
        print(json.dumps(out))
        return
    parameters, std, seconds_scipy, rms = peer
    exact, std, _, _ = scipy_shooting(d, substeps=4, start=parameters)
    off = float(np.abs((lumped(fit.values) - exact) / std).max())
    theirs = float(np.abs((parameters - exact) / std).max())
    print(f'scipy + numba: {seconds_scipy:.3f} s, rms {rms:.3f} sigma. Ours {seconds:.3f} s.')
    print(f'From the optimum of an accurate integrator: ours {off:.3f}, scipy {theirs:.3f} standard deviations at most.')
    out['peers'] = {'scipy_numba': seconds_scipy}
    out |= {'ratio': seconds / seconds_scipy, 'off_in_std': off, 'peer_off_in_std': theirs}
    holds = seconds < 0.2 * seconds_scipy and fit.converged and off < 0.1
    other = casadi(d)
    if other is not None:
        process_seconds('ours', 'anchor')  # fills the cache
        mine = min(process_seconds('ours', 'anchor') for _ in range(3))
        them = min(process_seconds('casadi', 'anchor') for _ in range(3))
        print(
            f'CasADi: solve {other[1]:.2f} s, build {other[2]:.2f} s. Whole process: ours {mine:.2f} s with a warm cache, CasADi {them:.2f} s.'
        )
        out['peers']['casadi_solve'] = other[1]
        out |= {'process': mine, 'process_casadi': them, 'process_ratio': mine / them}
        holds = holds and mine <= them
    print(json.dumps(out | {'holds': bool(holds)}))


if __name__ == '__main__':
    main()
