// Ops without a native kernel run on the CPU: counted, warned of once, and an error if the user
// asked for that.
#include <ATen/native/CPUFallback.h>
#include <ATen/CPUGeneratorImpl.h>

#include <sstream>

#include "shim.h"

namespace deferandfuse {
namespace {

void print_argument(std::ostream& out, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.is_privateuseone()) out << tensor.device() << ' ';
    out << c10::getDtypeNames(tensor.scalar_type()).first << tensor.sizes();
  } else if (value.isTensorList() || (value.isList() && value.toListRef().size() != 0 &&
                                      value.toListRef()[0].isTensor())) {
    out << '[';
    const char* separator = "";
    for (const c10::IValue& item : value.toListRef()) {
      out << std::exchange(separator, ", ");
      print_argument(out, item);
    }
    out << ']';
  } else if (value.isTensor()) {
    out << "None";
  } else {
    out << value;
  }
}

// Random numbers drawn on the CPU still follow the device's generator.
void use_cpu_generator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& args = op.schema().arguments();
  const size_t base = stack->size() - args.size();
  for (size_t i = 0; i < args.size(); ++i) {
    c10::TypePtr type = args[i].type();
    if (auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() != c10::TypeKind::GeneratorType) continue;
    const Draw drawn = draw((*stack)[base + i]);
    const uint64_t seed = drawn.seed ^ (drawn.counter * 0x9E3779B97F4A7C15u);
    (*stack)[base + i] = at::detail::createCPUGenerator(seed);
  }
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_cpu(op, stack, {});
}

}  // namespace

std::string call_context(const c10::OperatorHandle& op, const c10::IValue* arguments,
                         const std::string& name) {
  std::ostringstream out;
  out << "\n  in " << name << '(';
  const char* separator = "";
  for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
    out << std::exchange(separator, ", ");
    print_argument(out, arguments[i]);
  }
  out << ')' << df_location_text(here());
  return out.str();
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                std::string_view reason) {
  const std::string name = functional_name(op.schema());
  const c10::IValue* arguments = stack->data() + (stack->size() - op.schema().arguments().size());
  const char* colon = reason.empty() ? "" : ": ";
  switch (df_note_fallback(name.c_str())) {
    case 0:
      TORCH_WARN(name, " isn't native on tpu and runs on the CPU", colon, reason,
                 ". torch.tpu.fallbacks() counts such calls; TORCHTPU_FALLBACK=error makes them "
                 "errors.");
      break;
    case 2:
      // The core's reason ends in the context already.
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, name, " isn't native on tpu and TORCHTPU_FALLBACK=error", colon, reason,
          reason.find("\n  in ") == reason.npos ? call_context(op, arguments, name) : "");
    default:
      break;
  }
  use_cpu_generator(op, stack);
  // A result that should alias an argument can't come from another device's memory.
  // It pops the arguments, so what an error needs of them is kept.
  const torch::jit::Stack kept = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  try {
    at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  } catch (c10::Error& e) {
    e.add_context(call_context(op, kept.data(), name).substr(3));
    throw;
  }
}

void register_fallback() {
  static auto& lib = *new torch::Library(torch::Library::IMPL, "_",
                                         c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  lib.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace deferandfuse
