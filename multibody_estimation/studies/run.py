# SPDX-License-Identifier: Apache-2.0
"""`do_run`: one identification in a worker process; plain data in, plain data out, and a failure is a result too."""

import os
import platform
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.studies.plan import Run

__all__ = ['do_run', 'failed', 'installed_version']

KEPT = 4
"""Recordings and compiled problems that a worker keeps for the next run."""


def installed_version() -> str:
    """Version of this package where it is called, to be asked of the workers of a foreign scheduler."""
    import multibody_estimation

    return multibody_estimation.__version__


@lru_cache(maxsize=KEPT)
def _robot(name: str, mark: str) -> Any:
    from multibody_estimation.cli.opening import open_robot

    return open_robot(name)


@lru_cache(maxsize=KEPT)
def _window(robot: str, recording: str, columns: str, begin: float | None, end: float | None, mark: str) -> Any:
    from multibody_estimation.cli.opening import open_recording

    window = open_recording(recording, _robot(robot, mark), columns)
    if begin is not None or end is not None:
        window = window.cut(begin or 0.0, window.duration + 1.0 if end is None else end)
    return window


@lru_cache(maxsize=KEPT)
def _problem(run: Run, step: float | None) -> Any:
    """What is compiled, the same for all weights; run: without its settings."""
    from multibody_estimation.identification.parameters import select
    from multibody_estimation.identification.problem import prepare

    robot = _robot(run.robot, run.mark).robot
    chosen = select(robot.parameters, fix=run.fix, start=dict(run.start))
    more = {'evaluation': robot.settings['evaluation']} if 'evaluation' in robot.settings else {}
    return prepare(robot, (_window_of(run),), chosen, robot.settings.get('step') if step is None else step, **more)


def _window_of(run: Run) -> Any:
    return _window(run.robot, run.recording, run.columns, run.begin, run.end, run.mark)


def _base(run: Run) -> dict[str, Any]:
    settings = dict(run.settings)
    return {
        'key': run.key, 'recording': run.recording, 'robot': run.robot, 'start': run.start_name, 'settings': settings,
        'finished': datetime.now(UTC).isoformat(timespec='milliseconds'), 'host': platform.node(), 'process': os.getpid(),
        'version': installed_version(),
    }  # fmt: skip


def failed(run: Run, why: str) -> dict[str, Any]:
    """The row of a run that gave nothing."""
    return _base(run) | {'status': 'failed', 'why': why}


def do_run(run: Run) -> dict[str, Any]:
    """Identify; returns a row of plain data with status ``ok``, ``not converged`` or ``failed`` and why."""
    from multibody_estimation.identification import identify

    began = time.perf_counter()
    try:
        opened = _robot(run.robot, run.mark)
        window = _window_of(run)
        settings = dict(run.settings)
        more = {}
        if settings.get('form', 'joint_space') == 'joint_space' and type(opened.robot.model).__name__ != 'Multibody':
            more = {'problem': _problem(replace(run, settings=(), start_name=''), settings.get('step'))}
        fit = identify(opened.robot, window, fix=run.fix, start=dict(run.start), **settings, **more)
    except EstimationError as error:
        return failed(run, str(error))
    except Exception as error:  # a fault in one run must not cost the others
        return failed(run, f'{type(error).__name__}: {error}'.splitlines()[0])
    rows = zip(fit.names, fit.titles, fit.units, fit.values, fit.std, fit.held)
    return _base(run) | {
        'status': 'ok' if fit.converged else 'not converged',
        'why': '' if fit.converged else fit.sentence,
        'seconds': time.perf_counter() - began,
        'iterations': int(fit.iterations),
        'cost': float(fit.cost),
        'step': float(fit.settings['step']) if fit.settings.get('step') else None,
        'weight': float(fit.settings['weight']),
        'noise_ratio': {k: float(v) for k, v in fit.noise_ratio.items()},
        'cannot_tell': list(fit.blind),
        'parameters': {
            n: {'title': t, 'unit': u, 'value': float(v), 'std': float(s), 'held': int(h)} for n, t, u, v, s, h in rows
        },
        'truth': {k: float(v) for k, v in fit.truth.items() if k in fit.names},
    }
