// SPDX-License-Identifier: Apache-2.0
// Articulated-Gaussian sweep: maximum-a-posteriori accelerations, wrenches and joint accelerations of a tree, one pass up and one down.
//
// Of each node (a link) the elimination sends to the parent: the wrench it needs given the parent's acceleration, f | a ~ N(K a + k, P),
// and what its subtree tells about that acceleration, information (J, j). The multiplier l of a node's Newton-Euler equation and the
// multiplier e of its acceleration equation come down. Its twin in JAX is wrench_sweep_twin.py; wrench_tables.py packs the tables.

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "wrench_sweep.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F64 = ffi::Buffer<ffi::F64>;
using Out = ffi::ResultBuffer<ffi::F64>;
using Index = ffi::Span<const int32_t>;

namespace {
using namespace wrench;

template <class V>
struct Sweep : Reading<V> {
  using Base = Reading<V>;
  using Base::ld, Base::nodes, Base::nv, Base::t;

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
    Base::begin();
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
    Sweep<V> s{{t, static_cast<Node<V>*>(memory.get()), q + b * t.n, dq + b * t.n, om + 3 * b, y + b * t.ny,
                weights ? weights + b * nw : nullptr, extra ? extra + b * wide : nullptr, wide, nw, nv, V{}}};
    s.solve_tile(results, b);
    for (long k = 0; k < ns; ++k) s.covariance(select[2 * k], select[2 * k + 1], results.covariances + (b * ns + k) * 36, ns * 36);
  }
}

ffi::Error WrenchSweep(Index layout, Index select, F64 table, F64 q, F64 dq, F64 om, F64 y, F64 weights, F64 extra, Out motion, Out external,
                       Out transmitted, Out joint, Out determinant, Out dual, Out covariances) {
  const Table t(layout.begin(), table.typed_data());
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
