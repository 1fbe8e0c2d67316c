// SPDX-License-Identifier: Apache-2.0
// The three passes of differential dynamic programming over a chain with affine, nearly diagonal dynamics
//
//     x+ = A (x + S w/2) + S w/2 + b,    A = 1 + sum_z a[z] e_row[z] e_col[z]',    S picks the states `inputs`.
//
// An increment w acts through the whole step: half of it is there before, half after. With B = (A + 1) S/2 all products with B
// are means of V, A'V, VA and A'VA, which the recursion has anyway.
// Integrators have few such terms (12 for 15 centroidal states), so A'VA costs hundreds of operations where a dense product
// costs thousands: this, and no call overhead per stage, is what the kernel is for. Its JAX twins are in ddp_sweep.py.

#include <cmath>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F64 = ffi::Buffer<ffi::F64>;
using Out = ffi::ResultBuffer<ffi::F64>;
using Index = ffi::Span<const int32_t>;

namespace {

// One stage of the backward pass. NX and NW are compile-time sizes, or 0 to take the sizes given at run time.
template <int NX, int NW>
struct Sweep {
  int nx_, nw_, nz;
  const int32_t *rows, *cols, *inputs;
  int nx() const { return NX ? NX : nx_; }
  int nw() const { return NW ? NW : nw_; }

  bool backward(long n, const double* a, const double* lx, const double* lxx, const double* w, const double* info, double mu,
                double* k, double* K, double* C, double* vx, double* vxx, double* decrement) const {
    const int nx = this->nx(), nw = this->nw();
    std::vector<double> t_(nx * nx), m_(nx * nx), y_(nw * nx), l_(nw * nw), u_(nw), qx_(nx);
    double *t = t_.data(), *m = m_.data(), *y = y_.data(), *l = l_.data(), *u = u_.data(), *qx = qx_.data();
    for (int i = 0; i < nx; ++i) vx[i] = lx[n * nx + i];
    for (int i = 0; i < nx * nx; ++i) vxx[i] = lxx[n * nx * nx + i];
    double sum = 0;
    for (long s = n - 1; s >= 0; --s) {
      const double *as = a + s * nz, *ls = lxx + s * nx * nx, *is = info + s * nw, *ws = w + s * nw;
      double *ks = k + s * nw, *Ks = K + s * nw * nx, *Cs = C + s * nw * nw;
      for (int i = 0; i < nx * nx; ++i) t[i] = vxx[i];  // t = A'V
      for (int i = 0; i < nx; ++i) qx[i] = vx[i];
      for (int z = 0; z < nz; ++z) {
        const double az = as[z];
        double* to = t + cols[z] * nx;
        const double* from = vxx + rows[z] * nx;
        for (int j = 0; j < nx; ++j) to[j] += az * from[j];
        qx[cols[z]] += az * vx[rows[z]];
      }
      for (int i = 0; i < nx; ++i) {  // m = A'V A
        double *mi = m + i * nx, *ti = t + i * nx;
        for (int j = 0; j < nx; ++j) mi[j] = ti[j];
        for (int z = 0; z < nz; ++z) mi[cols[z]] += as[z] * ti[rows[z]];
      }
      for (int i = 0; i < nw; ++i) {  // Qww (lower part), Qw, Qwx
        const int p = inputs[i];
        for (int j = 0; j <= i; ++j) {
          const int q = inputs[j];
          l[i * nw + j] = 0.25 * (vxx[p * nx + q] + t[p * nx + q] + t[q * nx + p] + m[p * nx + q]);
        }
        l[i * nw + i] += is[i] * (1 + mu);
        u[i] = is[i] * ws[i] + 0.5 * (vx[p] + qx[p]);
        for (int j = 0; j < nx; ++j) y[i * nx + j] = 0.5 * (t[j * nx + p] + m[p * nx + j]);
      }
      for (int i = 0; i < nx; ++i) qx[i] += lx[s * nx + i];
      for (int i = 0; i < nx * nx; ++i) vxx[i] = ls[i] + m[i];
      for (int i = 0; i < nw; ++i) {  // Qww = L L'; y = L^-1 Qwx, u = L^-1 Qw
        for (int j = 0; j <= i; ++j) {
          double d = l[i * nw + j];
          for (int q = 0; q < j; ++q) d -= l[i * nw + q] * l[j * nw + q];
          if (i == j) {
            if (!(d > 0)) return false;
            l[i * nw + i] = std::sqrt(d);
          } else {
            l[i * nw + j] = d / l[j * nw + j];
          }
        }
        const double r = 1 / l[i * nw + i];
        for (int q = 0; q < i; ++q) {
          const double c = l[i * nw + q];
          for (int j = 0; j < nx; ++j) y[i * nx + j] -= c * y[q * nx + j];
          u[i] -= c * u[q];
        }
        for (int j = 0; j < nx; ++j) y[i * nx + j] *= r;
        u[i] *= r;
        sum += u[i] * u[i];
      }
      for (int q = 0; q < nw; ++q) {  // V = Qxx - y'y: symmetric by construction
        const double* yq = y + q * nx;
        for (int i = 0; i < nx; ++i) {
          const double c = yq[i];
          double* v = vxx + i * nx;
          for (int j = 0; j < nx; ++j) v[j] -= c * yq[j];
        }
        for (int i = 0; i < nx; ++i) qx[i] -= yq[i] * u[q];
      }
      for (int i = 0; i < nx; ++i) vx[i] = qx[i];
      for (int i = nw - 1; i >= 0; --i) {  // K = -L^-T y, k = -L^-T u
        const double r = 1 / l[i * nw + i];
        double e = -u[i];
        for (int j = 0; j < nx; ++j) Ks[i * nx + j] = -y[i * nx + j];
        for (int q = i + 1; q < nw; ++q) {
          const double c = l[q * nw + i];
          for (int j = 0; j < nx; ++j) Ks[i * nx + j] -= c * Ks[q * nx + j];
          e -= c * ks[q];
        }
        for (int j = 0; j < nx; ++j) Ks[i * nx + j] *= r;
        ks[i] = e * r;
      }
      for (int c = 0; c < nw; ++c) {  // C = Qww^-1, column by column
        for (int i = 0; i < nw; ++i) {
          double e = i == c;
          for (int q = c; q < i; ++q) e -= l[i * nw + q] * u[q];
          u[i] = i < c ? 0 : e / l[i * nw + i];
        }
        for (int i = nw - 1; i >= 0; --i) {
          double e = u[i];
          for (int q = i + 1; q < nw; ++q) e -= l[q * nw + i] * Cs[q * nw + c];
          Cs[i * nw + c] = e / l[i * nw + i];
        }
      }
    }
    *decrement = sum;
    return true;
  }

  void forward(long n, const double* a, const double* b, const double* x, const double* w, const double* k, const double* K,
               double alpha, const double* start, double* xs, double* ws) const {
    const int nx = this->nx(), nw = this->nw();
    std::vector<double> d(nx), half(nx);
    for (int i = 0; i < nx; ++i) xs[i] = start[i];
    for (long s = 0; s < n; ++s) {
      const double* now = xs + s * nx;
      double* next = xs + (s + 1) * nx;
      for (int i = 0; i < nx; ++i) d[i] = now[i] - x[s * nx + i], half[i] = now[i], next[i] = now[i] + b[s * nx + i];
      for (int i = 0; i < nw; ++i) {
        const double* row = K + (s * nw + i) * nx;
        double e = w[s * nw + i] + alpha * k[s * nw + i];
        for (int j = 0; j < nx; ++j) e += row[j] * d[j];
        ws[s * nw + i] = e;
        next[inputs[i]] += e;
        half[inputs[i]] += 0.5 * e;
      }
      for (int z = 0; z < nz; ++z) next[rows[z]] += a[s * nz + z] * half[cols[z]];
    }
  }

  // P+ = F P F' + B C B', F = A + B K
  void covariance(long n, const double* a, const double* K, const double* C, const double* first, double* P) const {
    const int nx = this->nx(), nw = this->nw();
    std::vector<double> t(nx * nx), f(nx * nx), h(nx * nx), B(nx * nw), BC(nx * nw);
    for (int i = 0; i < nx * nx; ++i) P[i] = first[i];
    for (long s = 0; s < n; ++s) {
      const double* now = P + s * nx * nx;
      double* next = P + (s + 1) * nx * nx;
      auto apply = [&](const double* from, double* to) {  // to = F from
        for (int i = 0; i < nx * nx; ++i) to[i] = h[i] = from[i];
        for (int i = 0; i < nw; ++i) {
          double *row = to + inputs[i] * nx, *half = h.data() + inputs[i] * nx;
          for (int q = 0; q < nx; ++q) {
            const double c = K[(s * nw + i) * nx + q];
            for (int j = 0; j < nx; ++j) row[j] += c * from[q * nx + j], half[j] += 0.5 * c * from[q * nx + j];
          }
        }
        for (int z = 0; z < nz; ++z)
          for (int j = 0; j < nx; ++j) to[rows[z] * nx + j] += a[s * nz + z] * h[cols[z] * nx + j];
      };
      apply(now, t.data());
      for (int i = 0; i < nx; ++i)
        for (int j = 0; j < nx; ++j) f[j * nx + i] = t[i * nx + j];
      apply(f.data(), t.data());
      for (int i = 0; i < nx; ++i)
        for (int j = 0; j < nx; ++j) next[i * nx + j] = 0.5 * (t[i * nx + j] + t[j * nx + i]);
      for (double& e : B) e = 0;
      for (int i = 0; i < nw; ++i) {
        B[inputs[i] * nw + i] = 1;
        for (int z = 0; z < nz; ++z)
          if (cols[z] == inputs[i]) B[rows[z] * nw + i] += 0.5 * a[s * nz + z];
      }
      for (int i = 0; i < nx; ++i)
        for (int j = 0; j < nw; ++j) {
          double e = 0;
          for (int q = 0; q < nw; ++q) e += B[i * nw + q] * C[(s * nw + q) * nw + j];
          BC[i * nw + j] = e;
        }
      for (int i = 0; i < nx; ++i)
        for (int q = 0; q < nw; ++q)
          for (int j = 0; j < nx; ++j) next[i * nx + j] += BC[i * nw + q] * B[j * nw + q];
    }
  }
};

template <class Work>
void dispatch(int nx, int nw, Index rows, Index cols, Index inputs, Work work) {
  const int nz = static_cast<int>(rows.size());
  const int32_t *r = rows.begin(), *c = cols.begin(), *i = inputs.begin();
  if (nx == 15 && nw == 6)
    work(Sweep<15, 6>{nx, nw, nz, r, c, i});
  else
    work(Sweep<0, 0>{nx, nw, nz, r, c, i});
}

ffi::Error Backward(Index rows, Index cols, Index inputs, F64 a, F64 lx, F64 lxx, F64 w, F64 info, F64 mu, Out k, Out K, Out C,
                    Out vx, Out vxx, Out decrement, Out good) {
  const long n = w.dimensions()[0];
  const int nx = lx.dimensions()[1], nw = w.dimensions()[1];
  dispatch(nx, nw, rows, cols, inputs, [&](auto sweep) {
    good->typed_data()[0] = sweep.backward(n, a.typed_data(), lx.typed_data(), lxx.typed_data(), w.typed_data(),
                                           info.typed_data(), mu.typed_data()[0], k->typed_data(), K->typed_data(),
                                           C->typed_data(), vx->typed_data(), vxx->typed_data(), decrement->typed_data());
  });
  return ffi::Error::Success();
}

ffi::Error Forward(Index rows, Index cols, Index inputs, F64 a, F64 b, F64 x, F64 w, F64 k, F64 K, F64 alpha, F64 start, Out xs,
                   Out ws) {
  const long n = w.dimensions()[0];
  dispatch(x.dimensions()[1], w.dimensions()[1], rows, cols, inputs, [&](auto sweep) {
    sweep.forward(n, a.typed_data(), b.typed_data(), x.typed_data(), w.typed_data(), k.typed_data(), K.typed_data(),
                  alpha.typed_data()[0], start.typed_data(), xs->typed_data(), ws->typed_data());
  });
  return ffi::Error::Success();
}

ffi::Error Covariance(Index rows, Index cols, Index inputs, F64 a, F64 K, F64 C, F64 first, Out P) {
  dispatch(K.dimensions()[2], K.dimensions()[1], rows, cols, inputs, [&](auto sweep) {
    sweep.covariance(K.dimensions()[0], a.typed_data(), K.typed_data(), C.typed_data(), first.typed_data(), P->typed_data());
  });
  return ffi::Error::Success();
}

}  // namespace

#define STRUCTURE ffi::Ffi::Bind().Attr<Index>("rows").Attr<Index>("cols").Attr<Index>("inputs")

XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_ddp_backward, Backward,
                              STRUCTURE.Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Ret<F64>().Ret<F64>()
                                  .Ret<F64>().Ret<F64>().Ret<F64>().Ret<F64>().Ret<F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_ddp_forward, Forward,
                              STRUCTURE.Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>()
                                  .Ret<F64>().Ret<F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_ddp_covariance, Covariance,
                              STRUCTURE.Arg<F64>().Arg<F64>().Arg<F64>().Arg<F64>().Ret<F64>());
