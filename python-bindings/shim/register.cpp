// Hands everything to torch, once.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <unordered_set>

#include "kernel.h"

namespace deferandfuse {
namespace {

std::string qualified(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

torch::Library& library_of(const std::string& ns) {
  static auto* libraries = new std::unordered_map<std::string, torch::Library>;
  const auto found = libraries->find(ns);
  if (found != libraries->end()) return found->second;
  return libraries
      ->emplace(ns, torch::Library(torch::Library::IMPL, ns, c10::DispatchKey::PrivateUse1,
                                   __FILE__, __LINE__))
      .first->second;
}

}  // namespace

torch::Library& library() { return library_of("aten"); }

void register_ops() {
  auto& dispatcher = c10::Dispatcher::singleton();
  const Schemas schemas;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) continue;
    // A composite op's autograd formula is that of its parts: a kernel would cut it off. And the
    // shim's own kernels stand.
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    auto desc = schemas.describe(op->schema());
    if (!desc) continue;
    auto kernel = std::make_unique<OpKernel>(std::move(*desc));
    const std::string ns = name.name.substr(0, name.name.find("::"));
    library_of(ns).impl(qualified(name).c_str(),
                        torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  }
}

}  // namespace deferandfuse

// Registers the device with torch. Called once, with the GIL, after torch and the package were
// imported. Non-zero: it failed, and `message` (of `capacity` bytes) says why.
extern "C" int df_shim_init(char* message, size_t capacity) {
  using namespace deferandfuse;
  try {
    register_location();
    register_guard();
    register_hooks();
    register_storage();
    register_copy();
    register_ops();
    register_fallback();
    register_autocast();
    return 0;
  } catch (const c10::Error& e) {
    std::snprintf(message, capacity, "%s", e.what_without_backtrace());
  } catch (const std::exception& e) {
    std::snprintf(message, capacity, "%s", e.what());
  }
  return 1;
}
