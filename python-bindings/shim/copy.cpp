// Values crossing between host and device.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/ExpandUtils.h>

#include "shim.h"

namespace deferandfuse {
namespace {

uint32_t copy_op() {
  uint32_t flags = 0;
  static const uint32_t op = df_op_lookup("aten::copy", &flags);
  TORCH_CHECK(op != 0, "the core doesn't define aten::copy");
  return op;
}

DfTensor window(const at::Tensor& tensor) {
  DfTensor t;
  describe(tensor.unsafeGetTensorImpl(), &t);
  return t;
}

// A copy on the device; `src` may also be a 0-dimensional CPU tensor. Broadcasts and converts.
void record_copy(const at::Tensor& self, const at::Tensor& src) {
  DfTensor dst = window(self), from;
  dst.flags = DF_WRITE;
  DfArg args[3] = {};
  args[0].tag = DF_TENSOR;
  args[0].tensors = &dst;
  if (src.is_privateuseone()) {
    from = window(src);
    args[1].tag = DF_TENSOR;
    args[1].tensors = &from;
  } else {
    describe_host_scalar(src.unsafeGetTensorImpl(), &args[1]);
  }
  args[2].tag = DF_BOOL;
  DfResult result;
  check(df_record(copy_op(), args, 3, here(), &result));
}

// `host`: contiguous, self's sizes and dtype.
void upload_into(const at::Tensor& self, const at::Tensor& host) {
  if (self.numel() == 0) return;
  const DfTensor dst = window(self);
  check(df_upload(&dst, host.const_data_ptr(), here()));
}

void download_into(const at::Tensor& host, const at::Tensor& src) {
  if (src.numel() == 0) return;
  const DfTensor from = window(src);
  check(df_download(&from, host.mutable_data_ptr(), here()));
}

at::Tensor download(const at::Tensor& src) {
  at::Tensor host = at::empty(src.sizes(), src.options().device(at::kCPU));
  download_into(host, src);
  return host;
}

void copy_from_host(const at::Tensor& self, const at::Tensor& src) {
  TORCH_CHECK(src.is_cpu(), "can't copy from ", src.device(), " to ", self.device());
  if (src.dim() == 0) return record_copy(self, src);
  const at::Tensor host = src.to(self.scalar_type()).contiguous();
  if (host.sizes() == self.sizes()) return upload_into(self, host);
  record_copy(self, upload(host));
}

void copy_to_host(const at::Tensor& self, const at::Tensor& src) {
  TORCH_CHECK(self.is_cpu(), "can't copy from ", src.device(), " to ", self.device());
  const bool direct = self.scalar_type() == src.scalar_type() && self.sizes() == src.sizes() &&
                      self.is_contiguous() && !has_lazy_bits(self.unsafeGetTensorImpl());
  if (direct) {
    download_into(self, src);
  } else {
    self.copy_(download(src));
  }
}

// The error is torch's, whichever way the copy goes.
void check_broadcast(const at::Tensor& self, const at::Tensor& src) {
  const auto shape = at::infer_size_dimvector(self.sizes(), src.sizes());
  TORCH_CHECK(self.sizes() == shape, "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(shape));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  if (self.is_same(source)) return self;
  at::Tensor src = source;
  if (has_lazy_bits(src.unsafeGetTensorImpl())) src = materialise(src);
  if (self.is_privateuseone() && has_lazy_bits(self.unsafeGetTensorImpl())) {
    // Write the bytes that read as `src` through self's bits.
    at::Tensor raw = self;
    if (raw.is_neg()) {
      raw = raw._neg_view();
      src = src.neg();
    }
    if (raw.is_conj()) {
      raw = raw.conj();
      src = src.conj_physical();
    }
    raw.copy_(src);
    return self;
  }
  if (src.sizes() != self.sizes()) check_broadcast(self, src);
  if (!self.is_privateuseone()) {
    copy_to_host(self, src);
  } else if (src.is_privateuseone()) {
    record_copy(self, src);
  } else {
    copy_from_host(self, src);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor to = dst;
  return copy_(to, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  at::Tensor to = dst;
  return copy_(to, self, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(),
              " elements cannot be converted to Scalar");
  return download(has_lazy_bits(self.unsafeGetTensorImpl()) ? materialise(self) : self).item();
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", other.device(), "! (argument other of aten::equal)");
  // Dtypes may differ: `eq` promotes them, as on the CPU.
  if (self.sizes() != other.sizes()) return false;
  return self.eq(other).all().item<bool>();
}

}  // namespace

at::Tensor upload(const at::Tensor& host) {
  const at::Tensor bytes = host.resolve_conj().resolve_neg().contiguous();
  at::Tensor copy = at::empty(bytes.sizes(), bytes.options().device(kDevice));
  upload_into(copy, bytes);
  return copy;
}

at::Tensor materialise(const at::Tensor& tensor) {
  at::Tensor raw = tensor;
  const bool neg = raw.is_neg(), conj = raw.is_conj();
  if (neg) raw = raw._neg_view();
  if (conj) raw = raw.conj().conj_physical();
  return neg ? raw.neg() : raw;
}

void describe_host_scalar(const c10::TensorImpl* impl, DfArg* out) {
  if (C10_UNLIKELY(has_lazy_bits(impl))) {
    const at::Tensor alias(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(
        const_cast<c10::TensorImpl*>(impl)));
    return describe_host_scalar(materialise(alias).unsafeGetTensorImpl(), out);
  }
  const at::ScalarType type = c10::typeMetaToScalarType(impl->dtype());
  out->tag = DF_HOST_SCALAR;
  out->dtype = static_cast<uint8_t>(type);
  out->flags = DF_SLOT | (impl->is_wrapped_number() ? DF_WRAPPED : 0);
  const void* data = impl->data();
  const auto real = [&](double v) { out->d = v; };
  const auto integer = [&](int64_t v) { out->i = v; };
  const auto complex = [&](auto v) {
    out->d = static_cast<double>(v.real());
    out->im = static_cast<double>(v.imag());
  };
#define VALUE(T) (*static_cast<const T*>(data))
  switch (type) {
    case at::kBool: return integer(VALUE(bool));
    case at::kByte: return integer(VALUE(uint8_t));
    case at::kChar: return integer(VALUE(int8_t));
    case at::kShort: return integer(VALUE(int16_t));
    case at::kInt: return integer(VALUE(int32_t));
    case at::kLong: return integer(VALUE(int64_t));
    case at::kUInt16: return integer(VALUE(uint16_t));
    case at::kUInt32: return integer(VALUE(uint32_t));
    case at::kUInt64: return integer(static_cast<int64_t>(VALUE(uint64_t)));
    case at::kHalf: return real(VALUE(at::Half));
    case at::kBFloat16: return real(VALUE(at::BFloat16));
    case at::kFloat: return real(VALUE(float));
    case at::kDouble: return real(VALUE(double));
    case at::kComplexHalf: return complex(VALUE(c10::complex<at::Half>));
    case at::kComplexFloat: return complex(VALUE(c10::complex<float>));
    case at::kComplexDouble: return complex(VALUE(c10::complex<double>));
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "a CPU scalar of dtype ", type,
                                  " can't be used by an op on ", kDevice);
  }
#undef VALUE
}

void register_copy() {
  auto& lib = library();
  lib.impl("copy_", &copy_);
  lib.impl("_copy_from", &copy_from);
  lib.impl("_copy_from_and_resize", &copy_from_and_resize);
  lib.impl("_local_scalar_dense", &local_scalar);
  lib.impl("equal", &equal);
}

}  // namespace deferandfuse
