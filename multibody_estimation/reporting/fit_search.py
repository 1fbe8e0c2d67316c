# SPDX-License-Identifier: Apache-2.0
"""How the search of an identification went, and what its result hangs on: convergence and sensitivity, as sections of a report."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import Fit, Influence, influence
from multibody_estimation.reporting.figures import Figure, Series, lines
from multibody_estimation.reporting.page import Cell, Section, paragraph, table

__all__ = ['Trace', 'convergence', 'sensitivity_sections']

COLORS = ('gray', 'sky', 'green', 'purple', 'yellow')


class Trace:
    """Give it to `identify` as ``progress`` and to the report as ``trace``: it remembers every accepted step.

    ``then`` is called with the same arguments, e.g. to print.
    """

    def __init__(self, then: Callable[[int, float, float], None] | None = None) -> None:
        self.steps: list[tuple[int, float, float]] = []
        self.then = then

    def __call__(self, iteration: int, cost: float, step: float) -> None:
        self.steps.append((int(iteration), float(cost), float(step)))
        if self.then is not None:
            self.then(iteration, cost, step)

    @property
    def solves(self) -> list[np.ndarray]:
        """One array (steps, 3) for each solve of the search: iteration counted through, cost, largest parameter step."""
        found: list[list[tuple[int, float, float]]] = []
        last = total = 0
        for iteration, cost, step in self.steps:
            if iteration <= last or not found:  # the count begins again: the next solve
                total += last
                found.append([])
            last = iteration
            found[-1].append((total + iteration, cost, step))
        return [np.array(s) for s in found]


def _curves(solves: Sequence[np.ndarray], column: int) -> list[Series]:
    """A curve for each solve, the last one in blue; a solve of one step is a point."""
    out = []
    for k, s in enumerate(solves):
        y = np.where(s[:, column] > 0, s[:, column], np.nan)
        color = 'blue' if k == len(solves) - 1 else COLORS[k % len(COLORS)]
        out.append(Series(f'solve {k + 1}', s[:, 0], y, type='line' if len(s) > 1 else 'points', color=color))
    return out


def convergence(fit: Fit, trace: Trace | None = None) -> Section:
    """Cost and step of each iteration."""
    body: list[str | Figure] = [paragraph(f'{fit.sentence} {fit.iterations} iterations, {fit.seconds:.3f} s.')]
    solves = trace.solves if trace is not None else []
    if solves:
        body += [
            lines('Cost after each accepted step', _curves(solves, 1), x='iteration', y='cost', log=True,
                  caption='Earlier solves are soft (dynamics loosely weighted), so their costs are not comparable; the last one counts.'),
            lines('Largest parameter step', _curves(solves, 2), x='iteration', y='step, in scales', log=True),
        ]  # fmt: skip
    elif fit.solution is not None and len(fit.solution.history) > 1:
        history = np.array(fit.solution.history)
        body.append(lines('Cost of the last solve', [Series('cost', np.arange(len(history)), history)], x='accepted step', y='cost', log=True,
                          caption='The search ends with this solve; earlier, softer ones lead to its start. Pass trace= to see them.'))  # fmt: skip
    return Section('Convergence', tuple(body))


def sensitivity_sections(fit: Fit, given: Influence | bool = True) -> Iterable[Section]:
    """What the estimates hang on; nothing where it is not wanted or cannot be told."""
    found: Any = given
    if isinstance(given, bool):
        if not given or fit.problem is None or not fit.problem.form.free:
            return
        try:
            found = influence(fit)
        except (EstimationError, np.linalg.LinAlgError):
            return
    shift = 0.1 * np.asarray(found.in_std)
    rows = []
    for i, (title, row) in enumerate(zip(fit.titles, shift)):
        cells = [Cell(f'{x:+.3f}'.replace('-', '−') if np.isfinite(x) else '–', 'look' if abs(x) > 0.5 else '') for x in row]
        rows.append([Cell(f'{i + 1}. {title}'), *cells])
    told = 'How far each estimate would move, in its standard deviations, if a setting that was not estimated were 10 % larger (linearised).'
    if 'step' in found.settings:
        told += " step: without the correction of the time step's error, which is on by default."
    most = float(np.nanmax(np.abs(shift), initial=0.0))
    verdict = 'Nothing hangs on them.' if most < 0.1 else f'The largest move is {most:.2g} standard deviations.'
    head = ['parameter', *(f'{s} +10 %' for s in found.settings)]
    yield Section('Sensitivity to the settings', (paragraph(told), paragraph(verdict), table(head, rows)))
