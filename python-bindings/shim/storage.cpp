// Storages over cells, the tensors made on them, and the ops that only change a tensor's window.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <torch/library.h>

#include <atomic>

#include "shim.h"

namespace deferandfuse {
namespace {

std::atomic<bool> used{false};
std::atomic<bool> bad_fork{false};

void free_cell(void* cell) { df_cell_free(reinterpret_cast<uint64_t>(cell)); }

c10::DataPtr own_cell(uint64_t cell, void* address) {
  if (C10_UNLIKELY(!used.load(std::memory_order_relaxed))) used = true;
  return {address, reinterpret_cast<void*>(cell), &free_cell, kDevice};
}

// Device memory is the core's: a storage is a cell, and what torch calls an allocation only
// names one.
struct CellAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void* address = nullptr;
    const uint64_t cell = df_cell_new(nbytes, &address);
    if (cell == 0) throw_failure();
    return own_cell(cell, address);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "tpu storages have no host-visible bytes to copy; use Tensor.copy_");
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    if (!used) return stats;
    uint64_t current = 0, peak = 0, allocations = 0;
    df_memory_stats(&current, &peak, &allocations);
    for (auto* of : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                     &stats.requested_bytes}) {
      auto& bytes = (*of)[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      bytes.current = static_cast<int64_t>(current);
      bytes.peak = static_cast<int64_t>(peak);
    }
    stats.num_device_alloc = static_cast<int64_t>(allocations);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    if (used) df_memory_reset_peak();
  }
};

// Leaked, as tensors may outlive static destructors.
CellAllocator& cells = *new CellAllocator;

void after_fork() {
  if (!used) return;
  bad_fork = true;
  df_after_fork_in_child();
}

void check_options(std::optional<at::Layout> layout, std::optional<at::Device> device,
                   std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "tensors on ", kDevice, " are strided; got layout ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  if (device) check_device(*device);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check_options(layout, device, pin_memory);
  return at::detail::empty_generic(size, &cells, kKeys, at::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  return at::detail::empty_strided_generic(size, stride, &cells, kKeys, at::dtype_or_default(dtype));
}

void grow_to_fit(at::TensorImpl* impl) {
  if (impl->numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(
      impl->sizes(), impl->strides(), impl->itemsize(), impl->storage_offset());
  const c10::Storage& storage = impl->unsafe_storage();
  if (needed > storage.nbytes()) resize_storage(storage, needed);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    at::detail::check_size_nonnegative(size);
    impl->set_sizes_contiguous(size);
    grow_to_fit(impl);
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  grow_to_fit(impl);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  at::Storage fresh(c10::Storage::use_byte_size_t(), 0, &cells, true);
  return set_storage(self, std::move(fresh), 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().is_alias_of(other.storage()) &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

void record_stream(at::Tensor&, at::Stream) {}

}  // namespace

c10::DeviceAllocator* allocator() { return &cells; }
bool device_in_use() { return used; }
bool in_bad_fork() { return bad_fork; }

at::Tensor wrap_output(const DfOutput& out) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), out.nbytes, own_cell(out.cell, out.address), &cells,
      true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), kKeys,
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(out.dtype)));
  // A TensorImpl starts with sizes [0].
  if (out.ndim != 1 || out.sizes[0] != 0) {
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({out.sizes, out.ndim});
  }
  return tensor;
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const auto cell = reinterpret_cast<uint64_t>(impl->data_ptr().get_context());
  if (cell == 0) {
    impl->set_data_ptr_noswap(cells.allocate(nbytes));
  } else {
    check(df_cell_resize(cell, nbytes));
  }
  impl->set_nbytes(nbytes);
}

void find_cell(const c10::TensorImpl* impl, DfTensor* out) {
  const c10::Storage& storage = impl->unsafe_storage();
  void* start = nullptr;
  if (storage && storage.data() != nullptr) out->cell = df_cell_at(storage.data(), &start);
  TORCH_CHECK_NOT_IMPLEMENTED(out->cell != 0, "a tensor with layout ", impl->layout(),
                              " and no storage made on ", kDevice, " can't be used there");
  const auto bytes = static_cast<const char*>(storage.data()) - static_cast<const char*>(start);
  out->offset += bytes / static_cast<int64_t>(impl->itemsize());
}

void register_storage() {
  c10::SetAllocator(kTpu, &cells);
  pthread_atfork(nullptr, nullptr, &after_fork);
  auto& lib = library();
  lib.impl("empty.memory_format", &empty);
  lib.impl("empty_strided", &empty_strided);
  lib.impl("resize_", &resize_);
  lib.impl("set_.source_Storage_storage_offset", &set_storage);
  lib.impl("set_.source_Storage", &set_whole_storage);
  lib.impl("set_.source_Tensor", &set_tensor);
  lib.impl("set_", &set_nothing);
  lib.impl("is_set_to", &is_set_to);
  lib.impl("record_stream", &record_stream);
  lib.impl("as_strided", &at::native::as_strided_tensorimpl);
  lib.impl("view", &at::native::view);
  lib.impl("_reshape_alias", &at::native::_reshape_alias);
  lib.impl("unfold", &at::native::unfold);
  lib.impl("view_as_real", &at::native::view_as_real);
  lib.impl("view_as_complex", &at::native::view_as_complex);
}

}  // namespace deferandfuse
