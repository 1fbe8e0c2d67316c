// SPDX-License-Identifier: Apache-2.0
// First half of the articulated-Gaussian sweep (wrench_sweep.cc): the tables, what a node keeps, and what its joint and its sensors say.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "six.h"

namespace wrench {
using namespace six;

enum Target { ACCELERATION = 0, TRANSMITTED = 1, EXTERNAL = 2, JOINT = 3 };
enum Kind { WRENCH_EXTERNAL = 0, MOTION = 1, WRENCH_TRANSMITTED = 2, JOINT_ACCELERATION = 3, FORCE_MULTIPLIER = 4, MOTION_MULTIPLIER = 5 };

// Pointers into the packed tables; order as in wrench_sweep.py.
struct Table {
  int nl, n, ny, ns, known;
  const int32_t *parent, *dof, *kind, *told, *loose, *first, *target, *row, *rows, *index;
  const double *R0, *p0, *c, *axis, *S, *I, *Sne, *Sa, *Jp, *jp, *Lp, *lp, *Cx, *mxp, *pqp, *mqp;
  const double *J, *j, *B, *Rf, *rho, *Px, *mx, *ld, *pq, *mq, *Lq, *cq;
  const double *G, *Gm, *cm, *Inf, *Bs, *a0;

  Table(const int32_t* i, const double* x) {
    nl = i[0], n = i[1], ny = i[2], ns = i[3], known = i[4], i += 5;
    for (auto f : {&parent, &dof, &kind, &told, &loose}) *f = i, i += nl;
    first = i, i += nl + 1;
    for (auto f : {&target, &row, &rows, &index}) *f = i, i += ns;
    auto take = [&](const double*& f, int size, int count) { f = x, x += size * count; };
    take(R0, 9, nl), take(p0, 3, nl), take(c, 3, nl), take(axis, 3, nl), take(S, 6, nl), take(I, 36, nl), take(Sne, 36, nl);
    take(Sa, 36, nl), take(Jp, 36, nl), take(jp, 6, nl), take(Lp, 36, nl), take(lp, 6, nl), take(Cx, 36, nl), take(mxp, 6, nl);
    take(pqp, 1, nl), take(mqp, 1, nl), take(J, 36, nl), take(j, 6, nl), take(B, 36, nl), take(Rf, 36, nl), take(rho, 6, nl);
    take(Px, 36, nl), take(mx, 6, nl), take(ld, 1, nl), take(pq, 1, nl), take(mq, 1, nl), take(Lq, 36, nl), take(cq, 6, nl);
    take(G, 36, ns), take(Gm, 36, ns), take(cm, 6, ns), take(Inf, 36, ns), take(Bs, 36, ns), take(a0, 6, 1);
  }
};

// What one node keeps between the passes, for as many samples as V holds.
template <class V>
struct Node {
  V K[36], P[36], J[36], k[6], j[6];              // sums over the children, then with the node itself
  V Lg[36], U[36], T[36], Ks[36], ks[6];          // transmitted wrench told: G = Lg Lg', U = Lg^-1 R'K, T = Lg^-1 R'P
  V Lm[36], BJ[36], BK[36];                       // joint freed: M = Lm Lm', BJ = Lm^-1 Lq'J, BK = Lm^-1 Lq'Ks'
  V R[9], p[3], om[3], beta[6], rho[6], mx[6], mq, a[6], l[6];
  V Rf[36], Px[36], Lq[36], cq[6], pq;                // only where a sensor is missing in one of the samples
  bool masked;
};

struct Results {
  double *motion, *external, *transmitted, *joint, *determinant, *dual, *covariances;
};

template <class V>
struct Reading {
  const Table& t;
  Node<V>* nodes;
  const double *q, *dq, *om0, *y, *weights, *extra;
  long n_extra;
  long n_weights;
  int nv;  // samples in this tile
  V ld;

  V gather(const double* x, long stride) const {
    V v = {};
    for (int w = 0; w < nv; ++w) lane(v, w) = x[w * stride];
    return v;
  }

  // Pose of a node on its parent, its angular velocity, and the bias of its acceleration (design page, 2b, corrected).
  void place(int i) {
    Node<V>& s = nodes[i];
    if (i == 0) {
      EACH(c, 3) s.om[c] = gather(om0 + c, 3);
      return;
    }
    const Node<V>& up = nodes[t.parent[i]];
    const double *R0 = t.R0 + 9 * i, *p0 = t.p0 + 3 * i, *c0 = t.c + 3 * i, *u = t.axis + 3 * i, *S = t.S + 6 * i;
    V x = {}, rate = {};
    if (t.dof[i] >= 0) x = gather(q + t.dof[i], t.n), rate = gather(dq + t.dof[i], t.n);
    if (t.kind[i] == 1) {
      V si = {}, co = {};
      for (int w = 0; w < lanes<V>; ++w) lane(si, w) = std::sin(lane(x, w)), lane(co, w) = std::cos(lane(x, w));
      V v = 1.0 - co;
      V E[9] = {co + u[0] * u[0] * v, u[0] * u[1] * v - u[2] * si, u[0] * u[2] * v + u[1] * si,
                u[1] * u[0] * v + u[2] * si, co + u[1] * u[1] * v, u[1] * u[2] * v - u[0] * si,
                u[2] * u[0] * v - u[1] * si, u[2] * u[1] * v + u[0] * si, co + u[2] * u[2] * v};
      EACH(r, 3) EACH(k, 3) s.R[3 * r + k] = R0[3 * r] * E[k] + R0[3 * r + 1] * E[3 + k] + R0[3 * r + 2] * E[6 + k];
      EACH(r, 3) s.p[r] = p0[r] - (s.R[3 * r] * c0[0] + s.R[3 * r + 1] * c0[1] + s.R[3 * r + 2] * c0[2]);
    } else {
      EACH(r, 9) s.R[r] = all<V>(R0[r]);
      EACH(r, 3) s.p[r] = p0[r] + (R0[3 * r] * u[0] + R0[3 * r + 1] * u[1] + R0[3 * r + 2] * u[2]) * x;
    }
    const V *o = up.om, *R = s.R;
    V oc[3], vr[3], wr[3], d = o[0] * s.p[0] + o[1] * s.p[1] + o[2] * s.p[2], nn = o[0] * o[0] + o[1] * o[1] + o[2] * o[2], h[3], m[3];
    EACH(c, 3) {
      oc[c] = R[c] * o[0] + R[3 + c] * o[1] + R[6 + c] * o[2];
      vr[c] = S[c] * rate, wr[c] = S[3 + c] * rate;
      h[c] = o[c] * d - nn * s.p[c];
    }
    V twice[3];
    EACH(c, 3) twice[c] = 2.0 * oc[c] + wr[c];
    cross(m, twice, vr);
    EACH(c, 3) s.beta[c] = R[c] * h[0] + R[3 + c] * h[1] + R[6 + c] * h[2] + m[c];
    cross(s.beta + 3, oc, wr);
    EACH(c, 3) s.om[c] = oc[c] + wr[c];
  }

  void add_sensor(V* to, int s, const double* gain) const {  // to <- to + gain (6 x rows) y
    const double* g = gain + 36 * s;
    const double* at = y + t.row[s];
    if (t.rows[s] == 1 && t.target[s] == JOINT) {
      to[0] += g[0] * gather(at, t.ny);
      return;
    }
    for (int e = 0; e < t.rows[s]; ++e) {
      V v = gather(at + e, t.ny);
      EACH(c, 6) to[c] += g[6 * c + e] * v;
    }
  }

  // What the sensors of a node say, all present: gains and informations are tables.
  void read(int i, const V* mono) {
    Node<V>& s = nodes[i];
    EACH(c, 6) s.j[c] = all<V>(t.j[6 * i + c]), s.rho[c] = all<V>(t.rho[6 * i + c]), s.mx[c] = all<V>(t.mx[6 * i + c]);
    EACH(c, 36) s.J[c] = all<V>(t.J[36 * i + c]), s.P[c] = all<V>(t.Sne[36 * i + c] + t.Px[36 * i + c]);
    s.mq = all<V>(t.mq[i]);
    add_product(s.j, t.B + 36 * i, mono, -1);
    for (int e = t.first[i]; e < t.first[i + 1]; ++e) {
      V* to[] = {s.j, s.rho, s.mx, &s.mq};
      add_sensor(to[t.target[e]], e, t.G);
    }
    ld += t.ld[i];
  }

  // The same where some are missing in some of the samples: informations are summed here.
  void read_masked(int i, const V* mono) {
    Node<V>& s = nodes[i];
    V L[36], F[36], l[6], x[6] = {}, q1 = {}, qi = {};
    EACH(c, 6) s.j[c] = all<V>(t.jp[6 * i + c]), l[c] = all<V>(t.lp[6 * i + c]);
    EACH(c, 36) s.J[c] = all<V>(t.Jp[36 * i + c]), L[c] = all<V>(t.Lp[36 * i + c]), F[c] = V{};
    for (int e = t.first[i]; e < t.first[i + 1]; ++e) {
      V w = {}, v[6] = {}, gy[6];
      for (int b = 0; b < nv; ++b) lane(w, b) = weights[b * n_weights + t.index[e]];
      for (int r = 0; r < t.rows[e]; ++r)
        for (int b = 0; b < nv; ++b) lane(v[r], b) = lane(w, b) != 0 ? y[b * t.ny + t.row[e] + r] : 0.0;
      const double *Gm = t.Gm + 36 * e, *Inf = t.Inf + 36 * e;
      EACH(c, 6) gy[c] = all<V>(t.cm[6 * e + c]);
      add_product(gy, Gm, v, 1);
      if (t.target[e] == JOINT) {
        q1 += w * gy[0], qi += w * Inf[0];
        continue;
      }
      if (t.target[e] == ACCELERATION) add_product(gy, t.Bs + 36 * e, mono, -1);
      V* to = t.target[e] == ACCELERATION ? s.j : t.target[e] == TRANSMITTED ? l : x;
      V* in = t.target[e] == ACCELERATION ? s.J : t.target[e] == TRANSMITTED ? L : F;
      EACH(c, 6) to[c] += w * gy[c];
      EACH(c, 36) in[c] += w * Inf[c];
    }
    // External wrench: P = C (1 + C'FC)^-1 C', m = m0 + P (x - F m0).
    const double* C = t.Cx + 36 * i;
    V FC[36] = {}, H[36] = {}, D[36], m0[6];
    for (int r = 0; r < 6; ++r)
      for (int c = 0; c < 6; ++c) for (int k = 0; k < 6; ++k) FC[6 * r + c] += F[6 * r + k] * C[6 * k + c];
    add_at_b(H, C, FC, 1);
    EACH(c, 6) H[7 * c] += 1.0, m0[c] = all<V>(t.mxp[6 * i + c]);
    cholesky(H);
    ld += log_determinant(H);
    for (int r = 0; r < 6; ++r) for (int c = 0; c < 6; ++c) D[6 * r + c] = all<V>(C[6 * c + r]);
    solve(H, D);
    for (int c = 0; c < 36; ++c) s.Px[c] = V{};
    add_square(s.Px, D, 1);
    add_product(x, F, m0, -1);
    EACH(c, 6) s.mx[c] = m0[c];
    add_product(s.mx, s.Px, x, 1);
    EACH(c, 36) s.P[c] = s.Px[c] + t.Sne[36 * i + c];
    // Transmitted wrench: L = R R', rho = R^-1 l.
    V inverse[6];
    cholesky_semidefinite(L, inverse);
    EACH(c, 36) s.Rf[c] = L[c];
    EACH(r, 6) {
      V b = l[r];
      EACH(k, r) b -= L[6 * r + k] * s.rho[k];
      s.rho[r] = b * inverse[r];
    }
    // Joint acceleration.
    V growth = 1.0 + t.pqp[i] * qi;
    s.pq = t.pqp[i] / growth;
    s.mq = (t.mqp[i] + t.pqp[i] * q1) / growth;
    for (int w = 0; w < lanes<V>; ++w) lane(ld, w) += std::log(lane(growth, w));
    const double* S = t.S + 6 * i;
    EACH(r, 6) EACH(c, 6) s.Lq[6 * r + c] = t.Sa[36 * i + 6 * r + c] + s.pq * (S[r] * S[c]);
    cholesky_semidefinite(s.Lq, inverse);
    EACH(r, 6) {  // Lq cq = pq S
      V b = s.pq * S[r];
      EACH(k, r) b -= s.Lq[6 * r + k] * s.cq[k];
      s.cq[r] = b * inverse[r];
    }
  }

  void begin() {
    ld = V{};
    for (int i = 0; i < t.nl; ++i) {
      Node<V>& s = nodes[i];
      place(i);
      const V* o = s.om;
      V mono[6] = {o[0] * o[0], o[1] * o[1], o[2] * o[2], o[0] * o[1], o[0] * o[2], o[1] * o[2]};
      s.masked = false;
      if (weights)
        for (int e = t.first[i]; e < t.first[i + 1]; ++e)
          for (int b = 0; b < nv; ++b) s.masked |= weights[b * n_weights + t.index[e]] != 1.0;
      if (s.masked) read_masked(i, mono); else read(i, mono);
      if (extra) s.mq += gather(extra + 19 * i + 18, n_extra);
      const double *I = t.I + 36 * i, *S = t.S + 6 * i;
      if (i) EACH(c, 6) s.beta[c] += S[c] * s.mq;
      V h[6];
      EACH(c, 6) h[c] = I[6 * c + 3] * o[0] + I[6 * c + 4] * o[1] + I[6 * c + 5] * o[2];
      cross(s.k, o, h), cross(s.k + 3, o, h + 3);
      EACH(c, 6) s.k[c] -= s.mx[c];
      EACH(c, 36) s.K[c] = all<V>(I[c]);
      if (extra) {
        EACH(c, 6) s.k[c] += gather(extra + 19 * i + c, n_extra), s.j[c] += gather(extra + 19 * i + 12 + c, n_extra);
        if (i) EACH(c, 6) s.beta[c] += gather(extra + 19 * i + 6 + c, n_extra);
      }
    }
  }
};

}  // namespace wrench
