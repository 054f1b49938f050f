// Hands everything to torch, once.
#include <Python.h>

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

// What this file was compiled against, for the package to read before it loads the library.
// Nothing refers to it, so the linker is told to keep it.
extern "C" __attribute__((used, retain, visibility("default"))) const char df_built_for_torch[] =
    "DEFERANDFUSE_BUILT_FOR_TORCH=" DEFERANDFUSE_TORCH_VERSION ";";

// torch's name of a dtype, for the core's messages about those that it doesn't know.
extern "C" const char* df_dtype_name(uint8_t code) {
  if (code >= static_cast<uint8_t>(c10::ScalarType::NumOptions)) return "unknown";
  return c10::getDtypeNames(static_cast<c10::ScalarType>(code)).first.data();
}

// Registers the device with torch. Called once, with the GIL, after torch was imported. -1: it
// failed, and a Python error is set.
extern "C" int df_shim_init() {
  using namespace deferandfuse;
  try {
    register_location();
    register_python();
    register_guard();
    register_hooks();
    register_storage();
    register_copy();
    register_ops();
    register_fallback();
    register_autocast();
    return 0;
  } catch (const c10::Error& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return -1;
}
