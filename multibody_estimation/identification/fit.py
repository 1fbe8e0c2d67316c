# SPDX-License-Identifier: Apache-2.0
"""`Fit`: what an identification found, what it is worth, and how it ended; prints as a table with a verdict, saves and loads as YAML."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification.robot import Robot

__all__ = ['Fit']


@dataclass(frozen=True)
class Fit:
    """Result of `identify`."""

    robot: Robot
    """The robot with the estimates set in its model, inputs and sensors."""
    names: tuple[str, ...]
    titles: tuple[str, ...]
    units: tuple[str, ...]
    values: np.ndarray
    """Estimates in SI units, (p,)."""
    covariance: np.ndarray
    """(p, p); infinite on the diagonal where the data tell nothing, zero where a bound holds the parameter."""
    held: tuple[int, ...]
    """-1 at the lower bound, 1 at the upper, 0 free, 2 known beforehand (`track`)."""
    blind: tuple[str, ...]
    """What the data cannot tell, one sentence each."""
    converged: bool
    sentence: str
    """How it ended."""
    iterations: int
    cost: float
    settings: dict
    """Weight, step and other numbers that were used."""
    noise_ratio: dict = field(default_factory=dict)
    """Residual rms of each sensor in units of its noise."""
    truth: dict = field(default_factory=dict)
    positions: Any = None
    """Smoothed joint positions, (nq, n)."""
    time: Any = None
    """Seconds of each stage on the running axis, (n,)."""
    starts: tuple[int, ...] = ()
    """First stage of each recording, and n at the end."""
    external: Any = None
    """Joint force that the model does not explain, (nq, n-2), N m: positive pushes the joint forward."""
    seconds: float = 0.0
    """Time the solve took."""
    problem: Any = field(default=None, repr=False, compare=False)
    """What was solved; give it to a further `identify` or `track` of like recordings to spare the compilation."""
    solution: Any = field(default=None, repr=False, compare=False)
    correction: Any = field(default=None, repr=False, compare=False)
    """Acceleration errors of the scheme that were taken out, (nq, n-2)."""

    @cached_property
    def motion(self) -> Any:
        """Positions, speeds and external forces with their standard deviations; see `Motion`."""
        from multibody_estimation.identification.motion import motion_of

        return motion_of(self)

    @property
    def std(self) -> np.ndarray:
        """Standard deviations, (p,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def correlation(self) -> np.ndarray:
        """Correlation of the estimates, (p, p); zero where one is not known."""
        sd = self.std
        good = np.isfinite(sd) & (sd > 0)
        scale = np.where(good, 1 / np.where(good, sd, 1.0), 0.0)
        return np.where(np.isfinite(self.covariance), self.covariance, 0.0) * np.outer(scale, scale)

    def __getitem__(self, name: str) -> float:
        if name not in self.names:
            raise EstimationError(f"'{name}' was not estimated. Estimated: {', '.join(self.names)}.")
        return float(self.values[self.names.index(name)])

    def __str__(self) -> str:
        wide = max([len(t) for t in self.titles] + [9])
        known = bool(self.truth) and any(n in self.truth for n in self.names)
        head = f'  {"parameter":<{wide}}  {"estimate ± std":>26}  {"unit":<12}'
        lines = [head + (f'{"truth":>12}  {"off by":>10}' if known else '')]
        for i, name in enumerate(self.names):
            value, sd = self.values[i], self.std[i]
            if not np.isfinite(sd):
                spread = 'not told by the data'
            elif self.held[i] == 2:
                spread = 'known'
            elif self.held[i]:
                spread = 'at its lower bound' if self.held[i] < 0 else 'at its upper bound'
            else:
                spread = f'± {sd:.2g}'
            line = f'  {self.titles[i]:<{wide}}  {value:>13.5g} {spread:<20}  {self.units[i]:<8}'
            if known and name in self.truth:
                off = f'{abs(value - self.truth[name]) / sd:.1f} std' if np.isfinite(sd) and sd > 0 else ''
                line += f'{self.truth[name]:>12.5g}  {off:>10}'
            lines.append(line)
        lines += [f'  What the data cannot tell: {sentence}' for sentence in self.blind]
        for signal, ratio in self.noise_ratio.items():
            verdict = 'as its noise says' if ratio < 1.15 else 'more than its noise: the model misses something'
            lines.append(f'  {signal}: residuals are {ratio:.2f} of the stated noise, {verdict}.')
        lines.append(f'  {self.sentence} {self.iterations} iterations, {self.seconds:.3f} s.')
        return '\n'.join(lines)

    def save(self, path: str | Path) -> None:
        """Write parameters, covariance, settings and versions as YAML."""
        import multibody_estimation
        from multibody_estimation._jax import jax

        document = {
            'robot': self.robot.name,
            'parameters': {
                n: {'value': float(v), 'std': float(s), 'unit': u, 'title': t, 'held': int(k)}
                for n, v, s, u, t, k in zip(self.names, self.values, self.std, self.units, self.titles, self.held)
            },
            'covariance': np.asarray(self.covariance).tolist(),
            'cannot_tell': list(self.blind),
            'converged': bool(self.converged),
            'ended': self.sentence,
            'iterations': int(self.iterations),
            'cost': float(self.cost),
            'seconds': float(self.seconds),
            'settings': self.settings,
            'noise_ratio': {k: float(v) for k, v in self.noise_ratio.items()},
            'truth': {k: float(v) for k, v in self.truth.items()},
            'versions': {
                'multibody_estimation': getattr(multibody_estimation, '__version__', 'unknown'),
                'jax': jax.__version__,
                'numpy': np.__version__,
            },
        }
        Path(path).write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))

    @classmethod
    def load(cls, path: str | Path, robot: Robot) -> 'Fit':
        """Read a saved fit of this robot; states are not stored, `track` gives them again."""
        from multibody_estimation.identification.binding import bind

        try:
            d = yaml.safe_load(Path(path).read_text())
            rows = d['parameters']
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise EstimationError(f'{path} is no saved fit: {error}.') from error
        known = {p.name: p for p in robot.parameters}
        for name in rows:
            if name not in known:
                raise EstimationError(f"{path}: '{name}' is no parameter of {robot.name}; is it the fit of another robot?")
        fixed = tuple(replace(known[n].with_start(r['value']), fixed=True) for n, r in rows.items())
        return cls(
            robot=replace(bind(robot, fixed).given, parameters=tuple(replace(p, fixed=False) for p in fixed)), names=tuple(rows), titles=tuple(r['title'] for r in rows.values()),
            units=tuple(r['unit'] for r in rows.values()), values=np.array([r['value'] for r in rows.values()]),
            covariance=np.array(d['covariance']), held=tuple(r['held'] for r in rows.values()), blind=tuple(d['cannot_tell']),
            converged=d['converged'], sentence=d['ended'], iterations=d['iterations'], cost=d['cost'], settings=d['settings'],
            noise_ratio=d['noise_ratio'], truth=d['truth'], seconds=d['seconds'],
        )  # fmt: skip

    def predict(self, window: Any, *, start: float = 0.0, seconds: float | None = None) -> Any:
        """Simulate on from second ``start`` of a recording with the fitted model; see `prediction.predict`."""
        from multibody_estimation.identification.prediction import predict

        return predict(self, window, start=start, seconds=seconds)

    def report(self, path: str | Path, **more: Any) -> Path:
        """Write the report as one HTML file and return its path; see `reporting.identification_report` for what can be added."""
        from multibody_estimation.reporting import check_writable, identification_report

        check_writable(path)
        return identification_report(self, **more).save(path)
