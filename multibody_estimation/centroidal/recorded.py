# SPDX-License-Identifier: Apache-2.0
"""From a recording of a legged robot to centroidal measurements: the stamps of the encoders are the time line.

Everything else is interpolated to them. A force/torque sample counts once, at the encoder stamp nearest to it, however slow its
sensor is; where a sensor pauses, what needs it is not measured and the rest goes on.
"""

from dataclasses import dataclass, replace

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.centroidal.body import WholeBody
from multibody_estimation.centroidal.problem import Measurement
from multibody_estimation.centroidal.whole_body import Instant, Measured, com_acceleration, measure_instant, stand
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.window import Signal, Window

__all__ = ['MEASURES', 'Signals', 'WholeBodyRecord', 'measure_recording']

MEASURES = ('center_of_mass', 'contact_wrench', 'angular_momentum', 'acceleration', 'linear_momentum')
"""What a whole body can tell. Rates of momentum are not among them: without sensors of joint acceleration they would be
differences of the momenta, the same data counted twice."""


@dataclass(frozen=True)
class Signals:
    """What the signals of a window are called; those of an absent sensor are empty."""

    wrenches: tuple[str, ...]
    """One per contact, in the order of the contacts."""
    encoders: str = 'encoders'
    velocities: str = 'joint_velocities'
    """Where the window does not have it, differences of the encoders serve."""
    imu: str = 'imu'
    """Its parts are ``imu/gyroscope``, ``imu/accelerometer`` and ``imu/orientation``."""


@dataclass(frozen=True, eq=False)
class WholeBodyRecord:
    """What `measure_recording` found."""

    measurements: list[Measurement]
    switches: np.ndarray
    """Times of contact changes, s."""
    time: np.ndarray
    """Of the encoders, s; (n,)."""
    base_position: np.ndarray
    """m; (n, 3)."""
    base_rotation: np.ndarray
    """Base to world; (n, 3, 3)."""
    standing: np.ndarray
    """Which contacts stand; (n, nc)."""


def _columns(signal: Signal, names: tuple[str, ...]) -> np.ndarray:
    missing = [name for name in names if name not in signal.columns]
    if missing:
        raise EstimationError(
            f"{signal.name} has no column '{missing[0]}'.{did_you_mean(missing[0], signal.columns)} A joint that does not move can be "
            'left out of the model: list the others under joints.'
        )
    return signal.values[:, [signal.columns.index(name) for name in names]]


def _resample(signal: Signal, values: np.ndarray, stamps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate to the stamps (ends are held); return values and whether the signal speaks there: no pause, not past its ends."""
    if not len(signal):
        raise EstimationError(f'{signal.name}: the recording is empty. Take it out of the setup, or record again.')
    t, s = (stamps - signal.stamps[0]) * 1e-9, (signal.stamps - signal.stamps[0]) * 1e-9
    after = np.clip(np.searchsorted(s, t), 1, max(len(s) - 1, 1))
    usual = np.median(np.diff(s)) if len(s) > 1 else np.inf
    pause = s[np.minimum(after, len(s) - 1)] - s[after - 1] > 3 * usual
    nearest = np.minimum(np.abs(s[np.minimum(after, len(s) - 1)] - t), np.abs(s[after - 1] - t))
    speaks = np.where(pause, nearest < usual / 2, (t >= s[0] - usual / 2) & (t <= s[-1] + usual / 2))
    return np.stack([np.interp(t, s, column) for column in values.T], axis=1), speaks


def _once(signal: Signal, stamps: np.ndarray) -> np.ndarray:
    """Mark the stamp nearest to each sample of a signal; (n,) bool."""
    middle = (stamps[1:] + stamps[:-1]) // 2
    mark = np.zeros(len(stamps), bool)
    inside = (signal.stamps >= stamps[0] - 10**9) & (signal.stamps <= stamps[-1] + 10**9)
    mark[np.searchsorted(middle, signal.stamps[inside])] = True
    return mark


def _central_differences(time: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes over the two neighbours, one-sided at the ends; half the time between the neighbours."""
    ahead, behind = np.minimum(np.arange(len(time)) + 1, len(time) - 1), np.maximum(np.arange(len(time)) - 1, 0)
    span = time[ahead] - time[behind]
    return (values[ahead] - values[behind]) / span[:, None], span / 2


@jax.jit
def _follow(body: WholeBody, instants: Instant):
    """Run over all instants; return footholds and measured values, each with a leading axis."""
    first = jax.tree.map(lambda x: x[0], instants)

    def step(footholds, now):
        after, seen = measure_instant(body, footholds, now)
        return after, (after, seen)

    return jax.lax.scan(step, stand(body, first), instants)[1]


@jax.jit
def _accelerations(body: WholeBody, seen, joints, rates, specific_force, interval):
    return jax.vmap(com_acceleration, (None, 0, 0, 0, 0, 0))(body, seen, joints, rates, specific_force, interval)


def _read(body: WholeBody, window: Window, signals: Signals) -> tuple[WholeBody, Instant, dict[str, np.ndarray]]:
    """Bring all signals to the encoders' stamps.

    Returns the body (with the noise of differences where rates are missing), the instants, and where ``pose``, ``rates`` and
    ``wrenches`` were really measured; (n,) each.
    """
    names, encoders = body.model.joint_names, window[signals.encoders]
    if len(encoders) < 3:
        raise EstimationError(f'{signals.encoders}: {len(encoders)} samples; at least three are needed.')
    stamps, time, n = encoders.stamps, window.seconds(signals.encoders), len(encoders)
    joints = _columns(encoders, names)
    speaks = {'pose': np.ones(n, bool), 'rates': np.ones(n, bool), 'wrenches': np.ones(n, bool)}

    if signals.velocities in window:
        source = window[signals.velocities]
        rates, speaks['rates'] = _resample(source, _columns(source, names), stamps)
    else:
        rates, half = _central_differences(time, joints)
        body = replace(body, velocity_noise=body.encoder_noise / (np.sqrt(2) * float(np.median(half))))
    gyroscope, orientation = np.zeros((n, 3)), np.tile([1.0, 0, 0, 0], (n, 1))
    if body.imu:
        source = window[f'{signals.imu}/gyroscope']
        gyroscope, there = _resample(source, source.values, stamps)
        speaks['rates'] = speaks['rates'] & there
    if body.imu_orientation:
        source = window[f'{signals.imu}/orientation']
        # A quaternion and its negative are one orientation; neighbours must have one sign before they are mixed.
        turns = np.where(np.sum(source.values[1:] * source.values[:-1], axis=1) < 0, -1, 1)
        mixed, speaks['pose'] = _resample(source, source.values * np.cumprod(np.r_[1, turns])[:, None], stamps)
        orientation = (mixed / np.linalg.norm(mixed, axis=1, keepdims=True))[:, [3, 0, 1, 2]]
    wrenches = np.zeros((n, len(body.contacts), 6))
    for i, name in enumerate(signals.wrenches):
        wrenches[:, i], there = _resample(window[name], window[name].values, stamps)
        speaks['wrenches'] = speaks['wrenches'] & there
    speaks['wrenches'] &= _once(min((window[name] for name in signals.wrenches), key=len), stamps)
    return body, Instant(*(jnp.asarray(x) for x in (joints, rates, wrenches, gyroscope, orientation))), speaks


def _measure_acceleration(
    body: WholeBody, seen: Measured, instants: Instant, time: np.ndarray, stamps: np.ndarray, known: np.ndarray, source: Signal
) -> Measurement | None:
    """Acceleration of the center of mass where the accelerometer speaks and the rates of both neighbours are ``known``."""
    specific_force, there = _resample(source, source.values, stamps)
    slopes, half = _central_differences(time, np.asarray(seen.velocity))
    slopes[:, :3] = 0  # cancels
    rows = there & known & _once(source, stamps) & (half < 2 * np.median(half))
    rows[1:-1] &= known[2:] & known[:-2]
    rows[[0, -1]] = False
    if not rows.any():
        return None
    more = (jnp.asarray(x) for x in (instants.positions, slopes, specific_force, half))
    values, covariance = (np.asarray(x)[rows] for x in _accelerations(body, seen, *more))
    return Measurement('acceleration', time[rows], values, covariance)


def measure_recording(
    body: WholeBody, window: Window, signals: Signals, measures: tuple[str, ...] = MEASURES[:4]
) -> WholeBodyRecord:
    """Compute the centroidal measurements of a recording; ``acceleration`` only where the window has an accelerometer."""
    for name in measures:
        if name not in MEASURES:
            raise EstimationError(f"A whole body does not measure '{name}'.{did_you_mean(name, MEASURES)}")
    if len(signals.wrenches) != len(body.contacts):
        raise EstimationError(f'{len(signals.wrenches)} wrench signals for {len(body.contacts)} contacts; one each is needed.')
    body, instants, speaks = _read(body, window, signals)
    time, stamps = window.seconds(signals.encoders), window[signals.encoders].stamps
    footholds, seen = _follow(body, instants)
    supported = np.asarray(seen.supported)
    if not supported.any():
        raise EstimationError(
            f'No contact at all: no foot ever feels more than {float(body.contact_force):.3g} N. Is the robot hung up, or are the '
            'sensors unplugged? A lower contact_force may help.'
        )
    known = supported & speaks['pose'] & speaks['rates']
    rows_of = {
        'center_of_mass': supported & speaks['pose'], 'contact_wrench': speaks['wrenches'] & speaks['pose'],
        'angular_momentum': known, 'linear_momentum': known,
    }  # fmt: skip
    found = []
    for block, rows in rows_of.items():
        if block in measures and rows.any():
            values, covariance = np.asarray(seen.values[block])[rows], np.asarray(seen.covariance[block])[rows]
            found.append(Measurement(block, time[rows], values, covariance, np.asarray(seen.anchor)[rows]))
    accelerometer = f'{signals.imu}/accelerometer'
    if 'acceleration' in measures and body.imu and accelerometer in window:
        more = _measure_acceleration(body, seen, instants, time, stamps, known, window[accelerometer])
        found += [] if more is None else [more]
    return WholeBodyRecord(
        found, time[np.asarray(seen.switched)], time, np.asarray(seen.base_position), np.asarray(seen.base_rotation),
        np.asarray(footholds.standing),
    )  # fmt: skip
