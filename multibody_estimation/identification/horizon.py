# SPDX-License-Identifier: Apache-2.0
"""`Tracker`: the present state from the last stretch of data, again and again, with known parameters and one compiled program."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.identify import track
from multibody_estimation.identification.problem import Problem
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Window

__all__ = ['StateEstimate', 'Tracker', 'moving_horizon']


@dataclass(frozen=True)
class StateEstimate:
    """The state at one moment; nq joints."""

    time: float
    """Seconds on the window's clock."""
    position: np.ndarray
    """(nq,), rad or m."""
    position_std: np.ndarray
    speed: np.ndarray
    """(nq,), rad/s or m/s."""
    speed_std: np.ndarray
    external: np.ndarray
    """Unexplained joint force (nq,), N m or N."""
    external_std: np.ndarray


@dataclass(frozen=True)
class Tracker:
    """Moving-horizon estimation: call it with the data so far, get the state at the end of it.

    The horizon forgets what came before; make it several times as long as the motion remembers (0.3 to 1 s for a pendulum).
    """

    fit: Fit | Robot
    horizon: float = 0.5
    """Seconds of data that are used."""
    weight: float | None = None
    problem: Problem | None = None
    """Of an earlier estimate, to spare the compilation; `after` carries it on."""

    def estimate(self, window: Window, end: float | None = None) -> tuple[StateEstimate, 'Tracker']:
        """State at second ``end`` of the window (default its end) from the horizon before it, and the tracker for the next one."""
        robot = self.fit.robot if isinstance(self.fit, Fit) else self.fit
        first = robot.sensors[0].signal
        t = window.seconds(first)
        end = float(t[-1]) if end is None else end
        recent = _last(window, end - self.horizon, end)
        if len(recent[first]) < 5:
            raise EstimationError(f'{first}: fewer than 5 samples in the {self.horizon:g} s before {end:.3f} s.')
        result = track(self.fit, recent, weight=self.weight, problem=self.problem)
        m, k = result.motion, -1
        h = result.problem.grid.step
        # At the end only a one-sided difference is left: the last full window, continued by one step at constant acceleration.
        speed = (3 * m.positions[:, -1] - 4 * m.positions[:, -2] + m.positions[:, -3]) / (2 * h)
        state = StateEstimate(end, m.positions[:, k], m.positions_std[:, k], speed, m.speeds_std[:, k], m.external[:, k],
                              m.external_std[:, k])  # fmt: skip
        return state, Tracker(self.fit, self.horizon, self.weight, result.problem)


def _last(window: Window, begin: float, end: float) -> Window:
    kept: dict[str, Any] = {}
    for name, signal in window.signals.items():
        t = window.seconds(name)
        kept[name] = signal.take((t >= begin - 1e-9) & (t <= end + 1e-9))
    return Window(MappingProxyType(kept), window.start, (), window.source, window.truth)


def moving_horizon(fit: Fit | Robot, window: Window, *, horizon: float = 0.5, every: float = 0.1, weight: float | None = None) -> list[StateEstimate]:  # fmt: skip
    """The state every so many seconds, each from the ``horizon`` seconds before it alone: what a live tracker would have said."""
    robot = fit.robot if isinstance(fit, Fit) else fit
    t = window.seconds(robot.sensors[0].signal)
    tracker, out = Tracker(fit, horizon, weight), []
    for end in np.arange(t[0] + horizon, t[-1] + 1e-9, every):
        state, tracker = tracker.estimate(window, float(t[np.searchsorted(t, end - 1e-9)]))
        out.append(state)
    return out
