// SPDX-License-Identifier: Apache-2.0
// Mass matrix of a kinematic tree by composite bodies (Featherstone 2008, table 6.2) in base coordinates, where composite inertias add up
// without transforms and an entry is one product of six numbers.

#include "tree.h"

namespace {

template <class T> struct Composite { T R[9], p[3], h[3], I[6], S[36]; T m; };  // S: up to six columns (linear, angular) in base coordinates

template <class T>
void mass_matrix(const Tree& tree, bool floating, int64_t nv, const double* c, const double* const* q, double* const* out, int valid,
                 Composite<T>* b) {
  const T zero{};
  const int64_t nb = tree.nb();
  for (int64_t i = 0; i < nb; ++i, c += CONSTANTS) {
    Composite<T>& x = b[i];
    if (i == 0) {
      for (int k = 0; k < 9; ++k) x.R[k] = zero + (k % 4 == 0 ? 1.0 : 0.0);
      for (int k = 0; k < 3; ++k) { x.p[k] = zero; x.h[k] = zero + c[FIRST + k]; }
      for (int k = 0; k < 6; ++k) x.I[k] = zero + c[SECOND + k];
      x.m = zero + c[MASS];
      continue;
    }
    const Composite<T>& y = b[tree.parent[i]];
    const int64_t kind = tree.kind[i];
    T J[9], o[3], move[3];
    joint_pose(c, kind, tree.iq[i], q, J, o);
    apply(y.R, o, move);
    for (int k = 0; k < 3; ++k) x.p[k] = y.p[k] + move[k];
    for (int r = 0; r < 3; ++r)
      for (int k = 0; k < 3; ++k) x.R[3 * r + k] = y.R[3 * r] * J[k] + y.R[3 * r + 1] * J[3 + k] + y.R[3 * r + 2] * J[6 + k];
    // Inertia in base coordinates: R I R' - [p]x[h]x - [h]x[p]x - m [p]x[p]x with h about the body's origin.
    const T* R = x.R;
    const double m = c[MASS], *f = c + FIRST, *I = c + SECOND;
    T h[3], g[3], A[9];
    for (int r = 0; r < 3; ++r) {
      h[r] = R[3 * r] * f[0] + R[3 * r + 1] * f[1] + R[3 * r + 2] * f[2];
      g[r] = h[r] + 0.5 * m * x.p[r];
      A[3 * r] = R[3 * r] * I[0] + R[3 * r + 1] * I[3] + R[3 * r + 2] * I[4];
      A[3 * r + 1] = R[3 * r] * I[3] + R[3 * r + 1] * I[1] + R[3 * r + 2] * I[5];
      A[3 * r + 2] = R[3 * r] * I[4] + R[3 * r + 1] * I[5] + R[3 * r + 2] * I[2];
    }
    auto dot = [&](int r, int k) { return A[3 * r] * R[3 * k] + A[3 * r + 1] * R[3 * k + 1] + A[3 * r + 2] * R[3 * k + 2]; };
    const T X = x.p[0] * g[0], Y = x.p[1] * g[1], Z = x.p[2] * g[2];
    x.I[0] = dot(0, 0) + 2.0 * (Y + Z); x.I[1] = dot(1, 1) + 2.0 * (X + Z); x.I[2] = dot(2, 2) + 2.0 * (X + Y);
    x.I[3] = dot(0, 1) - x.p[0] * g[1] - x.p[1] * g[0];
    x.I[4] = dot(0, 2) - x.p[0] * g[2] - x.p[2] * g[0];
    x.I[5] = dot(1, 2) - x.p[1] * g[2] - x.p[2] * g[1];
    for (int k = 0; k < 3; ++k) x.h[k] = h[k] + m * x.p[k];
    x.m = zero + m;
    auto column = [&](int at, bool turns, const T* axis) {
      T* s = x.S + 6 * at;
      for (int k = 0; k < 3; ++k) { s[k] = turns ? zero : axis[k]; s[3 + k] = turns ? axis[k] : zero; }
      if (turns) cross_add(x.p, axis, s);
    };
    if (kind == REVOLUTE || kind == PRISMATIC) {
      const double* s = c + AXIS;
      T axis[3];
      for (int r = 0; r < 3; ++r) axis[r] = R[3 * r] * s[0] + R[3 * r + 1] * s[1] + R[3 * r + 2] * s[2];
      column(0, kind == REVOLUTE, axis);
    } else {
      for (int k = 0; k < 3; ++k) {
        const T axis[3] = {R[k], R[3 + k], R[6 + k]};
        if (kind == FLOATING) column(k, false, axis);
        column(kind == FLOATING ? 3 + k : k, true, axis);
      }
    }
  }
  static const int DEGREES[] = {1, 1, 3, 6, 0};
  auto put = [&](int64_t r, int64_t k, const T& value) {
    for (int l = 0; l < valid; ++l) { const double x = Lanes<T>::get(value, l); out[l][r * nv + k] = x; out[l][k * nv + r] = x; }
  };
  for (int l = 0; l < valid; ++l) std::memset(out[l], 0, nv * nv * sizeof(double));
  for (int64_t i = nb - 1; i > 0; --i) {
    c -= CONSTANTS;
    const Composite<T>& x = b[i];
    const int degrees = DEGREES[tree.kind[i]];
    for (int d = 0; d < degrees; ++d) {
      const T *s = x.S + 6 * d, *w = s + 3, *I = x.I, *h = x.h;
      T f[6] = {x.m * s[0] + w[1] * h[2] - w[2] * h[1], x.m * s[1] + w[2] * h[0] - w[0] * h[2], x.m * s[2] + w[0] * h[1] - w[1] * h[0],
                I[0] * w[0] + I[3] * w[1] + I[4] * w[2] + h[1] * s[2] - h[2] * s[1],
                I[3] * w[0] + I[1] * w[1] + I[5] * w[2] + h[2] * s[0] - h[0] * s[2],
                I[4] * w[0] + I[5] * w[1] + I[2] * w[2] + h[0] * s[1] - h[1] * s[0]};
      const int64_t column = tree.iv[i] + d;
      for (int64_t j = i; j > 0; j = tree.parent[j]) {
        const int count = j == i ? d + 1 : DEGREES[tree.kind[j]];
        for (int e = 0; e < count; ++e) {
          const T* t = b[j].S + 6 * e;
          T value = f[0] * t[0] + f[1] * t[1] + f[2] * t[2] + f[3] * t[3] + f[4] * t[4] + f[5] * t[5];
          if (j == i && e == d) value += c[ROTOR];
          put(tree.iv[j] + e, column, value);
        }
      }
      if (floating) for (int e = 0; e < 6; ++e) put(e, column, f[e]);
    }
    Composite<T>& y = b[tree.parent[i]];
    y.m += x.m;
    for (int k = 0; k < 3; ++k) y.h[k] += x.h[k];
    for (int k = 0; k < 6; ++k) y.I[k] += x.I[k];
  }
  if (!floating) return;
  const Composite<T>& x = b[0];
  for (int k = 0; k < 3; ++k) put(k, k, x.m);
  put(0, 4, x.h[2]); put(0, 5, -x.h[1]); put(1, 3, -x.h[2]); put(1, 5, x.h[0]); put(2, 3, x.h[1]); put(2, 4, -x.h[0]);
  put(3, 3, x.I[0]); put(4, 4, x.I[1]); put(5, 5, x.I[2]); put(3, 4, x.I[3]); put(3, 5, x.I[4]); put(4, 5, x.I[5]);
}

ffi::Error MassMatrix(F64 constants, F64 q, ffi::Result<F64> out, Ints parent, Ints kind, Ints iq, Ints iv, bool floating) {
  const Tree tree{parent, kind, iq, iv};
  const auto batch = batch_of(out, 2);
  const int64_t nv = (*out).dimensions().back();
  int64_t n = 1;
  for (int64_t b : batch) n *= b;
  Rows C, Q;
  if (!rows(constants, 2, batch, C) || !rows(q, 1, batch, Q))
    return ffi::Error::InvalidArgument("tree mass matrix: the batch axes of the arguments do not fit together");
  double* result = (*out).typed_data();
  sweep(n, C.stride == 0 && C.map.empty(),
    [&](int64_t s) {
      const double* rq = Q.at(s);
      double* ro = result + s * nv * nv;
      mass_matrix<double>(tree, floating, nv, C.at(s), &rq, &ro, 1, workspace<Composite<double>>(tree.nb()));
    },
    [&](int64_t s, int valid) {
      const Pointers<8> rq(Q, s, valid);
      double* ro[8];
      for (int l = 0; l < valid; ++l) ro[l] = result + (s + l) * nv * nv;
      mass_matrix<v8>(tree, floating, nv, C.data, rq.row, ro, valid, workspace<Composite<v8>>(tree.nb()));
    });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_tree_mass_matrix, MassMatrix,
    ffi::Ffi::Bind().Arg<F64>().Arg<F64>().Ret<F64>()
        .Attr<Ints>("parent").Attr<Ints>("kind").Attr<Ints>("iq").Attr<Ints>("iv").Attr<bool>("floating"));
