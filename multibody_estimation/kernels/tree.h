// SPDX-License-Identifier: Apache-2.0
// Kinematic trees for many samples: eight samples side by side, one per vector lane.
//
// Bodies are ordered parents first; body 0 is the base. Every body has a row of CONSTANTS numbers (see `constants` in tree/compiled.py),
// shared by all samples or one set per sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

typedef double v8 __attribute__((vector_size(64)));

enum Kind : int64_t { REVOLUTE = 0, PRISMATIC = 1, SPHERICAL = 2, FLOATING = 3, FIXED = 4 };
enum Constant { R0 = 0, RK = 9, RKK = 18, P0 = 27, AXIS = 30, MASS = 33, FIRST = 34, SECOND = 37, ROTOR = 43, CONSTANTS = 44 };

using Ints = ffi::Span<const int64_t>;
using F64 = ffi::Buffer<ffi::F64>;

struct Tree {
  Ints parent, kind, iq, iv;
  int64_t nb() const { return parent.size(); }
};

// An argument whose leading axes broadcast against those of the result: row s of the result reads row at(s).
struct Rows {
  const double* data;
  int64_t size;                // numbers in a row
  int64_t stride = 1;          // 0 where one row serves all samples
  std::vector<int64_t> map;    // only for nested batches
  const double* at(int64_t s) const { return data + (map.empty() ? s * stride : map[s]) * size; }
};

bool rows(const F64& x, size_t core, const std::vector<int64_t>& batch, Rows& out) {
  auto d = x.dimensions();
  const size_t lead = d.size() - core;
  out.data = x.typed_data();
  out.size = 1;
  for (size_t i = lead; i < d.size(); ++i) out.size *= d[i];
  int64_t n = 1, mine = 1;
  for (int64_t b : batch) n *= b;
  for (size_t i = 0; i < lead; ++i) mine *= d[i];
  if (mine == n || mine == 1) { out.stride = mine == 1 ? 0 : 1; return true; }
  if (lead != batch.size()) return false;
  out.map.resize(n);
  for (int64_t s = 0; s < n; ++s) {
    int64_t rest = s, row = 0, scale = 1;
    for (size_t i = lead; i-- > 0;) {
      const int64_t k = rest % batch[i];
      rest /= batch[i];
      if (d[i] != 1) { row += k * scale; scale *= d[i]; }
    }
    out.map[s] = row;
  }
  return true;
}

template <class T> struct Lanes;
template <> struct Lanes<double> {
  static constexpr int W = 1;
  static double gather(const double* const* row, int64_t i) { return row[0][i]; }
  static double get(const double& x, int) { return x; }
};
template <> struct Lanes<v8> {
  static constexpr int W = 8;
  static v8 gather(const double* const* row, int64_t i) {
    return v8{row[0][i], row[1][i], row[2][i], row[3][i], row[4][i], row[5][i], row[6][i], row[7][i]};
  }
  static double get(const v8& x, int l) { return x[l]; }
};

// Sine and cosine to the last bit or two: argument reduced by pi/2 in three parts, minimax polynomials of fdlibm.
template <class T> void sine_cosine(const T& angle, T& sine, T& cosine) {
  constexpr int W = Lanes<T>::W;
  double x[W], s[W], c[W];
  std::memcpy(x, &angle, sizeof x);
  bool far = false;
  for (int l = 0; l < W; ++l) far |= !(std::fabs(x[l]) < 1e5);
  if (far) {
    for (int l = 0; l < W; ++l) { s[l] = std::sin(x[l]); c[l] = std::cos(x[l]); }
  } else {
    for (int l = 0; l < W; ++l) {
      const double shifted = x[l] * 6.36619772367581382433e-01 + 6755399441055744.0;
      int64_t quarter;
      std::memcpy(&quarter, &shifted, 8);
      const double k = shifted - 6755399441055744.0;
      double r = x[l] - k * 1.57079632673412561417e+00;
      r = r - k * 6.07710050630396597660e-11;
      r = r - k * 2.02226624879595063154e-21;
      const double z = r * r;
      const double ps = r + r * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 +
          z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
      const double pc = 1 - 0.5 * z + z * z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * (2.48015872894767294178e-05 +
          z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
      const double a = (quarter & 1) ? pc : ps, b = (quarter & 1) ? ps : pc;
      s[l] = (quarter & 2) ? -a : a;
      c[l] = ((quarter + 1) & 2) ? -b : b;
    }
  }
  std::memcpy(&sine, s, sizeof s);
  std::memcpy(&cosine, c, sizeof c);
}

template <class T> inline void cross_add(const T* a, const T* b, T* out) {  // out += a x b
  out[0] += a[1] * b[2] - a[2] * b[1];
  out[1] += a[2] * b[0] - a[0] * b[2];
  out[2] += a[0] * b[1] - a[1] * b[0];
}
template <class T> inline void apply(const T* R, const T* a, T* out) {
  for (int i = 0; i < 3; ++i) out[i] = R[3 * i] * a[0] + R[3 * i + 1] * a[1] + R[3 * i + 2] * a[2];
}
template <class T> inline void apply_transposed(const T* R, const T* a, T* out) {
  for (int i = 0; i < 3; ++i) out[i] = R[i] * a[0] + R[3 + i] * a[1] + R[6 + i] * a[2];
}

template <class T> void quaternion_rotation(const T& w, const T& x, const T& y, const T& z, T* R) {
  const T s = 2.0 / (w * w + x * x + y * y + z * z);
  R[0] = 1.0 - s * (y * y + z * z); R[1] = s * (x * y - w * z);       R[2] = s * (x * z + w * y);
  R[3] = s * (x * y + w * z);       R[4] = 1.0 - s * (x * x + z * z); R[5] = s * (y * z - w * x);
  R[6] = s * (x * z - w * y);       R[7] = s * (y * z + w * x);       R[8] = 1.0 - s * (x * x + y * y);
}

// Pose of a body in its parent.
template <class T> inline void joint_pose(const double* c, int64_t kind, int64_t iq, const double* const* q, T* R, T* p) {
  const T zero{};
  for (int k = 0; k < 3; ++k) p[k] = zero + c[P0 + k];
  if (kind == REVOLUTE) {
    T s, co;
    sine_cosine(Lanes<T>::gather(q, iq), s, co);
    const T v = 1.0 - co;
    for (int k = 0; k < 9; ++k) R[k] = c[R0 + k] + s * c[RK + k] + v * c[RKK + k];
    return;
  }
  if (kind == SPHERICAL || kind == FLOATING) {
    const int64_t e = iq + (kind == FLOATING ? 3 : 0);
    T Q[9];
    quaternion_rotation(Lanes<T>::gather(q, e), Lanes<T>::gather(q, e + 1), Lanes<T>::gather(q, e + 2), Lanes<T>::gather(q, e + 3), Q);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) R[3 * i + j] = c[3 * i] * Q[j] + c[3 * i + 1] * Q[3 + j] + c[3 * i + 2] * Q[6 + j];
    if (kind == FLOATING)
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) p[i] += c[3 * i + j] * Lanes<T>::gather(q, iq + j);
    return;
  }
  for (int k = 0; k < 9; ++k) R[k] = zero + c[R0 + k];
  if (kind == PRISMATIC) {
    const T x = Lanes<T>::gather(q, iq);
    for (int k = 0; k < 3; ++k) p[k] += c[RK + k] * x;
  }
}

// The motion rates * S of a joint in its body's frame.
template <class T> inline void joint_motion(const double* c, int64_t kind, int64_t iv, const double* const* x, T* linear, T* angular) {
  const T zero{};
  for (int k = 0; k < 3; ++k) linear[k] = angular[k] = zero;
  if (kind == REVOLUTE || kind == PRISMATIC) {
    const T r = Lanes<T>::gather(x, iv);
    T* out = kind == REVOLUTE ? angular : linear;
    for (int k = 0; k < 3; ++k) out[k] = r * c[AXIS + k];
  } else if (kind == SPHERICAL) {
    for (int k = 0; k < 3; ++k) angular[k] = Lanes<T>::gather(x, iv + k);
  } else if (kind == FLOATING) {
    for (int k = 0; k < 3; ++k) { linear[k] = Lanes<T>::gather(x, iv + k); angular[k] = Lanes<T>::gather(x, iv + 3 + k); }
  }
}

template <class T> inline void momentum(const double* c, const T* v, const T* w, T* linear, T* angular) {
  const double m = c[MASS], *h = c + FIRST, *I = c + SECOND;
  linear[0] = m * v[0] + w[1] * h[2] - w[2] * h[1];
  linear[1] = m * v[1] + w[2] * h[0] - w[0] * h[2];
  linear[2] = m * v[2] + w[0] * h[1] - w[1] * h[0];
  angular[0] = I[0] * w[0] + I[3] * w[1] + I[4] * w[2] + h[1] * v[2] - h[2] * v[1];
  angular[1] = I[3] * w[0] + I[1] * w[1] + I[5] * w[2] + h[2] * v[0] - h[0] * v[2];
  angular[2] = I[4] * w[0] + I[5] * w[1] + I[2] * w[2] + h[0] * v[1] - h[1] * v[0];
}

// A workspace that stays with its thread: nothing is allocated in a control loop after the first call.
template <class X> X* workspace(int64_t n) {
  static thread_local std::unique_ptr<char[]> memory;
  static thread_local int64_t have = 0;
  if (n > have) { memory.reset(new char[n * sizeof(X) + 64]); have = n; }
  return reinterpret_cast<X*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t(63));
}

std::vector<int64_t> batch_of(ffi::Result<F64>& out, size_t core) {
  auto d = (*out).dimensions();
  return std::vector<int64_t>(d.begin(), d.end() - core);
}

// Run `one` for every sample where the constants differ from sample to sample or there is one only, else `eight` for tiles of eight.
template <class One, class Eight> void sweep(int64_t n, bool shared, One one, Eight eight) {
  int64_t s = 0;
  if (shared)
    for (; s + 2 <= n; s += 8) eight(s, int(std::min<int64_t>(8, n - s)));
  for (; s < n; ++s) one(s);
}

template <int W> struct Pointers {
  const double* row[W];
  Pointers(const Rows& x, int64_t s, int valid) { for (int l = 0; l < W; ++l) row[l] = x.at(s + std::min(l, valid - 1)); }
};

}  // namespace
