// The device's random number generator: a seed and the number of the next random call. What a
// call draws is a function of these two, so it doesn't depend on when the call runs.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstring>

#include "shim.h"

namespace deferandfuse {
namespace {

struct TpuGenerator final : c10::GeneratorImpl {
  TpuGenerator() : GeneratorImpl(kDevice, kKeys) {}
  static c10::DeviceType device_type() { return kTpu; }

  // Lock-free, so that a fork can't leave a child with a held lock.
  Draw next() { return {seed_.load(), counter_.fetch_add(1)}; }

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    counter_ = 0;
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_offset(uint64_t offset) override { counter_ = offset; }
  uint64_t get_offset() const override { return counter_; }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::TensorBase state = at::detail::empty_cpu({2 * sizeof(uint64_t)}, at::kByte);
    const uint64_t words[2] = {seed_, counter_};
    std::memcpy(state.mutable_data_ptr(), words, sizeof words);
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    uint64_t words[2];
    TORCH_CHECK(state.numel() == sizeof words, "the RNG state of a tpu generator is ",
                sizeof words, " bytes (seed, call counter); got ", state.numel());
    std::memcpy(words, state.data(), sizeof words);
    seed_ = words[0];
    counter_ = words[1];
  }

 private:
  TpuGenerator* clone_impl() const override {
    auto* copy = new TpuGenerator;
    copy->seed_ = seed_.load();
    copy->counter_ = counter_.load();
    return copy;
  }

  std::atomic<uint64_t> seed_{c10::default_rng_seed_val};
  std::atomic<uint64_t> counter_{0};
};

}  // namespace

at::Generator new_generator() { return at::make_generator<TpuGenerator>(); }

const at::Generator& default_generator() {
  static const auto* generator = new at::Generator(new_generator());
  return *generator;
}

Draw draw_default() { return default_generator().get<TpuGenerator>()->next(); }

Draw draw(const c10::IValue& generator) {
  if (generator.isNone()) return draw_default();
  const at::Generator& given = generator.toGenerator();
  if (!given.defined()) return draw_default();
  return at::check_generator<TpuGenerator>(given)->next();
}

}  // namespace deferandfuse
