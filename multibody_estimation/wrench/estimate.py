# SPDX-License-Identifier: Apache-2.0
"""The front door: a recording in, external wrenches, joint torques and accelerations with standard deviations out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.kernels.wrench_sweep import Sweep
from multibody_estimation.tree.model import Model
from multibody_estimation.window import Signal, Window
from multibody_estimation.wrench.estimator import base_velocity_from_gyroscopes, default_blocks
from multibody_estimation.wrench.observability import Observability, observe
from multibody_estimation.wrench.outliers import solve_gated
from multibody_estimation.wrench.posterior import Block, Posterior
from multibody_estimation.wrench.program import Program, compile_wrench
from multibody_estimation.wrench.settings import WrenchSetup
from multibody_estimation.wrench.setup_file import load_wrench_setup

__all__ = ['Samples', 'WrenchEstimate', 'estimate_wrenches', 'samples_of']


@dataclass(frozen=True, eq=False)
class Samples:
    """What a recording says at the times of its joint positions."""

    time: np.ndarray
    """(N,) [s]."""
    position: np.ndarray
    velocity: np.ndarray
    base_velocity: np.ndarray
    """(N, 3) [rad/s]."""
    measurements: np.ndarray
    """(N, ny), NaN where a sensor has nothing."""
    notes: tuple[str, ...]


def _at(signal: Signal, seconds: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Interpolate linearly; NaN outside and in gaps of more than 2.5 steps."""
    step = np.median(np.diff(seconds)) if len(seconds) > 1 else 0.0
    right = np.clip(np.searchsorted(seconds, time), 1, max(len(seconds) - 1, 1))
    out = np.stack([np.interp(time, seconds, column) for column in signal.values.T], 1)
    if len(seconds) == 1:
        bad = time != seconds[0]
    else:
        exact = np.isin(time, seconds)
        bad = ~exact & (
            (time < seconds[0] - 0.5 * step)
            | (time > seconds[-1] + 0.5 * step)
            | (seconds[right] - seconds[right - 1] > 2.5 * step)
        )
    out[bad] = np.nan
    return out


def _derivatives(time: np.ndarray, values: np.ndarray, span: float) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivative by a quadratic fitted over ``span`` seconds around each sample."""
    from scipy.signal import savgol_filter

    step = np.diff(time)
    if len(time) < 5:
        raise EstimationError(f'{len(time)} positions are too few to be differentiated; 5 are needed. Give velocities.')
    usual = float(np.median(step))
    count = min(max(int(round(span / usual)) // 2 * 2 + 1, 5), (len(time) - 1) // 2 * 2 + 1)
    if np.abs(step - usual).max() < 0.05 * usual:
        kind = {'window_length': count, 'polyorder': 2, 'delta': usual, 'axis': 0, 'mode': 'interp'}
        return savgol_filter(values, deriv=1, **kind), savgol_filter(values, deriv=2, **kind)
    first, second = np.zeros_like(values), np.zeros_like(values)
    for k in range(len(time)):
        low = int(np.clip(k - count // 2, 0, len(time) - count))
        t = time[low : low + count] - time[k]
        c = np.linalg.lstsq(np.stack([np.ones_like(t), t, 0.5 * t * t], 1), values[low : low + count], rcond=None)[0]
        first[k], second[k] = c[1], c[2]
    return first, second


def _joint_columns(signal: Signal, joints: tuple[str, ...]) -> np.ndarray:
    missing = [j for j in joints if j not in signal.columns]
    if missing:
        raise EstimationError(
            f"{signal.name}: no column for joint '{missing[0]}'{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}. Its columns are {', '.join(signal.columns[:8])}."
        )
    return np.array([signal.columns.index(j) for j in joints], int)


def _signal(sensor: Any, window: Window) -> str:
    """Signal of a sensor: the one it names, its own name, or that of the topic its driver publishes on."""
    usual = {'force_torque': f'ft/{sensor.name}/wrench', 'accelerometer': f'imu/{sensor.name}/accelerometer',
             'gyroscope': f'imu/{sensor.name}/gyroscope'}.get(sensor.type, '')  # fmt: skip
    return sensor.signal or (usual if sensor.name not in window and usual in window else sensor.name)


def samples_of(program: Program, window: Window) -> Samples:
    """Bring a recording to the times of its joint positions."""
    setup, joints = program.setup, program.joint_names
    encoders = window[setup.positions]
    if len(encoders) < 1:
        raise EstimationError(f'{setup.positions}: there is no sample.')
    time = window.seconds(setup.positions)
    q = encoders.values[:, _joint_columns(encoders, joints)]
    needs = any(s.type == 'joint_acceleration' and _signal(s, window) not in window for s in setup.sensors)
    first = second = None
    if not setup.velocities or needs:
        first, second = _derivatives(time, q, setup.smoothing)
    if setup.velocities:
        signal = window[setup.velocities]
        dq = _at(signal, window.seconds(setup.velocities), time)[:, _joint_columns(signal, joints)]
    else:
        assert first is not None
        dq = first
    y, notes = np.full((len(time), setup.size), np.nan), []
    cache: dict[str, np.ndarray] = {}
    for name, at in setup.rows.items():
        sensor = setup.sensor(name)
        key = _signal(sensor, window)
        if key not in window:
            if sensor.type == 'joint_acceleration' and second is not None:
                y[:, at.start] = second[:, joints.index(sensor.on)]
                continue
            notes.append(f"{name}: the recording has no signal '{key}'; the estimate goes without it.")
            continue
        signal = window[key]
        if key not in cache:
            cache[key] = _at(signal, window.seconds(key), time)
        if sensor.type in ('joint_torque', 'joint_acceleration') and sensor.on in signal.columns:
            y[:, at.start] = cache[key][:, signal.columns.index(sensor.on)]
        elif len(signal.columns) == sensor.size:
            y[:, at] = cache[key]
        else:
            raise EstimationError(
                f"{key}: {len(signal.columns)} columns, but sensor '{name}' ({sensor.type}) has {sensor.size} numbers."
            )
        gone = int(np.isnan(y[:, at]).any(1).sum())
        if gone:
            notes.append(f'{name}: nothing at {gone} of {len(time)} samples; they go without it.')
    good = np.isfinite(q).all(1) & np.isfinite(dq).all(1)
    if program.floating and setup.base_velocity:
        om = _at(window[setup.base_velocity], window.seconds(setup.base_velocity), time)
        if om.shape[1] != 3:
            raise EstimationError(f'{setup.base_velocity}: {om.shape[1]} columns; the angular velocity of the base has 3.')
        good &= np.isfinite(om).all(1)
    else:
        if program.floating:
            told = np.zeros(len(time), bool)
            for x in program.terms:
                if x.target == 'velocity':
                    told |= np.isfinite(y[:, x.row : x.row + 3]).all(1)
            if told.any():
                good &= told
        om = np.zeros((len(time), 3))
        om[good] = base_velocity_from_gyroscopes(program, q[good], dq[good], y[good])
    if not good.any():
        raise EstimationError(
            'There is no time at which positions, velocities and the angular velocity of the base are all known.'
        )
    if not good.all():
        notes.append(f'{int((~good).sum())} of {len(time)} samples have no complete state and were left out.')
    return Samples(time[good], q[good], dq[good], om[good], y[good], tuple(notes))


@dataclass(frozen=True, eq=False)
class WrenchEstimate:
    """Wrenches over a recording."""

    time: np.ndarray
    """(N,) [s] from the start of the recording."""
    posterior: Posterior
    observability: Observability
    outliers: Mapping[str, int]
    """Samples that each gated sensor lost to its gate."""
    misfit: Mapping[str, float]
    """Root mean square of the normalised residual of each gated sensor that others tell of: 1 where its noise is right."""
    notes: tuple[str, ...]

    def wrench(self, link: str) -> np.ndarray:
        """External wrench on a link in its frame, about its origin; (N, 6) [N, N m]."""
        return self.posterior.wrench(link)

    def deviation(self, quantity: str, of: str) -> np.ndarray:
        """Standard deviations of a block; (N, 6) or (N, 1)."""
        return self.posterior.deviation(quantity, of)

    @property
    def joint_torques(self) -> np.ndarray:
        """(N, n) [N m or N]."""
        return self.posterior.joint_torques

    @property
    def links(self) -> tuple[str, ...]:
        """Links whose external wrench was asked for."""
        return tuple(of for quantity, of in self.posterior.blocks if quantity == 'external_wrench')

    def __str__(self) -> str:
        lines = [f'External wrenches over {self.time[-1] - self.time[0]:.3f} s, {len(self.time)} samples. {self.observability}']
        lines.append(f'  {"link":<24} {"largest force":>14} {"± median std":>14} {"largest moment":>16} {"± median std":>14}')
        for link in self.links:
            w, s = self.wrench(link), self.deviation('external_wrench', link)
            f, m = np.linalg.norm(w[:, :3], axis=1).max(), np.linalg.norm(w[:, 3:], axis=1).max()
            sf, sm = np.median(np.linalg.norm(s[:, :3], axis=1)), np.median(np.linalg.norm(s[:, 3:], axis=1))
            lines.append(f'  {link:<24} {f:>12.3f} N {sf:>12.3f} N {m:>12.3f} N m {sm:>10.3f} N m')
        for name, size in self.misfit.items():
            lost = self.outliers.get(name, 0)
            lines.append(f'  {name}: residuals {size:.2f} sigma{f", {lost} outliers left out" if lost else ""}')
        return '\n'.join([*lines, *(f'  {n}' for n in self.notes)])

    def plot(self) -> Any:
        """Return a matplotlib figure: force and moment of each contact over time with two standard deviations."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 2.2 * max(len(self.links), 1)), layout='constrained')
        axes = np.atleast_2d(figure.subplots(max(len(self.links), 1), 2, sharex=True))
        for row, link in zip(axes, self.links):
            w, s = self.wrench(link), self.deviation('external_wrench', link)
            for ax, part, unit in ((row[0], slice(0, 3), 'N'), (row[1], slice(3, 6), 'N m')):
                for i, (x, band) in enumerate(zip(w[:, part].T, 2 * s[:, part].T)):
                    (line,) = ax.plot(self.time, x, lw=1, label='xyz'[i])
                    ax.fill_between(self.time, x - band, x + band, alpha=0.25, color=line.get_color())
                ax.set_ylabel(f'{link} [{unit}]', fontsize=8)
        axes[-1, 0].set_xlabel('time [s]')
        return figure

    def save(self, path: str | Path) -> Path:
        """Write time, wrenches and torques with standard deviations to an ``.npz`` file."""
        out: dict[str, Any] = {
            'time': self.time,
            'joint_torques': self.joint_torques,
            'joint_accelerations': self.posterior.joint_accelerations,
        }
        out['joint_names'] = np.array(self.posterior.program.joint_names)
        for link in self.links:
            out[f'wrench/{link}'] = self.wrench(link)
            out[f'covariance/{link}'] = self.posterior.covariance('external_wrench', link)
        path = Path(path)
        with open(path, 'wb') as file:
            np.savez_compressed(file, **out)
        return path


def estimate_wrenches(
    model: Model, window: Window, setup: WrenchSetup | str | Path, *, blocks: Sequence[Block | tuple[str, str]] | None = None,
    chunk: int = 512, twin: bool = False,
) -> WrenchEstimate:  # fmt: skip
    """Estimate what the world does to a robot, and what its joints transmit, over a recording.

    Args:
        model: the robot, e.g. from `load_urdf`.
        window: the recording; signals are named as the setup says.
        setup: sensors, contacts and noise, or the path of a YAML file with them.
        blocks: whose covariances are wanted; by default the contacts' external wrenches, joint torques and joint accelerations.
        chunk: samples solved at once.
        twin: use the pure-JAX form instead of the compiled kernel.
    """
    if not isinstance(setup, WrenchSetup):
        setup = load_wrench_setup(setup, model)
    program = compile_wrench(model, setup)
    report = observe(program)
    data = samples_of(program, window)
    if not np.isfinite(data.measurements).any():
        raise EstimationError(
            f'None of the {len(setup.sensors)} sensors has a sample in this recording; it has {", ".join(window)}.'
        )
    wanted = default_blocks(program) if blocks is None else tuple(Block(*b) for b in blocks)
    parts, squares, degrees, lost = [], [], [], []
    for begin in range(0, len(data.time), chunk):
        at = slice(begin, begin + chunk)
        found, square, degree, out = solve_gated(
            program, data.position[at], data.velocity[at], data.base_velocity[at], data.measurements[at], wanted, twin=twin
        )
        parts.append(found)
        squares.append(square)
        degrees.append(degree)
        lost.append(out)
    gated = [x.sensor.name for x in program.terms if x.sensor.gate is not None]
    square, degree, out = (np.concatenate(x) for x in (squares, degrees, lost))
    kept = ~out & (degree > 0)
    # A sensor of which no other tells anything has no residual to be judged by: it is not listed.
    misfit = {
        n: float(np.sqrt(square[kept[:, c], c].sum() / degree[kept[:, c], c].sum()))
        for c, n in enumerate(gated)
        if kept[:, c].any()
    }
    joined: Sweep = Sweep._make(np.concatenate([np.asarray(getattr(p.sweep, f)) for p in parts]) for f in Sweep._fields)
    inputs = (data.position, data.velocity, data.base_velocity, data.measurements, _weights(parts, len(program.terms)))
    posterior = Posterior(program, joined, wanted, inputs)
    return WrenchEstimate(
        data.time, posterior, report, {n: int(out[:, c].sum()) for c, n in enumerate(gated)}, misfit, data.notes
    )


def _weights(parts: list[Posterior], sensors: int) -> np.ndarray:
    return np.concatenate([np.ones((len(p), sensors)) if p.inputs[4] is None else p.inputs[4] for p in parts])
