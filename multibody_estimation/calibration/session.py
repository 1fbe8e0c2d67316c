# SPDX-License-Identifier: Apache-2.0
"""A technician's session as a value: samples taken, calibration in force. The node and the command line are shells around it.

Every function takes a session and returns a new one, or raises a sentence and leaves the old one as it was: what failed never
touches the calibration in force.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import yaml

from multibody_estimation.calibration.calibrate import calibrate_force_torque
from multibody_estimation.calibration.enough import Sufficiency, check_data
from multibody_estimation.calibration.gating import Gates, Sample, datasets_of, static_sample
from multibody_estimation.calibration.model import Load, Noise, gravity_map
from multibody_estimation.calibration.quality import Quality, held_out
from multibody_estimation.calibration.readings import Readings
from multibody_estimation.calibration.result import Calibration, read_document
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.window import NANOSECONDS


@dataclass(frozen=True, eq=False)
class Session:
    """What a technician has done so far with one sensor."""

    serial: str = ''
    """Serial number of the sensor, or its name where it has none."""
    samples: tuple[Sample, ...] = ()
    calibration: Calibration | None = None
    """In force: what wrenches are made with."""
    quality: Quality | None = None
    """Of the calibration on samples it has not seen; None where it was loaded or the samples are few."""
    factory: np.ndarray | None = None
    """Matrix the sensor came with, N and N m per count; shape (6, 6)."""
    gates: Gates = Gates()
    last_number: int = 0


def take(session: Session, readings: Readings, seconds: float, load: Load, dataset: str = '') -> tuple[Session, Sample]:
    """Average the last ``seconds`` of the readings into a sample."""
    if not seconds > 0:
        raise EstimationError(f'A sample is averaged over a positive time, not {seconds:g} s.')
    end = last_instant(readings, seconds)
    return take_between(session, readings, end - int(seconds * NANOSECONDS), end, load, dataset)


def last_instant(readings: Readings, seconds: float) -> int:
    """Return the end of what both sensors have seen, in ns; a sentence where their clocks are apart."""
    if len(readings.strain_stamps) and len(readings.imu_stamps):
        apart = (int(readings.strain_stamps[-1]) - int(readings.imu_stamps[-1])) / NANOSECONDS
        if abs(apart) > max(0.5, seconds):
            ahead, behind = ('strain', 'IMU') if apart > 0 else ('IMU', 'strain')
            raise EstimationError(
                f'The stamps of the {ahead} are {abs(apart):.2f} s ahead of those of the {behind}: one of them lags, or their clocks '
                'differ. Synchronise the clocks of the machines that publish them.'
            )
    return readings.end


def take_between(
    session: Session, readings: Readings, begin: int, end: int, load: Load, dataset: str = ''
) -> tuple[Session, Sample]:
    """Average the readings with ``begin <= stamp < end`` (ns) into a sample."""
    name = check_dataset(session, load, dataset)
    if readings.serial and session.serial and readings.serial != session.serial:
        raise EstimationError(
            f"The strain comes from sensor '{readings.serial}', but this session is of '{session.serial}'. Restart the calibrator."
        )
    sample = replace(static_sample(readings, begin, end, name, load, session.gates), number=session.last_number + 1)
    return replace(session, samples=(*session.samples, sample), last_number=sample.number), sample


def check_dataset(session: Session, load: Load, dataset: str = '') -> str:
    """Return the dataset's name; a sentence where that name stands for another load."""
    name = dataset or str(load)
    for other in session.samples:
        if other.dataset == name and other.load != load:
            raise EstimationError(
                f"Dataset '{name}' was begun with {other.load}, not {load}. Give the samples of another load another dataset's name."
            )
    return name


def nearest(session: Session, sample: Sample) -> tuple[float, int]:
    """Angle in degrees to the nearest other orientation of the same dataset, and that sample's number; (180, 0) where none is."""
    best = (180.0, 0)
    for other in session.samples:
        if other.dataset == sample.dataset and other.number != sample.number:
            best = min(best, (angle(other.acceleration, sample.acceleration), other.number))
    return best


def angle(a: np.ndarray, b: np.ndarray) -> float:
    """Angle between two vectors in degrees."""
    return float(np.degrees(np.arccos(np.clip(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), -1, 1))))


def remove(session: Session, number: int = 0, dataset: str = '') -> tuple[Session, tuple[Sample, ...]]:
    """Take out the sample with this number, or a whole dataset, or (neither given) the last sample; return what was taken out."""
    if not session.samples:
        raise EstimationError('There is no sample to remove.')
    if dataset:
        known = list(dict.fromkeys(s.dataset for s in session.samples))
        gone = tuple(s for s in session.samples if s.dataset == dataset)
        if not gone:
            raise EstimationError(f"There is no dataset '{dataset}'.{did_you_mean(dataset, known)}")
    else:
        wanted = number or session.samples[-1].number
        gone = tuple(s for s in session.samples if s.number == wanted)
        if not gone:
            numbers = ', '.join(str(s.number) for s in session.samples)
            raise EstimationError(f'There is no sample {number}. There are: {numbers}.')
    return replace(session, samples=tuple(s for s in session.samples if s not in gone)), gone


def noise_floor(samples: Sequence[Sample]) -> Noise | None:
    """Standard errors of the averages: the least noise the samples can have."""
    strain = np.sqrt(np.mean([np.square(s.strain_error) for s in samples], axis=0)) if samples else np.zeros(6)
    acceleration = np.sqrt(np.mean([s.acceleration_error**2 for s in samples])) if samples else 0.0
    return Noise(tuple(np.maximum(strain, 1e-3)), max(float(acceleration), 1e-4)) if samples else None


def advice(session: Session, *, wanted: float = 0.05) -> Sufficiency:
    """What the samples so far can tell, and what to add."""
    return check_data(datasets_of(session.samples), noise_floor(session.samples), wanted=wanted)


def compute(session: Session, method: str = '', *, folds: int = 5) -> Session:
    """Calibrate from the samples and put the result in force."""

    def calibrate(datasets: Sequence) -> Calibration:
        return calibrate_force_torque(
            datasets, method=method or 'likelihood', floor=noise_floor(session.samples), factory=session.factory,
            serial=session.serial, saturation=session.gates.saturation,
        )  # fmt: skip

    datasets = datasets_of(session.samples)
    result = calibrate(datasets)
    unseen = held_out(datasets, calibrate, folds=folds)
    if unseen is not None:
        force, torque = unseen.overall
        note = (
            f'On samples it had not seen ({min(folds, *map(len, datasets))} folds): off by {force:.3f} N, {torque:.4f} N m (RMS).'
        )
        result = replace(result, notes=(*result.notes, note))
    return replace(session, calibration=result, quality=unseen)


def tare(session: Session, readings: Readings, seconds: float, load: Load | None = None, *, to_zero: bool = False) -> Session:
    """Set the offset so that the wrench at rest is the weight of body and ``load``, or zero with ``to_zero``.

    ``load`` counts as carried from now on: `Calibration.compensated` takes its weight off.
    """
    if session.calibration is None:
        raise EstimationError('There is no calibration in force, so there is nothing to tare. Compute or load one first.')
    calibration, load = session.calibration, load or Load()
    end = last_instant(readings, seconds)
    s = static_sample(readings, end - int(seconds * NANOSECONDS), end, 'tare', load, session.gates)
    a = s.acceleration - calibration.accelerometer_bias
    expected = np.zeros(6) if to_zero else gravity_map(calibration.body + load.inertia) @ a
    shift = np.linalg.solve(calibration.matrix, calibration.wrench(s.strain, s.temperature) - expected)
    now = datetime.now(UTC).isoformat(timespec='seconds')
    note = f'Tared {now} {"to zero" if to_zero else f"with {load}"}: the offset moved by {np.abs(shift).max():.0f} counts.'
    kept = tuple(n for n in calibration.notes if not n.startswith('Tared '))
    return replace(
        session, calibration=replace(calibration, offset=calibration.offset + shift, carried=load.inertia, notes=(*kept, note))
    )


def safe_path(folder: str | Path, filename: str, default: str) -> Path:
    """Return the path of ``filename`` below ``folder``; a sentence where it would lie outside."""
    folder = Path(folder).expanduser().resolve()
    name = (filename or default).strip()
    path = (folder / name).resolve()
    if path == folder or folder not in path.parents:
        raise EstimationError(f"'{name}' lies outside the data folder {folder}. Give a name relative to it.")
    if path.suffix not in ('.yaml', '.yml'):
        path = path.with_name(path.name + '.yaml')
    if path.is_dir():
        raise EstimationError(f'{path} is a folder. Give the name of a file.')
    return path


def save(session: Session, folder: str | Path, filename: str = '') -> Path:
    """Write the calibration in force with its samples below ``folder``; the default name is serial and date."""
    if session.calibration is None:
        raise EstimationError('There is no calibration in force to save. Compute one first.')
    stamp = session.calibration.date.replace(':', '').replace('+0000', 'Z')
    serial = _file_name(session.serial)
    path = safe_path(folder, filename, f'{serial}_{stamp}.yaml')
    if path.exists():
        try:
            read_document(path)
        except EstimationError:
            raise EstimationError(
                f'{path} exists and is no calibration file, so it is not overwritten. Choose another name.'
            ) from None
    try:
        return session.calibration.save(path, samples=[sample_document(s) for s in session.samples])
    except OSError as error:
        raise EstimationError(f'{path} cannot be written: {error.strerror}. Choose another data folder.') from None


def sample_document(s: Sample) -> dict:
    """Return a sample as plain numbers, for YAML."""
    return {
        'number': s.number, 'dataset': s.dataset, 'mass': s.load.mass, 'center_of_mass': list(s.load.center_of_mass), 'begin': s.begin,
        'end': s.end, 'count': s.count, 'strain': s.strain.tolist(), 'acceleration': s.acceleration.tolist(), 'temperature': s.temperature,
        'strain_error': s.strain_error.tolist(), 'acceleration_error': s.acceleration_error,
    }  # fmt: skip


def keep_samples(session: Session, folder: str | Path) -> Path:
    """Write the samples taken so far to ``<serial>.samples.yaml``: what a technician did survives a crash."""
    path = Path(folder).expanduser() / f'{_file_name(session.serial)}.samples.yaml'
    document = {
        'kind': 'force_torque_samples',
        'serial': session.serial,
        'samples': [sample_document(s) for s in session.samples],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + '.part')
        part.write_text(yaml.safe_dump(document, sort_keys=False, width=130), encoding='utf-8')
        part.replace(path)
    except OSError as error:
        raise EstimationError(f'{path} cannot be written: {error.strerror}. The samples are in memory only.') from None
    return path


def resume(session: Session, folder: str | Path) -> Session:
    """Take up the samples that `keep_samples` wrote for this sensor; the session as it is where there are none."""
    path = Path(folder).expanduser() / f'{_file_name(session.serial)}.samples.yaml'
    if not path.exists():
        return session
    try:
        document = yaml.safe_load(path.read_text(encoding='utf-8'))
        samples = tuple(
            Sample(str(s['dataset']), Load(s['mass'], tuple(s['center_of_mass'])), np.array(s['strain'], dtype=float),
                   np.array(s['acceleration'], dtype=float), float(s['temperature']), int(s['begin']), int(s['end']), int(s['count']),
                   np.array(s['strain_error'], dtype=float), float(s['acceleration_error']), int(s['number']))
            for s in document['samples']
        )  # fmt: skip
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise EstimationError(f'{path} cannot be taken up: it is damaged ({error!r}). Move it away and start anew.') from None
    return replace(session, samples=samples, last_number=max((s.number for s in samples), default=session.last_number))


def _file_name(serial: str) -> str:
    return ''.join(c if c.isalnum() or c in '-_' else '_' for c in serial or 'sensor')


def newest(folder: str | Path, serial: str) -> Path | None:
    """Return the calibration file of this sensor below ``folder`` with the latest date, or None."""
    found: list[tuple[str, Path]] = []
    for path in sorted(Path(folder).expanduser().glob('*.y*ml')):
        try:
            document = read_document(path)
        except EstimationError:
            continue
        if document.get('serial') == serial:
            found.append((str(document.get('date', '')), path))
    return max(found)[1] if found else None


def load(session: Session, path: str | Path) -> Session:
    """Put the calibration of a file in force; refused where it is of another sensor."""
    calibration = Calibration.load(path)
    if calibration.serial and session.serial and calibration.serial != session.serial:
        raise EstimationError(
            f"{path} is the calibration of sensor '{calibration.serial}', but the sensor here is '{session.serial}'. "
            'Give the right file or calibrate this sensor.'
        )
    return replace(session, calibration=calibration, quality=None)
