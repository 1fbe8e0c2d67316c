# SPDX-License-Identifier: Apache-2.0
"""The state over time: a filter, and a fixed-lag smoother behind it.

Time links the samples by the joint accelerations, which are part of d:  q+ = q + h dq + h^2/2 ddq,  dq+ = dq + h ddq,  w+ = w + h dw. State
and rates of one sample are correlated, so the prediction carries their joint covariance. The smoother is Rauch-Tung-Striebel's over the
last samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.wrench.posterior import Block
from multibody_estimation.wrench.program import Program
from multibody_estimation.wrench.state import StateEstimate, estimate_state, split_state, state_size

__all__ = ['StateFilter', 'StateTrack', 'track_states']


def transition(program: Program, step: float) -> tuple[np.ndarray, np.ndarray]:
    """x+ = F x + B u for rates u = (ddq, dw); (nx, nx) and (nx, nu)."""
    n, f = len(program.joint_names), 3 * program.floating
    one = np.eye(n)
    F = np.eye(2 * n + f)
    F[:n, n : 2 * n] = step * one
    B = np.zeros((2 * n + f, n + f))
    B[:n, :n], B[n : 2 * n, :n] = 0.5 * step**2 * one, step * one
    B[2 * n :, n:] = step * np.eye(f)
    return F, B


@dataclass(frozen=True, eq=False)
class _Past:
    """What the smoother needs of a filtered sample."""

    time: float
    mean: np.ndarray
    covariance: np.ndarray
    predicted: np.ndarray
    predicted_covariance: np.ndarray
    cross: np.ndarray
    """Covariance of this state and the predicted next one."""


class StateFilter:
    """Problem 2 from sample to sample.

    ``encoder_noise`` are the standard deviations of measured joint positions and velocities; a velocity that is not measured is NaN in
    `step`. ``rate_change`` is the standard deviation of what the accelerations change within a step [rad/s^2], the filter's process
    noise. ``lag`` samples are kept for `smoothed`.
    """

    def __init__(
        self,
        program: Program,
        encoder_noise: tuple[float, float] | None = None,
        rate_change: float = 5.0,
        lag: int = 10,
        blocks: Sequence[Block | tuple[str, str]] = (),
    ) -> None:
        if lag < 0 or rate_change <= 0:
            raise EstimationError(f'lag is {lag} and rate_change is {rate_change}; lag must be at least 0, rate_change positive.')
        self.program, self.lag, self.blocks = program, int(lag), tuple(blocks)
        self.noise = tuple(encoder_noise or program.setup.joint_noise)
        self.rate_change = float(rate_change)
        self.past: list[_Past] = []
        self.last: StateEstimate | None = None
        self.time = 0.0

    def step(self, time: float, position: Any, velocity: Any, measurements: Any, base_velocity: Any = None) -> StateEstimate:
        """Take one sample: seconds, joint positions and velocities (n,) as measured, measurement vector (ny,); NaN where missing."""
        program, nx = self.program, state_size(self.program)
        n = len(program.joint_names)
        q, dq = np.asarray(position, dtype=float), np.asarray(velocity, dtype=float)
        seen = np.concatenate([q, dq])
        if seen.shape != (2 * n,):
            raise EstimationError(
                f'{q.size} positions and {dq.size} velocities; {n} of each are needed, NaN where one is missing.'
            )
        std = np.repeat(self.noise, n)
        there = np.isfinite(seen)
        if self.last is None:
            if not there[:n].all():
                raise EstimationError(
                    f"The first sample has no position of joint '{program.joint_names[int(np.flatnonzero(~there[:n])[0])]}': the filter cannot start."
                )
            om = np.zeros(3) if base_velocity is None else np.asarray(base_velocity, dtype=float)
            mean = np.concatenate([q, np.nan_to_num(dq), om[: nx - 2 * n]])
            wide = np.concatenate(
                [std[:n], np.where(there[n:], std[n:], 10.0), np.full(nx - 2 * n, 1.0 if base_velocity is not None else 10.0)]
            )
            P = np.diag(wide**2)
        else:
            h = time - self.time
            if not h > 0:
                raise EstimationError(f'Time does not advance: {time} s after {self.time} s.')
            F, B = transition(program, h)
            x, C = self.last.state, self.last.covariance
            u, (Cu, Cxu) = self.last.rates, self.last.rates_covariance()
            mean = F @ x + B @ u
            P = F @ C @ F.T + F @ Cxu @ B.T + B @ Cxu.T @ F.T + B @ (Cu + self.rate_change**2 * np.eye(len(u))) @ B.T
            # Positions need a little of their own: with h^2/2 alone the covariance is nearly singular.
            P = 0.5 * (P + P.T) + 1e-16 * np.eye(nx)
            self.past.append(_Past(self.time, x, C, mean, P, C @ F.T + Cxu @ B.T))
            self.past = self.past[-max(self.lag, 1) :]
            rows = np.flatnonzero(there)  # encoders: a linear update of the prediction
            H = np.eye(nx)[rows]
            S = P[np.ix_(rows, rows)] + np.diag(std[rows] ** 2)
            K = np.linalg.solve(S, P[rows]).T
            mean = mean + K @ (seen[rows] - mean[rows])
            IKH = np.eye(nx) - K @ H
            P = IKH @ P @ IKH.T + (K * std[rows] ** 2) @ K.T
            P = 0.5 * (P + P.T)
        self.last = estimate_state(program, mean, P, measurements, self.blocks, iterations=8, tolerance=1e-4, check=False)
        self.time = float(time)
        return self.last

    def smoothed(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Time, state and covariance of the oldest sample kept, given all samples since (the lag)."""
        if self.last is None:
            raise EstimationError('The filter has seen no sample yet.')
        mean, C, time = self.last.state, self.last.covariance, self.time
        for past in reversed(self.past[-self.lag :] if self.lag else []):
            G = np.linalg.solve(past.predicted_covariance, past.cross.T).T
            mean = past.mean + G @ (mean - past.predicted)
            C = past.covariance + G @ (C - past.predicted_covariance) @ G.T
            time = past.time
        return time, mean, 0.5 * (C + C.T)


@dataclass(frozen=True, eq=False)
class StateTrack:
    """States over time; nt samples."""

    time: np.ndarray
    state: np.ndarray
    """(nt, nx)."""
    covariance: np.ndarray
    """(nt, nx, nx)."""
    program: Program

    @property
    def position(self) -> np.ndarray:
        """(nt, n) [rad or m]."""
        return self.state[:, : len(self.program.joint_names)]

    @property
    def velocity(self) -> np.ndarray:
        """(nt, n) [rad/s or m/s]."""
        n = len(self.program.joint_names)
        return self.state[:, n : 2 * n]

    @property
    def base_velocity(self) -> np.ndarray:
        """(nt, 3) [rad/s]."""
        return np.array([split_state(self.program, x)[2] for x in self.state])

    def deviation(self) -> np.ndarray:
        """Standard deviations of the state; (nt, nx)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))


def track_states(
    program: Program,
    time: Any,
    position: Any,
    velocity: Any,
    measurements: Any,
    base_velocity: Any = None,
    lag: int = 0,
    **options: Any,
) -> StateTrack:
    """Run the filter over a recording; with ``lag`` > 0 every state is that given also the ``lag`` samples after it."""
    t = np.asarray(time, dtype=float)
    filter_ = StateFilter(program, lag=lag, **options)
    rows: list[tuple[float, np.ndarray, np.ndarray]] = []
    for k in range(len(t)):
        om = None if base_velocity is None else base_velocity[k]
        found = filter_.step(t[k], position[k], velocity[k], measurements[k], om)
        if lag == 0:
            rows.append((t[k], found.state, found.covariance))
        elif k >= lag:
            rows.append(filter_.smoothed())
    if lag:  # the last ones have fewer samples after them
        for left in range(lag - 1, -1, -1):
            if len(t) > left:
                filter_.lag = left
                rows.append(filter_.smoothed())
    times, states, covariances = (np.array(x) for x in zip(*rows))
    return StateTrack(times, states, covariances, program)
