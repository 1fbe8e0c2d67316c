# SPDX-License-Identifier: Apache-2.0
"""`identify` in maximal coordinates: the forms `maximal` and `paper` through the same solver, to the same kind of result."""

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification.binding import Key, bind
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.grid import make_grid
from multibody_estimation.identification.joint_space import recorded
from multibody_estimation.identification.maximal_form import MaximalForm
from multibody_estimation.identification.mechanism import as_mechanism
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.paper_form import PaperForm
from multibody_estimation.identification.robot import Robot
from multibody_estimation.identification.start import first_positions
from multibody_estimation.identification.summary import blind_sentences
from multibody_estimation.least_squares import parameter_information, solve
from multibody_estimation.window import Window

__all__ = ['BodyForces', 'identify_maximal']

COMPLIANCE = {'maximal': 1e-8, 'paper': 1e-4}
"""Default of the joints, m/N and rad/(N m)."""
DAMPING = 0.1
"""Relaxation time of the joints in time steps; larger ones bias the parameters."""


@dataclass(frozen=True)
class BodyForces:
    """What the bodies and the joints must have felt."""

    bodies: tuple[str, ...]
    external: np.ndarray
    """External wrench on each body: force (world, N) and torque about the centre of mass (body axes, N m); (nb, 6, n')."""
    rows: tuple[str, ...]
    """Joint of each multiplier."""
    reactions: np.ndarray
    """Joint forces and torques along the locked directions, N and N m; (m, n')."""


@lru_cache(maxsize=8)
def _form(kind: type, key: Any, turns: tuple) -> Any:
    return kind(key.binding, turns)


def identify_maximal(
    robot: Robot,
    windows: Sequence[Window],
    *,
    form: str = 'maximal',
    weight: float = 1e-3,
    step: float | None = None,
    compliance: float | None = None,
    damping: float = DAMPING,
    max_iterations: int = 60,
    tolerance: float = 1e-4,
    progress: Callable[[int, float, float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Fit:
    """See `identify`; compliance of the joints in m/N and rad/(N m), their relaxation time ``damping`` in time steps."""
    eps = COMPLIANCE[form] if compliance is None else float(compliance)
    if not eps >= 0 or (form == 'paper' and not eps > 0):
        raise EstimationError(f'compliance {eps} must be above zero (m/N); the maximal form allows zero.')
    converted = as_mechanism(robot, max(eps, 1e-12), 1e-3)
    binding = bind(converted, converted.parameters)
    if not binding.parameters:
        raise EstimationError('No parameter is free: nothing to identify.')
    grid = make_grid(binding.robot, windows, step)
    for s in grid.samples:
        if not isinstance(s.sensor, Encoder) or s.lag.any():
            raise EstimationError(
                f'{s.sensor.signal}: the {form} form reads encoders whose samples lie at its time steps, nothing else.'
            )
    if form == 'paper' and len(windows) > 1:
        raise EstimationError('The paper form takes one recording; use the joint_space form for several.')
    shape = _form(PaperForm if form == 'paper' else MaximalForm, Key(binding), tuple(s.turns for s in grid.samples))
    began = clock.perf_counter()
    n, k = len(grid), shape.unknowns
    data = recorded(binding, grid)
    if form == 'paper':  # steps instead of windows: the inputs at all stages but the last
        data['means'] = [tuple(jnp.concatenate([m[:1], m]) for m in means) for means in data['means']]
        data['paired'] = jnp.asarray((np.arange(n - 1) < grid.count - 1).astype(float))
    ends = np.zeros(n)
    ends[list(grid.starts[:-1])] = ends[np.array(grid.starts[1:]) - 1] = 1.0
    z0 = binding.scaled(binding.starts())
    lower, upper = binding.bounds()
    p = len(z0)
    model = shape.model(z0)[0]
    mass = np.concatenate([np.repeat(np.asarray(model.mass)[:, None], 3, 1), np.asarray(model.inertia)[:, :3]], axis=1).ravel()
    data |= {
        'ends': jnp.asarray(ends), 'compliance': jnp.float64(eps), 'tau': jnp.float64(damping * grid.step),
        'reference': jnp.asarray(mass), 'pin': (jnp.zeros((p, p)), jnp.asarray(z0)),
    }  # fmt: skip
    strongest = max(float(s.weight.max()) for s in grid.samples)
    metric = np.zeros(-(-n * k // shape.block) * shape.block)
    metric[: grid.count * k] = strongest**2
    metric = jnp.asarray(metric.reshape(-1, shape.block))  # type: ignore[assignment]
    q = first_positions(grid, len(binding.robot.model.axis_names), binding.offsets())
    state: Any = shape.state_at(q, z0, grid.step) if form == 'paper' else shape.state_at(q, z0)
    z, count, last = z0, 0, None
    for sigma, by_mass in ((1.0, 0.0), (0.1, 0.0), (weight, 0.0), (weight, 1.0)):
        if sigma < weight or (sigma != weight and sigma <= 3 * weight):
            continue
        final = sigma == weight
        now = data | {'sigma_a': jnp.float64(sigma), 'by_mass': jnp.float64(by_mass)}
        last = solve(shape.chain, state, z, now, metric=metric, lower=lower, upper=upper, damping=1e-3 if not final else 1e-6,
                     max_iterations=max_iterations if final else 20, tolerance=tolerance if by_mass else (1e-2 if final else 1.0),
                     progress=progress, cancelled=cancelled)  # fmt: skip
        state, z, count = last.states, last.parameters, count + last.iterations
    assert last is not None
    info = parameter_information(last.arrow, metric, last.held)
    slopes, values = binding.slopes(z), binding.values(np.asarray(z))
    with np.errstate(invalid='ignore'):
        covariance = info.covariance * np.outer(slopes, slopes)
    ratio, rows = {}, 0
    for samples, r in zip(grid.samples, shape.readings(state, z, data)):
        seen = samples.weight > 0
        ratio[samples.sensor.signal] = float(np.sqrt(np.mean(np.asarray(r)[seen] ** 2)))
        rows += int(seen.sum())
    excess = max(1.0, float(last.cost) / max(rows - p, 1))
    impulse, reactions = shape.parts(state, z, data | {'sigma_a': jnp.float64(weight), 'by_mass': jnp.float64(1.0)})
    used = grid.count - (1 if form == 'paper' else 2)
    names = tuple(converted.model.joints[j] for j, _ in converted.model.rows)
    forces = BodyForces(
        converted.model.bodies, np.asarray(impulse)[:, :, :used] / grid.step, names, np.asarray(reactions)[:, :used]
    )
    from multibody_estimation.identification.binding import with_values

    angles = np.asarray(shape.coordinates(state, z))[:, : grid.count]
    return Fit(
        robot=with_values(replace(robot, parameters=tuple(x for x in robot.parameters if x.name in binding.names)), dict(zip(binding.names, values))),
        names=binding.names, titles=tuple(x.title for x in binding.parameters), units=tuple(x.unit for x in binding.parameters),
        values=values, covariance=covariance * excess, held=tuple(int(x) for x in last.held),
        blind=blind_sentences(binding, info.blind), converged=last.converged, sentence=last.sentence, iterations=count,
        cost=float(last.cost), noise_ratio=ratio, truth=dict(windows[0].truth), positions=np.unwrap(angles, axis=1),
        time=grid.time[: grid.count], starts=grid.starts, external=forces, seconds=clock.perf_counter() - began,
        settings={'form': form, 'weight': weight, 'step': grid.step, 'compliance': eps, 'damping': damping * grid.step},
    )  # fmt: skip
