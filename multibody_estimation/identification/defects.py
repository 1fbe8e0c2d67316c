# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with recordings and shows without a model: gaps, saturation, coarse encoders, joints that stand still."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from multibody_estimation.identification.finding import Finding
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Window

__all__ = ['in_the_data', 'still_joints']

STILL = 0.01
"""A joint that moves less than this tells nothing, rad or m."""


def in_the_data(robot: Robot, window: Window) -> tuple[Finding, ...]:
    """What the signals show by themselves."""
    needed = {s.signal for s in robot.sensors} | {i.signal for i in robot.inputs}
    found = [Finding(d.kind, d.signal, d.sentence) for d in window.defects if d.signal in needed][:20]
    for source in robot.inputs:
        if source.signal in window:
            found += _saturation(window, source)
    for sensor in robot.sensors:
        if isinstance(sensor, Encoder) and sensor.signal in window:
            found += _quantisation(window, sensor)
    return tuple(found)


def _saturation(window: Window, source: Any) -> Iterator[Finding]:
    """Stretches in which a command stands at its extreme while it varies elsewhere."""
    signal = window[source.signal]
    column = source.column or (source.joint if source.joint in signal.columns else signal.columns[0])
    u, time = signal.column(column), window.seconds(source.signal)
    top = np.abs(u).max(initial=0.0)
    if not top or len(np.unique(u)) < 20:
        return
    stands = (np.abs(u) >= top * (1 - 1e-9)) & np.r_[False, np.abs(np.diff(u)) <= 1e-12]
    share = float(stands.mean())
    if share > 0.01:
        first = float(time[np.argmax(stands)])
        yield Finding('saturation', source.joint, f'{source.signal} ({source.joint}) stands at its limit of {top:.4g} {signal.unit} in {100 * share:.0f} % of the '
                      f'samples, first at {first:.3f} s. Was the motor given all of it? Use a smaller amplitude.')  # fmt: skip


def _quantisation(window: Window, sensor: Encoder) -> Iterator[Finding]:
    """Encoders whose step is larger than the noise that is stated."""
    signal = window[sensor.signal]
    for k, joint in enumerate(sensor.joints):
        if joint not in signal.columns:
            continue
        steps = np.abs(np.diff(signal.column(joint)))
        steps = steps[steps > 0]
        if len(steps) < 20:
            continue
        step = float(steps.min())
        regular = np.abs(steps / step - np.round(steps / step)).max() < 1e-3
        noise = float(np.broadcast_to(np.asarray(sensor.noise, dtype=float), (len(sensor.joints),))[k])
        stated = max(noise, sensor.quantisation / np.sqrt(12))
        if regular and stated and step / np.sqrt(12) > 1.5 * stated:
            yield Finding('quantisation', joint, f'{sensor.signal} ({joint}) counts in steps of {step:.3g}, coarser than the noise of {stated:.3g} that is stated. '
                          f'Give it `quantisation: {step:.4g}`.')  # fmt: skip


def still_joints(robot: Robot, joints: Sequence[Any]) -> tuple[Finding, ...]:
    """Joints that hardly move, with the parameters that cannot be told because of it."""
    out = []
    for joint in joints:
        if joint.span < STILL:
            lost = [p.name for p in robot.parameters if p.name.startswith(f'{joint.name}.') and not p.fixed]
            what = (
                f': {", ".join(lost)} cannot be told from it. Excite it, or fix them with `fix: [{", ".join(lost)}]`.'
                if lost
                else '. Excite it.'
            )
            out.append(Finding('still', joint.name, f'The recording holds {joint.name} still (moves {joint.span:.3g}){what}'))
    return tuple(out)
