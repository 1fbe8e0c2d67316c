// SPDX-License-Identifier: Apache-2.0
// Articulated-Gaussian sweep: maximum-a-posteriori accelerations, wrenches and joint accelerations of a tree, one pass up and one down.
//
// Of each node (a link) the elimination sends to the parent: the wrench it needs given the parent's acceleration, f | a ~ N(K a + k, P),
// and what its subtree tells about that acceleration, information (J, j). The multiplier l of a node's Newton-Euler equation and the
// multiplier e of its acceleration equation come down. The twin in JAX, wrench_sweep.py, names the steps and packs the tables.

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "six.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F64 = ffi::Buffer<ffi::F64>;
using Out = ffi::ResultBuffer<ffi::F64>;
using Index = ffi::Span<const int32_t>;

namespace {
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

  Table(Index layout, const double* x) {
    const int32_t* i = layout.begin();
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
struct Sweep {
  const Table& t;
  Node<V>* nodes;
  const double *q, *dq, *om0, *y, *weights, *extra;
  long n_extra;
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
  long n_weights = 0;

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

  // y = R'x and Y = R'X for the factor of the transmitted wrench's information: a diagonal where only a diagonal prior tells it.
  template <class M>
  static void factor_times(V* Y, M R, const V* X, bool diagonal) {
    if (diagonal) {
      EACH(r, 6) EACH(c, 6) Y[6 * r + c] = R[7 * r] * X[6 * r + c];
    } else {
      EACH(c, 36) Y[c] = V{};
      add_at_b(Y, R, X, 1);
    }
  }

  template <class M>
  void up(int i, M Rf, M Lq, bool told, bool diagonal, bool loose) {
    Node<V>& s = nodes[i];
    Node<V>& to = nodes[t.parent[i]];
    std::memcpy(s.Ks, s.K, sizeof(s.K));
    EACH(c, 6) s.ks[c] = s.k[c];
    V P[36];
    std::memcpy(P, s.P, sizeof(P));
    if (told) {
      factor_times(s.T, Rf, s.P, diagonal);
      factor_times(s.U, Rf, s.K, diagonal);
      V z[6];
      if (diagonal) {
        EACH(r, 6) EACH(c, 6) s.Lg[6 * r + c] = s.T[6 * r + c] * Rf[7 * c];
        EACH(r, 6) z[r] = s.rho[r] - Rf[7 * r] * s.k[r];
      } else {
        for (int r = 0; r < 6; ++r)
          for (int c = 0; c <= r; ++c) {
            V x = s.T[6 * r] * Rf[c];
            UNROLL for (int k = 1; k < 6; ++k) x += s.T[6 * r + k] * Rf[6 * k + c];
            s.Lg[6 * r + c] = x;
          }
        EACH(r, 6) z[r] = s.rho[r];
        add_product_transposed(z, Rf, s.k, -1);
      }
      EACH(r, 6) s.Lg[7 * r] += 1.0;
      cholesky(s.Lg);
      ld += log_determinant(s.Lg);
      solve(s.Lg, s.T), solve(s.Lg, s.U), solve_vector(s.Lg, z);
      add_product_transposed(s.j, s.U, z, 1);
      add_product_transposed(s.ks, s.T, z, 1);
      add_square(P, s.T, -1), add_at_b(s.Ks, s.T, s.U, -1), add_square(s.J, s.U, 1);
    }
    V h[6], km[6], M3[36];
    EACH(c, 6) h[c] = s.j[c], km[c] = s.ks[c];
    add_product(h, s.J, s.beta, -1);
    add_product(km, s.Ks, s.beta, 1);
    std::memcpy(M3, s.Ks, sizeof(M3));
    if (loose) {
      for (int r = 0; r < 6; ++r) {  // Lq is lower triangular
        V a[6] = {}, b[6] = {};
        for (int k = r; k < 6; ++k) {
          auto f = Lq[6 * k + r];
          EACH(c, 6) a[c] += f * s.J[6 * k + c];
          EACH(c, 6) b[c] += f * s.Ks[6 * c + k];
        }
        EACH(c, 6) s.BJ[6 * r + c] = a[c], s.BK[6 * r + c] = b[c];
      }
      V u[6];
      for (int r = 0; r < 6; ++r) {
        for (int c = 0; c <= r; ++c) {
          V x = {};
          for (int k = c; k < 6; ++k) x += s.BJ[6 * r + k] * Lq[6 * k + c];
          s.Lm[6 * r + c] = x;
        }
        s.Lm[7 * r] += 1.0;
        V x = {};
        for (int k = r; k < 6; ++k) x += Lq[6 * k + r] * h[k];
        u[r] = x;
      }
      cholesky(s.Lm);
      ld += log_determinant(s.Lm);
      solve(s.Lm, s.BJ), solve(s.Lm, s.BK), solve_vector(s.Lm, u);
      add_product_transposed(km, s.BK, u, 1);
      add_product_transposed(h, s.BJ, u, -1);
      add_square(P, s.BK, 1);
      add_at_b(M3, s.BK, s.BJ, -1);
    }
    add_force_to_parent(to.k, s.R, s.p, km);
    add_force_to_parent(to.j, s.R, s.p, h);
    add_congruence(to.P, P, s.R, s.p);
    add_congruence(to.K, M3, s.R, s.p);
    std::memcpy(M3, s.J, sizeof(M3));
    if (loose) add_square(M3, s.BJ, -1);
    add_congruence(to.J, M3, s.R, s.p);
  }

  V G0[36], U0[36], H0[36];  // of the base: P = G G', U = G^-1 K, J + U'U = H H'

  void base() {
    Node<V>& s = nodes[0];
    std::memcpy(G0, s.P, sizeof(G0)), std::memcpy(U0, s.K, sizeof(U0)), std::memcpy(H0, s.J, sizeof(H0));
    V z[6];
    EACH(c, 6) z[c] = s.k[c], s.a[c] = s.j[c];
    cholesky(G0);
    solve(G0, U0), solve_vector(G0, z);
    ld += log_determinant(G0);
    if (t.known) {
      EACH(c, 6) s.a[c] = all<V>(t.a0[c]);
    } else {
      add_square(H0, U0, 1);
      add_product_transposed(s.a, U0, z, -1);
      cholesky(H0);
      ld += log_determinant(H0);
      solve_vector(H0, s.a), solve_vector_transposed(H0, s.a);
    }
    add_product(z, U0, s.a, 1);
    solve_vector_transposed(G0, z);
    EACH(c, 6) s.l[c] = -z[c];
  }

  // Acceleration, multipliers, transmitted wrench and joint acceleration of a node, given its parent's.
  template <class M>
  void down(int i, M Rf, M Lq, M cq, bool told, bool loose, V* f, V* e, V* ddq) {
    Node<V>& s = nodes[i];
    const Node<V>& from = nodes[t.parent[i]];
    V g[6], u[6];
    motion_to_child(s.a, s.R, s.p, from.a);
    motion_to_child(s.l, s.R, s.p, from.l);
    EACH(c, 6) s.a[c] += s.beta[c], e[c] = s.j[c];
    add_product_transposed(e, s.Ks, s.l, 1);
    *ddq = s.mq;
    if (loose) {
      EACH(c, 6) g[c] = e[c];
      add_product(g, s.J, s.a, -1);
      EACH(c, 6) {
        V x = {};
        UNROLL for (int k = c; k < 6; ++k) x += Lq[6 * k + c] * g[k];
        u[c] = x;
      }
      solve_vector(s.Lm, u), solve_vector_transposed(s.Lm, u);
      EACH(c, 6) { UNROLL for (int k = 0; k <= c; ++k) s.a[c] += Lq[6 * c + k] * u[k]; }
      // pq S'e, with pq S = Lq cq and u = Lq'e: e itself is a small difference of large numbers.
      EACH(c, 6) *ddq += cq[c] * u[c];
    }
    add_product(e, s.J, s.a, -1);
    EACH(c, 6) f[c] = s.k[c];
    add_product(f, s.K, s.a, 1);
    add_product(f, s.P, s.l, 1);
    if (told) {
      V d[6] = {};
      EACH(c, 6) u[c] = s.rho[c];
      add_product_transposed(u, Rf, f, -1);
      solve_vector(s.Lg, u), solve_vector_transposed(s.Lg, u);
      add_product(d, Rf, u, 1);
      add_product(f, s.P, d, 1);
      EACH(c, 6) s.l[c] += d[c];
    }
  }

  bool told(int i) const { return t.told[i] || nodes[i].masked; }
  bool loose(int i) const { return t.loose[i] || nodes[i].masked; }

  void solve_tile(const Results& r, long at) {
    begin();
    for (int i = t.nl - 1; i > 0; --i) {
      Node<V>& s = nodes[i];
      if (s.masked) up<const V*>(i, s.Rf, s.Lq, true, false, true);
      else up<const double*>(i, t.Rf + 36 * i, t.Lq + 36 * i, t.told[i], t.told[i] == 1, t.loose[i]);
    }
    base();
    for (int i = 0; i < t.nl; ++i) {
      Node<V>& s = nodes[i];
      V f[6] = {}, e[6] = {}, x[6], ddq = {};
      if (i && s.masked) down<const V*>(i, s.Rf, s.Lq, s.cq, true, true, f, e, &ddq);
      else if (i) down<const double*>(i, t.Rf + 36 * i, t.Lq + 36 * i, t.cq + 6 * i, t.told[i], t.loose[i], f, e, &ddq);
      EACH(c, 6) x[c] = s.mx[c];
      if (s.masked) add_product(x, (const V*)s.Px, s.l, -1); else add_product(x, t.Px + 36 * i, s.l, -1);
      for (int w = 0; w < nv; ++w) {
        const long o = (at + w) * t.nl + i;
        for (int c = 0; c < 6; ++c) r.motion[6 * o + c] = lane(s.a[c], w);
        for (int c = 0; c < 6; ++c) r.external[6 * o + c] = lane(x[c], w);
        for (int c = 0; c < 6; ++c) r.transmitted[6 * o + c] = lane(f[c], w);
        r.joint[o] = lane(ddq, w);
        if (r.dual)
          for (int c = 0; c < 6; ++c) r.dual[12 * o + c] = lane(s.l[c], w), r.dual[12 * o + 6 + c] = lane(e[c], w);
      }
    }
    for (int w = 0; w < nv; ++w) r.determinant[at + w] = lane(ld, w);
  }

  // Covariance of a linear function of (a, l) at node i: its columns (wa, wl) are carried up the path to the base; C holds the start.
  void walk(int i, V* wa, V* wl, V* C, bool skip_told) {
    while (i > 0) {
      Node<V>& s = nodes[i];
      V x[36];
      if (told(i) && !skip_told) {
        if (s.masked) factor_times(x, (const V*)s.Rf, wl, false); else factor_times(x, t.Rf + 36 * i, wl, t.told[i] == 1);
        solve(s.Lg, x);
        add_square(C, x, -1), add_at_b(wa, (const V*)s.U, x, -1), add_at_b(wl, (const V*)s.T, x, -1);
      }
      skip_told = false;
      if (loose(i)) {
        EACH(c, 36) x[c] = V{};
        if (s.masked) add_at_b(x, (const V*)s.Lq, wa, 1); else add_at_b(x, t.Lq + 36 * i, wa, 1);
        solve(s.Lm, x);
        add_square(C, x, 1), add_at_b(wa, (const V*)s.BJ, x, -1), add_at_b(wl, (const V*)s.BK, x, 1);
      }
      for (V* m : {wa, wl}) {  // columns are forces of the child: move them to the parent
        V g[36];
        const V *R = s.R, *p = s.p;
        for (int b = 0; b < 2; ++b)
          for (int r = 0; r < 3; ++r)
            EACH(c, 6) g[18 * b + 6 * r + c] = R[3 * r] * m[18 * b + c] + R[3 * r + 1] * m[18 * b + 6 + c] + R[3 * r + 2] * m[18 * b + 12 + c];
        EACH(c, 18) m[c] = g[c];
        EACH(c, 6) {
          m[18 + c] = g[18 + c] + p[1] * g[12 + c] - p[2] * g[6 + c];
          m[24 + c] = g[24 + c] + p[2] * g[c] - p[0] * g[12 + c];
          m[30 + c] = g[30 + c] + p[0] * g[6 + c] - p[1] * g[c];
        }
      }
      i = t.parent[i];
    }
    solve(G0, wl);
    add_square(C, wl, -1);
    if (t.known) return;
    add_at_b(wa, (const V*)U0, wl, -1);
    solve(H0, wa);
    add_square(C, wa, 1);
  }

  void covariance(int i, int kind, double* out, long stride) {
    Node<V>& s = nodes[i];
    V wa[36] = {}, wl[36] = {}, C[36] = {}, Px[36];
    bool skip = false;
    if (i == 0 && (kind == WRENCH_TRANSMITTED || kind == JOINT_ACCELERATION || kind == MOTION_MULTIPLIER)) {  // the base has no joint
      for (int w = 0; w < nv; ++w) std::memset(out + w * stride, 0, 36 * sizeof(double));
      return;
    }
    if (kind == WRENCH_EXTERNAL) {
      for (int c = 0; c < 36; ++c) Px[c] = s.masked ? s.Px[c] : all<V>(t.Px[36 * i + c]);
      for (int c = 0; c < 36; ++c) C[c] = Px[c], wl[c] = Px[c];
    } else if (kind == MOTION) {
      EACH(c, 6) wa[7 * c] = all<V>(1.0);
    } else if (kind == FORCE_MULTIPLIER) {
      EACH(c, 6) wl[7 * c] = all<V>(1.0);
    } else if (kind == WRENCH_TRANSMITTED) {
      std::memcpy(wa, s.K, sizeof(wa)), std::memcpy(wl, s.P, sizeof(wl)), std::memcpy(C, s.P, sizeof(C));
      transpose(wa);
    } else {  // through the multiplier of the acceleration equation, e = j + Ks'l - J a
      V c6[36] = {};
      if (kind == MOTION_MULTIPLIER) EACH(c, 6) c6[7 * c] = all<V>(1.0);
      V pq = s.masked ? s.pq : all<V>(t.pq[i]);
      if (kind == JOINT_ACCELERATION) EACH(c, 6) c6[6 * c] = pq * t.S[6 * i + c];
      add_a_b(wa, (const V*)s.J, c6, -1);
      add_a_b(wl, (const V*)s.Ks, c6, 1);
      add_at_b(C, (const V*)c6, wa, 1);
      if (kind == JOINT_ACCELERATION) C[0] += pq;
      skip = true;
    }
    walk(i, wa, wl, C, skip);
    for (int w = 0; w < nv; ++w) for (int c = 0; c < 36; ++c) out[w * stride + c] = lane(C[c], w);
  }
};

template <class V>
void run(const Table& t, long count, const double* q, const double* dq, const double* om, const double* y, const double* weights, long nw,
         const double* extra, const int32_t* select, long ns, const Results& results) {
  // Kept from call to call, one per thread: allocation costs more than a sample.
  static thread_local std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
  static thread_local long room = 0;
  if (room < t.nl) {
    memory.reset(std::aligned_alloc(64, (sizeof(Node<V>) * t.nl + 63) / 64 * 64));
    room = t.nl;
  }
  const long wide = 19L * t.nl;
  for (long b = 0; b < count; b += lanes<V>) {
    const int nv = count - b < lanes<V> ? count - b : lanes<V>;
    Sweep<V> s{t, static_cast<Node<V>*>(memory.get()), q + b * t.n, dq + b * t.n, om + 3 * b, y + b * t.ny, weights ? weights + b * nw : nullptr,
               extra ? extra + b * wide : nullptr, wide, nv};
    s.n_weights = nw;
    s.solve_tile(results, b);
    for (long k = 0; k < ns; ++k) s.covariance(select[2 * k], select[2 * k + 1], results.covariances + (b * ns + k) * 36, ns * 36);
  }
}

ffi::Error WrenchSweep(Index layout, Index select, F64 table, F64 q, F64 dq, F64 om, F64 y, F64 weights, F64 extra, Out motion, Out external,
                       Out transmitted, Out joint, Out determinant, Out dual, Out covariances) {
  const Table t(layout, table.typed_data());
  const long count = q.dimensions()[0];
  auto some = [](auto& buffer) { return buffer.element_count() ? buffer.typed_data() : nullptr; };
  const Results results{motion->typed_data(), external->typed_data(), transmitted->typed_data(), joint->typed_data(),
                        determinant->typed_data(), some(*dual), covariances->typed_data()};
  auto call = [&](auto lane_type) {
    run<decltype(lane_type)>(t, count, q.typed_data(), dq.typed_data(), om.typed_data(), y.typed_data(), some(weights), weights.dimensions()[1],
                             some(extra), select.begin(), select.size() / 2, results);
  };
  if (count < 4) call(double{}); else call(Wide{});
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_wrench_sweep, WrenchSweep,
                              ffi::Ffi::Bind().Attr<Index>("layout").Attr<Index>("select").Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>()
                                  .Arg<F64>().Arg<F64>().Arg<F64>().Ret<F64>().Ret<F64>().Ret<F64>().Ret<F64>().Ret<F64>().Ret<F64>()
                                  .Ret<F64>());
