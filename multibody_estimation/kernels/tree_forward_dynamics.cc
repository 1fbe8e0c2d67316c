// SPDX-License-Identifier: Apache-2.0
// Forward dynamics of a kinematic tree by articulated bodies in body frames (Featherstone 2008, table 7.1).
//
// An articulated inertia is kept as three 3 x 3 blocks: force = A a + B dw, moment = B' a + C dw.

#include "tree.h"

namespace {

template <class T> struct Articulated {
  T R[9], p[3], v[3], w[3], cl[3], cw[3], A[9], B[9], C[9], f[3], n[3], a[3], dw[3], U[36], D[36], u[6];
};

constexpr int DEGREES[] = {1, 1, 3, 6, 0};

template <class T> inline void turn(const T* R, T* X) {  // X <- R X R'
  T Y[9];
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) Y[3 * i + j] = R[3 * i] * X[j] + R[3 * i + 1] * X[3 + j] + R[3 * i + 2] * X[6 + j];
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) X[3 * i + j] = Y[3 * i] * R[3 * j] + Y[3 * i + 1] * R[3 * j + 1] + Y[3 * i + 2] * R[3 * j + 2];
}

template <class T> inline void times_skew(const T* X, const T* p, T* out) {  // out = X [p]x
  for (int i = 0; i < 3; ++i) {
    out[3 * i] = X[3 * i + 1] * p[2] - X[3 * i + 2] * p[1];
    out[3 * i + 1] = X[3 * i + 2] * p[0] - X[3 * i] * p[2];
    out[3 * i + 2] = X[3 * i] * p[1] - X[3 * i + 1] * p[0];
  }
}

// D (k x k, symmetric) = L diag L' in place, the diagonal inverted.
template <class T> void factor(T* D, int k) {
  for (int j = 0; j < k; ++j) {
    for (int i = j; i < k; ++i)
      for (int l = 0; l < j; ++l) D[i * k + j] -= D[i * k + l] * D[j * k + l] / D[l * k + l];
    for (int i = j + 1; i < k; ++i) D[j * k + i] = D[i * k + j];
  }
  // Column j now holds L_ij d_j below its diagonal d_j: divide, then keep 1 / d_j.
  for (int j = 0; j < k; ++j) {
    const T inverse = 1.0 / D[j * k + j];
    for (int i = j + 1; i < k; ++i) D[i * k + j] *= inverse;
    D[j * k + j] = inverse;
  }
}

template <class T> void solve(const T* D, int k, T* x) {
  for (int i = 0; i < k; ++i)
    for (int j = 0; j < i; ++j) x[i] -= D[i * k + j] * x[j];
  for (int i = 0; i < k; ++i) x[i] *= D[i * k + i];
  for (int i = k - 1; i >= 0; --i)
    for (int j = i + 1; j < k; ++j) x[i] -= D[j * k + i] * x[j];
}

// Column of the articulated inertia for a unit motion: the joint's degree d.
template <class T> inline void column(const Articulated<T>& x, const double* c, int64_t kind, int d, T* out) {
  for (int k = 0; k < 3; ++k) {
    if (kind == REVOLUTE) {
      const double* s = c + AXIS;
      out[k] = x.B[3 * k] * s[0] + x.B[3 * k + 1] * s[1] + x.B[3 * k + 2] * s[2];
      out[3 + k] = x.C[3 * k] * s[0] + x.C[3 * k + 1] * s[1] + x.C[3 * k + 2] * s[2];
    } else if (kind == PRISMATIC) {
      const double* s = c + AXIS;
      out[k] = x.A[3 * k] * s[0] + x.A[3 * k + 1] * s[1] + x.A[3 * k + 2] * s[2];
      out[3 + k] = x.B[k] * s[0] + x.B[3 + k] * s[1] + x.B[6 + k] * s[2];
    } else if (kind == FLOATING && d < 3) {
      out[k] = x.A[3 * k + d];
      out[3 + k] = x.B[3 * d + k];
    } else {
      const int e = kind == FLOATING ? d - 3 : d;
      out[k] = x.B[3 * k + e];
      out[3 + k] = x.C[3 * k + e];
    }
  }
}

// Projection of a wrench (force, moment) on the joint's degree d.
template <class T> inline T along(const double* c, int64_t kind, int d, const T* force, const T* moment) {
  const double* s = c + AXIS;
  if (kind == REVOLUTE) return moment[0] * s[0] + moment[1] * s[1] + moment[2] * s[2];
  if (kind == PRISMATIC) return force[0] * s[0] + force[1] * s[1] + force[2] * s[2];
  if (kind == FLOATING) return d < 3 ? force[d] : moment[d - 3];
  return moment[d];
}

template <class T>
void forward_dynamics(const Tree& tree, bool floating, const double* c, const double* g, const double* const* q, const double* const* v,
                      const double* const* tau, const double* const* wrench, double* const* out, int valid, Articulated<T>* b) {
  const T zero{};
  const int64_t nb = tree.nb();
  T up[3] = {zero - g[0], zero - g[1], zero - g[2]};
  if (floating) {
    T Q[9], turned[3];
    quaternion_rotation(Lanes<T>::gather(q, 3), Lanes<T>::gather(q, 4), Lanes<T>::gather(q, 5), Lanes<T>::gather(q, 6), Q);
    apply_transposed(Q, up, turned);
    for (int k = 0; k < 3; ++k) up[k] = turned[k];
  }
  // Outward: velocities, velocity products, rigid inertias.
  for (int64_t i = 0; i < nb; ++i, c += CONSTANTS) {
    Articulated<T>& x = b[i];
    for (int k = 0; k < 3; ++k) x.cl[k] = x.cw[k] = zero;
    if (i == 0) {
      for (int k = 0; k < 3; ++k) {
        x.v[k] = floating ? Lanes<T>::gather(v, k) : zero;
        x.w[k] = floating ? Lanes<T>::gather(v, 3 + k) : zero;
      }
    } else {
      const Articulated<T>& y = b[tree.parent[i]];
      T l[3] = {y.v[0], y.v[1], y.v[2]}, sl[3], sw[3];
      joint_pose(c, tree.kind[i], tree.iq[i], q, x.R, x.p);
      cross_add(y.w, x.p, l);
      apply_transposed(x.R, l, x.v);
      apply_transposed(x.R, y.w, x.w);
      joint_motion(c, tree.kind[i], tree.iv[i], v, sl, sw);
      for (int k = 0; k < 3; ++k) { x.v[k] += sl[k]; x.w[k] += sw[k]; }
      cross_add(x.w, sw, x.cw);
      cross_add(x.v, sw, x.cl);
      cross_add(x.w, sl, x.cl);
    }
    const double m = c[MASS], *h = c + FIRST, *I = c + SECOND;
    for (int k = 0; k < 9; ++k) x.A[k] = zero + (k % 4 == 0 ? m : 0.0);
    const double S[9] = {0, h[2], -h[1], -h[2], 0, h[0], h[1], -h[0], 0}, J[9] = {I[0], I[3], I[4], I[3], I[1], I[5], I[4], I[5], I[2]};
    for (int k = 0; k < 9; ++k) { x.B[k] = zero + S[k]; x.C[k] = zero + J[k]; }
    T pl[3], pn[3];
    momentum(c, x.v, x.w, pl, pn);
    for (int k = 0; k < 3; ++k) x.f[k] = x.n[k] = zero;
    cross_add(x.w, pl, x.f);
    cross_add(x.w, pn, x.n);
    cross_add(x.v, pl, x.n);
    if (wrench)
      for (int k = 0; k < 3; ++k) { x.f[k] -= Lanes<T>::gather(wrench, 6 * i + k); x.n[k] -= Lanes<T>::gather(wrench, 6 * i + 3 + k); }
  }
  // Inward: articulated inertias and bias forces.
  for (int64_t i = nb - 1; i > 0; --i) {
    c -= CONSTANTS;
    Articulated<T>& x = b[i];
    const int64_t kind = tree.kind[i];
    const int k = DEGREES[kind];
    for (int d = 0; d < k; ++d) column(x, c, kind, d, x.U + 6 * d);
    for (int d = 0; d < k; ++d) {
      for (int e = 0; e < k; ++e) x.D[d * k + e] = along(c, kind, d, x.U + 6 * e, x.U + 6 * e + 3) + (d == e ? c[ROTOR] : 0.0);
      x.u[d] = Lanes<T>::gather(tau, tree.iv[i] + d) - along(c, kind, d, x.f, x.n);
    }
    factor(x.D, k);
    T G[36], rate[6];  // D^-1 U' row by row, and D^-1 u
    for (int r = 0; r < 6; ++r) {
      T column[6];
      for (int d = 0; d < k; ++d) column[d] = x.U[6 * d + r];
      solve(x.D, k, column);
      for (int d = 0; d < k; ++d) G[6 * d + r] = column[d];
    }
    for (int d = 0; d < k; ++d) rate[d] = x.u[d];
    solve(x.D, k, rate);
    for (int d = 0; d < k; ++d) {
      const T *U = x.U + 6 * d, *H = G + 6 * d;
      for (int r = 0; r < 3; ++r)
        for (int s = 0; s < 3; ++s) {
          x.A[3 * r + s] -= U[r] * H[s];
          x.B[3 * r + s] -= U[r] * H[3 + s];
          x.C[3 * r + s] -= U[3 + r] * H[3 + s];
        }
    }
    for (int r = 0; r < 3; ++r) {
      for (int s = 0; s < 3; ++s) {
        x.f[r] += x.A[3 * r + s] * x.cl[s] + x.B[3 * r + s] * x.cw[s];
        x.n[r] += x.B[3 * s + r] * x.cl[s] + x.C[3 * r + s] * x.cw[s];
      }
      for (int d = 0; d < k; ++d) { x.f[r] += x.U[6 * d + r] * rate[d]; x.n[r] += x.U[6 * d + 3 + r] * rate[d]; }
    }
    turn(x.R, x.A);
    turn(x.R, x.B);
    turn(x.R, x.C);
    Articulated<T>& y = b[tree.parent[i]];
    T AP[9], B[9], Bt[9], BP[9], f[3], n[3];
    times_skew(x.A, x.p, AP);
    for (int r = 0; r < 9; ++r) { B[r] = x.B[r] - AP[r]; Bt[r] = x.B[3 * (r % 3) + r / 3]; }
    times_skew(Bt, x.p, BP);
    for (int r = 0; r < 9; ++r) { y.A[r] += x.A[r]; y.B[r] += B[r]; y.C[r] += x.C[r] - BP[r]; }
    for (int s = 0; s < 3; ++s) {  // + [p]x B
      y.C[s] += x.p[1] * B[6 + s] - x.p[2] * B[3 + s];
      y.C[3 + s] += x.p[2] * B[s] - x.p[0] * B[6 + s];
      y.C[6 + s] += x.p[0] * B[3 + s] - x.p[1] * B[s];
    }
    apply(x.R, x.f, f);
    apply(x.R, x.n, n);
    cross_add(x.p, f, n);
    for (int r = 0; r < 3; ++r) { y.f[r] += f[r]; y.n[r] += n[r]; }
  }
  auto put = [&](int64_t at, const T& value) { for (int l = 0; l < valid; ++l) out[l][at] = Lanes<T>::get(value, l); };
  // Outward: accelerations.
  Articulated<T>& base = b[0];
  for (int k = 0; k < 3; ++k) { base.a[k] = up[k]; base.dw[k] = zero; }
  if (floating) {
    T M[36], x[6];
    for (int r = 0; r < 3; ++r) {
      for (int s = 0; s < 3; ++s) {
        M[6 * r + s] = base.A[3 * r + s];
        M[6 * r + 3 + s] = base.B[3 * r + s];
        M[6 * (3 + r) + s] = base.B[3 * s + r];
        M[6 * (3 + r) + 3 + s] = base.C[3 * r + s];
      }
      x[r] = Lanes<T>::gather(tau, r) - base.f[r];
      x[3 + r] = Lanes<T>::gather(tau, 3 + r) - base.n[r];
    }
    factor(M, 6);
    solve(M, 6, x);
    for (int k = 0; k < 3; ++k) { base.a[k] = x[k]; base.dw[k] = x[3 + k]; put(k, x[k] - up[k]); put(3 + k, x[3 + k]); }
  }
  for (int64_t i = 1; i < nb; ++i) {
    c += i == 1 ? 0 : CONSTANTS;  // the inward sweep ended at body 1
    Articulated<T>& x = b[i];
    const Articulated<T>& y = b[tree.parent[i]];
    const int64_t kind = tree.kind[i], iv = tree.iv[i];
    const int k = DEGREES[kind];
    T l[3] = {y.a[0], y.a[1], y.a[2]}, rate[6];
    cross_add(y.dw, x.p, l);
    apply_transposed(x.R, l, x.a);
    apply_transposed(x.R, y.dw, x.dw);
    for (int r = 0; r < 3; ++r) { x.a[r] += x.cl[r]; x.dw[r] += x.cw[r]; }
    for (int d = 0; d < k; ++d) {
      rate[d] = x.u[d];
      const T* U = x.U + 6 * d;
      for (int r = 0; r < 3; ++r) rate[d] -= U[r] * x.a[r] + U[3 + r] * x.dw[r];
    }
    solve(x.D, k, rate);
    for (int d = 0; d < k; ++d) {
      put(iv + d, rate[d]);
      if (kind == REVOLUTE) for (int r = 0; r < 3; ++r) x.dw[r] += rate[d] * c[AXIS + r];
      else if (kind == PRISMATIC) for (int r = 0; r < 3; ++r) x.a[r] += rate[d] * c[AXIS + r];
      else if (kind == FLOATING && d < 3) x.a[d] += rate[d];
      else x.dw[kind == FLOATING ? d - 3 : d] += rate[d];
    }
  }
}

ffi::Error ForwardDynamics(F64 constants, F64 gravity, F64 q, F64 v, F64 tau, F64 wrenches, ffi::Result<F64> out, Ints parent, Ints kind, Ints iq,
                           Ints iv, bool floating) {
  const Tree tree{parent, kind, iq, iv};
  const auto batch = batch_of(out, 1);
  const int64_t nv = (*out).dimensions().back();
  int64_t n = 1;
  for (int64_t b : batch) n *= b;
  Rows C, G, Q, V, A, X;
  if (!rows(constants, 2, batch, C) || !rows(gravity, 1, batch, G) || !rows(q, 1, batch, Q) || !rows(v, 1, batch, V) || !rows(tau, 1, batch, A) ||
      !rows(wrenches, 2, batch, X))
    return ffi::Error::InvalidArgument("tree forward dynamics: the batch axes of the arguments do not fit together");
  const bool external = X.size > 0, shared = C.stride == 0 && C.map.empty() && G.stride == 0 && G.map.empty();
  double* result = (*out).typed_data();
  sweep(n, shared,
    [&](int64_t s) {
      const double *rq = Q.at(s), *rv = V.at(s), *ra = A.at(s), *rx = external ? X.at(s) : nullptr;
      double* ro = result + s * nv;
      forward_dynamics<double>(tree, floating, C.at(s), G.at(s), &rq, &rv, &ra, external ? &rx : nullptr, &ro, 1, workspace<Articulated<double>>(tree.nb()));
    },
    [&](int64_t s, int valid) {
      const Pointers<8> rq(Q, s, valid), rv(V, s, valid), ra(A, s, valid), rx(external ? X : Q, s, valid);
      double* ro[8];
      for (int l = 0; l < valid; ++l) ro[l] = result + (s + l) * nv;
      forward_dynamics<v8>(tree, floating, C.data, G.data, rq.row, rv.row, ra.row, external ? rx.row : nullptr, ro, valid, workspace<Articulated<v8>>(tree.nb()));
    });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_tree_forward_dynamics, ForwardDynamics,
    ffi::Ffi::Bind().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Ret<F64>()
        .Attr<Ints>("parent").Attr<Ints>("kind").Attr<Ints>("iq").Attr<Ints>("iv").Attr<bool>("floating"));
