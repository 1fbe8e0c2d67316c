// SPDX-License-Identifier: Apache-2.0
// a x + y: the smallest kernel there is. It proves the way from C++ through XLA to Python, for `doctor` and the tests.

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error Axpy(double a, ffi::Buffer<ffi::F64> x, ffi::Buffer<ffi::F64> y, ffi::ResultBuffer<ffi::F64> z) {
  if (x.element_count() != y.element_count()) return ffi::Error::InvalidArgument("axpy: x and y differ in size");
  const double* xs = x.typed_data();
  const double* ys = y.typed_data();
  double* zs = z->typed_data();
  for (size_t i = 0; i < x.element_count(); ++i) zs[i] = a * xs[i] + ys[i];
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(multibody_axpy, Axpy,
                              ffi::Ffi::Bind()
                                  .Attr<double>("a")
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>());
