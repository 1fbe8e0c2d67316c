# SPDX-License-Identifier: Apache-2.0
"""Fixed-lag smoother for online use: a value with the last samples, and a pure function that takes one more.

The window always has lag + 1 stages, so one compiled program serves. Stages not yet filled stand at its end with no
information and no dynamics: they add nothing to the cost, so a window that spans all data gives the batch solution exactly.
When the window is full, its first stage goes into the prior of the second: the Kalman update with the sensors linearised at
the smoothed state, then the prediction. With linear sensors this loses nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp, value
from multibody_estimation.centroidal.ddp import Settings, Trajectory, derivatives, solve
from multibody_estimation.centroidal.model import BLOCKS, StateLayout, chain, dynamics
from multibody_estimation.centroidal.problem import GRAVITY, Measurement, Problem, ProcessNoise, prior_of, process_information
from multibody_estimation.centroidal.robust import Loss
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.kernels.ddp_sweep import Gains, forward

__all__ = ['LagSmoother', 'Sample', 'make_sample', 'push', 'start_lag_smoother']

ONLINE = Settings(tolerance=1e-6, iterations=10)


@value
class Sample:
    """What came at one instant."""

    time: Any
    values: dict[str, Any]
    information: dict[str, Any]
    anchor: Any
    switching: Any
    """True within a contact switch: the process noise up to here is larger."""


@value
class LagSmoother:
    """Everything that must be kept between samples."""

    problem: Problem
    states: jax.Array
    inputs: jax.Array
    filled: jax.Array
    """Number of stages in use."""
    density: jax.Array
    """Variance of each input per second, usual and near a contact switch; shape (2, nw)."""


def make_sample(
    blocks: tuple[str, ...], time: float, measured: Mapping[str, tuple[Any, Any]], anchor: Any = (0.0, 0.0, 0.0), switching=False
) -> Sample:
    """Check one instant: ``measured`` maps a block to (value, covariance); blocks left out have no sample."""
    for name in measured:
        if name not in blocks:
            raise EstimationError(f"This smoother was started without '{name}'.{did_you_mean(name, blocks)}")
    values, information = {}, {}
    for block in blocks:
        d = BLOCKS[block]
        values[block], information[block] = np.zeros(d), np.zeros((d, d))
        if block in measured:
            checked = Measurement(block, np.array([time]), np.atleast_2d(measured[block][0]), measured[block][1])
            values[block], information[block] = checked.values[0], np.linalg.inv(checked.covariance[0])
    return Sample(np.float64(time), values, information, np.asarray(anchor, float), np.bool_(switching))


def start_lag_smoother(
    first: Sample,
    *,
    lag: int,
    mass: float,
    gravity: Any = GRAVITY,
    noise: ProcessNoise | None = None,
    prior: Mapping[str, Any] | None = None,
    layout: StateLayout | None = None,
    loss: Loss | None = None,
) -> LagSmoother:
    """Begin with the first sample; ``lag`` is the number of later samples that may still correct an estimate."""
    layout, noise = layout or StateLayout(), noise or ProcessNoise()
    if not (np.isfinite(mass) and mass > 0):
        raise EstimationError(f'A mass of {mass} kg: the mass of the whole robot must be above zero.')
    if lag < 1:
        raise EstimationError(f'A lag of {lag} samples: at least one is needed.')
    seen = {b: np.asarray(v) for b, v in first.values.items() if np.any(first.information[b])}
    known = {b: v for b, v in seen.items() if b in layout}
    if 'contact_wrench' in seen:
        known['force'] = seen['contact_wrench'][:3]
    mean, covariance = prior_of(layout, mass, known, prior)
    n, nw = lag, len(layout.inputs)
    usual = 1 / process_information(layout, noise, mass, np.array([0.0, 1.0]))[0]

    def pad(x):
        return jnp.zeros((n + 1, *np.shape(x))).at[0].set(x)

    problem = Problem(
        layout=layout,
        loss=loss or Loss(),
        time=pad(first.time),
        mass=jnp.asarray(float(mass)),
        gravity=jnp.asarray(gravity, float),
        entries=jnp.zeros((n, 12)),
        offsets=jnp.zeros((n, layout.size)),
        noise_information=jnp.ones((n, nw)),
        values={b: pad(v) for b, v in first.values.items()},
        information={b: pad(v) for b, v in first.information.items()},
        anchor=pad(first.anchor),
        prior_mean=jnp.asarray(mean),
        prior_information=jnp.asarray(np.linalg.inv(covariance)),
        guess=jnp.tile(jnp.asarray(mean), (n + 1, 1)),
    )
    density = jnp.asarray(np.stack([usual, usual * noise.switch_factor]))
    return LagSmoother(problem, problem.guess, jnp.zeros((n, nw)), jnp.asarray(np.int64(1)), density)


def _drop_first(smoother: LagSmoother) -> LagSmoother:
    """Put the first stage into the prior of the second and shift everything by one."""
    p, x = smoother.problem, smoother.states[0]
    stage = replace(
        p,
        values={b: v[:1] for b, v in p.values.items()},
        information={b: v[:1] for b, v in p.information.items()},
        anchor=p.anchor[:1],
    )
    lx, lxx = derivatives(stage, x[None], False)
    posterior = jnp.linalg.inv(p.prior_information + lxx[0])
    mean = x + posterior @ (p.prior_information @ (p.prior_mean - x) - lx[0])
    structure = chain(p.layout)
    a = structure.dense(p.entries[:1], p.layout.size)[0]
    drive = structure.drive(a)
    covariance = a @ posterior @ a.T + (drive / p.noise_information[0]) @ drive.T
    information = jnp.linalg.inv(covariance)

    def shift(v):
        return jnp.roll(v, -1, axis=0)

    moved = replace(
        p,
        time=shift(p.time),
        entries=shift(p.entries),
        offsets=shift(p.offsets),
        noise_information=shift(p.noise_information),
        values={b: shift(v) for b, v in p.values.items()},
        information={b: shift(v) for b, v in p.information.items()},
        anchor=shift(p.anchor),
        prior_mean=a @ mean + p.offsets[0],
        prior_information=(information + information.T) / 2,
    )
    return replace(
        smoother, problem=moved, states=shift(smoother.states), inputs=shift(smoother.inputs), filled=smoother.filled - 1
    )


@partial(jax.jit, static_argnames=('settings',))
def push(smoother: LagSmoother, sample: Sample, settings: Settings = ONLINE) -> tuple[LagSmoother, Trajectory, jax.Array]:
    """Take one sample; return the smoother, the smoothed window and the index of its newest stage.

    Stage 0 of the window is the estimate with the longest delay, the newest stage the one without delay. Samples must come in
    the order of their stamps; the caller drops late ones.
    """
    size = len(smoother.states)
    smoother = jax.lax.cond(smoother.filled == size, _drop_first, lambda s: s, smoother)
    p, new = smoother.problem, smoother.filled
    step = sample.time - p.time[new - 1]
    entries, offsets = dynamics(p.layout, step[None], p.mass, p.gravity)
    density = jnp.where(sample.switching, smoother.density[1], smoother.density[0])
    p = replace(
        p,
        time=p.time.at[new].set(sample.time),
        entries=p.entries.at[new - 1].set(entries[0]),
        offsets=p.offsets.at[new - 1].set(offsets[0]),
        noise_information=p.noise_information.at[new - 1].set(1 / (step * density)),
        values={b: v.at[new].set(sample.values[b]) for b, v in p.values.items()},
        information={b: v.at[new].set(sample.information[b]) for b, v in p.information.items()},
        anchor=p.anchor.at[new].set(sample.anchor),
    )
    inputs = smoother.inputs.at[new - 1].set(0.0)
    n, nw = inputs.shape
    still = Gains(jnp.zeros((n, nw)), jnp.zeros((n, nw, p.layout.size)), *[jnp.zeros(())] * 5)
    start = forward(chain(p.layout), p.entries, p.offsets, smoother.states, inputs, still, jnp.zeros(()), smoother.states[0])
    found = solve(p, settings, start)
    return replace(smoother, problem=p, states=found.states, inputs=found.inputs, filled=new + 1), found, new
