# SPDX-License-Identifier: Apache-2.0
"""`read_study`: the study file, checked whole before anything runs, becomes a list of runs, each known by a key of its own.

robot: furuta                     # a robot of this package, or a robot file; paths count from the study file
recordings: [bags/first, bags/night_*]
weight: [1.0e-3, 1.0e-2, 0.1]     # rad/s^2
step: [5 ms, 10 ms]
starts: {near: {}, heavy: {arm_link.inertia.zz: 4.0e-3}}
scatter: {count: 4, factor: 2}    # and four starts drawn at random, each number up to twice as large or as small
"""

import glob
import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification.robot import Robot
from multibody_estimation.schema import Checked, Flag, Number, Quantity, Text, read_yaml

__all__ = ['SCHEMA', 'Run', 'Study', 'read_study']

SCHEMA = {
    'robot': Text, 'recordings': [Text], 'columns': Text, 'output': Text, 'begin': Quantity('s'), 'end': Quantity('s'),
    'weight': [Number], 'step': [Quantity('s')], 'compliance': [Number], 'form': [('joint_space', 'maximal', 'paper')], 'correction': [Flag],
    'fix': [Text], 'starts': {None: {None: Number}}, 'scatter': {'count': Number, 'factor': Number, 'seed': Number},
}  # fmt: skip
AXES = ('weight', 'step', 'compliance', 'form', 'correction')
"""Settings of `identify` that a study can vary."""


@dataclass(frozen=True)
class Run:
    """One identification as plain data, so that any process can do it."""

    robot: str
    recording: str
    columns: str = ''
    begin: float | None = None
    """First second of the recording that is used."""
    end: float | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    """What `identify` is given besides the fixed parameters and the start."""
    fix: tuple[str, ...] = ()
    start: tuple[tuple[str, float], ...] = ()
    start_name: str = ''
    mark: str = ''
    """Fingerprint of the files: a run is done again where they have changed."""

    @property
    def key(self) -> str:
        """Same for the same work, whatever its start is called."""
        content = {k: v for k, v in asdict(self).items() if k != 'start_name'}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def label(self) -> str:
        """Short name for people."""
        said = [f'{k}={v:g}' if isinstance(v, float) else f'{k}={v}' for k, v in self.settings]
        return ' '.join([Path(self.recording).name, *said, *([f'start={self.start_name}'] if self.start_name else [])])


@dataclass(frozen=True)
class Study:
    """What is to be done and where the results go."""

    path: Path
    runs: tuple[Run, ...]
    output: Path


def read_study(path: str | Path) -> Study:
    """Read and check a study file; what is wrong is said with the file, the line and the name."""
    from multibody_estimation.cli.opening import open_robot

    checked = read_yaml(path, SCHEMA)
    given, folder = checked.values, Path(path).absolute().parent
    for key in ('robot', 'recordings'):
        if not given.get(key):
            raise EstimationError(f"{path}: '{key}:' is missing.")
    name = given['robot']
    if Path(name).suffix in ('.yaml', '.yml', '.urdf', '.xml'):
        name = str(folder / name)
    try:
        opened = open_robot(name)
    except EstimationError as error:
        raise checked.complain(str(error), 'robot') from None
    recordings = _recordings(checked, folder)
    columns = str(folder / given['columns']) if given.get('columns') else ''
    _check_settings(checked, opened.robot, recordings, columns)
    files = [Path(p) for p in (name, opened.urdf or '', columns) if p and Path(p).is_file()]
    common = hashlib.sha256(b''.join(p.read_bytes() for p in files)).hexdigest()[:16]
    starts = _starts(checked, opened.robot)
    varied = [[(axis, value) for value in given[axis]] for axis in AXES if axis in given]
    runs = tuple(
        Run(name, recording, columns, given.get('begin'), given.get('end'), settings, tuple(given.get('fix', ())), start, title,
            f'{common}-{_mark(recording)}')
        for recording, (title, start), settings in itertools.product(recordings, starts, itertools.product(*varied))
    )  # fmt: skip
    kept = {run.key: run for run in reversed(runs)}  # a value that is listed twice is one run
    unique = tuple(run for run in runs if kept[run.key] is run)
    return Study(Path(path), unique, folder / given.get('output', f'{Path(path).stem}_results'))


def _recordings(checked: Checked, folder: Path) -> list[str]:
    found: list[str] = []
    missing = []
    for text in checked.values['recordings']:
        here = folder / text
        hits = sorted(glob.glob(str(here))) if any(c in text for c in '*?[') else [str(here)] if here.exists() else []
        if not hits:
            missing.append(text)
        found += [h for h in hits if h not in found]
    if missing:
        count = len(checked.values['recordings'])
        verb = 'is' if len(missing) == 1 else 'are'
        shown = ', '.join(missing[:10]) + (f' and {len(missing) - 10} more' if len(missing) > 10 else '')
        raise checked.complain(
            f'{len(missing)} of {count} recordings {verb} not there: {shown} (looked in {folder}).', 'recordings'
        )
    return found


def _mark(recording: str) -> str:
    """Names, sizes and times of change of the files of a recording: cheap also for bags of many gigabytes."""
    path = Path(recording)
    files = sorted(p for p in path.rglob('*') if p.is_file()) if path.is_dir() else [path]
    stats = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    return hashlib.sha256(json.dumps(stats).encode()).hexdigest()[:16]


def _check_settings(checked: Checked, robot: Robot, recordings: Sequence[str], columns: str) -> None:
    given, known = checked.values, [p.name for p in robot.parameters]
    for axis in AXES:
        if axis in given and not given[axis]:
            raise checked.complain(f'{axis} is an empty list; leave it out, or give a value.', axis)
    for axis in ('weight', 'step', 'compliance'):
        for value in given.get(axis, ()):
            if not value > 0:
                raise checked.complain(f'{axis} {value:g} must be above zero.', axis)
    for value in given.get('form', ()):
        if value == 'joint_space' and 'compliance' in given:
            raise checked.complain(
                "compliance is a number of the forms 'maximal' and 'paper'; joint_space has none.", 'compliance'
            )
    if 'compliance' in given and 'form' not in given:
        raise checked.complain('compliance needs `form: [maximal]`; joint_space has none.', 'compliance')
    begin, end = given.get('begin', 0.0), given.get('end', math.inf)
    if begin < 0 or end <= begin:
        raise checked.complain(f'from {begin:g} s to {end:g} s is no span of time.', 'end' if 'end' in given else 'begin')
    for name in given.get('fix', ()):
        if name not in known:
            raise checked.complain(f"'{name}' is no parameter of {robot.name}.{did_you_mean(name, known)}", 'fix')
    if any(Path(r).suffix == '.csv' for r in recordings) and not columns:
        raise checked.complain('.csv files need `columns: mapping.yaml`, which says which column is which.', 'recordings')
    if columns and not Path(columns).is_file():
        raise checked.complain(f'there is no file {columns}.', 'columns')
    bounds = {p.name: (p.lower, p.upper) for p in robot.parameters}
    for title, numbers in given.get('starts', {}).items():
        for name, value in numbers.items():
            if name not in known:
                raise checked.complain(
                    f"'{name}' is no parameter of {robot.name}.{did_you_mean(name, known)}", 'starts', title, name
                )
            low, high = bounds[name]
            if not low <= value <= high:
                raise checked.complain(f'{name}: the start {value:g} lies outside of [{low:g}, {high:g}].', 'starts', title, name)


def _starts(checked: Checked, robot: Robot) -> list[tuple[str, tuple[tuple[str, float], ...]]]:
    """Starts by name; without any, the robot's own."""
    given = checked.values
    out = [(title, tuple(sorted(numbers.items()))) for title, numbers in given.get('starts', {}).items()]
    scatter = given.get('scatter')
    if not scatter:
        return out or [('', ())]
    count, factor = scatter.get('count', 0), scatter.get('factor', 2.0)
    if count < 1 or count != int(count) or count > 10_000:
        raise checked.complain(f'count {count:g} must be a whole number from 1 to 10000.', 'scatter', 'count')
    if not factor > 1:
        raise checked.complain(f'factor {factor:g} must be above one.', 'scatter', 'factor')
    random = np.random.default_rng(int(scatter.get('seed', 0)))
    free = [p for p in _with_starts(robot) if p.name not in given.get('fix', ())]
    for k in range(int(count)):
        u = random.uniform(-1, 1, len(free))
        # A start of zero has no size of its own: it is moved by a typical change instead.
        moved = [p.start * factor**x if p.start else p.step * x for p, x in zip(free, u)]
        out.append((f'random {k + 1}', tuple((p.name, p.with_start(m).start) for p, m in zip(free, moved))))
    return out


def _with_starts(robot: Robot) -> list[Any]:
    """The robot's parameters, each with a number to start from."""
    if all(p.start is not None for p in robot.parameters):
        return list(robot.parameters)
    from multibody_estimation.identification.binding import bind

    return list(bind(robot, tuple(replace(p, fixed=False) for p in robot.parameters)).parameters)
