# SPDX-License-Identifier: Apache-2.0
"""The front door: a recording in, a centroidal trajectory with standard deviations out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation._jax import jax
from multibody_estimation.centroidal.ddp import DEFAULT, Settings, Trajectory, residual, solve
from multibody_estimation.centroidal.model import BLOCKS, StateLayout, jacobian
from multibody_estimation.centroidal.problem import GRAVITY, Measurement, Problem, ProcessNoise, assemble
from multibody_estimation.centroidal.recorded import measure_recording
from multibody_estimation.centroidal.result import CentroidalEstimate, physical
from multibody_estimation.centroidal.robust import Loss
from multibody_estimation.centroidal.setup import CentroidalSetup, load_centroidal_setup
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import Window

__all__ = ['estimate_centroidal']


def measurements_of(window: Window) -> list[Measurement]:
    """Read the signals of a window that are named like `BLOCKS`; ``contact_anchor`` holds the anchors of ``contact_wrench``."""
    found = []
    for block in BLOCKS:
        if block not in window or not len(window[block]):
            continue
        signal = window[block]
        if not signal.noise:
            raise EstimationError(
                f'{block}: its noise is not known. Give the signal noise=, the standard deviation of each column.'
            )
        time, anchor = window.seconds(block), None
        if block == 'contact_wrench' and 'contact_anchor' in window:
            points = window['contact_anchor']
            # A foot is put down at an instant: the anchor last told holds, it is not interpolated.
            last = np.searchsorted(points.stamps, signal.stamps, side='right') - 1
            anchor = points.values[np.maximum(last, 0)]
        found.append(Measurement(block, time, signal.values, np.array(signal.noise), anchor))
    if not found:
        raise EstimationError(f'The window has none of the signals {", ".join(BLOCKS)}; it has {", ".join(window) or "none"}.')
    return found


def estimate_centroidal(
    data: Window | Sequence[Measurement],
    setup: CentroidalSetup | str | Path | None = None,
    *,
    mass: float | None = None,
    gravity: Any = None,
    noise: ProcessNoise | None = None,
    switches: Any = None,
    prior: Mapping[str, Any] | None = None,
    layout: StateLayout | None = None,
    loss: Loss | str | None = None,
    settings: Settings = DEFAULT,
    without_contact: bool = False,
) -> CentroidalEstimate:
    """Smooth the centroidal motion of a legged robot over a recording.

    Args:
        data: a window of the robot's sensors (with ``setup``), a window with signals named like `BLOCKS`, or measurements.
        setup: the robot and its sensors, or the path of the YAML file that describes them; what follows wins over it.
        mass: kg, of the whole robot; needed where there is no setup.
        gravity: m/s^2, world axes.
        noise: how fast forces may change.
        switches: times of contact changes, s; by default those that the setup's contacts show.
        prior: (mean, standard deviation) of parts of the first state.
        layout: further states to estimate.
        loss: ``none``, ``huber``, ``student``, or a `Loss` with its own parameter.
        settings: of the solver.
        without_contact: go ahead without any contact wrench: the force is then told by the motion alone.
    """
    if isinstance(setup, str | Path):
        setup = load_centroidal_setup(setup)
    if setup is not None:
        if not isinstance(data, Window):
            raise EstimationError('A setup describes the sensors of a window; give a window, or measurements without a setup.')
        record = measure_recording(setup.body_for(data), data, setup.signals, setup.measures)
        measurements = record.measurements
        switches = record.switches if switches is None else switches
        mass = setup.body.mass if mass is None else mass
        gravity = np.asarray(setup.body.model.gravity) if gravity is None else gravity
        noise, layout, loss, prior = noise or setup.process, layout or setup.layout, loss or setup.loss, prior or setup.prior
    else:
        measurements = measurements_of(data) if isinstance(data, Window) else list(data)
    if mass is None:
        raise EstimationError('The mass of the whole robot is not known: give mass= in kg, or setup=, which holds the robot.')
    gravity = np.asarray(GRAVITY if gravity is None else gravity, float)
    layout, loss = layout or StateLayout(), Loss(loss) if isinstance(loss, str) else loss or Loss()
    problem = assemble(
        measurements, mass=mass, gravity=gravity, noise=noise, switches=() if switches is None else switches, prior=prior,
        layout=layout, loss=loss,
    )  # fmt: skip
    if not without_contact:
        _check_contact(measurements, mass * float(np.linalg.norm(gravity)))
    found = jax.block_until_ready(solve(problem, settings))
    states, covariance = physical(layout, found.states, found.covariance)
    return CentroidalEstimate(
        np.array(problem.time), states, covariance, layout, float(mass), int(found.status), int(found.iterations),
        float(found.cost), _misfit(problem, found),
    )  # fmt: skip


def _check_contact(measurements: Sequence[Measurement], weight: float) -> None:
    """Refuse to go on where no foot ever touches the ground; weight in N."""
    pressed = [np.linalg.norm(m.values[:, :3], axis=1).max() for m in measurements if m.block == 'contact_wrench']
    if not pressed:
        raise EstimationError(
            'No contact at all: nothing measures a contact wrench. Add contact_wrench, or say without_contact=True to let the '
            'motion alone tell the force.'
        )
    if weight > 0 and pressed[0] < 0.02 * weight:
        raise EstimationError(
            f'No contact at all: the contact force never exceeds {pressed[0]:.3g} N, the robot weighs {weight:.4g} N. Is it hung '
            'up, or the sensors unplugged? Say without_contact=True if it really flies.'
        )


def _misfit(problem: Problem, found: Trajectory) -> dict[str, float]:
    """Root mean square of the residuals by block, over what is expected after the fit."""
    misfit = {}
    for block, info in problem.information.items():
        r = np.asarray(residual(problem, block, found.states))
        h = np.asarray(jacobian(problem.layout, block, found.states, problem.anchor, problem.mass, problem.gravity))
        # A smoother follows part of the noise: the fitted residual has covariance R - H P H', not R.
        left = (np.abs(info).sum(axis=(1, 2)) > 0).sum() * BLOCKS[block] - np.einsum(
            'kij,kjm,kmn,kin->', info, h, np.asarray(found.covariance), h, optimize=True
        )
        misfit[block] = float(np.sqrt(np.einsum('ki,kij,kj->', r, info, r) / max(left, 1.0)))
    return misfit
