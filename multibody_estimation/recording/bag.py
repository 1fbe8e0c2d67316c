# SPDX-License-Identifier: Apache-2.0
"""`read_bag`: a rosbag2 folder (MCAP or sqlite3) becomes a `Window`, without a ROS installation, on header stamps."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.recording.bag_source import Source, open_bag
from multibody_estimation.recording.definitions import PACKAGE, make_typestore
from multibody_estimation.recording.topics import Part, join_name, name_signals, read_message, stamp_of, unit_of
from multibody_estimation.window import NANOSECONDS, Defect, Signal, Window

__all__ = ['read_bag', 'read_truth']


def read_truth(path: str | Path) -> dict[str, float]:
    """Return the true parameters of a simulated bag from ``truth.yaml`` in its folder; empty where there is none."""
    path = Path(path)
    file = (path if path.is_dir() else path.parent) / 'truth.yaml'
    if not file.is_file():
        return {}
    try:
        content = yaml.safe_load(file.read_text(encoding='utf-8')) or {}
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise EstimationError(f'{file} is no YAML: {error}') from error
    truth = content.get('parameters', content) if isinstance(content, dict) else None
    if not isinstance(truth, dict) or not all(isinstance(v, (int, float)) for v in truth.values()):
        raise EstimationError(f'{file}: needs a mapping `parameters:` of dotted names to numbers.')
    return {str(k): float(v) for k, v in truth.items()}


class _Samples:
    """Samples of one signal while a bag is read; messages with other joint names are kept apart."""

    def __init__(self, name: str, unit: str, frame: str, noise: tuple[float, ...], optional: bool):
        self.name, self.unit, self.frame, self.noise, self.optional = name, unit, frame, noise, optional
        self.groups: dict[tuple[str, ...], tuple[list[int], list[Any]]] = {}
        self.order: dict[tuple[str, ...], tuple[tuple[str, ...], list[int]]] = {}

    def add(self, columns: tuple[str, ...], stamp: int, values: Any) -> None:
        if columns not in self.order:
            same = next((c for c in self.groups if sorted(c) == sorted(columns)), columns)
            self.order[columns] = (same, [columns.index(c) for c in same])
            self.groups.setdefault(same, ([], []))
        same, permutation = self.order[columns]
        stamps, rows = self.groups[same]
        stamps.append(stamp)
        rows.append(values if same is columns or same == columns else [values[i] for i in permutation])

    def signals(self) -> Iterator[Signal]:
        # Several publishers with other joints may share a topic: the busiest keeps the name.
        ranked = sorted(self.groups.items(), key=lambda item: -len(item[1][0]))
        for rank, (columns, (stamps, rows)) in enumerate(ranked):
            name = self.name if rank == 0 else f'{self.name}/{columns[0]}'
            values = np.array(rows, dtype=float)
            noise = self.noise if len(self.noise) == values.shape[1] else ()
            yield Signal(name, np.array(stamps, dtype=np.int64), values, columns, self.unit, self.frame, noise)


def read_bag(path: str | Path, signals: Mapping[str, str] | Iterable[str] | None = None) -> Window:
    """Read a rosbag2 folder (or a single .mcap file) into a `Window`.

    signals: which signals, by name; or a mapping of signal names to topics that overrides the default table, e.g.
    ``{'encoders': '/arm/state', 'imu/gyroscope': '/waist/imu#angular_velocity'}``. Default: all that the table knows.
    A bag left behind by a recorder that was killed is read up to its last flush; a defect says so.
    """
    source = open_bag(path)
    overrides = dict(signals) if isinstance(signals, Mapping) else {}
    for name, topic in overrides.items():
        if topic.split('#')[0] not in source.topics:
            raise EstimationError(
                f"{path}: no topic '{topic}' for the signal '{name}'.{did_you_mean(topic, sorted(source.topics))}"
            )
    names = name_signals(source.topics, overrides)
    store = make_typestore({k: v for k, v in source.definitions.items() if k.startswith(f'{PACKAGE}/')})
    found = _collect(source, names, store, {topic: name for name, topic in overrides.items()})
    # Optional parts that a driver leaves as NaN are not there; a main signal of nothing but NaN is an error for Window to tell.
    ready = [s for c in found.values() for s in c.signals() if not (c.optional and not np.isfinite(s.values).any())]
    ready = _with_noise(ready, source.custom.get(f'{PACKAGE}.noise', '{}'))
    if signals is not None and not isinstance(signals, Mapping):
        wanted = list(signals)
        for name in wanted:
            if name not in [s.name for s in ready]:
                raise EstimationError(f"{path}: no signal '{name}'.{did_you_mean(name, [s.name for s in ready])}")
        ready = [s for s in ready if s.name in wanted]
    if not ready:
        listed = ', '.join(f'{t} ({k})' for t, k in sorted(source.topics.items())) or 'nothing'
        raise EstimationError(
            f'{path} holds no message that becomes a signal. It holds {listed}. {" ".join(source.notes)}'.strip()
        )
    window = Window.gather(ready, source=str(path), truth=read_truth(path))
    notes = tuple(Defect('', 'file', 0, 0.0, sentence) for sentence in source.notes)
    return replace(window, defects=notes + window.defects)


def _with_noise(signals: list[Signal], text: str) -> list[Signal]:
    """Put in the standard deviations that `write_bag` has stored, for messages have no place for them."""
    try:
        noise = {str(name): [float(x) for x in values] for name, values in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return signals
    fits = [s.name in noise and len(noise[s.name]) == len(s.columns) and min(noise[s.name]) > 0 for s in signals]
    return [replace(s, noise=tuple(noise[s.name])) if good else s for s, good in zip(signals, fits)]


def _collect(source: Source, names: Mapping[str, str], store: Any, fields: Mapping[str, str]) -> dict[str, _Samples]:
    """Read all messages; return the samples by signal name."""
    found: dict[str, _Samples] = {}
    places: dict[tuple[str, str], _Samples] = {}
    refused: dict[str, list[str]] = {}
    unstamped: dict[str, int] = {}
    for topic, log_time, raw in source.messages:
        if topic not in names:
            continue
        kind = source.topics[topic]
        try:
            message = store.deserialize_cdr(raw, kind)
            stamp = stamp_of(message)
            if stamp <= 0:
                stamp, unstamped[topic] = log_time, unstamped.get(topic, 0) + 1
            for part, reading in list(read_message(kind, message)):  # all or nothing
                place = places.get((topic, part.suffix))
                if place is None:
                    place = places[topic, part.suffix] = _place(found, topic, names[topic], part, message, fields)
                place.add(reading.columns, stamp, reading.values)
        except Exception as error:  # a single message that cannot be decoded must not cost the recording
            refused.setdefault(topic, []).append(f'at {log_time / NANOSECONDS:.3f} s: {error}')
    for topic, why in refused.items():
        source.notes.append(f'{topic}: {len(why)} messages could not be used and were left out, the first {why[0]}.')
    for topic, count in unstamped.items():
        if any(field_name == 'header' for field_name, _ in store.fielddefs[source.topics[topic]][1]):
            source.notes.append(f'{topic}: {count} messages have no header stamp; the time they were recorded at was taken.')
    return found


def _place(found: dict[str, _Samples], topic: str, base: str, part: Part, message: Any, fields: Mapping[str, str]) -> _Samples:
    name = fields.get(f'{topic}#{part.field}', join_name(base, part.suffix))
    header = getattr(message, 'header', None)
    if name in found:
        raise EstimationError(f"two topics become the signal '{name}'; give one of them another name")
    frame = header.frame_id if header is not None else ''
    found[name] = _Samples(name, unit_of(part, message), frame, part.noise(message), part.suffix != '')
    return found[name]
