# SPDX-License-Identifier: Apache-2.0
"""`collect`: run a device for a while and keep everything it gives as a `Window`; no ROS, no files."""

from collections.abc import Iterable

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware.device import Channel, Device, Sample
from multibody_estimation.hardware.driver import Driver
from multibody_estimation.hardware.excitation import Excitation
from multibody_estimation.recording.topics import TABLE, WRENCH, XYZ, join_name
from multibody_estimation.window import NANOSECONDS, Signal, Window

__all__ = ['collect', 'gather_samples']

FIXED = {
    '/accelerometer': XYZ,
    '/gyroscope': XYZ,
    '/orientation': ('x', 'y', 'z', 'w'),
    '/temperature': ('temperature',),
    '/saturated': WRENCH,
}


def columns_of(channel: Channel, suffix: str) -> tuple[str, ...]:
    """Names of the columns of one part of a channel."""
    if channel.message_type.endswith('/LinkWrenches'):
        return tuple(f'{link}.{axis}' for link in channel.columns for axis in WRENCH)
    return FIXED.get(suffix) or channel.columns or WRENCH


def gather_samples(channels: Iterable[Channel], samples: Iterable[Sample], *, source: str = '', truth=None) -> Window:
    """Put samples together as the signals that the same messages would become in a bag."""
    by_topic = {channel.topic: channel for channel in channels}
    rows: dict[tuple[str, str], tuple[list[int], list]] = {}
    for sample in samples:
        for suffix, values in sample.parts.items():
            stamps, kept = rows.setdefault((sample.topic, suffix), ([], []))
            stamps.append(sample.stamp)
            kept.append(values)
    signals = []
    for (topic, suffix), (stamps, kept) in rows.items():
        channel = by_topic[topic]
        part = next(p for p in TABLE[channel.message_type] if p.suffix == suffix)
        unit = channel.unit or part.unit
        noise = channel.noise.get(suffix, ())
        noise = noise if all(x > 0 for x in noise) else ()
        signals.append(
            Signal(join_name(channel.signal, suffix), np.array(stamps, dtype=np.int64), np.array(kept, dtype=float),
                   columns_of(channel, suffix), unit, channel.frame, noise)
        )  # fmt: skip
    return Window.gather(signals, source=source, truth=truth)


def collect(device: Device, seconds: float, *, excitation: Excitation | None = None, joint: str = '', source: str = '') -> Window:
    """Open a device, record ``seconds`` by its stamps, exciting it where asked, and close it."""
    driver = Driver(device, excitation=excitation, joint=joint)
    samples: list[Sample] = []
    length, first = round(seconds * NANOSECONDS), None
    empty = 0
    try:
        while True:
            got = driver.poll(0.1)
            if not got:
                empty += 1
                if device.finished:
                    break
                if empty > 100:
                    raise EstimationError(f'The device gave nothing for {empty} reads: {driver.watchdog.reason}')
                continue
            empty = 0
            first = got[0].stamp if first is None else first
            samples += [s for s in got if s.stamp < first + length]
            if got[-1].stamp >= first + length:
                break
    finally:
        driver.close()
    return gather_samples(driver.channels, samples, source=source or type(device).__name__, truth=device.truth)
