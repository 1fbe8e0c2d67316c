# SPDX-License-Identifier: Apache-2.0
"""The report of an identification: verdict, parameters, motion, residuals, prediction, and what is needed to repeat it."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import Fit, Influence, track
from multibody_estimation.identification.dynamics import joint_names, turns
from multibody_estimation.reporting.figures import Figure, Series, lines, matrix
from multibody_estimation.reporting.fit_channels import Ahead, channels_of, look_ahead
from multibody_estimation.reporting.fit_search import Trace, convergence, sensitivity_sections
from multibody_estimation.reporting.fit_verdict import judge, off_truth, weak
from multibody_estimation.reporting.mechanism import animation
from multibody_estimation.reporting.page import Cell, Report, Section, bullets, number, paragraph, table
from multibody_estimation.reporting.provenance import provenance
from multibody_estimation.reporting.residuals import Channel, channel_figures
from multibody_estimation.window import Window

__all__ = ['Trace', 'identification_report']

SHOWN = 12
"""Most sensor columns that are drawn."""
LEAD = 1.0
"""Seconds before a prediction from which its first state is told, where the recording goes on for longer."""


def identification_report(
    fit: Fit,
    window: Window | Sequence[Window] | None = None,
    *,
    held_out: Window | None = None,
    start: float = 0.05,
    seconds: float | None = None,
    trace: Trace | None = None,
    sensitivity: Influence | bool = True,
    title: str = '',
) -> Report:
    """Make the report of a fit; ``.save(path)`` writes it.

    window: the recording, needed only where the fit was loaded from a file. held_out: a recording the fit has not seen; it is predicted
    from ``start`` for ``seconds`` (both s; default: from just inside, where speeds are told better than at the edge, to its end,
    10 s at most). trace: every step of the search. sensitivity: what the estimates hang on; True computes it for weight and step.
    """
    if fit.problem is None and window is not None:
        fit = _with_states(fit, window)
    solved = fit.problem is not None
    channels = channels_of(fit) if solved else []
    ahead, trouble = _predicted(fit, held_out, start, seconds) if solved else (None, '')
    windows = fit.problem.windows if solved else ()
    defects = [d for w in windows for d in w.defects]
    sections = [_parameters(fit), _unseen(fit)]
    if solved:
        sections += [_motion(fit, channels), _residuals(fit, channels), _prediction(fit, ahead, trouble), _external(fit)]
    sections.append(convergence(fit, trace))
    sections += sensitivity_sections(fit, sensitivity)
    sections.append(provenance(fit, windows, held_out))
    span = f'{fit.time[-1] - fit.time[0]:.1f} s, {len(fit.time)} states a joint, ' if solved else ''
    return Report(
        title or f'{"Motion" if all(k == 2 for k in fit.held) else "Identification"} of {fit.robot.name}',
        f'{span}{len(fit.names)} parameters, {fit.iterations} iterations in {fit.seconds:.2f} s',
        judge(fit, channels, ahead, len(defects)),
        tuple(sections),
    )


def _with_states(fit: Fit, window: Window | Sequence[Window]) -> Fit:
    """A loaded fit with the motion estimated again."""
    found = track(fit, window)
    return replace(found, covariance=fit.covariance, held=fit.held, blind=fit.blind, converged=fit.converged, sentence=fit.sentence,
                   iterations=fit.iterations, cost=fit.cost, seconds=fit.seconds, truth=fit.truth, settings=found.settings | fit.settings)  # fmt: skip


def _spread(fit: Fit, i: int) -> Cell:
    sd, value = fit.std[i], fit.values[i]
    if not np.isfinite(sd):
        return Cell('not told', 'look')
    if fit.held[i] == 2:
        return Cell('known')
    if fit.held[i]:
        return Cell('at its lower bound' if fit.held[i] < 0 else 'at its upper bound', 'look')
    return Cell(f'± {number(sd, 2)}', '', f'{number(100 * sd / abs(value), 2 if sd < abs(value) else 3)} %' if value else '')


def _parameters(fit: Fit) -> Section:
    given = {p.name: p for p in (fit.problem.binding.parameters if fit.problem is not None else fit.robot.parameters)}
    started = fit.problem is not None and fit.problem.form.free
    known = any(n in fit.truth for n in fit.names)
    head = ['parameter', 'estimate', 'standard deviation', 'unit', 'start', 'bounds'] + (['truth', 'off by'] if known else [])
    off, rows, marked = off_truth(fit), [], []
    for i, name in enumerate(fit.names):
        p = given.get(name)
        digits = 6
        if np.isfinite(fit.std[i]) and fit.std[i] > 0 and fit.values[i]:
            # One digit more than the standard deviation says.
            digits = int(np.clip(np.ceil(np.log10(abs(fit.values[i]) / fit.std[i])) + 2, 2, 8))
        title = Cell(f'{i + 1}. {fit.titles[i]}', '', name if name != fit.titles[i] else '')
        bounds = f'{number(p.lower, 3)} … {number(p.upper, 3)}' if p and (np.isfinite(p.lower) or np.isfinite(p.upper)) else '–'
        row: list[str | Cell] = [title, number(fit.values[i], digits), _spread(fit, i), fit.units[i].replace('^2', '²')]
        row += [number(p.start) if p and started else '–', bounds]
        if known:
            far = np.isfinite(off[i]) and abs(off[i]) > 3
            row += [
                number(fit.truth.get(name), digits),
                Cell(f'{off[i]:+.1f} std'.replace('-', '−'), 'look' if far else '') if np.isfinite(off[i]) else '',
            ]
        if not np.isfinite(fit.std[i]) or fit.held[i] in (-1, 1) or (np.isfinite(off[i]) and abs(off[i]) > 3):
            marked.append(i)
        rows.append(row)
    body: list[str | Figure] = [table(head, rows, marked=marked, words=(3,), plain=(2, 3))]
    if np.isfinite(off).any():
        numbers = [str(i + 1) for i in range(len(off))]
        body.append(lines(
            'Estimate less truth', [Series('off by', np.arange(len(off)), off, type='stems', color='blue')], names=numbers, y='standard deviations',
            marks=[{'type': 'h', 'at': 2, 'keep': True}, {'type': 'h', 'at': -2, 'keep': True}], wide=True,
            caption='By number of the table. 95 % of honest estimates lie between the dashed lines.'))  # fmt: skip
    return Section('Parameters', tuple(body))


def _unseen(fit: Fit) -> Section:
    body: list[str | Figure] = []
    if fit.blind:
        body += [paragraph('Directions in which the data tell nothing:'), bullets(fit.blind)]
    thin = weak(fit)
    if thin:
        share = [
            f'{fit.titles[i]}: {number(fit.values[i], 2)} ± {number(fit.std[i], 2)} {fit.units[i].replace("^2", "²")}'
            for i in thin
        ]
        body += [paragraph('Hardly told:'), bullets(share)]
    if not (fit.blind or thin):
        body.append(paragraph('Every parameter is told by the data on its own.'))
    C = np.array(fit.correlation, dtype=float)
    unknown = ~(np.isfinite(fit.std) & (fit.std > 0))
    C[unknown], C[:, unknown] = np.nan, np.nan
    np.fill_diagonal(C, np.nan)
    if len(C) > 1 and not unknown.all():
        far = np.argsort(-np.abs(np.tril(np.nan_to_num(C), -1)), axis=None)[:3]
        most = [
            f'{fit.titles[j]} and {fit.titles[i]} ({C[i, j]:.2f})'.replace('-', '−')
            for i, j in zip(*np.unravel_index(far, C.shape))
            if i > j
        ]
        numbers = [str(i + 1) for i in range(len(C))]
        titles = [f'{t}  {k}' for t, k in zip(fit.titles, numbers)]
        body.append(matrix('Correlation of the estimates', C, titles, numbers, short=numbers,
                           caption=f'Numbers are those of the table; blue below zero, orange above. Strongest: {"; ".join(most)}.'))  # fmt: skip
    return Section('What the data cannot tell', tuple(body))


def _worst(channels: Sequence[Channel]) -> tuple[list[Channel], str]:
    if len(channels) <= SHOWN:
        return list(channels), ''
    return sorted(channels, key=lambda c: -c.rms)[
        :SHOWN
    ], f'The {SHOWN} columns with the largest residuals of {len(channels)} are drawn.'


def _seams(fit: Fit) -> list[float]:
    return [float(fit.time[s]) for s in fit.starts[1:-1]]


def _motion(fit: Fit, channels: Sequence[Channel]) -> Section:
    shown, told = _worst(channels)
    figures = [f for c in shown for f in channel_figures(c, _seams(fit))[0]]
    return Section('Motion: measured and estimated', (*([paragraph(told)] if told else []), *figures, *_inputs(fit)))


def _inputs(fit: Fit) -> list[Figure]:
    """What drove the mechanism, held between its samples."""
    grid, out = fit.problem.grid, []
    for source in fit.robot.inputs[:SHOWN]:
        times, values, unit = [], [], ''
        for window, shift in zip(fit.problem.windows, grid.shift):
            signal = window[source.signal]
            wanted = source.column or (source.joint if source.joint in signal.columns else '')
            u, t = signal.column(wanted) if wanted else signal.values[:, 0], window.seconds(source.signal) + shift
            times += [np.repeat(t, 2)[1:], t[-1:]]
            values += [np.repeat(u, 2)[:-1], np.array([np.nan])]
            unit = signal.unit
        name = f'{source.signal} on {source.joint}'
        curve = Series('as it was recorded', np.concatenate(times), np.concatenate(values), color='green')
        out.append(lines(name, [curve], y=f'[{unit}]' if unit else source.signal, link='time', wide=True))
    return out


def _residuals(fit: Fit, channels: Sequence[Channel]) -> Section:
    shown, told = _worst(channels)
    rows = []
    for c in channels:
        w = c.whiteness()
        rows.append([c.name, number(c.rms, 3), number(c.noise, 3), c.unit, Cell('white' if w.white else 'not white', '' if w.white else 'look',
                                                                               f'{w.outside} of {len(w.lags)} lags outside 95 %')])  # fmt: skip
    head = ['sensor', 'residual rms [std]', 'stated noise', 'unit', 'whiteness']
    figures: list[str | Figure] = []
    for c in shown:
        figures += [f'<h3>{escape(c.name)}</h3>', *channel_figures(c, _seams(fit))[1]]
    return Section('Residuals', (table(head, rows, words=(3, 4), plain=(3,)), *([paragraph(told)] if told else []), *figures))


def _predicted(fit: Fit, held_out: Window | None, start: float, seconds: float | None) -> tuple[Ahead | None, str]:
    try:
        if held_out is not None:
            return look_ahead(fit, held_out, start=start, seconds=min(seconds or np.inf, 10.0, held_out.duration - start)), ''
        window = fit.problem.windows[-1]
        span = min(max(0.2 * window.duration, 0.5), 2.0, 0.8 * window.duration)
        begin = window.duration - span
        near = window.cut(begin - LEAD, window.duration + 1.0) if begin > 2 * LEAD else window
        if min(len(near[sensor.signal]) for sensor in fit.robot.sensors) < 5:
            near = window
        return look_ahead(fit, near, start=begin, unseen=False), ''
    except (EstimationError, NotImplementedError) as error:
        return None, str(error)


def _prediction(fit: Fit, ahead: Ahead | None, trouble: str) -> Section:
    if ahead is None:
        return Section('Prediction', (paragraph(f'Nothing could be predicted: {trouble}'),))
    t, q = ahead.prediction.time, ahead.prediction.positions
    unit = lambda joint: 'rad' if turns(fit.robot.model, joint) else 'm'  # noqa: E731
    origin = (
        'a recording the fit has not seen'
        if ahead.unseen
        else 'the end of the recording that was fitted; give held_out= for an independent check'
    )
    told = f'The fitted model is simulated over {t[-1] - t[0]:.2f} s of {origin}. Only the state at its first instant comes from the readings; '
    told += 'the band is two standard deviations of what the uncertainty of the parameters makes of it (each drawn model starts where it sees the readings begin).'
    rows = [
        [joint, number(error, 3), number(ahead.noise.get(joint), 3), unit(joint), number(error / ahead.noise[joint], 3) if ahead.noise.get(joint) else '–']
        for joint, error in ahead.prediction.error.items()
    ]  # fmt: skip
    body: list[str | Figure] = [
        paragraph(told),
        table(['joint', 'off by, rms', 'noise', 'unit', 'ratio'], rows, words=(3,), plain=(3,)),
    ]
    moving = animation(
        fit.robot.model, t, {'measured': ahead.measured, 'predicted': q}, link='ahead',
        caption='Play and scrub with the controls; drag, or arrow keys on a picture, turn both; space plays.',
    )  # fmt: skip
    if moving is not None:
        body += [moving, '']
    for k, joint in enumerate(ahead.names[:SHOWN]):
        curves = [Series('measured', t, ahead.measured[k], type='points', color='gray')] if joint in ahead.read else []
        if ahead.low is not None and ahead.high is not None:
            curves.append(Series('predicted ± 2 std', t, ahead.low[k], ahead.high[k], 'band', 'orange'))
        curves.append(Series('predicted', t, q[k], color='orange'))
        body.append(lines(f'{joint}: predicted', curves, y=f'{joint} [{unit(joint)}]', link='ahead'))
        if joint in ahead.read:
            error = [Series('predicted less measured', t, q[k] - ahead.measured[k], color='orange')]
            marks = [
                {'type': 'h', 'at': s * 2 * ahead.noise[joint], 'keep': True} for s in (-1, 1) if np.isfinite(ahead.noise[joint])
            ]
            if ahead.low is not None and ahead.high is not None:
                error.append(Series('± 2 std', t, ahead.low[k] - q[k], ahead.high[k] - q[k], 'band', 'orange'))
            body.append(lines(f'{joint}: error of the prediction', error, y=f'[{unit(joint)}]', link='ahead', marks=marks,
                              caption='Dashed: two standard deviations of the encoder noise.'))  # fmt: skip
    return Section('Prediction' + (' of unseen data' if ahead.unseen else ''), tuple(body))


def _external(fit: Fit) -> Section:
    motion, names = fit.motion, joint_names(fit.robot.model)
    t, f, sd = motion.time[1:-1], motion.external, motion.external_std
    body: list[str | Figure] = [paragraph(
        'Joint forces that the model does not explain, as the fit needs them to pass through the readings. Away from zero beyond the band: '
        'a push from outside, or something the model lacks.')]  # fmt: skip
    for k, name in enumerate(names[:SHOWN]):
        curves = [Series('unexplained', t, f[k], color='purple')]
        if np.isfinite(sd[k]).any():
            curves.append(Series('± 2 std', t, -2 * sd[k], 2 * sd[k], 'band', 'gray'))
        body.append(
            lines(
                f'{name}: unexplained force',
                curves,
                y='[N m]' if turns(fit.robot.model, name) else '[N]',
                link='time',
                whole=True,
            )
        )
    return Section('Forces the model does not explain', tuple(body))
