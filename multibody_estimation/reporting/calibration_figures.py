# SPDX-License-Identifier: Apache-2.0
"""Figures of a force/torque calibration: forces on their spheres, torques on their discs, what is off, and the ellipsoid of the counts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from multibody_estimation.calibration.model import GRAVITY, Dataset
from multibody_estimation.calibration.offset import offset_by_regression
from multibody_estimation.calibration.result import Calibration

COLORS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000')
GRAY = '#9aa0a6'


def _circle(axis: np.ndarray, radius: float) -> np.ndarray:
    """Circle of ``radius`` perpendicular to ``axis``; shape (90, 3)."""
    _, _, V = np.linalg.svd(axis[None])
    t = np.linspace(0, 2 * np.pi, 90)[:, None]
    return radius * (np.cos(t) * V[1] + np.sin(t) * V[2])


def _wrenches(calibration: Calibration, d: Dataset) -> np.ndarray:
    offset = calibration.offsets.get(d.name, calibration.offset)
    return calibration.wrench(d.strain, d.temperature) - calibration.matrix @ (offset - calibration.offset)


def calibration_figure(calibration: Calibration, datasets: Sequence[Dataset], factory: np.ndarray | None = None) -> Figure:
    """Draw forces with the spheres ``|f| = m g``, torques with the rims of their discs, and the distance of each sample from both.

    ``factory`` adds the same distances with the factory matrix, in gray.
    """
    figure = Figure(figsize=(11, 8.5), layout='constrained')
    FigureCanvasAgg(figure)
    forces = figure.add_subplot(2, 2, 1, projection='3d')
    torques = figure.add_subplot(2, 2, 2, projection='3d')
    sphere, disc = figure.add_subplot(2, 2, 3), figure.add_subplot(2, 2, 4)
    start = 0
    for i, d in enumerate(datasets):
        color = COLORS[i % len(COLORS)]
        w = _wrenches(calibration, d)
        inertia = calibration.body + d.load.inertia
        lever = float(np.linalg.norm(inertia[1:]))
        forces.scatter(*w[:, :3].T, color=color, s=14, label=d.name, depthshade=False)
        for axis in np.eye(3):
            forces.plot(*_circle(axis, GRAVITY * inertia[0]).T, color=color, lw=0.6, alpha=0.6)
        torques.scatter(*w[:, 3:].T, color=color, s=14, depthshade=False)
        normal = inertia[1:] / lever if lever > 0 else np.array([0.0, 0, 1])
        torques.plot(*_circle(normal, GRAVITY * lever).T, color=color, lw=1.0)
        index = start + np.arange(len(d))
        norm = inertia[0] * np.linalg.norm(d.acceleration - calibration.accelerometer_bias, axis=1)
        if factory is not None:
            counts = np.linalg.solve(calibration.matrix, w.T).T
            old = counts @ np.asarray(factory).T
            label = 'factory matrix' if i == 0 else None
            sphere.plot(index, np.linalg.norm(old[:, :3], axis=1) - norm, 'x', color=GRAY, ms=4, label=label)
            disc.plot(index, 1e3 * old[:, 3:] @ normal, 'x', color=GRAY, ms=4, label=label)
        sphere.plot(index, np.linalg.norm(w[:, :3], axis=1) - norm, 'o', color=color, ms=4)
        disc.plot(index, 1e3 * w[:, 3:] @ normal, 'o', color=color, ms=4)
        start += len(d)
    for axes, title, unit in ((forces, 'Forces on their spheres', 'N'), (torques, 'Torques on their discs', 'N m')):
        axes.set_title(title, fontsize=11)
        axes.set(xlabel=f'x [{unit}]', ylabel=f'y [{unit}]', zlabel=f'z [{unit}]')
        axes.set_aspect('equal')
        axes.tick_params(labelsize=7)
    for axes, title, label in (
        (sphere, 'Distance from the sphere', 'force [N]'),
        (disc, 'Distance from the disc', 'torque [mN m]'),
    ):
        axes.axhline(0, color='black', lw=0.6)
        axes.set(xlabel='sample', ylabel=label)
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.3)
    if factory is not None:
        sphere.legend(fontsize=8)
    forces.legend(fontsize=7, loc='upper left', bbox_to_anchor=(-0.15, 1.0))
    mass, deviation = calibration.mass
    figure.suptitle(
        f'{calibration.serial or "Sensor"}, {calibration.date[:16]}: body {mass:.3f} ± {deviation:.3f} kg, '
        f'{sum(len(d) for d in datasets)} samples in {len(datasets)} datasets', fontsize=12,
    )  # fmt: skip
    return figure


def ellipsoid_figure(dataset: Dataset) -> Figure:
    """Draw the counts of one dataset in their three-dimensional subspace with the ellipsoid gravity makes of the sphere.

    Beside it the spread along the six principal directions: three of signal, three of noise.
    """
    found = offset_by_regression(dataset)
    U = found.basis
    figure = Figure(figsize=(10, 4.6), layout='constrained')
    FigureCanvasAgg(figure)
    cloud, bars = figure.add_subplot(1, 2, 1, projection='3d'), figure.add_subplot(1, 2, 2)
    y = (dataset.strain - found.offset) @ U
    t, p = np.meshgrid(np.linspace(0, np.pi, 19), np.linspace(0, 2 * np.pi, 37))
    ball = GRAVITY * np.stack([np.sin(t) * np.cos(p), np.sin(t) * np.sin(p), np.cos(t)])
    shell = np.einsum('ij,jkl->ikl', U.T @ found.map, ball)
    cloud.plot_wireframe(*shell, color=GRAY, lw=0.4, alpha=0.7)
    cloud.scatter(*y.T, color=COLORS[0], s=14, depthshade=False)
    cloud.scatter(0, 0, 0, color=COLORS[1], marker='+', s=80)
    cloud.set(xlabel='1st direction [counts]', ylabel='2nd [counts]', zlabel='3rd [counts]')
    cloud.set_title(f"Counts of '{dataset.name}' about their offset (+)", fontsize=11)
    cloud.tick_params(labelsize=7)
    bars.bar(np.arange(1, 7), np.maximum(found.singular_values, 1e-3), color=[COLORS[0]] * 3 + [GRAY] * 3)
    bars.set_yscale('log')
    bars.set(xlabel='principal direction', ylabel='RMS spread [counts]')
    bars.set_title('Three directions carry gravity, three are noise', fontsize=11)
    return figure


def save_calibration_figures(
    calibration: Calibration,
    datasets: Sequence[Dataset],
    folder: str | Path,
    *,
    stem: str = 'calibration',
    factory: np.ndarray | None = None,
) -> list[Path]:
    """Write the figures as PNG into a folder and return their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f'{stem}_wrenches.png', folder / f'{stem}_counts.png']
    calibration_figure(calibration, datasets, factory).savefig(paths[0], dpi=110)
    ellipsoid_figure(max(datasets, key=lambda d: d.load.mass)).savefig(paths[1], dpi=110)
    return paths
