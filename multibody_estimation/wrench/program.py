# SPDX-License-Identifier: Apache-2.0
"""`compile_wrench`: model and setup become the constant tables of the sweep, once; new contacts or noise change numbers only."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.kernels.wrench_sweep import NODE_FIELDS, SENSOR_FIELDS, TARGETS, Layout, pack
from multibody_estimation.tree.bodies import true_gravity
from multibody_estimation.tree.model import Model
from multibody_estimation.wrench.sensor_terms import Term, force_matrix, sensor_terms
from multibody_estimation.wrench.settings import Prior, WrenchSetup, covariance_matrix
from multibody_estimation.wrench.tree_nodes import Nodes, build_nodes

__all__ = ['Program', 'compile_wrench']


@dataclass(frozen=True, eq=False)
class Program:
    """Tables of one problem, and the names of what stands in them."""

    model: Model
    setup: WrenchSetup
    nodes: Nodes
    terms: tuple[Term, ...]
    layout: Layout
    arrays: Mapping[str, np.ndarray]
    """Every table by name, as in `kernels.wrench_sweep`."""
    base_acceleration: np.ndarray
    """Of a fixed base: minus gravity; (6,)."""

    @cached_property
    def table(self) -> Any:
        """The tables as the sweep takes them."""
        nodes, sensors = {f: self.arrays[f] for f in NODE_FIELDS}, {f: self.arrays[f] for f in SENSOR_FIELDS}
        with jax.ensure_compile_time_eval():
            return jnp.asarray(pack(self.layout, nodes, sensors, self.base_acceleration))

    @property
    def floating(self) -> bool:
        return not self.layout.known

    @property
    def joint_names(self) -> tuple[str, ...]:
        return self.model.joint_names

    @property
    def link_names(self) -> tuple[str, ...]:
        """Links that are bodies; frames without mass are not among them."""
        return tuple(self.model.link_names[k] for k in self.nodes.links)

    def frame(self, link: str) -> tuple[int, np.ndarray, np.ndarray]:
        """Place in ``link_names`` of the body that holds a link, and the link's rotation and position in it."""
        return self.nodes.frames[self.model.link_index(link)]

    def node(self, link: str) -> int:
        """Node of the external wrench and the acceleration of a link, or of the body that holds it."""
        return self.nodes.of_link[self.frame(link)[0]]


def _root(covariance: np.ndarray) -> np.ndarray:
    """C with C C' = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _lookup(table: Mapping[str, Any], name: str, default: Any = None) -> Any:
    return table.get(name, table.get('*', default))


def _contacts(model: Model, setup: WrenchSetup, nodes: Nodes) -> dict[int, Prior]:
    """Prior of the external wrench of each body on which the world may act; one given for a frame is moved to the body."""
    found: dict[int, Prior] = {}
    for name, prior in setup.contacts.items():
        k, R, p = nodes.frames[model.link_index(name)]
        if k in found:
            raise EstimationError(
                f"contacts names '{name}', but '{model.link_names[nodes.links[k]]}', the body that holds it, already is a contact. Name it once."
            )
        mean, C = _prior(prior, 6, f"the external wrench of '{name}'", True)
        X = np.linalg.inv(force_matrix(R, p))
        found[k] = Prior(X @ C @ X.T, X @ mean)
    return found


def _check_names(table: Mapping[str, Any], known: tuple[str, ...], what: str, kind: str) -> None:
    for name in table:
        if name != '*' and name not in known:
            raise EstimationError(f"{what} names {kind} '{name}', which the model does not have.{did_you_mean(name, known)}")


def _prior(prior: Prior, size: int, where: str, zero: bool) -> tuple[np.ndarray, np.ndarray]:
    mean = np.asarray(prior.mean, dtype=float)
    if not np.isfinite(mean).all() or mean.size not in (1, size):
        raise EstimationError(f'{where}: its mean must be 1 or {size} finite numbers.')
    return np.broadcast_to(mean.ravel(), (size,)).copy(), covariance_matrix(prior.noise, size, where, zero)


def compile_wrench(model: Model, setup: WrenchSetup) -> Program:
    """Check the setup against the model and make the tables."""
    links, joints = model.link_names, model.joint_names
    if setup.base and setup.base not in links:
        raise EstimationError(f"The model has no link '{setup.base}' to be the base.{did_you_mean(setup.base, links)}")
    for name in ('contacts', 'equation_noise', 'motion_noise', 'acceleration', 'joint_wrench'):
        _check_names(getattr(setup, name), links, name, 'link')
    _check_names(setup.joint_acceleration, joints, 'joint_acceleration', 'joint')
    nodes = build_nodes(model, setup)
    terms = sensor_terms(model, setup, nodes)
    n = len(nodes.nodes)
    t = {f: np.zeros((n, *shape)) for f, shape in NODE_FIELDS.items()}
    floating = model.floating if setup.floating is None else bool(setup.floating)

    contacts = _contacts(model, setup, nodes)
    for i, node in enumerate(nodes.nodes):
        t['R0'][i], t['p0'][i], t['c'][i], t['axis'][i] = node.rotation, node.position, node.center, node.axis
        t['S'][i], t['I'][i] = node.motion, node.inertia
        link = links[nodes.links[node.link]]
        if not node.inner:  # equation, external wrench and acceleration belong to the outer part of a split link
            t['Sne'][i] = covariance_matrix(_lookup(setup.equation_noise, link, 0.0), 6, f"equation_noise of '{link}'", True)
            where = f"the external wrench of '{link}'"
            t['mxp'][i], C = _prior(contacts.get(node.link, setup.contact_free), 6, where, True)
            t['Cx'][i] = _root(C)
            if (prior := _lookup(setup.acceleration, link)) is not None:
                mean, C = _prior(prior, 6, f"the acceleration prior of '{link}'", False)
                t['Jp'][i] = np.linalg.inv(C)
                t['jp'][i] = t['Jp'][i] @ mean
        if i and not node.outer:
            t['Sa'][i] = covariance_matrix(_lookup(setup.motion_noise, link, 0.0), 6, f"motion_noise of '{link}'", True)
            if (prior := _lookup(setup.joint_wrench, link)) is not None:
                mean, C = _prior(prior, 6, f"the joint_wrench prior of '{link}'", False)
                t['Lp'][i] = np.linalg.inv(C)
                t['lp'][i] = t['Lp'][i] @ mean
            if node.dof >= 0:
                joint = joints[node.dof]
                prior = _lookup(setup.joint_acceleration, joint, Prior(100.0))
                mean, C = _prior(prior, 1, f"the joint_acceleration prior of '{joint}'", True)
                t['mqp'][i], t['pqp'][i] = mean[0], C[0, 0]

    # The base's equation must not be exact together with an exactly known external wrench of every link: nothing would give way.
    if not np.any([t['Sne'][i].any() or t['Cx'][i].any() for i in range(n)]) or not (t['Sne'][0].any() or t['Cx'][0].any()):
        t['Sne'][0] += 1e-10 * np.eye(6)

    order = [k for k, x in sorted(enumerate(terms), key=lambda x: x[1].node) if x.target != 'velocity']
    u = {f: np.zeros((len(order), *shape)) for f, shape in SENSOR_FIELDS.items()}
    whiten = {}
    for e, k in enumerate(order):
        x = terms[k]
        W = np.linalg.inv(np.linalg.cholesky(x.sensor.covariance()))
        H = W @ x.Y
        rows, cols = H.shape
        whiten[e] = (W, H)
        gain = H.T @ W
        u['Gm'][e, :cols, :rows] = gain
        u['cm'][e, :cols] = -gain @ x.sensor.bias()
        u['Inf'][e, :cols, :cols] = H.T @ H
        u['Bs'][e, :cols] = gain @ x.B
    first = np.searchsorted([terms[k].node for k in order], np.arange(n + 1))
    told = [_bake(i, t, u, range(first[i], first[i + 1]), [terms[k] for k in order], whiten) for i in range(n)]
    layout = Layout(
        joints=len(joints), measurements=setup.size, weights=len(terms), known=not floating,
        parent=tuple(x.parent for x in nodes.nodes), dof=tuple(x.dof for x in nodes.nodes), kind=tuple(x.kind for x in nodes.nodes),
        told=tuple(told), loose=tuple(int(t['Lq'][i].any()) for i in range(n)), first=tuple(int(f) for f in first),
        target=tuple(TARGETS[terms[k].target] for k in order), row=tuple(terms[k].row for k in order),
        rows=tuple(terms[k].sensor.size for k in order), weight=tuple(order),
    )  # fmt: skip
    return Program(model, setup, nodes, terms, layout, t | u, np.r_[-_gravity(model, setup, floating), np.zeros(3)])


def _gravity(model: Model, setup: WrenchSetup, floating: bool) -> np.ndarray:
    if setup.gravity is not None:
        g = np.asarray(setup.gravity, dtype=float)
        if g.shape != (3,) or not np.isfinite(g).all():
            raise EstimationError(f'gravity is {setup.gravity}; three finite numbers are needed [m/s^2].')
        return g
    if not floating and setup.base and setup.base != model.link_names[0]:
        raise EstimationError(
            f"The fixed base '{setup.base}' is not the model's base '{model.link_names[0]}': give gravity in the frame of '{setup.base}'."
        )
    return np.asarray(true_gravity(model), dtype=float)


def _bake(i: int, t: dict, u: dict, sensors: range, terms: list[Term], whiten: dict) -> int:
    """Sum up priors and sensors of a node where none is missing; return what kind of information there is on its joint's wrench."""
    t['J'][i], t['j'][i] = t['Jp'][i], t['jp'][i]
    F, x, q, m = np.zeros((6, 6)), np.zeros(6), 0.0, 0.0
    rows, data = [], []
    prior = t['Lp'][i]
    if prior.any():
        U = np.linalg.cholesky(prior).T
        rows, data = [U], [np.linalg.solve(U.T, t['lp'][i])]
    parts = []
    for e in sensors:
        W, H = whiten[e]
        target = terms[e].target
        if target == 'acceleration':
            t['J'][i] += u['Inf'][e]
            t['j'][i] += u['cm'][e]
            t['B'][i] += u['Bs'][e]
            u['G'][e] = u['Gm'][e]
        elif target == 'external':
            F += u['Inf'][e]
            x += u['cm'][e]
        elif target == 'joint':
            q += u['Inf'][e, 0, 0]
            m += u['cm'][e, 0]
        else:
            parts.append((e, sum(len(r) for r in rows), len(H)))
            rows.append(H)
            data.append(-W @ terms[e].sensor.bias())
    diagonal = not parts and prior.any() and not (prior - np.diag(np.diag(prior))).any()
    if diagonal:
        t['Rf'][i], t['rho'][i] = np.sqrt(prior), t['lp'][i] / np.sqrt(np.diag(prior))
    elif rows:
        # |H f - y|^2 = |R'f - rho|^2 + constant with H = Q R', rho = Q'y: no squares are formed.
        Q, R = np.linalg.qr(np.vstack(rows))
        t['Rf'][i][:, : len(R)] = R.T
        t['rho'][i][: len(R)] = Q.T @ np.concatenate(data)
        for e, at, k in parts:
            u['G'][e][: len(R), :k] = Q[at : at + k].T @ whiten[e][0]
    C = t['Cx'][i]
    H = np.eye(6) + C.T @ F @ C
    t['Px'][i] = C @ np.linalg.solve(H, C.T)
    t['Px'][i] = 0.5 * (t['Px'][i] + t['Px'][i].T)
    t['mx'][i] = t['mxp'][i] + t['Px'][i] @ (x - F @ t['mxp'][i])
    growth = 1.0 + t['pqp'][i] * q
    t['pq'][i], t['mq'][i] = t['pqp'][i] / growth, (t['mqp'][i] + t['pqp'][i] * m) / growth
    t['ld'][i] = np.linalg.slogdet(H)[1] + np.log(growth)
    for e in sensors:
        if terms[e].target == 'external':
            u['G'][e] = t['Px'][i] @ u['Gm'][e]
        elif terms[e].target == 'joint':
            u['G'][e, 0, 0] = t['pq'][i] * u['Gm'][e, 0, 0]
    if t['Sa'][i].any() or t['pq'][i] > 0:
        stacked = np.vstack([_root(t['Sa'][i]).T, np.sqrt(t['pq'][i]) * t['S'][i][None]])
        Q, R = np.linalg.qr(stacked)
        t['Lq'][i], t['cq'][i] = R.T, np.sqrt(t['pq'][i]) * Q[6]
    return 0 if not rows else 1 if diagonal else 2
