# SPDX-License-Identifier: Apache-2.0
"""Compile ahead: a made-up recording of the length and rate to come, solved once, so that the first real one finds everything compiled."""

import numpy as np

from multibody_estimation.identification import dynamics
from multibody_estimation.identification.identify import identify, track
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.problem import Problem, prepare
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Signal, Window

__all__ = ['made_up_window', 'rehearse_identify', 'rehearse_track']

SPARE = 1.02
"""Stages compiled for, as a multiple of what the rate and length say: real clocks jitter, and a few samples more must not recompile."""


def made_up_window(robot: Robot, seconds: float, rate: float) -> Window:
    """A smooth motion of all sensors and inputs; it obeys no dynamics, it only has the right shape."""
    t = np.arange(max(int(seconds * rate * SPARE) + 2, 8)) / rate
    joints = dynamics.joint_names(robot.model)
    signals = []
    for sensor in robot.sensors:
        columns = tuple(getattr(sensor, 'joints', ())) if isinstance(sensor, Encoder) else ()
        count = len(columns) or 3
        index = [joints.index(c) for c in columns] if columns else range(count)
        wave = np.stack([0.3 * np.sin(2 * np.pi * (0.7 + 0.2 * j) * t + j) for j in index], axis=1)
        signals.append(Signal.from_seconds(sensor.signal, t, wave, columns=columns))
    for name in {source.signal for source in robot.inputs}:
        driven = tuple(source.joint for source in robot.inputs if source.signal == name)
        wave = np.stack([0.01 * np.cos(2 * np.pi * 0.9 * t + j) for j in range(len(driven))], axis=1)
        signals.append(Signal.from_seconds(name, t, wave, columns=driven))
    return Window.gather(signals, source='rehearsal')


def rehearse_identify(robot: Robot, seconds: float, rate: float) -> Problem:
    """Compile an identification of windows of ``seconds`` at ``rate`` Hz; pass the result to `identify` as ``problem``."""
    window = made_up_window(robot, seconds, rate)
    problem = prepare(robot, window, step=robot.settings.get('step'))
    with np.errstate(all='ignore'):  # the motion obeys no dynamics: its covariances mean nothing
        _ = identify(robot, window, problem=problem, max_iterations=1).motion
    return problem


def rehearse_track(robot: Robot, seconds: float, rate: float) -> Problem:
    """Compile tracking in windows of ``seconds`` at ``rate`` Hz; pass the result to `track` as ``problem``."""
    with np.errstate(all='ignore'):
        fit = track(robot, made_up_window(robot, seconds, rate))
        _ = fit.motion
    return fit.problem
