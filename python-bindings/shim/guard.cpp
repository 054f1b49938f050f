// What torch's generic device code asks of a backend: the current device and stream, events,
// and the hooks behind torch.accelerator.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <memory>

#include "shim.h"

namespace deferandfuse {
namespace {

using Clock = std::chrono::steady_clock;

// The device runs what it is given in one order, so there is one stream.
const c10::Stream kStream(c10::Stream::DEFAULT, kDevice);

// A point in the device's only stream. The core can wait for all work but can't say when a point
// was passed: an event with timing therefore drains the device where it is recorded, and takes
// the host's clock then; without timing, recording only flushes.
struct Event {
  bool done = false;
  bool timed = false;
  Clock::time_point at;

  void finish() {
    if (done) return;
    check(df_synchronize());
    done = true;
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kTpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    check_device(device);
    return kDevice;
  }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override { check_device(device); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device) const override { return kStream; }
  c10::Stream getDefaultStream(c10::Device) const override { return kStream; }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return kStream; }
  c10::Stream getNewStream(c10::Device, int) const override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const override { return kStream; }
  bool queryStream(const c10::Stream&) const override {
    synchronizeDevice(0);
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override { synchronizeDevice(0); }
  void synchronizeDevice(c10::DeviceIndex) const override {
    if (device_in_use()) check(df_synchronize());
  }

  void record(void** event, const c10::Stream&, c10::DeviceIndex,
              c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new Event;
    auto* e = static_cast<Event*>(*event);
    e->done = false;
    e->timed = flag == c10::EventFlag::BACKEND_DEFAULT;
    if (e->timed) {
      e->finish();
      e->at = Clock::now();
    } else {
      check(df_flush());
    }
  }
  void block(void*, const c10::Stream&) const override {}
  // Asking whether work is done needs it to be done some time: it waits.
  bool queryEvent(void* event) const override {
    if (event != nullptr) static_cast<Event*>(event)->finish();
    return true;
  }
  void synchronizeEvent(void* event) const override { queryEvent(event); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    auto *a = static_cast<Event*>(start), *b = static_cast<Event*>(end);
    TORCH_CHECK(a && b, "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(a->timed && b->timed,
                "Both events must be created with argument 'enable_timing=True'.");
    return std::chrono::duration<double, std::milli>(b->at - a->at).count();
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return device_in_use(); }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_device(c10::Device(kTpu, index));
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    setCurrentDevice(index);
    return 0;
  }
  // A negative index means "leave it".
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(std::max<c10::DeviceIndex>(index, 0));
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    check_device(c10::Device(kTpu, index));
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    check_device(c10::Device(kTpu, index));
    return new_generator();
  }

  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }
  // Uploads gain nothing from pinned memory: "pinned" host memory is ordinary memory.
  bool isPinnedPtr(const void*) const override { return false; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

}  // namespace

void register_guard() { c10::impl::registerDeviceGuard(kTpu, new Guard); }
void register_hooks() { at::RegisterPrivateUse1HooksInterface(new Hooks); }

}  // namespace deferandfuse
