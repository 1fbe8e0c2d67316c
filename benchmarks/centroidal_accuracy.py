# SPDX-License-Identifier: Apache-2.0
"""Accuracy and consistency of centroidal estimators at equal delay: none, 0.1 s, all data.

Every method sees the same measurements with the same covariances. The complementary filter is tuned on another walk, once for
each delay. NEES is the mean of e' P^-1 e / 15; 1 is right, more is overconfident.
"""

import itertools
import time

import numpy as np
from scipy.stats import chi2

from benchmarks.centroidal_peers import Plain, complementary, complementary_lag, ekf, rts, rts_lag
from multibody_estimation._jax import jax
from multibody_estimation.centroidal import ProcessNoise, StateLayout, assemble, make_sample, push, solve, start_lag_smoother
from multibody_estimation.centroidal.gait import draw_gait, measure, walking_gait

USUAL = ('center_of_mass', 'contact_wrench', 'angular_momentum')
PARTS = ('center_of_mass', 'linear_momentum', 'angular_momentum', 'force', 'moment')
SPREAD = np.repeat([0.02, 5.0, 1.0, 30.0, 5.0], 3)
NOISE = ProcessNoise(force=85.0, moment=4.2, switch_factor=1.0)
LAG = 20
"""Samples: 0.1 s."""


def prior_around(mean):
    return {p: (mean[3 * i : 3 * i + 3], SPREAD[3 * i : 3 * i + 3]) for i, p in enumerate(PARTS)}


def make(samples, seed):
    """A walk (mass, true states, measurements, problem, prior) with the prior off by one draw of its own spread."""
    rng, gait = np.random.default_rng(seed), walking_gait(samples)
    data = measure(gait, USUAL, rng)
    prior = prior_around(gait.states[0] + rng.normal(size=15) * SPREAD)
    return gait.mass, gait.states, data, assemble(data, mass=gait.mass, noise=NOISE, prior=prior), prior


def make_icub():
    """Return a function of the seed that gives the same for the simulated walk of the iCub, from its joints, IMU and feet."""
    from multibody_estimation.centroidal import Signals, WholeBody, measure_recording
    from multibody_estimation.centroidal.simulated import NOISE as SENSORS
    from multibody_estimation.centroidal.simulated import icub_urdf, record, simulate_walk
    from multibody_estimation.tree import load_urdf

    walk = simulate_walk()
    body = WholeBody.of(
        load_urdf(icub_urdf(), floating=True), ('l_sole', 'r_sole'), imu='chest', encoder_noise=SENSORS['encoders'],
        velocity_noise=SENSORS['joint_velocities'], gyroscope_noise=SENSORS['imu/gyroscope'], wrench_noise=SENSORS['wrench'],
    )  # fmt: skip
    process = ProcessNoise(force=50.0, moment=3.3, switch_factor=1.0)

    def draw(seed):
        seen = measure_recording(body, record(walk, seed=seed), Signals(('ft/left/wrench', 'ft/right/wrench')), USUAL)
        rng, truth = np.random.default_rng(seed), walk.states.copy()
        prior = prior_around(truth[0] + rng.normal(size=15) * SPREAD)
        problem = assemble(seen.measurements, mass=walk.mass, noise=process, prior=prior)
        # The world is that of the footholds as they were followed; they drift by tenths of a millimetre.
        wrench = next(m for m in seen.measurements if m.block == 'contact_wrench')
        truth[:, :3] += wrench.anchor - np.einsum('ni,nix->nx', seen.standing, walk.soles) / seen.standing.sum(axis=1)[:, None]
        return walk.mass, truth, seen.measurements, problem, prior

    return draw, process


def rmse(states, truth):
    return np.sqrt(np.mean((np.asarray(states) - truth).reshape(len(truth), 5, 3) ** 2, axis=(0, 2)))


def nees(states, covariances, truth):
    error = np.asarray(states) - truth
    return float(np.mean(np.einsum('ni,nij,nj->n', error, np.linalg.inv(np.asarray(covariances)), error)) / 15)


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def fixed_lag(mass, data, prior, process):
    """Ours sample by sample: states and covariances of the newest and of the oldest sample in the window."""
    wrench = next(m for m in data if m.block == 'contact_wrench')
    packets = [
        make_sample(USUAL, t, {m.block: (m.values[k], m.covariance[k]) for m in data}, wrench.anchor[k])
        for k, t in enumerate(wrench.time)
    ]
    first = start_lag_smoother(packets[0], lag=LAG, mass=mass, noise=process, prior=prior)
    jax.block_until_ready(push(first, packets[1]))

    def run():
        smoother, newest, delayed = first, [], []
        for k, packet in enumerate(packets[1:], start=1):
            smoother, window, index = push(smoother, packet)
            states, covariance = np.asarray(window.states), np.asarray(window.covariance)
            newest.append((states[int(index)], covariance[int(index)]))
            if k >= LAG:
                delayed.append((states[0], covariance[0]))
        return [tuple(np.array(part) for part in zip(*pairs, strict=True)) for pairs in (newest, delayed)]

    return timed(run)


def tune(filter_, draw, seed):
    """Cut-offs of a complementary filter that suit another walk best."""
    _, truth, _, problem, _ = draw(seed)
    plain = Plain(problem)
    grid = itertools.product([2, 5, 10, 20], [2, 5, 20, 60], [20, 50, 100, 200])

    def score(rates):
        states = filter_(plain, *rates)
        return float(np.log(rmse(states, truth[: len(states)])).sum())

    return min(grid, key=score)


def accuracy(title, draw, process, runs):
    """Print and return RMSE by block (c mm, p N s, L N m s, f N, Ldot N m), NEES and time of each method."""
    rows: dict[str, list] = {}
    forward = tune(complementary, draw, 99)
    both_ways = tune(lambda plain, *rates: complementary_lag(plain, LAG, *rates, stride=10), draw, 99)

    for seed in range(runs):
        mass, truth, data, problem, prior = draw(seed)
        plain, n = Plain(problem), len(truth)

        def note(name, seconds, states, covariances=None, start=0, truth=truth, n=n):
            true = truth[start : start + len(states)]
            honest = float('nan') if covariances is None else nees(states, covariances, true)
            rows.setdefault(name, []).append([*rmse(states, true) * [1e3, 1, 1, 1, 1], honest, 1e6 * seconds / n])

        filter_time, filtered = timed(lambda plain=plain: ekf(plain))
        note('no delay: EKF', filter_time, filtered[0], filtered[1])
        seconds, (states, covariances) = timed(lambda plain=plain, filtered=filtered: rts(plain, filtered))
        note('all data: EKF + RTS', filter_time + seconds, states, covariances)
        seconds, (states, covariances) = timed(lambda plain=plain, filtered=filtered: rts_lag(plain, filtered, LAG))
        note('0.1 s delay: EKF + RTS', filter_time + seconds, states, covariances)
        seconds, states = timed(lambda plain=plain: complementary(plain, *forward))
        note('no delay: complementary', seconds, states)
        seconds, states = timed(lambda plain=plain: complementary_lag(plain, LAG, *both_ways))
        note('0.1 s delay: complementary', seconds, states)
        jax.block_until_ready(solve(problem))
        seconds, found = timed(lambda problem=problem: jax.block_until_ready(solve(problem)))
        note('all data: MAP', seconds, found.states, found.covariance)
        seconds, (newest, delayed) = fixed_lag(mass, data, prior, process)
        note('no delay: MAP, fixed lag', seconds, *newest, start=1)
        note('0.1 s delay: MAP, fixed lag', seconds, *delayed)
    table = {name: np.mean(values, axis=0) for name, values in rows.items()}
    print(f'\n{title}, {runs} runs: RMSE of c mm, p N s, L N m s, f N, Ldot N m; NEES/15; us per sample')
    for name in sorted(table):
        print(f'  {name:<28}' + ''.join(f'{v:9.4f}' for v in table[name][:5]) + '   {:7.3f}   {:8.1f}'.format(*table[name][5:]))
    return {name: [round(float(v), 4) for v in values] for name, values in table.items()}


def consistency(runs=50, at=75):
    """NEES over motions drawn from the model, one sample of each run: chi2 with 15 runs degrees of freedom."""
    rng, time_line, mean = np.random.default_rng(5), np.arange(at + LAG + 1) * 0.005, walking_gait(2).states[0]
    totals: dict[str, float] = {}

    def note(name, states, covariance, truth):
        error = np.asarray(states) - truth
        share = float(error @ np.linalg.solve(np.asarray(covariance), error)) / (15 * runs)
        totals[name] = totals.get(name, 0.0) + share

    for _ in range(runs):
        truth = draw_gait(rng, mean, SPREAD, np.repeat([85.0, 4.2], 3), time_line, 56.0, StateLayout())
        data = measure(truth, USUAL, rng)
        problem = assemble(data, mass=56.0, noise=NOISE, prior=prior_around(mean))
        found, plain = solve(problem), Plain(problem)
        filtered = ekf(plain)
        smoothed = rts(plain, filtered)
        _, (newest, delayed) = fixed_lag(56.0, data, prior_around(mean), NOISE)
        true = truth.states[at]
        note('MAP', found.states[at], found.covariance[at], true)
        note('EKF + RTS', smoothed[0][at], smoothed[1][at], true)
        note('EKF', filtered[0][at], filtered[1][at], true)
        note('MAP, fixed lag, newest', newest[0][at - 1], newest[1][at - 1], true)
        note('MAP, fixed lag, 0.1 s late', delayed[0][at], delayed[1][at], true)
    low, high = chi2.ppf([0.025, 0.975], 15 * runs) / (15 * runs)
    print(f'\nNEES/15 over {runs} motions drawn from the model, 95 % band {low:.3f} .. {high:.3f}:')
    print('  ' + ', '.join(f'{name} {value:.3f}' for name, value in totals.items()))
    return {name: round(value, 4) for name, value in totals.items()}, (low, high)
