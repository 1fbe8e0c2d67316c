// SPDX-License-Identifier: Apache-2.0
// Block-tridiagonal normal equations with a border ("arrow"): assembly from stage Jacobians, factorisation, substitution.
//
// H = [[T, C], [C', P]], T block tridiagonal with N blocks D_k (b x b) and couplings E_k (row block k+1, column block k).
// One elimination step keeps U_k (upper Cholesky factor of the updated D_k) and Z_k = U_k^-T [E_k', C_k, g_k], one matrix whose rows
// are contiguous, so that every inner loop runs over whole vectors. Long chains of wide blocks are eliminated from both ends by
// two threads that meet in the middle (twisted factorisation); the result is the same solution.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F64 = ffi::Buffer<ffi::F64>;
using Out = ffi::ResultBuffer<ffi::F64>;

namespace {

typedef double v8 __attribute__((vector_size(64), aligned(8)));

inline v8 load(const double* p) { v8 v; std::memcpy(&v, p, 64); return v; }
inline void store(double* p, v8 v) { std::memcpy(p, &v, 64); }

// out (b x 8nv) -= A' Z with A the first b columns of Z; Z is b x 8nv.
void subtract_product(const double* z, double* out, int b, int r) {
  for (int t = 0; t < r; t += 16) {
    const bool two = t + 8 < r;
    int i = 0;
    for (; i + 4 <= b; i += 4) {
      v8 a0{}, a1{}, a2{}, a3{}, c0{}, c1{}, c2{}, c3{};
      if (two) {
        for (int j = 0; j < b; ++j) {
          const double* row = z + j * r;
          const v8 x = load(row + t), y = load(row + t + 8);
          a0 += row[i] * x; c0 += row[i] * y;
          a1 += row[i + 1] * x; c1 += row[i + 1] * y;
          a2 += row[i + 2] * x; c2 += row[i + 2] * y;
          a3 += row[i + 3] * x; c3 += row[i + 3] * y;
        }
      } else {
        for (int j = 0; j < b; ++j) {
          const double* row = z + j * r;
          const v8 x = load(row + t);
          a0 += row[i] * x; a1 += row[i + 1] * x; a2 += row[i + 2] * x; a3 += row[i + 3] * x;
        }
      }
      double* o = out + i * r + t;
      store(o, load(o) - a0); store(o + r, load(o + r) - a1);
      store(o + 2 * r, load(o + 2 * r) - a2); store(o + 3 * r, load(o + 3 * r) - a3);
      if (two) {
        o += 8;
        store(o, load(o) - c0); store(o + r, load(o + r) - c1);
        store(o + 2 * r, load(o + 2 * r) - c2); store(o + 3 * r, load(o + 3 * r) - c3);
      }
    }
    for (; i < b; ++i) {
      v8 a{}, c{};
      for (int j = 0; j < b; ++j) {
        const double* row = z + j * r;
        a += row[i] * load(row + t);
        if (two) c += row[i] * load(row + t + 8);
      }
      double* o = out + i * r + t;
      store(o, load(o) - a);
      if (two) store(o + 8, load(o + 8) - c);
    }
  }
}

// Upper Cholesky factor in place, A = U'U; the strict lower triangle is left as it is. False where A is not positive definite.
bool cholesky(double* a, int b) {
  for (int j = 0; j < b; ++j) {
    double* rj = a + j * b;
    if (!(rj[j] > 0)) return false;
    const double inv = 1 / std::sqrt(rj[j]);
    for (int c = j; c < b; ++c) rj[c] *= inv;
    for (int i = j + 1; i < b; ++i) {
      double* ri = a + i * b;
      const double f = rj[i];
      for (int c = i; c < b; ++c) ri[c] -= f * rj[c];
    }
  }
  return true;
}

// Z <- U^-T Z, row by row, 32 columns at a time.
void substitute(const double* u, double* z, int b, int r) {
  for (int t = 0; t < r; t += 32) {
    const int m = std::min(4, (r - t) / 8);
    for (int i = 0; i < b; ++i) {
      double* zi = z + i * r + t;
      v8 s[4];
      for (int c = 0; c < m; ++c) s[c] = load(zi + 8 * c);
      if (m == 4) {
        for (int j = 0; j < i; ++j) {
          const double f = u[j * b + i];
          const double* zj = z + j * r + t;
          s[0] -= f * load(zj); s[1] -= f * load(zj + 8); s[2] -= f * load(zj + 16); s[3] -= f * load(zj + 24);
        }
      } else {
        for (int j = 0; j < i; ++j) {
          const double f = u[j * b + i];
          const double* zj = z + j * r + t;
          for (int c = 0; c < m; ++c) s[c] -= f * load(zj + 8 * c);
        }
      }
      const double inv = 1 / u[i * b + i];
      for (int c = 0; c < m; ++c) store(zi + 8 * c, s[c] * inv);
    }
  }
}

struct Chain {
  int64_t n; int b, p1, r;  // p1 = border columns and the gradient, r = b + p1 rounded up to whole vectors
  const double *d, *e, *c, *w; double mu;
  double *u, *z;
};

// Eliminate blocks first, first+way, ... (count of them). `carry` (b x r) holds what the last step subtracts from the next block.
bool eliminate(const Chain& h, int64_t first, int64_t count, int way, bool couple_last, double* carry, double* s) {
  const int b = h.b, r = h.r, p1 = h.p1, ps = r - b;
  for (int64_t step = 0; step < count; ++step) {
    const int64_t k = first + way * step;
    double *u = h.u + k * b * b, *z = h.z + k * b * r;
    const double *d = h.d + k * b * b, *c = h.c + k * b * p1;
    const bool couples = step + 1 < count || couple_last;
    const double* e = couples ? h.e + (way > 0 ? k : k - 1) * b * b : nullptr;
    for (int i = 0; i < b; ++i) {
      const double* ci = carry + i * r;
      for (int j = 0; j < b; ++j) u[i * b + j] = d[i * b + j] + ci[j];
      u[i * b + i] += h.mu * h.w[k * b + i];
      double* zi = z + i * r;
      if (!couples) std::memset(zi, 0, b * sizeof(double));
      else if (way > 0) for (int j = 0; j < b; ++j) zi[j] = e[j * b + i];
      else std::memcpy(zi, e + i * b, b * sizeof(double));
      for (int j = 0; j < p1; ++j) zi[b + j] = c[i * p1 + j] + ci[b + j];
      for (int j = b + p1; j < r; ++j) zi[j] = 0;
    }
    if (!cholesky(u, b)) return false;
    substitute(u, z, b, r);
    std::memset(carry, 0, sizeof(double) * b * r);
    if (couples) subtract_product(z, carry, b, r);
    // s (p1 x ps) += Y'Y
    for (int i = 0; i < b; ++i) {
      const double* y = z + i * r + b;
      for (int a = 0; a < p1; ++a) {
        const double f = y[a];
        double* sa = s + a * ps;
        for (int q = 0; q < ps; ++q) sa[q] += f * y[q];
      }
    }
  }
  return true;
}

bool wide(int64_t n, int b) { return b >= 12 && n >= 64 && std::thread::hardware_concurrency() > 1; }

}  // namespace

// Attributes: mu. Arguments: D (N,b,b), E (N,b,b; the last is not read), C (N,b,p1) border columns and gradient, w (N,b) damping metric.
// Results: U (N,b,b), Z (N,b,r), S (p1, r-b) = sum of Y'Y, ok ().
static ffi::Error Factor(F64 mu, F64 d, F64 e, F64 c, F64 w, Out u, Out z, Out s, Out ok) {
  const auto dims = c.dimensions();
  const int64_t n = dims[0];
  const int b = dims[1], p1 = dims[2], r = z->dimensions()[2], ps = r - b;
  Chain h{n, b, p1, r, d.typed_data(), e.typed_data(), c.typed_data(), w.typed_data(), mu.typed_data()[0], u->typed_data(), z->typed_data()};
  double* sum = s->typed_data();
  std::memset(sum, 0, sizeof(double) * p1 * ps);
  std::vector<double> carry(b * r, 0.0);
  bool good;
  if (!wide(n, b)) {
    good = eliminate(h, 0, n, 1, false, carry.data(), sum);
  } else {
    const int64_t m = n / 2;
    std::vector<double> carry2(b * r, 0.0), sum2(p1 * ps, 0.0);
    bool good2 = false;
    std::thread other([&] { good2 = eliminate(h, n - 1, n - 1 - m, -1, true, carry2.data(), sum2.data()); });
    good = eliminate(h, 0, m, 1, true, carry.data(), sum);
    other.join();
    good = good && good2;
    if (good) {
      for (int i = 0; i < b * r; ++i) carry[i] += carry2[i];
      for (int i = 0; i < p1 * ps; ++i) sum[i] += sum2[i];
      good = eliminate(h, m, 1, 1, false, carry.data(), sum);
    }
  }
  ok->typed_data()[0] = good ? 1.0 : 0.0;
  return ffi::Error::Success();
}

// x = -T^-1 (g + C dz) from the factor. Arguments: U (N,b,b), Z (N,b,r), dz (p1,) = [border step, 1]. Result: x (N,b).
static ffi::Error Back(F64 u_, F64 z_, F64 dz, Out x_) {
  const auto dims = z_.dimensions();
  const int64_t n = dims[0];
  const int b = dims[1], r = dims[2], p1 = dz.element_count();
  const double *u = u_.typed_data(), *z = z_.typed_data(), *t = dz.typed_data();
  double* x = x_->typed_data();
  auto solve = [&](int64_t k, const double* next) {
    double* xk = x + k * b;
    for (int i = 0; i < b; ++i) {
      const double* zi = z + k * b * r + i * r;
      double a = 0;
      if (next) for (int j = 0; j < b; ++j) a += zi[j] * next[j];
      for (int j = 0; j < p1; ++j) a += zi[b + j] * t[j];
      xk[i] = -a;
    }
    const double* uk = u + k * b * b;
    for (int i = b - 1; i >= 0; --i) {
      double a = xk[i];
      for (int j = i + 1; j < b; ++j) a -= uk[i * b + j] * xk[j];
      xk[i] = a / uk[i * b + i];
    }
  };
  const int64_t m = wide(n, b) ? n / 2 : n - 1;
  solve(m, nullptr);
  std::thread other;
  auto upper = [&] { for (int64_t k = m + 1; k < n; ++k) solve(k, x + (k - 1) * b); };
  if (m + 1 < n) other = std::thread(upper);
  for (int64_t k = m - 1; k >= 0; --k) solve(k, x + (k + 1) * b);
  if (other.joinable()) other.join();
  return ffi::Error::Success();
}

// Adds the rows of windows of `width` neighbouring states (s unknowns each) to the normal equations; two or more stages make a block.
// Arguments: J (rows, width*s + p, m), time last, window k begins at stage k + first; res (rows, m).
// Results: D (N,b,b), E (N,b,b), C (N,b,p+1) with the gradient last, P (p+1, p+1) with the gradient in the last column.
static ffi::Error Assemble(int64_t s, int64_t width, int64_t first, F64 jac, F64 res, Out d_, Out e_, Out c_, Out p_) {
  const auto dims = jac.dimensions();
  const int64_t rows = dims[0], cols = dims[1], m = dims[2];
  const int ws = s * width, p = cols - ws, p1 = p + 1;
  const int b = d_->dimensions()[1];
  const int64_t group = b / s;
  double *d = d_->typed_data(), *e = e_->typed_data(), *c = c_->typed_data(), *pp = p_->typed_data();
  std::memset(d, 0, d_->size_bytes()); std::memset(e, 0, e_->size_bytes());
  std::memset(c, 0, c_->size_bytes()); std::memset(pp, 0, p_->size_bytes());
  const double *J = jac.typed_data(), *R = res.typed_data();
  std::vector<double> row(cols + 1), sum(p1 * p1, 0.0);
  std::vector<int64_t> block(ws); std::vector<int> at(ws);
  std::vector<int> live(ws);
  for (int64_t k = 0; k < m; ++k) {
    for (int i = 0; i < ws; ++i) {
      const int64_t stage = k + first + i / s;
      block[i] = stage / group;
      at[i] = (stage % group) * s + i % s;
    }
    for (int64_t a = 0; a < rows; ++a) {
      const double* ja = J + a * cols * m + k;
      int count = 0;
      for (int i = 0; i < cols; ++i) row[i] = ja[i * m];
      row[cols] = R[a * m + k];
      for (int i = 0; i < ws; ++i) if (row[i] != 0) live[count++] = i;
      const double* rest = row.data() + ws;  // parameters, then the residual
      for (int q = 0; q < count; ++q) {
        const int i = live[q];
        const double f = row[i];
        double* ci = c + (block[i] * b + at[i]) * p1;
        for (int j = 0; j < p1; ++j) ci[j] += f * rest[j];
        for (int t = 0; t < count; ++t) {
          const int j = live[t];
          if (block[j] == block[i]) d[(block[i] * b + at[i]) * b + at[j]] += f * row[j];
          else if (block[j] + 1 == block[i]) e[(block[j] * b + at[i]) * b + at[j]] += f * row[j];
        }
      }
      for (int i = 0; i < p1; ++i) {
        const double f = rest[i];
        if (f != 0) for (int j = 0; j < p1; ++j) sum[i * p1 + j] += f * rest[j];
      }
    }
  }
  std::memcpy(pp, sum.data(), sizeof(double) * p1 * p1);
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_arrow_factor, Factor,
                              ffi::Ffi::Bind().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>()
                                  .Ret<F64>().Ret<F64>().Ret<F64>().Ret<F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_arrow_back, Back, ffi::Ffi::Bind().Arg<F64>().Arg<F64>().Arg<F64>().Ret<F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_arrow_assemble, Assemble,
                              ffi::Ffi::Bind().Attr<int64_t>("s").Attr<int64_t>("width").Attr<int64_t>("first")
                                  .Arg<F64>().Arg<F64>().Ret<F64>().Ret<F64>().Ret<F64>().Ret<F64>());
