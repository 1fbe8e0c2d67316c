# SPDX-License-Identifier: Apache-2.0
"""The articulated-Gaussian sweep in plain JAX: oracle, fallback and derivative of the compiled kernel.

Arrays carry the samples on their last axis, so that every product is a fused loop over samples; the passes are scans over the nodes,
so that the program does not grow with the tree. `wrench_sweep` says what the letters mean.
"""

from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.kernels.wrench_tables import KINDS, TARGETS, Layout, Sweep, unpack

__all__ = ['get', 'place', 'put', 'sweep_twin']


def _mm(a, b):
    return (a[:, :, None] * b[None]).sum(1)


def _mtm(a, b):
    return (a[:, :, None] * b[:, None]).sum(0)


def _mv(a, x):
    return (a * x[None]).sum(1)


def _mtv(a, x):
    return (a * x[:, None]).sum(0)


def _t(a):
    return jnp.swapaxes(a, 0, 1)


def _eye():
    return jnp.eye(6)[:, :, None]


def _cross(a, b):
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def _cholesky(a):
    """Lower factor as nested lists, the diagonal inverted."""
    L: list[list[Any]] = [[None] * 6 for _ in range(6)]
    for j in range(6):
        for i in range(j, 6):
            s = a[i, j]
            for k in range(j):
                s = s - L[i][k] * L[j][k]
            L[i][j] = jax.lax.rsqrt(s) if i == j else s * L[j][j]
    return L


def _cholesky_semidefinite(a):
    """Lower factor (6, 6, ...) of a semidefinite matrix and the inverses of its diagonal: a pivot that is rounding gives a zero column."""
    L: list[list[Any]] = [[jnp.zeros_like(a[0, 0])] * 6 for _ in range(6)]
    inverse = []
    for j in range(6):
        d = a[j, j] - sum((L[j][k] * L[j][k] for k in range(j)), jnp.zeros_like(a[0, 0]))
        good = (d > 1e-13 * a[j, j]) & (d > 1e-300)
        r = jnp.where(good, jax.lax.rsqrt(jnp.where(good, d, 1.0)), 0.0)
        inverse.append(r)
        for i in range(j, 6):
            s = a[i, j]
            for k in range(j):
                s = s - L[i][k] * L[j][k]
            L[i][j] = s * r
    return jnp.stack([jnp.stack(row) for row in L]), jnp.stack(inverse)


def _solve(L, b):
    x: list[Any] = []
    for i in range(6):
        s = b[i]
        for k in range(i):
            s = s - L[i][k] * x[k]
        x.append(s * L[i][i])
    return jnp.stack(x)


def _solve_transposed(L, b):
    x: list[Any] = [None] * 6
    for i in range(5, -1, -1):
        s = b[i]
        for k in range(i + 1, 6):
            s = s - L[k][i] * x[k]
        x[i] = s * L[i][i]
    return jnp.stack(x)


def _logdet(L):
    return -2.0 * sum(jnp.log(L[i][i]) for i in range(6))


def _rotation(axis, s, c):
    x, y, z = axis
    v = 1 - c
    return jnp.stack([
        jnp.stack([c + x * x * v, x * y * v - z * s, x * z * v + y * s]),
        jnp.stack([y * x * v + z * s, c + y * y * v, y * z * v - x * s]),
        jnp.stack([z * x * v - y * s, z * y * v + x * s, c + z * z * v]),
    ])  # fmt: skip


def _motion_to_child(R, p, v):
    return jnp.concatenate([_mtv(R, v[:3] + _cross(v[3:], p)), _mtv(R, v[3:])])


def _force_to_parent(R, p, f):
    a, b = _mv(R, f[:3]), _mv(R, f[3:])
    return jnp.concatenate([a, b + _cross(p, a)])


def _congruence(R, p, m):
    """X'mX."""
    Rt, z = _t(R), jnp.zeros_like(p[0])
    a, b, c, d = (_mm(R, _mm(x, Rt)) for x in (m[:3, :3], m[:3, 3:], m[3:, :3], m[3:, 3:]))
    S = jnp.stack([jnp.stack([z, -p[2], p[1]]), jnp.stack([p[2], z, -p[0]]), jnp.stack([-p[1], p[0], z])])
    b = b - _mm(a, S)
    d, c = d - _mm(c, S) + _mm(S, b), c + _mm(S, a)
    return jnp.concatenate([jnp.concatenate([a, b], 1), jnp.concatenate([c, d], 1)], 0)


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
    w = weights[np.array(layout.index, int)][:, None] if ns else jnp.zeros((0, 1, y.shape[1]))
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
    R, inverse = _cholesky_semidefinite(first(L))
    l = jnp.moveaxis(T['lp'][..., None] + total(gy, 'transmitted') + jnp.zeros((1, 1, y.shape[1])), 1, 0)
    rho: list[Any] = []
    for r in range(6):
        rho.append((l[r] - sum((R[r, k] * rho[k] for k in range(r)), jnp.zeros_like(l[r]))) * inverse[r])
    cq: list[Any] = []
    Q = T['Sa'][..., None] + pq[:, None, None] * (T['S'][:, :, None] * T['S'][:, None])[..., None]
    Lq, inverse = _cholesky_semidefinite(first(Q))
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
    R = _mm(T['R0'], _rotation(T['axis'], jnp.sin(angle), jnp.cos(angle)))
    p = T['p0'] - _mv(R, T['c']) + _mv(T['R0'], T['axis']) * slide
    oc, rel = _mtv(R, up), T['S'] * dq
    linear = _mtv(R, _cross(up, _cross(up, p))) + _cross(2 * oc + rel[3:], rel[:3])
    return R, p, jnp.concatenate([linear, _cross(oc, rel[3:])]), oc + rel[3:]


def sweep_twin(
    layout: Layout, table: Any, position: Any, velocity: Any, base_velocity: Any, measurements: Any, weights: Any = None,
    extra: Any = None, select: tuple[tuple[int, int], ...] = (), multipliers: bool = False, chunk: int = 128,
) -> Sweep:  # fmt: skip
    """`sweep` in plain JAX; long batches go through in chunks that stay in the cache."""
    samples = tuple(
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


def _sweep(layout: Layout, T: dict, samples: tuple, select: tuple, multipliers: bool) -> Sweep:
    nl = len(layout.parent)
    q, dq, om, y, weights, extra = (None if x is None else jnp.moveaxis(x, 0, -1) for x in samples)
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
    k = jnp.moveaxis(jnp.concatenate([_cross(spin, momentum[:3]), _cross(spin, momentum[3:])]), 0, 1) - N['mx']
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
        Rt, Lt = _t(Rf), _t(Lq)
        RP = _mm(Rt, P)
        Lg = _cholesky(_eye() + _mm(RP, Rf))
        V, U, z = _solve(Lg, RP), _solve(Lg, _mm(Rt, K)), _solve(Lg, rho - _mv(Rt, k))
        Ps, Ks, Js, ks, js = P - _mtm(V, V), K - _mtm(V, U), J + _mtm(U, U), k + _mtv(V, z), j + _mtv(U, z)
        LJ = _mm(Lt, Js)
        Lm = _cholesky(_eye() + _mm(LJ, Lq))
        BJ, BK = _solve(Lm, LJ), _solve(Lm, _mm(Lt, _t(Ks)))
        h = js - _mv(Js, b)
        u = _solve(Lm, _mv(Lt, h))
        message = (
            _congruence(Ri, pi, Ks - _mtm(BK, BJ)), _congruence(Ri, pi, Ps + _mtm(BK, BK)), _congruence(Ri, pi, Js - _mtm(BJ, BJ)),
            _force_to_parent(Ri, pi, ks + _mv(Ks, b) + _mtv(BK, u)), _force_to_parent(Ri, pi, h - _mtv(BJ, u)),
        )  # fmt: skip
        sums = tuple(put(s, get(s, to) + m, to) for s, m in zip(sums, message, strict=True))
        # Lg^-1 R' and Lm^-1 Lq' are all that the pass down needs of the factors.
        kept = (Js, js, Ks, K, P, k, _solve(Lg, full(Rt)), _solve(Lg, rho), _solve(Lm, full(Lt)), _solve(Lm, full(cq)))
        more = (V, U, BJ, BK) if select else ()
        return (sums, ld + _logdet(Lg) + _logdet(Lm)), (kept, more)

    start = (full(T['I'][..., None]), full(T['Sne'][..., None] + N['Px']), full(N['J']), k, full(j))
    items = (ids, N['Rf'][1:], N['Lq'][1:], N['cq'][1:], full(N['rho'])[1:], beta, R, p, parent)
    (sums, ld), (kept, more) = jax.lax.scan(up, (start, jnp.zeros(B) + N['ld']), items, reverse=True)
    K, P, J, k0, j0 = (s[0] for s in sums)
    G = _cholesky(P)
    U0, z0 = _solve(G, K), _solve(G, k0)
    ld = ld + _logdet(G)
    H = None
    if layout.known:
        a0 = full(T['a0'][:, None])
    else:
        H = _cholesky(J + _mtm(U0, U0))
        a0 = _solve_transposed(H, _solve(H, j0 - _mtv(U0, z0)))
        ld = ld + _logdet(H)
    l0 = -_solve_transposed(G, z0 + _mv(U0, a0))

    def down(carry, x):
        A, L = carry
        i, (J, j, Ks, K, P, k, Ug, zr, Bq, cq), b, Ri, pi, mean, of = x
        a, l = _motion_to_child(Ri, pi, get(A, of)) + b, _motion_to_child(Ri, pi, get(L, of))
        t = j + _mtv(Ks, l)
        u = _mv(Bq, t - _mv(J, a))
        a = a + _mtv(Bq, u)
        e = t - _mv(J, a)
        f = k + _mv(K, a) + _mv(P, l)
        d = _mtv(Ug, zr - _mv(Ug, f))
        return (put(A, a, i), put(L, l + d, i)), (f + _mv(P, d), e, mean + (cq * u).sum(0))

    zero = jnp.zeros((nl, 6, B))
    items = (ids, kept, beta, R, p, mq[1:], parent)
    (A, l), (f, e, ddq) = jax.lax.scan(down, (zero.at[0].set(a0), zero.at[0].set(l0)), items)
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
    eye = jnp.broadcast_to(_eye(), (6, 6, B))
    Gi = _solve(G, eye)
    ll = -_mtm(Gi, Gi)
    aa = al = jnp.zeros((6, 6, B))
    if H is not None:
        C = _solve(H, eye)  # C'C = (J + K'P^-1 K)^-1
        CU = _mm(C, _mtm(U0, Gi))
        aa, al, ll = _mtm(C, C), -_mtm(C, CU), ll + _mtm(CU, CU)

    def down(carry, x):
        i, (J, _, Ks, K, P, _, Ug, _, Bq, _), (V, U, BJ, BK), Ri, pi, of = x
        aa, al, ll = (_congruence_down(Ri, pi, get(z, of)) for z in carry)
        u1, u2 = _mm(BJ, aa) - _mm(BK, _t(al)), _mm(BJ, al) - _mm(BK, ll)
        ee = -J + _mtm(BJ, BJ)
        # e = -J E X a_p + E'Ks'X l_p with E = 1 - Bq'BJ
        E = _eye() - _mtm(Bq, BJ)
        ta, tl = -_mm(J, E), _mtm(E, _t(Ks))
        ee = ee + _mm(_mm(ta, aa) + _mm(tl, _t(al)), _t(ta)) + _mm(_mm(ta, al) + _mm(tl, ll), _t(tl))
        ra, rl = aa - _mtm(Bq, u1), al - _mtm(Bq, u2)
        aa = ra - _mm(_mm(ra, _t(BJ)) - _mm(rl, _t(BK)), Bq) + _mtm(Bq, Bq)
        al = rl
        la, lv = _mm(U, aa) + _mm(V, _t(al)), _mm(U, al) + _mm(V, ll)
        ra, rl = _t(al) - _mtm(Ug, la), ll - _mtm(Ug, lv)
        ll = rl - _mm(_mm(ra, _t(U)) + _mm(rl, _t(V)), Ug) - _mtm(Ug, Ug)
        al = _t(ra)
        ff = P + _mm(_mm(K, aa) + _mm(P, _t(al)), _t(K)) + _mm(_mm(K, al) + _mm(P, ll), P)
        return tuple(put(z, new, i) for z, new in zip(carry, (aa, al, ll), strict=True)), (ff, ee)

    zero = jnp.zeros((nl, 6, 6, B))
    start = tuple(zero.at[0].set(z) for z in (aa, al, ll))
    (aa, _, ll), (ff, ee) = jax.lax.scan(down, start, (jnp.arange(1, nl), kept, more, R, p, parent))
    out = []
    for node, kind in select:
        if kind == KINDS['external_wrench']:
            P = N['Px'][node]
            c = P + _mm(_mm(P, ll[node]), P)
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
            c = jnp.zeros((6, 6, B)).at[0, 0].set(pq + pq * pq * (s * _mv(ee[node - 1], s)).sum(0))
        out.append(jnp.broadcast_to(c, (6, 6, B)))
    return jnp.moveaxis(jnp.stack(out), -1, 0)


def _congruence_down(R, p, m):
    """X m X', the way down."""
    Rt, z = _t(R), jnp.zeros_like(p[0])
    S = jnp.stack([jnp.stack([z, -p[2], p[1]]), jnp.stack([p[2], z, -p[0]]), jnp.stack([-p[1], p[0], z])])
    a, b, c, d = m[:3, :3], m[:3, 3:], m[3:, :3], m[3:, 3:]
    # X = [R', -R'S; 0, R']
    a, b = a - _mm(S, c), b - _mm(S, d)
    a, c = a + _mm(b, S), c + _mm(d, S)
    a, b, c, d = (_mm(Rt, _mm(x, R)) for x in (a, b, c, d))
    return jnp.concatenate([jnp.concatenate([a, b], 1), jnp.concatenate([c, d], 1)], 0)
