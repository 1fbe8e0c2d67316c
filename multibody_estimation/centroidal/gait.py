# SPDX-License-Identifier: Apache-2.0
"""Synthetic centroidal data with exact truth: a smooth walk, and random walks drawn from the estimator's own model."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.centroidal.model import BLOCKS, StateLayout, chain, dynamics, predict
from multibody_estimation.centroidal.problem import GRAVITY, Measurement

__all__ = ['NOISE', 'Gait', 'draw_gait', 'measure', 'walking_gait']

NOISE: dict[str, Any] = {
    'center_of_mass': 5e-3, 'contact_wrench': (4.0, 4.0, 4.0, 1.5, 1.5, 1.5), 'angular_momentum': 0.15, 'linear_momentum': 1.0,
    'angular_momentum_rate': 3.0, 'linear_momentum_rate': 15.0, 'acceleration': 0.2,
}  # fmt: skip
"""Standard deviations of the simulated sensors, in the units of `BLOCKS`."""


@dataclass(frozen=True, eq=False)
class Gait:
    """True states of a motion; p and f are per nominal mass, see `model`."""

    time: np.ndarray
    states: np.ndarray
    anchor: np.ndarray
    mass: float
    layout: StateLayout


def _integrate(layout, time, mass, start, rates):
    """Follow the dynamics from ``start`` with given driven states (n+1, nw): truth satisfies them to rounding."""
    entries, offsets = (np.asarray(v) for v in dynamics(layout, np.diff(time), mass, np.array(GRAVITY)))
    structure = chain(layout)
    rows, cols, driven = np.array(structure.rows), np.array(structure.cols), np.array(structure.inputs)
    states = np.empty((len(time), layout.size))
    states[0] = start
    states[0, driven] = rates[0]
    for k in range(len(time) - 1):
        half = states[k].copy()
        half[driven] = (rates[k] + rates[k + 1]) / 2
        states[k + 1] = states[k] + offsets[k]
        np.add.at(states[k + 1], rows, entries[k] * half[cols])
        states[k + 1, driven] = rates[k + 1]
    return states


def walking_gait(samples: int = 301, *, step: float = 0.005, mass: float = 56.0, speed: float = 0.3) -> Gait:
    """Walk straight on with a stride of 1.6 s: sway 3 cm, bounce 1 cm, moments of some N m; anchors jump from foot to foot."""
    layout, time = StateLayout(), np.arange(samples) * step
    fast, slow = 2 * np.pi / 0.8, np.pi / 0.8
    force = mass * np.stack(
        [0 * time, -0.03 * slow**2 * np.sin(slow * time), 9.81 - 0.01 * fast**2 * np.cos(fast * time)], axis=1
    )
    moment = np.stack([4 * np.sin(slow * time), 6 * np.sin(fast * time), 1.5 * np.sin(slow * time)], axis=1)
    start = np.zeros(layout.size)
    start[:9] = 0, 0, 0.81, mass * speed, mass * 0.03 * slow, 0, -4 / slow, -6 / fast, -1.5 / slow
    anchor = np.stack([0.2 * np.round(speed * time / 0.2), 0 * time, 0 * time], axis=1)
    return Gait(time, _integrate(layout, time, mass, start, np.hstack([force, moment])), anchor, mass, layout)


def draw_gait(
    rng: np.random.Generator,
    mean: np.ndarray,
    deviation: np.ndarray,
    density: np.ndarray,
    time: np.ndarray,
    mass: float,
    layout: StateLayout,
) -> Gait:
    """Draw a motion from the model itself: first state N(mean, deviation^2), random walks of ``density`` per root second."""
    start = mean + deviation * rng.normal(size=layout.size)
    steps = rng.normal(size=(len(time) - 1, len(density))) * density * np.sqrt(np.diff(time))[:, None]
    rates = start[list(layout.inputs)] + np.vstack([np.zeros(len(density)), np.cumsum(steps, axis=0)])
    return Gait(time, _integrate(layout, time, mass, start, rates), np.zeros((len(time), 3)), mass, layout)


def measure(gait: Gait, blocks: tuple[str, ...], rng: np.random.Generator, scale: float = 1.0) -> list[Measurement]:
    """Return noisy measurements of the blocks at every sample; ``scale`` multiplies the usual `NOISE`."""
    found = []
    for block in blocks:
        clean = np.asarray(predict(gait.layout, block, gait.states, gait.anchor, gait.mass, np.array(GRAVITY)))
        deviation = scale * np.broadcast_to(NOISE[block], (BLOCKS[block],))
        noisy = clean + rng.normal(size=clean.shape) * deviation
        found.append(Measurement(block, gait.time, noisy, np.diag(deviation**2), gait.anchor))
    return found
