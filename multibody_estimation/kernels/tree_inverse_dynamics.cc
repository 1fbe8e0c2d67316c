// SPDX-License-Identifier: Apache-2.0
// Inverse dynamics of a kinematic tree by recursive Newton-Euler in body frames (Featherstone 2008, table 5.1).

#include "tree.h"

namespace {

template <class T> struct Body { T R[9], p[3], v[3], w[3], a[3], dw[3], f[3], n[3]; };

template <class T>
void inverse_dynamics(const Tree& tree, bool floating, const double* c, const double* g, const double* const* q, const double* const* v,
                      const double* const* a, const double* const* wrench, double* const* out, int valid, Body<T>* b) {
  const T zero{};
  const int64_t nb = tree.nb();
  for (int64_t i = 0; i < nb; ++i, c += CONSTANTS) {
    Body<T>& x = b[i];
    if (i == 0) {
      T up[3] = {zero - g[0], zero - g[1], zero - g[2]};
      if (floating) {
        T Q[9];
        quaternion_rotation(Lanes<T>::gather(q, 3), Lanes<T>::gather(q, 4), Lanes<T>::gather(q, 5), Lanes<T>::gather(q, 6), Q);
        apply_transposed(Q, up, x.a);
        for (int k = 0; k < 3; ++k) {
          x.v[k] = Lanes<T>::gather(v, k); x.w[k] = Lanes<T>::gather(v, 3 + k);
          x.a[k] += Lanes<T>::gather(a, k); x.dw[k] = Lanes<T>::gather(a, 3 + k);
        }
      } else {
        for (int k = 0; k < 3; ++k) { x.v[k] = x.w[k] = x.dw[k] = zero; x.a[k] = up[k]; }
      }
    } else {
      const Body<T>& y = b[tree.parent[i]];
      const int64_t kind = tree.kind[i];
      joint_pose(c, kind, tree.iq[i], q, x.R, x.p);
      T l[3] = {y.v[0], y.v[1], y.v[2]}, sl[3], sw[3];
      cross_add(y.w, x.p, l);
      apply_transposed(x.R, l, x.v);
      apply_transposed(x.R, y.w, x.w);
      joint_motion(c, kind, tree.iv[i], v, sl, sw);
      for (int k = 0; k < 3; ++k) { x.v[k] += sl[k]; x.w[k] += sw[k]; }
      T d[3] = {y.a[0], y.a[1], y.a[2]}, al[3], aw[3];
      cross_add(y.dw, x.p, d);
      apply_transposed(x.R, d, x.a);
      apply_transposed(x.R, y.dw, x.dw);
      joint_motion(c, kind, tree.iv[i], a, al, aw);
      for (int k = 0; k < 3; ++k) { x.a[k] += al[k]; x.dw[k] += aw[k]; }
      cross_add(x.w, sw, x.dw);
      cross_add(x.v, sw, x.a);
      if (kind == PRISMATIC || kind == FLOATING) cross_add(x.w, sl, x.a);
    }
    T hl[3], ha[3];
    momentum(c, x.v, x.w, hl, ha);
    momentum(c, x.a, x.dw, x.f, x.n);
    cross_add(x.w, hl, x.f);
    cross_add(x.w, ha, x.n);
    cross_add(x.v, hl, x.n);
    if (wrench)
      for (int k = 0; k < 3; ++k) { x.f[k] -= Lanes<T>::gather(wrench, 6 * i + k); x.n[k] -= Lanes<T>::gather(wrench, 6 * i + 3 + k); }
  }
  auto put = [&](int64_t at, const T& value) { for (int l = 0; l < valid; ++l) out[l][at] = Lanes<T>::get(value, l); };
  for (int64_t i = nb - 1; i > 0; --i) {
    c -= CONSTANTS;
    const Body<T>& x = b[i];
    const int64_t kind = tree.kind[i], iv = tree.iv[i];
    const double* s = c + AXIS;
    if (kind == REVOLUTE || kind == PRISMATIC) {
      const T* f = kind == REVOLUTE ? x.n : x.f;
      put(iv, f[0] * s[0] + f[1] * s[1] + f[2] * s[2] + c[ROTOR] * Lanes<T>::gather(a, iv));
    } else if (kind == SPHERICAL) {
      for (int k = 0; k < 3; ++k) put(iv + k, x.n[k] + c[ROTOR] * Lanes<T>::gather(a, iv + k));
    } else {
      for (int k = 0; k < 3; ++k) put(iv + k, x.f[k] + c[ROTOR] * Lanes<T>::gather(a, iv + k));
      for (int k = 0; k < 3; ++k) put(iv + 3 + k, x.n[k] + c[ROTOR] * Lanes<T>::gather(a, iv + 3 + k));
    }
    Body<T>& y = b[tree.parent[i]];
    T f[3], n[3];
    apply(x.R, x.f, f);
    apply(x.R, x.n, n);
    cross_add(x.p, f, n);
    for (int k = 0; k < 3; ++k) { y.f[k] += f[k]; y.n[k] += n[k]; }
  }
  if (floating)
    for (int k = 0; k < 3; ++k) { put(k, b[0].f[k]); put(3 + k, b[0].n[k]); }
}

ffi::Error InverseDynamics(F64 constants, F64 gravity, F64 q, F64 v, F64 a, F64 wrenches, ffi::Result<F64> out, Ints parent, Ints kind, Ints iq,
                           Ints iv, bool floating) {
  const Tree tree{parent, kind, iq, iv};
  const auto batch = batch_of(out, 1);
  const int64_t nv = (*out).dimensions().back();
  int64_t n = 1;
  for (int64_t b : batch) n *= b;
  Rows C, G, Q, V, A, X;
  if (!rows(constants, 2, batch, C) || !rows(gravity, 1, batch, G) || !rows(q, 1, batch, Q) || !rows(v, 1, batch, V) || !rows(a, 1, batch, A) ||
      !rows(wrenches, 2, batch, X))
    return ffi::Error::InvalidArgument("tree inverse dynamics: the batch axes of the arguments do not fit together");
  const bool external = X.size > 0, shared = C.stride == 0 && C.map.empty() && G.stride == 0 && G.map.empty();
  double* result = (*out).typed_data();
  sweep(n, shared,
    [&](int64_t s) {
      const double *rq = Q.at(s), *rv = V.at(s), *ra = A.at(s), *rx = external ? X.at(s) : nullptr;
      double* ro = result + s * nv;
      inverse_dynamics<double>(tree, floating, C.at(s), G.at(s), &rq, &rv, &ra, external ? &rx : nullptr, &ro, 1, workspace<Body<double>>(tree.nb()));
    },
    [&](int64_t s, int valid) {
      const Pointers<8> rq(Q, s, valid), rv(V, s, valid), ra(A, s, valid), rx(external ? X : Q, s, valid);
      double* ro[8];
      for (int l = 0; l < valid; ++l) ro[l] = result + (s + l) * nv;
      inverse_dynamics<v8>(tree, floating, C.data, G.data, rq.row, rv.row, ra.row, external ? rx.row : nullptr, ro, valid, workspace<Body<v8>>(tree.nb()));
    });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_tree_inverse_dynamics, InverseDynamics,
    ffi::Ffi::Bind().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Ret<F64>()
        .Attr<Ints>("parent").Attr<Ints>("kind").Attr<Ints>("iq").Attr<Ints>("iv").Attr<bool>("floating"));
