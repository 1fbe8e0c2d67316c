# SPDX-License-Identifier: Apache-2.0
"""A mechanism as a wireframe: from joint positions over time to the nodes and lines of a moving drawing."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.reporting.figures import Figure, scene

__all__ = ['animation', 'skeleton']

FRAMES = 300
"""Most frames of an animation."""
LINKS = ('blue', 'green', 'purple', 'yellow', 'sky')


poses = jax.jit(jax.vmap(tree.forward_kinematics, in_axes=(None, 0)))


def skeleton(model: tree.Model, positions: np.ndarray) -> tuple[np.ndarray, list[dict]]:
    """Nodes (f, m, 3) in m for joint positions (nq, f), and the lines between them.

    A link is drawn from its origin to the origins of the links it carries; one that carries none, to twice the way to its centre of
    mass, where the end of a uniform rod would be.
    """
    R, p = (np.asarray(x) for x in poses(model, jnp.asarray(positions.T)))
    parents = model.parents
    reach = max(float(np.abs(p).max()), 1e-3)
    nodes, lines = [p], []
    extra = p.shape[1]
    for k, name in enumerate(model.link_names):
        color = LINKS[(k - 1) % len(LINKS)] if k else 'gray'
        children = [c for c, parent in enumerate(parents) if parent == k]
        here = [c for c in children if np.linalg.norm(p[:, c] - p[:, k], axis=1).max() > 1e-6 * reach]
        lines += [{'path': [k, c], 'color': color, 'width': 5, 'link': name} for c in here]
        if not children:
            tip = 2 * np.asarray(model.center_of_mass, dtype=float)[k]
            if np.linalg.norm(tip) > 1e-6 * reach:
                nodes.append((p[:, k] + R[:, k] @ tip)[:, None])
                lines.append({'path': [k, extra], 'color': color, 'width': 5, 'link': name})
                extra += 1
    return np.concatenate(nodes, axis=1), lines


def animation(
    model: Any, time: np.ndarray, motions: Mapping[str, np.ndarray], *, caption: str = '', link: str = ''
) -> Figure | None:
    """Motions (title to joint positions (nq, n)) side by side over a common time (n,) in s.

    None where the model is not made of links and joints, or nothing of it would be seen.
    """
    if not isinstance(model, tree.Model):
        return None
    span = float(time[-1] - time[0])
    count = int(np.clip(span * 30, 2, FRAMES))
    at = np.linspace(time[0], time[-1], count)
    panes: list[dict] = []
    for title, q in motions.items():
        # All motions have as many frames, so the poses are compiled once.
        sampled = np.stack([np.interp(at, time, row) for row in np.asarray(q, dtype=float)])
        if model.floating:
            sampled[3:7] /= np.linalg.norm(sampled[3:7], axis=0)
        nodes, lines = skeleton(model, sampled)
        if not lines:
            return None
        shown = [{k: v for k, v in line.items() if k != 'link'} for line in lines]
        dots = [{'nodes': list(range(len(model.link_names))), 'color': 'gray', 'size': 8}]
        panes.append({'title': title, 'nodes': nodes, 'lines': shown, 'dots': dots})
    low = min(float(p['nodes'][..., 2].min()) for p in panes)
    return scene('The mechanism in motion', panes, time=at, caption=caption, link=link or None, ground=low)
