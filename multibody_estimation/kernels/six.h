// SPDX-License-Identifier: Apache-2.0
// Products and factors of 6x6 matrices whose entries are doubles, or vectors that hold the same entry of several samples.
// Loops run over the columns innermost: the compiler then vectorises single samples as well.
#pragma once
#include <cmath>
#include <cstring>

namespace six {

// Samples side by side: as many as a register holds, with the rows of a product that then stay in registers.
#ifdef __AVX512F__
typedef double Wide __attribute__((vector_size(64)));
constexpr int kRows = 3;
#else
typedef double Wide __attribute__((vector_size(32)));
constexpr int kRows = 2;
#endif

template <class V>
constexpr int lanes = sizeof(V) / sizeof(double);
template <class V>
inline double& lane(V& v, int w) { return reinterpret_cast<double*>(&v)[w]; }
template <class V>
inline V all(double x) { return V{} + x; }

#define UNROLL _Pragma("GCC unroll 6")
#define EACH(i, n) UNROLL for (int i = 0; i < n; ++i)

template <class V>
inline V inverse_root(V x) {
  for (int w = 0; w < lanes<V>; ++w) lane(x, w) = 1.0 / std::sqrt(lane(x, w));
  return x;
}

// A = L L' in the lower part; the diagonal holds the inverses.
template <class V>
inline void cholesky(V* A) {
  EACH(j, 6) {
    EACH(k, j) { UNROLL for (int i = j; i < 6; ++i) A[6 * i + j] -= A[6 * i + k] * A[6 * j + k]; }
    A[7 * j] = inverse_root(A[7 * j]);
    UNROLL for (int i = j + 1; i < 6; ++i) A[6 * i + j] *= A[7 * j];
  }
}
// The same for a positive semidefinite matrix: a pivot that is rounding gives a zero column (and a zero inverse). Upper part cleared.
template <class V>
inline void cholesky_semidefinite(V* A, V* inverse) {
  for (int w = 0; w < lanes<V>; ++w)
    for (int j = 0; j < 6; ++j) {
      double first = lane(A[7 * j], w), d = first;
      for (int k = 0; k < j; ++k) d -= lane(A[6 * j + k], w) * lane(A[6 * j + k], w);
      double r = d > 1e-13 * first && d > 1e-300 ? 1.0 / std::sqrt(d) : 0.0;
      lane(inverse[j], w) = r;
      for (int i = j + 1; i < 6; ++i) {
        double s = lane(A[6 * i + j], w);
        for (int k = 0; k < j; ++k) s -= lane(A[6 * i + k], w) * lane(A[6 * j + k], w);
        lane(A[6 * i + j], w) = s * r;
        lane(A[6 * j + i], w) = 0.0;
      }
      lane(A[7 * j], w) = d * r;
    }
}
template <class V>
inline V log_determinant(const V* L) {  // of L L', from the inverted diagonal
  V s = L[0];
  EACH(c, 5) s *= L[7 * (c + 1)];
  for (int w = 0; w < lanes<V>; ++w) lane(s, w) = -2.0 * std::log(lane(s, w));
  return s;
}
template <class V>
inline void solve(const V* L, V* B) {  // B <- L^-1 B
  EACH(i, 6) {
    EACH(k, i) { EACH(j, 6) B[6 * i + j] -= L[6 * i + k] * B[6 * k + j]; }
    EACH(j, 6) B[6 * i + j] *= L[7 * i];
  }
}
template <class V>
inline void solve_vector(const V* L, V* v) {
  EACH(i, 6) {
    EACH(k, i) v[i] -= L[6 * i + k] * v[k];
    v[i] *= L[7 * i];
  }
}
template <class V>
inline void solve_vector_transposed(const V* L, V* v) {
  UNROLL for (int i = 5; i >= 0; --i) {
    UNROLL for (int k = i + 1; k < 6; ++k) v[i] -= L[6 * k + i] * v[k];
    v[i] *= L[7 * i];
  }
}
// Several rows of the result at once: every entry of B is then loaded less often, which is what limits these loops.
// C <- C + s A'B; A may be a table of doubles.
template <class V, class M>
inline void add_at_b(V* C, M A, const V* B, double s) {
  for (int i = 0; i < 6; i += kRows) {
    V c[kRows][6];
    EACH(r, kRows) { EACH(j, 6) c[r][j] = A[i + r] * B[j]; }
    UNROLL for (int k = 1; k < 6; ++k) {
      EACH(r, kRows) {
        auto a = A[6 * k + i + r];
        EACH(j, 6) c[r][j] += a * B[6 * k + j];
      }
    }
    EACH(r, kRows) { EACH(j, 6) C[6 * (i + r) + j] += s * c[r][j]; }
  }
}
// C <- C + s A'A, both halves: rows i.. of the lower part, then the upper one copied.
template <class V, int I = 0>
inline void add_square(V* C, const V* A, double s) {
  if constexpr (I < 6) {
    constexpr int n = I + kRows;
    V c[kRows][n];
    EACH(r, kRows) { EACH(j, n) c[r][j] = A[I + r] * A[j]; }
    UNROLL for (int k = 1; k < 6; ++k) {
      EACH(r, kRows) { EACH(j, n) c[r][j] += A[6 * k + I + r] * A[6 * k + j]; }
    }
    EACH(r, kRows) { EACH(j, n) C[6 * (I + r) + j] += s * c[r][j]; }
    EACH(r, kRows) { EACH(j, I) C[6 * j + I + r] = C[6 * (I + r) + j]; }
    add_square<V, n>(C, A, s);
  }
}
template <class V, class M>
inline void add_a_b(V* C, M A, const V* B, double s) {
  for (int i = 0; i < 6; i += kRows) {
    V c[kRows][6];
    EACH(r, kRows) { EACH(j, 6) c[r][j] = A[6 * (i + r)] * B[j]; }
    UNROLL for (int k = 1; k < 6; ++k) {
      EACH(r, kRows) {
        auto a = A[6 * (i + r) + k];
        EACH(j, 6) c[r][j] += a * B[6 * k + j];
      }
    }
    EACH(r, kRows) { EACH(j, 6) C[6 * (i + r) + j] += s * c[r][j]; }
  }
}
template <class V, class M>
inline void add_product(V* y, M A, const V* x, double s) {
  for (int i = 0; i < 6; ++i) {
    V c = A[6 * i] * x[0];
    UNROLL for (int k = 1; k < 6; ++k) c += A[6 * i + k] * x[k];
    y[i] += s * c;
  }
}
template <class V, class M>
inline void add_product_transposed(V* y, M A, const V* x, double s) {
  V c[6];
  EACH(i, 6) c[i] = A[i] * x[0];
  UNROLL for (int k = 1; k < 6; ++k) { EACH(i, 6) c[i] += A[6 * k + i] * x[k]; }
  EACH(i, 6) y[i] += s * c[i];
}
template <class V>
inline void transpose(V* A) {
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < i; ++j) {
      V t = A[6 * i + j];
      A[6 * i + j] = A[6 * j + i];
      A[6 * j + i] = t;
    }
}

template <class V>
inline void cross(V* o, const V* a, const V* b) {
  V x = a[1] * b[2] - a[2] * b[1], y = a[2] * b[0] - a[0] * b[2], z = a[0] * b[1] - a[1] * b[0];
  o[0] = x, o[1] = y, o[2] = z;
}
// Motion of the parent seen in the child, which stands at p with rotation R (row-major) in the parent.
template <class V>
inline void motion_to_child(V* o, const V* R, const V* p, const V* v) {
  V l[3];
  cross(l, v + 3, p);
  EACH(i, 3) l[i] += v[i];
  V t[6];
  EACH(i, 3) {
    t[i] = R[i] * l[0] + R[3 + i] * l[1] + R[6 + i] * l[2];
    t[3 + i] = R[i] * v[3] + R[3 + i] * v[4] + R[6 + i] * v[5];
  }
  EACH(i, 6) o[i] = t[i];
}
// Force of the child added to that of the parent: o <- o + X' f.
template <class V>
inline void add_force_to_parent(V* o, const V* R, const V* p, const V* f) {
  V g[6], m[3];
  EACH(i, 3) {
    g[i] = R[3 * i] * f[0] + R[3 * i + 1] * f[1] + R[3 * i + 2] * f[2];
    g[3 + i] = R[3 * i] * f[3] + R[3 * i + 1] * f[4] + R[3 * i + 2] * f[5];
  }
  cross(m, p, g);
  EACH(i, 6) o[i] += g[i];
  EACH(i, 3) o[3 + i] += m[i];
}
// D <- D + X' M X.
template <class V>
inline void add_congruence(V* D, const V* M, const V* R, const V* p) {
  V T[36];
  const V x = p[0], y = p[1], z = p[2];
  for (int i = 0; i < 6; ++i)
    EACH(b, 2) {
      const V m0 = M[6 * i + 3 * b], m1 = M[6 * i + 3 * b + 1], m2 = M[6 * i + 3 * b + 2];
      EACH(j, 3) T[6 * i + 3 * b + j] = m0 * R[3 * j] + m1 * R[3 * j + 1] + m2 * R[3 * j + 2];
    }
  for (int a = 0; a < 2; ++a)
    for (int j = 0; j < 6; ++j) {
      V t0 = T[18 * a + j], t1 = T[18 * a + 6 + j], t2 = T[18 * a + 12 + j];
      EACH(i, 3) T[18 * a + 6 * i + j] = R[3 * i] * t0 + R[3 * i + 1] * t1 + R[3 * i + 2] * t2;
    }
  for (int i = 0; i < 6; ++i) {
    V t0 = T[6 * i], t1 = T[6 * i + 1], t2 = T[6 * i + 2];
    T[6 * i + 3] -= t1 * z - t2 * y;
    T[6 * i + 4] -= t2 * x - t0 * z;
    T[6 * i + 5] -= t0 * y - t1 * x;
  }
  for (int j = 0; j < 6; ++j) {
    V t0 = T[j], t1 = T[6 + j], t2 = T[12 + j];
    D[j] += t0;
    D[6 + j] += t1;
    D[12 + j] += t2;
    D[18 + j] += T[18 + j] + y * t2 - z * t1;
    D[24 + j] += T[24 + j] + z * t0 - x * t2;
    D[30 + j] += T[30 + j] + x * t1 - y * t0;
  }
}

}  // namespace six
