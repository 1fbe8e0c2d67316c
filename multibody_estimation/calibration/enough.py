# SPDX-License-Identifier: Apache-2.0
"""Are the data enough? Rank in words, spread of the orientations, condition number, predicted accuracy: before solving.

The matrix is unique exactly when there are at least three datasets whose total centres of mass (body and load) do not lie on
one line. Of 40 unknowns are determined: body alone 18; two datasets 33; three with collinear centres 34; otherwise 40.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multibody_estimation.calibration.likelihood import information
from multibody_estimation.calibration.model import AXES, GRAVITY, Dataset, Load, Moments, Noise, gravity_map
from multibody_estimation.calibration.scaling import Scaling
from multibody_estimation.calibration.two_stage import stage_two, two_stage

UNKNOWN_BODY = np.array([1.0, 0.013, -0.021, 0.037])
"""``[m, m c]`` of a body in general position, for counting ranks before anything is known about the real one."""


def rank(loads: Sequence[Load], body: np.ndarray = UNKNOWN_BODY) -> int:
    """Return how many of the 40 unknowns (matrix, body) datasets with these loads determine, with orientations to spare.

    The rank does not depend on the sensor's matrix (any invertible one is a change of columns), so it is counted with the unit.
    """
    scaling = Scaling(np.ones(6), np.repeat([1.0, 0.1], 3))
    datasets = [Dataset(load, np.zeros((1, 6)), np.zeros((1, 3))) for load in loads]
    A, _ = stage_two([gravity_map(body + load.inertia) for load in loads], datasets, scaling, [1.0] * len(loads))
    return int(np.linalg.matrix_rank(A / np.linalg.norm(A, axis=0), tol=1e-7))


def rank_in_words(loads: Sequence[Load], body: np.ndarray = UNKNOWN_BODY) -> str:
    """Say what the loads determine and, where that is not everything, what to add."""
    found = rank(loads, body)
    head = f'{found} of 40 unknowns are determined'
    if found == 40:
        return f'{head}: the loads are enough.'
    distinct = {load.inertia.tobytes() for load in loads}
    if len(distinct) == 1:
        if loads[0].mass == 0:
            return f'{head}: without a known mass nothing fixes the scale. Add two masses at different places.'
        return f'{head}: one load only. Add the empty body and a mass at another place.'
    if len(distinct) == 2:
        return (
            f'{head}: two loads leave the matrix open. Add a second mass whose centre is not on the line through the first two.'
        )
    return (
        f'{head}: the total centres of mass lie on one line. Add a mass whose centre is not on the line through the centres of '
        'the body and of the masses used.'
    )


def coverage(acceleration: np.ndarray) -> float:
    """Spread of orientations: three times the smallest eigenvalue of the covariance of their directions; 1 is the whole sphere."""
    u = acceleration / np.linalg.norm(acceleration, axis=1, keepdims=True)
    return float(3 * np.linalg.eigvalsh(np.cov(u.T, bias=True))[0]) if len(u) > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Sufficiency:
    """What the data can tell, before they are asked."""

    enough: bool
    rank: int
    """Of 40."""
    condition: float
    """Condition number of the scaled equations of stage two; infinite where the rank is short."""
    coverage: dict[str, float]
    """Spread of orientations per dataset, 0 (a plane) to 1 (the whole sphere)."""
    predicted: np.ndarray | None
    """Standard deviation each entry of the matrix will have, N and N m per count; shape (6, 6)."""
    relative: float
    """Largest predicted standard deviation of a row, as share of that row's norm with the counts by their spread."""
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return '\n'.join(self.sentences)

    def table(self) -> str:
        """Return rank, condition, spread of the orientations and the predicted standard deviation of each entry, as text."""
        lines = [f'rank {self.rank} of 40, condition number {self.condition:.3g}']
        lines += [f'  {name}: orientations cover {100 * share:.0f} % of an even spread' for name, share in self.coverage.items()]
        if self.predicted is not None:
            lines.append('  predicted standard deviations, N and N m per 1000 counts')
            for axis, row in zip(AXES, 1e3 * self.predicted):
                lines.append(f'  {axis}  ' + '  '.join(f'{x:9.4f}' for x in row))
        return '\n'.join([*lines, str(self)])


def relative_accuracy(matrix: np.ndarray, deviation: np.ndarray, scaling: Scaling) -> float:
    """Largest over the rows of ``|std of row| / |row|``, the counts measured by their spread."""
    return float(np.max(np.linalg.norm(deviation * scaling.strain, axis=1) / np.linalg.norm(matrix * scaling.strain, axis=1)))


def check_data(datasets: Sequence[Dataset], noise: Noise | None = None, *, wanted: float = 0.05) -> Sufficiency:
    """Tell whether the samples determine the matrix to ``wanted`` (share of each row), and if not, what to add."""
    noise = noise or Noise()
    sentences, cover = [], {d.name: coverage(d.acceleration) for d in datasets}
    loads = [d.load for d in datasets]
    good = True
    for d in datasets:
        if len(d) < 4:
            sentences.append(f"'{d.name}' has {len(d)} of at least four orientations: take {4 - len(d)} more.")
            good = False
        elif cover[d.name] < 0.1:
            axis = np.linalg.svd(d.acceleration - d.acceleration.mean(axis=0))[2][2]
            sentences.append(
                f"'{d.name}': the orientations cover {100 * cover[d.name]:.0f} % of an even spread; gravity hardly varies along "
                f'({", ".join(f"{x:.1f}" for x in axis)}) of the sensor. Turn that axis up and down.'
            )
            good = good and cover[d.name] > 0.002
    if not datasets:
        return Sufficiency(False, 0, np.inf, {}, None, np.inf, ('There are no samples yet. Start with the empty body.',))
    found = rank(loads)
    if found < 40:
        return Sufficiency(False, found, np.inf, cover, None, np.inf, (*sentences, rank_in_words(loads)))
    if not good:
        return Sufficiency(False, found, np.inf, cover, None, np.inf, tuple(sentences))
    matrix, body, _ = two_stage(datasets)
    # Degenerate data can give a singular first matrix; the accuracy is then unknown, hence not enough.
    scaling, moments = Scaling.of(datasets), [Moments.of(d) for d in datasets]
    try:
        maps = [np.linalg.solve(matrix, gravity_map(body + load.inertia)) for load in loads]
        A, _ = stage_two(maps, datasets, scaling, [1.0] * len(datasets))
        condition = float(np.linalg.cond(A / np.linalg.norm(A, axis=0)))
        covariance = np.linalg.inv(information(matrix, body, moments, datasets, noise, scaling))
        deviation = (np.sqrt(np.abs(np.diag(covariance))) * scaling.parameters)[:36].reshape(6, 6).T
        relative = relative_accuracy(matrix, deviation, scaling)
    except np.linalg.LinAlgError:
        condition, deviation, relative = np.inf, None, np.inf
    total = np.array([(body + load.inertia)[1:] / max((body + load.inertia)[0], 1e-6) for load in loads])
    flatness = np.linalg.svd(total - total.mean(axis=0), compute_uv=False)
    if not relative < 0.5:
        if flatness[1] < 0.1 * flatness[0]:
            sentences.append(rank_in_words(loads, UNKNOWN_BODY).split(':')[0] + ', but barely: the total centres of mass lie almost '
                             'on one line. Add a mass whose centre is not on that line.')  # fmt: skip
        else:
            sentences.append(
                'The loads turn too little in the counts above the noise: use heavier masses, farther from the sensor.'
            )
    elif relative > wanted:
        factor = (relative / wanted) ** 2
        sentences.append(
            f'The matrix will be known to {100 * relative:.1f} % per row; for {100 * wanted:g} % take about {factor:.1f} times as many '
            'samples, or a mass farther from the others.'
        )
    else:
        sentences.append(f'The data are enough: the matrix will be known to {100 * relative:.2g} % per row.')
    return Sufficiency(bool(relative < 0.5), found, condition, cover, deviation, relative, tuple(sentences))


def nominal_information(
    matrix: np.ndarray, body: np.ndarray, plan: Sequence[tuple[Load, np.ndarray]], noise: Noise, scaling: Scaling
) -> np.ndarray:
    """Fisher information of the 40 scaled unknowns for planned directions of gravity (unit vectors, (n, 3)) per load."""
    datasets = [Dataset(load, np.zeros((len(u), 6)), GRAVITY * np.atleast_2d(u)) for load, u in plan if len(u)]
    return information(matrix, body, [Moments.of(d) for d in datasets], datasets, noise, scaling)
