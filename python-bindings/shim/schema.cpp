#include "schema.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <unordered_map>

namespace deferandfuse {
namespace {

using c10::Argument;
using c10::FunctionSchema;
using c10::TypeKind;

// The most arguments a native kernel takes, including an appended generator.
constexpr size_t kMostArgs = 40;

bool writes(const Argument& arg) {
  return arg.alias_info() != nullptr && arg.alias_info()->isWrite();
}

bool is_functional(const FunctionSchema& schema) {
  return std::none_of(schema.arguments().begin(), schema.arguments().end(), writes);
}

bool is_option(const Argument& arg) {
  static const std::string names[] = {"dtype", "layout", "device", "pin_memory",
                                      "memory_format"};
  return arg.kwarg_only() &&
         std::find(std::begin(names), std::end(names), arg.name()) != std::end(names);
}

// Whether `functional` takes what `schema` takes besides its out= tensors. `options`: it may
// also take a dtype, device and so on, which the out= tensor settles.
bool same_arguments(const FunctionSchema& schema, const FunctionSchema& functional,
                    bool options) {
  auto theirs = functional.arguments().begin();
  const auto end = functional.arguments().end();
  const auto skip = [&](const Argument* but) {
    while (options && theirs != end && is_option(*theirs) &&
           (but == nullptr || theirs->name() != but->name())) {
      ++theirs;
    }
  };
  for (const Argument& ours : schema.arguments()) {
    if (ours.is_out()) continue;
    skip(&ours);
    if (theirs == end || ours.name() != theirs->name() ||
        *ours.real_type() != *theirs->real_type()) {
      return false;
    }
    ++theirs;
  }
  skip(nullptr);
  return theirs == end;
}

bool has_out(const FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const Argument& arg) { return arg.is_out(); });
}

std::string full_name(const std::string& base, const std::string& overload) {
  return overload.empty() ? base : base + "." + overload;
}

// "aten::add_" → "aten::add", "aten::__iand__" → "aten::__and__"; empty if not an in-place name.
std::string without_inplace_mark(const std::string& name) {
  const size_t start = name.find("::") + 2;
  const std::string base = name.substr(start);
  const bool dunder = base.size() > 4 && base.ends_with("__");
  if (dunder) {
    return base.starts_with("__i") ? name.substr(0, start) + "__" + base.substr(3) : "";
  }
  return base.ends_with("_") ? name.substr(0, name.size() - 1) : "";
}

struct Element {
  TypeKind kind;
  bool list;
  bool optional_elements;
};

Element element(c10::TypePtr type) {
  const auto unwrap = [&] {
    if (auto* optional = type->castRaw<c10::OptionalType>()) {
      type = optional->getElementType();
      return true;
    }
    return false;
  };
  unwrap();
  if (auto* list = type->castRaw<c10::ListType>()) {
    type = list->getElementType();
    const bool optional = unwrap();
    return {type->kind(), true, optional};
  }
  return {type->kind(), false, false};
}

std::optional<Kind> kind_of(const Argument& arg) {
  const Element e = element(arg.real_type());
  switch (e.kind) {
    case TypeKind::TensorType:
      if (!e.list) return Kind::Tensor;
      return e.optional_elements ? Kind::Index : Kind::Tensors;
    case TypeKind::NumberType:
      return e.list ? Kind::Scalars : Kind::Scalar;
    case TypeKind::FloatType:
      return e.list ? Kind::Floats : Kind::Float;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return e.list ? Kind::Ints : Kind::Int;
    case TypeKind::BoolType:
      if (arg.name() == "pin_memory") return Kind::Ignored;
      return e.list ? Kind::Bools : Kind::Bool;
    case TypeKind::StringType:
      if (e.list) return std::nullopt;
      return Kind::String;
    case TypeKind::ScalarTypeType:
      if (e.list) return std::nullopt;
      return Kind::Dtype;
    case TypeKind::GeneratorType:
      return Kind::Generator;
    case TypeKind::DeviceObjType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
      return Kind::Ignored;
    default:
      return std::nullopt;
  }
}

bool same_alias(const Argument& a, const Argument& b) {
  return a.alias_info() != nullptr && b.alias_info() != nullptr &&
         a.alias_info()->beforeSets() == b.alias_info()->beforeSets();
}

bool describe_returns(const FunctionSchema& schema, OpDesc& desc) {
  bool list = false;
  for (const Argument& ret : schema.returns()) {
    const Element e = element(ret.real_type());
    if (e.kind != TypeKind::TensorType) return false;
    if (ret.alias_info() != nullptr) {
      const auto& args = schema.arguments();
      const auto arg = std::find_if(args.begin(), args.end(),
                                    [&](const Argument& a) { return same_alias(a, ret); });
      // A view of its argument is never an op of the core.
      if (arg == args.end() || !writes(*arg)) return false;
      desc.returns.push_back({Ret::Alias, static_cast<uint8_t>(arg - args.begin())});
    } else if (e.list) {
      // The core's results are one flat list: it couldn't be told where a second one starts.
      if (std::exchange(list, true)) return false;
      desc.returns.push_back({Ret::FreshList});
    } else {
      desc.returns.push_back({Ret::Fresh});
    }
  }
  return true;
}

// Which return of the functional overload lands in each written argument: the return that
// aliases it, else the next one that no return of this schema stands for.
void describe_writes(const FunctionSchema& schema, OpDesc& desc) {
  const auto& returns = schema.returns();
  size_t next = returns.size();
  size_t next_out = 0;
  for (Param& param : desc.params) {
    if (param.kind == Kind::OutDtype || param.kind == Kind::Ignored) continue;
    const Argument& arg = schema.arguments()[param.arg];
    if (!writes(arg)) continue;
    param.write = DF_WRITE | (arg.is_out() ? DF_OUT : 0);
    const auto ret = std::find_if(returns.begin(), returns.end(),
                                  [&](const Argument& r) { return same_alias(r, arg); });
    const size_t at = arg.is_out()           ? next_out++
                      : ret != returns.end() ? static_cast<size_t>(ret - returns.begin())
                                             : next++;
    param.write_return = static_cast<uint8_t>(at);
  }
}

}  // namespace

Schemas::Schemas() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (const auto op = dispatcher.findSchema(name)) {
      overloads_[name.name].push_back(&op->schema());
    }
  }
}

const FunctionSchema* Schemas::functional(const FunctionSchema& schema) const {
  if (is_functional(schema)) return &schema;
  if (has_out(schema)) {
    const auto found = overloads_.find(schema.name());
    if (found == overloads_.end()) return nullptr;
    for (const bool options : {false, true}) {
      for (const FunctionSchema* other : found->second) {
        if (is_functional(*other) && same_arguments(schema, *other, options)) return other;
      }
    }
    return nullptr;
  }
  const auto found = overloads_.find(without_inplace_mark(schema.name()));
  if (found == overloads_.end()) return nullptr;
  // Usually the overload of the same name; but `pow_.Scalar` is `pow.Tensor_Scalar`, and
  // `pow.Scalar` another function.
  const auto same_name = [&](const FunctionSchema* other) {
    return other->overload_name() == schema.overload_name();
  };
  const FunctionSchema* same = nullptr;
  for (const FunctionSchema* other : found->second) {
    if (!is_functional(*other) || !same_arguments(schema, *other, false)) continue;
    if (same_name(other)) return other;
    same = other;
  }
  if (same != nullptr) return same;
  for (const FunctionSchema* other : found->second) {
    if (same_name(other) && other->arguments().size() == schema.arguments().size()) return other;
  }
  return nullptr;
}

std::string Schemas::functional_name(const FunctionSchema& schema) const {
  if (const FunctionSchema* other = functional(schema)) {
    return full_name(other->name(), other->overload_name());
  }
  // An op with only an in-place form is known by that form's name without its mark.
  const std::string base = without_inplace_mark(schema.name());
  return full_name(base.empty() ? schema.name() : base, schema.overload_name());
}

std::optional<OpDesc> Schemas::describe(const FunctionSchema& schema) const {
  OpDesc desc;
  desc.name = functional_name(schema);
  uint32_t flags = 0;
  desc.op = df_op_lookup(desc.name.c_str(), &flags);
  if (desc.op == 0 || schema.arguments().size() >= kMostArgs) return std::nullopt;
  desc.nargs = static_cast<uint32_t>(schema.arguments().size());
  if (!describe_returns(schema, desc)) return std::nullopt;

  // The core's arguments are the functional overload's; out= tensors follow them.
  const auto& args = schema.arguments();
  const FunctionSchema* other = functional(schema);
  size_t at = 0;
  const auto own = [&](size_t i) {
    const auto kind = kind_of(args[i]);
    if (kind) desc.params.push_back({*kind, static_cast<uint8_t>(i)});
    return kind.has_value();
  };
  const size_t outs = static_cast<size_t>(std::count_if(
      args.begin(), args.end(), [](const Argument& arg) { return arg.is_out(); }));
  const size_t ins = args.size() - outs;
  if (outs != 0 && other != nullptr) {
    for (const Argument& theirs : other->arguments()) {
      if (at < ins && args[at].name() == theirs.name()) {
        if (!own(at++)) return std::nullopt;
      } else {
        const bool dtype = theirs.name() == "dtype";
        desc.params.push_back({dtype ? Kind::OutDtype : Kind::Ignored,
                               static_cast<uint8_t>(dtype ? ins : 0xFF)});
      }
    }
  }
  for (; at < args.size(); ++at) {
    if (!own(at)) return std::nullopt;
  }
  if (desc.params.size() >= kMostArgs) return std::nullopt;
  describe_writes(schema, desc);

  const auto any = [&](auto... kinds) {
    return std::any_of(desc.params.begin(), desc.params.end(),
                       [&](const Param& p) { return ((p.kind == kinds) || ...); });
  };
  desc.has_lists = any(Kind::Tensors, Kind::Index);
  desc.draws = (flags & DF_OP_RANDOM) != 0 && !any(Kind::Generator);
  return desc;
}

std::string functional_name(const FunctionSchema& schema) {
  static const auto* schemas = new Schemas;
  return schemas->functional_name(schema);
}

}  // namespace deferandfuse
