# SPDX-License-Identifier: Apache-2.0
"""The articulated-Gaussian sweep in plain JAX: oracle, fallback and derivative of the compiled kernel.

Arrays carry the samples on their last axis, so that every product is a fused loop over samples; the passes are scans over the nodes,
so that the program does not grow with the tree. `wrench_sweep` says what the letters mean.
"""

from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels import six
from multibody_estimation.kernels.wrench_tables import KINDS, TARGETS, Layout, Sweep, unpack

__all__ = ['get', 'place', 'put', 'sweep_twin']


def get(a, i):
    return jax.lax.dynamic_index_in_dim(a, i, 0, keepdims=False)


def put(a, v, i):
    return jax.lax.dynamic_update_index_in_dim(a, v, i, 0)


def _read(layout: Layout, T: dict, y: Any, weights: Any, mono: Any) -> dict[str, Any]:
    """Information of priors and sensors on every node; leading axes (nl, ...), samples last (one lane where it is constant)."""
    ns, nl = len(layout.target), len(layout.parent)
    node = np.repeat(np.arange(nl), np.diff(layout.first))
    target = np.array(layout.target, int)
    where = np.minimum(np.array(layout.row, int)[:, None] + np.arange(6), layout.measurements)
    where = np.where(np.arange(6) < np.array(layout.rows, int)[:, None], where, layout.measurements).reshape(ns, 6)
    padded = jnp.concatenate([y, jnp.zeros((1, y.shape[1]))])

    def total(x, kind):
        chosen = np.flatnonzero(target == TARGETS[kind])
        if not len(chosen):
            return 0.0
        return jax.ops.segment_sum(x[chosen], node[chosen], nl, indices_are_sorted=True)

    def times(a, x):  # (n, 6, 6) constant matrices on (n, 6, B)
        return sum(a[:, :, e, None] * x[:, None, e] for e in range(6))

    if weights is None:
        gy = times(T['G'], padded[where])
        col = {f: T[f][..., None] for f in ('J', 'Rf', 'Px', 'pq', 'Lq', 'cq')}
        return col | {
            'j': T['j'][..., None] - times(T['B'], mono) + total(gy, 'acceleration'),
            'rho': T['rho'][..., None] + total(gy, 'transmitted'),
            'mx': T['mx'][..., None] + total(gy, 'external'),
            'mq': T['mq'][..., None] + (total(gy, 'joint')[:, 0] if (target == TARGETS['joint']).any() else 0.0),
            'ld': T['ld'].sum(),
        }
    w = weights[np.array(layout.weight, int)][:, None] if ns else jnp.zeros((0, 1, y.shape[1]))
    seen = jnp.where(w != 0, padded[where], 0.0)
    gy = w * (times(T['Gm'], seen) + T['cm'][..., None] - times(T['Bs'], mono[node]))
    inf = w[:, None] * T['Inf'][..., None]
    L = T['Lp'][..., None] + total(inf, 'transmitted') + jnp.zeros((1, 1, 1, y.shape[1]))
    F = total(inf, 'external') + jnp.zeros((nl, 6, 6, y.shape[1]))
    x = total(gy, 'external') + jnp.zeros((nl, 6, y.shape[1]))
    joint = (target == TARGETS['joint']).any()
    growth = 1 + T['pqp'][:, None] * (total(inf, 'joint')[:, 0, 0] if joint else jnp.zeros((nl, y.shape[1])))
    pq = T['pqp'][:, None] / growth
    mq = (T['mqp'][:, None] + T['pqp'][:, None] * (total(gy, 'joint')[:, 0] if joint else 0.0)) / growth
    C = T['Cx']
    swap = partial(jnp.moveaxis, source=-1, destination=1)
    H = jnp.eye(6) + jnp.einsum('nki,nbkl,nlj->nbij', C, swap(F), C)
    D = jax.scipy.linalg.solve_triangular(
        jnp.linalg.cholesky(H), jnp.broadcast_to(C.swapaxes(1, 2)[:, None], H.shape), lower=True
    )
    Px = jnp.moveaxis(jnp.einsum('nbki,nbkj->nbij', D, D), 1, -1)
    m0 = T['mxp'][..., None]
    mx = m0 + (Px * (x - (F * m0[:, None]).sum(2))[:, None]).sum(2)
    first = partial(jnp.moveaxis, source=0, destination=2)
    R, inverse = six.cholesky_semidefinite(first(L))
    l = jnp.moveaxis(T['lp'][..., None] + total(gy, 'transmitted') + jnp.zeros((1, 1, y.shape[1])), 1, 0)
    rho: list[Any] = []
    for r in range(6):
        rho.append((l[r] - sum((R[r, k] * rho[k] for k in range(r)), jnp.zeros_like(l[r]))) * inverse[r])
    cq: list[Any] = []
    Q = T['Sa'][..., None] + pq[:, None, None] * (T['S'][:, :, None] * T['S'][:, None])[..., None]
    Lq, inverse = six.cholesky_semidefinite(first(Q))
    for r in range(6):  # Lq cq = pq S
        cq.append((pq * T['S'][:, r, None] - sum((Lq[r, k] * cq[k] for k in range(r)), jnp.zeros_like(pq))) * inverse[r])
    return {
        'J': T['Jp'][..., None] + total(inf, 'acceleration'), 'j': T['jp'][..., None] + total(gy, 'acceleration'),
        'Rf': jnp.moveaxis(R, 2, 0), 'rho': jnp.stack(rho, 1), 'Px': Px, 'mx': mx, 'pq': pq, 'mq': mq,
        'Lq': jnp.moveaxis(Lq, 2, 0), 'cq': jnp.stack(cq, 1),
        'ld': jnp.linalg.slogdet(H)[1].sum(0) + jnp.log(growth).sum(0),
    }  # fmt: skip


def place(T: dict, q: Any, dq: Any, up: Any) -> tuple[Any, Any, Any, Any]:
    """Pose R, p of a node on its parent, bias of its acceleration, and its angular velocity; one node, tables (..., 1)."""
    angle, slide = T['turns'] * q, T['slides'] * q
    R = six.mm(T['R0'], six.rotation(T['axis'], jnp.sin(angle), jnp.cos(angle)))
    p = T['p0'] - six.mv(R, T['c']) + six.mv(T['R0'], T['axis']) * slide
    oc, rel = six.mtv(R, up), T['S'] * dq
    linear = six.mtv(R, six.cross(up, six.cross(up, p))) + six.cross(2 * oc + rel[3:], rel[:3])
    return R, p, jnp.concatenate([linear, six.cross(oc, rel[3:])]), oc + rel[3:]


def sweep_twin(
    layout: Layout, table: Any, position: Any, velocity: Any, base_velocity: Any, measurements: Any, weights: Any = None,
    extra: Any = None, select: tuple[tuple[int, int], ...] = (), multipliers: bool = False, chunk: int = 128,
) -> Sweep:  # fmt: skip
    """`sweep` in plain JAX; long batches go through in chunks that stay in the cache."""
    samples: tuple[Any, ...] = tuple(
        None if x is None else jnp.asarray(x, dtype=float)
        for x in (position, velocity, base_velocity, measurements, weights, extra)
    )
    n = samples[0].shape[0]
    T = unpack(layout, jnp.asarray(table, dtype=float))
    if n <= chunk:
        return _sweep(layout, T, samples, select, multipliers)
    count = -(-n // chunk)
    pad = count * chunk - n
    # The last sample is repeated to fill the last chunk: zeros could be singular.
    cut = tuple(
        None if x is None else jnp.concatenate([x, jnp.repeat(x[-1:], pad, 0)]).reshape(count, chunk, *x.shape[1:])
        for x in samples
    )
    out = jax.lax.map(lambda x: _sweep(layout, T, x, select, multipliers), cut)
    return Sweep(*(x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[: n if x.shape[1] else 0] for x in out))


def _parts(x: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Three matrices and two vectors that stand side by side."""
    return x[:, :6], x[:, 6:12], x[:, 12:18], x[:, 18], x[:, 19]


def _last(samples: tuple) -> list[Any]:
    return [None if x is None else jnp.moveaxis(x, 0, -1) for x in samples]


def _sweep(layout: Layout, T: dict, samples: tuple, select: tuple, multipliers: bool) -> Sweep:
    nl = len(layout.parent)
    q, dq, om, y, weights, extra = _last(samples)
    B = q.shape[1]
    dof = np.array(layout.dof)
    kind = np.array(layout.kind)
    pick = np.where(dof < 0, layout.joints, dof)
    none = jnp.zeros((1, B))
    q, dq = jnp.concatenate([q, none])[pick], jnp.concatenate([dq, none])[pick]
    ids, parent = jnp.arange(1, nl), jnp.asarray(np.array(layout.parent[1:], int))
    geometry = {f: T[f][1:, ..., None] for f in ('R0', 'p0', 'c', 'axis', 'S')}
    geometry |= {'turns': jnp.asarray(kind[1:] == 1, float)[:, None], 'slides': jnp.asarray(kind[1:] == 2, float)[:, None]}

    def step(oms, x):
        i, t, qi, dqi, p = x
        R, at, bias, now = place(t, qi, dqi, get(oms, p))
        return put(oms, now, i), (R, at, bias)

    start = jnp.zeros((nl, 3, B)).at[0].set(om)
    oms, (R, p, bias) = jax.lax.scan(step, start, (ids, geometry, q[1:], dq[1:], parent))
    w = (oms[:, 0], oms[:, 1], oms[:, 2])
    mono = jnp.stack([w[0] * w[0], w[1] * w[1], w[2] * w[2], w[0] * w[1], w[0] * w[2], w[1] * w[2]], 1)
    N = _read(layout, T, y, weights, mono)
    mq, j = N['mq'] + jnp.zeros((1, B)), N['j']
    momentum = jnp.moveaxis(sum(T['I'][:, :, 3 + e, None] * oms[:, None, e] for e in range(3)), 1, 0)
    spin = jnp.moveaxis(oms, 1, 0)
    k = jnp.moveaxis(jnp.concatenate([six.cross(spin, momentum[:3]), six.cross(spin, momentum[3:])]), 0, 1) - N['mx']
    if extra is not None:
        mq, k, j = mq + extra[:, 18], k + extra[:, :6], j + extra[:, 12:18]
        bias = bias + extra[1:, 6:12]
    beta = bias + geometry['S'] * mq[1:, None]

    def full(x):
        return jnp.broadcast_to(x, (*x.shape[:-1], B))

    def up(carry, x):
        sums, ld = carry
        i, Rf, Lq, cq, rho, b, Ri, pi, to = x
        K, P, J, k, j = (get(s, i) for s in sums)
        Rt, Lt = six.t(Rf), six.t(Lq)
        RP = six.mm(Rt, P)
        Lg = six.cholesky(six.eye() + six.mm(RP, Rf))
        # One solve for all right sides: XLA then runs 6 steps instead of 30.
        right = [RP, six.mm(Rt, K), full(Rt), (rho - six.mv(Rt, k))[:, None], rho[:, None]]
        V, U, Ug, z, zr = _parts(six.solve(Lg, jnp.concatenate(right, 1)))
        Ps, Ks, Js, ks, js = P - six.mtm(V, V), K - six.mtm(V, U), J + six.mtm(U, U), k + six.mtv(V, z), j + six.mtv(U, z)
        LJ = six.mm(Lt, Js)
        Lm = six.cholesky(six.eye() + six.mm(LJ, Lq))
        h = js - six.mv(Js, b)
        right = [LJ, six.mm(Lt, six.t(Ks)), full(Lt), six.mv(Lt, h)[:, None], full(cq)[:, None]]
        BJ, BK, Bq, u, wq = _parts(six.solve(Lm, jnp.concatenate(right, 1)))
        message = (
            six.congruence(Ri, pi, Ks - six.mtm(BK, BJ)), six.congruence(Ri, pi, Ps + six.mtm(BK, BK)), six.congruence(Ri, pi, Js - six.mtm(BJ, BJ)),
            six.force_to_parent(Ri, pi, ks + six.mv(Ks, b) + six.mtv(BK, u)), six.force_to_parent(Ri, pi, h - six.mtv(BJ, u)),
        )  # fmt: skip
        sums = tuple(put(s, get(s, to) + m, to) for s, m in zip(sums, message, strict=True))
        # Lg^-1 R' and Lm^-1 Lq' are all that the pass down needs of the factors.
        kept = (Js, js, Ks, K, P, k, Ug, zr, Bq, wq)
        more = (V, U, BJ, BK) if select else ()
        return (sums, ld + six.logdet(Lg) + six.logdet(Lm)), (kept, more)

    first = (full(T['I'][..., None]), full(T['Sne'][..., None] + N['Px']), full(N['J']), k, full(j))
    items = (ids, N['Rf'][1:], N['Lq'][1:], N['cq'][1:], full(N['rho'])[1:], beta, R, p, parent)
    (sums, ld), (kept, more) = jax.lax.scan(up, (first, jnp.zeros(B) + N['ld']), items, reverse=True)
    K, P, J, k0, j0 = (s[0] for s in sums)
    G = six.cholesky(P)
    U0, z0 = six.solve(G, K), six.solve(G, k0)
    ld = ld + six.logdet(G)
    H = None
    if layout.known:
        a0 = full(T['a0'][:, None])
    else:
        H = six.cholesky(J + six.mtm(U0, U0))
        a0 = six.solve_transposed(H, six.solve(H, j0 - six.mtv(U0, z0)))
        ld = ld + six.logdet(H)
    l0 = -six.solve_transposed(G, z0 + six.mv(U0, a0))

    def down(carry, x):
        A, L = carry
        i, (J, j, Ks, K, P, k, Ug, zr, Bq, cq), b, Ri, pi, mean, of = x
        a, l = six.motion_to_child(Ri, pi, get(A, of)) + b, six.motion_to_child(Ri, pi, get(L, of))
        t = j + six.mtv(Ks, l)
        u = six.mv(Bq, t - six.mv(J, a))
        a = a + six.mtv(Bq, u)
        e = t - six.mv(J, a)
        f = k + six.mv(K, a) + six.mv(P, l)
        d = six.mtv(Ug, zr - six.mv(Ug, f))
        return (put(A, a, i), put(L, l + d, i)), (f + six.mv(P, d), e, mean + (cq * u).sum(0))

    zero = jnp.zeros((nl, 6, B))
    below = (ids, kept, beta, R, p, mq[1:], parent)
    (A, l), (f, e, ddq) = jax.lax.scan(down, (zero.at[0].set(a0), zero.at[0].set(l0)), below)
    x = N['mx'] - (N['Px'] * l[:, None]).sum(2)
    front = partial(jnp.moveaxis, source=-1, destination=0)
    base = jnp.zeros((1, 6, B))
    dual = front(jnp.concatenate([l, jnp.concatenate([base, e])], 1)) if multipliers else jnp.zeros((0, nl, 12))
    covariances = jnp.zeros((B, 0, 6, 6))
    if select:
        covariances = _covariances(layout, N, sums, kept, more, (G, U0, H), R, p, geometry['S'], parent, select, B)
    return Sweep(
        front(A), front(x + zero), front(jnp.concatenate([base, f])), front(jnp.concatenate([none, ddq])), ld, dual, covariances
    )  # fmt: skip


def _covariances(layout, N, sums, kept, more, base, R, p, S, parent, select, B):
    """Selected inversion: blocks Z of the inverse of the optimality system for (a, l) of every node, from the base down."""
    (G, U0, H), nl = base, len(layout.parent)
    eye = jnp.broadcast_to(six.eye(), (6, 6, B))
    Gi = six.solve(G, eye)
    ll = -six.mtm(Gi, Gi)
    aa = al = jnp.zeros((6, 6, B))
    if H is not None:
        C = six.solve(H, eye)  # C'C = (J + K'P^-1 K)^-1
        CU = six.mm(C, six.mtm(U0, Gi))
        aa, al, ll = six.mtm(C, C), -six.mtm(C, CU), ll + six.mtm(CU, CU)

    def down(carry, x):
        i, (J, _, Ks, K, P, _, Ug, _, Bq, _), (V, U, BJ, BK), Ri, pi, of = x
        aa, al, ll = (six.congruence_down(Ri, pi, get(z, of)) for z in carry)
        u1, u2 = six.mm(BJ, aa) - six.mm(BK, six.t(al)), six.mm(BJ, al) - six.mm(BK, ll)
        ee = -J + six.mtm(BJ, BJ)
        # e = -J E X a_p + E'Ks'X l_p with E = 1 - Bq'BJ
        E = six.eye() - six.mtm(Bq, BJ)
        ta, tl = -six.mm(J, E), six.mtm(E, six.t(Ks))
        ee = ee + six.mm(six.mm(ta, aa) + six.mm(tl, six.t(al)), six.t(ta)) + six.mm(six.mm(ta, al) + six.mm(tl, ll), six.t(tl))
        ra, rl = aa - six.mtm(Bq, u1), al - six.mtm(Bq, u2)
        aa = ra - six.mm(six.mm(ra, six.t(BJ)) - six.mm(rl, six.t(BK)), Bq) + six.mtm(Bq, Bq)
        al = rl
        la, lv = six.mm(U, aa) + six.mm(V, six.t(al)), six.mm(U, al) + six.mm(V, ll)
        ra, rl = six.t(al) - six.mtm(Ug, la), ll - six.mtm(Ug, lv)
        ll = rl - six.mm(six.mm(ra, six.t(U)) + six.mm(rl, six.t(V)), Ug) - six.mtm(Ug, Ug)
        al = six.t(ra)
        ff = P + six.mm(six.mm(K, aa) + six.mm(P, six.t(al)), six.t(K)) + six.mm(six.mm(K, al) + six.mm(P, ll), P)
        return tuple(put(z, new, i) for z, new in zip(carry, (aa, al, ll), strict=True)), (ff, ee)

    zero = jnp.zeros((nl, 6, 6, B))
    start: Any = tuple(zero.at[0].set(z) for z in (aa, al, ll))
    (aa, _, ll), (ff, ee) = jax.lax.scan(down, start, (jnp.arange(1, nl), kept, more, R, p, parent))
    out = []
    for node, kind in select:
        if kind == KINDS['external_wrench']:
            P = N['Px'][node]
            c = P + six.mm(six.mm(P, ll[node]), P)
        elif kind == KINDS['acceleration']:
            c = aa[node]
        elif kind == KINDS['wrench_multiplier']:
            c = ll[node]
        elif node == 0:
            c = jnp.zeros((6, 6, B))
        elif kind == KINDS['joint_wrench']:
            c = ff[node - 1]
        elif kind == KINDS['motion_multiplier']:
            c = ee[node - 1]
        else:
            pq, s = N['pq'][node], S[node - 1]
            c = jnp.zeros((6, 6, B)).at[0, 0].set(pq + pq * pq * (s * six.mv(ee[node - 1], s)).sum(0))
        out.append(jnp.broadcast_to(c, (6, 6, B)))
    return jnp.moveaxis(jnp.stack(out), -1, 0)
