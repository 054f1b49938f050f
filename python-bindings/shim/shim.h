// What the shim's files share.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>

#include <string>
#include <string_view>

#include "core.h"

namespace deferandfuse {

inline constexpr c10::DeviceType kTpu = c10::DeviceType::PrivateUse1;
inline const c10::Device kDevice{kTpu, 0};
inline constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

// Throws the core's last failure on this thread as the c10 error of its kind.
[[noreturn]] void throw_failure();

inline void check(int32_t status) {
  if (C10_UNLIKELY(status != DF_OK)) throw_failure();
}

inline void check_device(c10::Device device) {
  TORCH_CHECK(device.type() == kTpu && device.index() <= 0, "invalid device ", device,
              ": the only one is ", kDevice);
}

// ---- location.cpp
// The innermost Python line outside torch and this package (0: there is none).
uint32_t here();
void register_location();

// ---- storage.cpp
c10::DeviceAllocator* allocator();
// Wraps a cell that the caller owns.
at::Tensor wrap_output(const DfOutput& out);
void resize_storage(const c10::Storage& storage, size_t nbytes);
// Set once a cell exists: a fork from then on leaves a child without a device.
bool device_in_use();
bool in_bad_fork();

inline uint64_t cell_of(const c10::TensorImpl* impl) {
  const c10::Storage& storage = impl->unsafe_storage();
  if (C10_UNLIKELY(!storage)) return 0;
  const c10::StorageImpl* bytes = storage.unsafeGetStorageImpl();
  return reinterpret_cast<uint64_t>(bytes->data_ptr().get_context());
}

// For a storage that torch made of an address alone: finds the cell. Throws if there is none (a
// sparse tensor, say).
void find_cell(const c10::TensorImpl* impl, DfTensor* out);

// Describes a device tensor.
inline void describe(const c10::TensorImpl* impl, DfTensor* out) {
  out->cell = cell_of(impl);
  const c10::IntArrayRef sizes = impl->sizes();
  out->sizes = sizes.data();
  out->strides = impl->strides().data();
  out->offset = impl->storage_offset();
  out->ndim = static_cast<uint32_t>(sizes.size());
  out->dtype = static_cast<uint8_t>(c10::typeMetaToScalarType(impl->dtype()));
  out->flags = 0;
  out->write_return = 0;
  out->reserved = 0;
  if (C10_UNLIKELY(out->cell == 0)) find_cell(impl, out);
}

// The value of a 0-dimensional CPU tensor, as DF_HOST_SCALAR.
void describe_host_scalar(const c10::TensorImpl* impl, DfArg* out);

inline bool has_lazy_bits(const c10::TensorImpl* impl) {
  constexpr c10::DispatchKeySet bits(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  return impl->key_set().has_any(bits);
}
// The same values without conjugate or negative bit.
at::Tensor materialise(const at::Tensor& tensor);

// ---- copy.cpp
// A device copy of a CPU tensor.
at::Tensor upload(const at::Tensor& host);

// ---- generator.cpp
struct Draw {
  uint64_t seed;
  uint64_t counter;
};
// Takes the next call number of a device generator (`generator` None: the default one).
Draw draw(const c10::IValue& generator);
Draw draw_default();
const at::Generator& default_generator();
at::Generator new_generator();

// ---- schema.cpp
// The functional overload that an op is a variant of: "aten::add.Tensor" for add_.Tensor,
// add.out and add.Tensor itself.
std::string functional_name(const c10::FunctionSchema& schema);

// ---- fallback.cpp
// "\n  in op(argument shapes)\n  recorded at line", as the core ends its own errors.
std::string call_context(const c10::OperatorHandle& op, const c10::IValue* arguments,
                         const std::string& name);
// Runs the op on the CPU, counted and warned of. `reason`: why it isn't native.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::string_view reason);

// The registrations of this backend's kernels for aten ops.
torch::Library& library();

// ---- registrations, each called once by df_shim_init
void register_python();
void register_guard();
void register_hooks();
void register_storage();
void register_copy();
void register_ops();
void register_fallback();
void register_autocast();

}  // namespace deferandfuse
