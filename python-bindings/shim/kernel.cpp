// The kernel of every native op: turns the dispatcher's stack into the core's arguments, records
// the call, and turns results into tensors. It allocates nothing but the results, unless a call
// is unusual (long lists, CPU tensors among the arguments).
#include "kernel.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <array>
#include <memory>

namespace deferandfuse {
namespace {

using c10::IValue;
using c10::TensorImpl;

constexpr uint32_t kInlineTensors = 16;
constexpr uint32_t kInlineNumbers = 48;

[[noreturn]] void throw_mixed_devices(const OpDesc& desc, const c10::OperatorHandle& op,
                                      const IValue* values, size_t arg, c10::Device device) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              kDevice, " and ", device, "! (argument ", op.schema().arguments()[arg].name(),
              " of ", desc.name, ")", call_context(op, values, desc.name));
}

// Room for what the arguments of one call point to.
class Scratch {
 public:
  void clear() {
    used_tensors_ = used_numbers_ = 0;
    more_tensors_.clear();
    more_numbers_.clear();
  }
  DfTensor* tensors(uint32_t count) {
    if (C10_UNLIKELY(used_tensors_ + count > kInlineTensors)) {
      return more_tensors_.emplace_back(new DfTensor[count]).get();
    }
    used_tensors_ += count;
    return tensors_ + used_tensors_ - count;
  }
  int64_t* numbers(uint32_t count) {
    if (C10_UNLIKELY(used_numbers_ + count > kInlineNumbers)) {
      return more_numbers_.emplace_back(new int64_t[count]).get();
    }
    used_numbers_ += count;
    return numbers_ + used_numbers_ - count;
  }

 private:
  uint32_t used_tensors_ = 0;
  uint32_t used_numbers_ = 0;
  // Overflow lists have the size they need, as pointers into them must stay valid.
  c10::SmallVector<std::unique_ptr<DfTensor[]>, 1> more_tensors_;
  c10::SmallVector<std::unique_ptr<int64_t[]>, 1> more_numbers_;
  DfTensor tensors_[kInlineTensors];
  int64_t numbers_[kInlineNumbers];
};

// The values of a tensor with a conjugate or negative bit, in its place on the stack.
const TensorImpl* materialise_in_place(IValue& value) {
  value = materialise(value.toTensor());
  return value.unsafeToTensorImpl();
}

class Call {
 public:
  Call(const OpDesc& desc, const c10::OperatorHandle& op, IValue* values)
      : desc_(desc), op_(op), values_(values) {}

  // False: only the CPU can run this call.
  bool convert() {
    DfArg* out = args_.data();
    for (const Param& param : desc_.params) {
      out->dtype = 0;
      out->flags = 0;
      out->len = 0;
      if (C10_UNLIKELY(!convert(param, out))) return false;
      ++out;
    }
    if (desc_.draws) put_generator(IValue(), out++);
    count_ = static_cast<uint32_t>(out - args_.data());
    return true;
  }

  int32_t record(DfResult* result) const {
    return df_record(desc_.op, args_.data(), count_, location_, result);
  }

  // Gives the out= tensors the shapes that the core asks for.
  void resize(const DfResult& result) {
    c10::SmallVector<c10::IntArrayRef, 4> shapes;
    for (uint32_t i = 0; i < result.len; ++i) {
      shapes.emplace_back(result.outs[i].sizes, result.outs[i].ndim);
    }
    size_t next = 0;
    for (const Param& param : desc_.params) {
      if (!(param.write & DF_OUT)) continue;
      const IValue& value = values_[param.arg];
      if (value.isTensor()) {
        if (next < shapes.size()) at::native::resize_output(value.toTensor(), shapes[next++]);
        continue;
      }
      for (const IValue& item : value.toListRef()) {
        if (next < shapes.size()) at::native::resize_output(item.toTensor(), shapes[next++]);
      }
    }
    scratch_.clear();
  }

 private:
  bool convert(const Param& param, DfArg* out) {
    IValue& value = values_[param.arg];
    if (param.kind == Kind::Ignored) {
      if (value.isDevice()) check_device(value.toDevice());
      out->tag = DF_IGNORED;
      return true;
    }
    if (param.kind == Kind::Generator) {
      put_generator(value, out);
      return true;
    }
    if (value.isNone()) {
      out->tag = DF_NONE;
      return true;
    }
    switch (param.kind) {
      case Kind::Tensor:
        return put_tensor(param, value, out);
      case Kind::Tensors:
      case Kind::Index:
        return put_tensors(param, value, out);
      case Kind::Scalar:
      case Kind::Float:
        out->flags = DF_SLOT;
        return put_scalar(value, out);
      case Kind::Int:
      case Kind::Dtype:
        out->tag = param.kind == Kind::Int ? DF_INT : DF_DTYPE;
        out->i = value.isInt() ? value.toInt() : value.toSymInt().guard_int(__FILE__, __LINE__);
        return true;
      case Kind::Bool:
        out->tag = DF_BOOL;
        out->i = value.isBool() ? value.toBool()
                                : value.toSymBool().guard_bool(__FILE__, __LINE__);
        return true;
      case Kind::Ints:
      case Kind::Bools:
      case Kind::Floats:
      case Kind::Scalars:
        return put_numbers(param, value, out);
      case Kind::String: {
        const std::string& text = value.toStringRef();
        out->tag = DF_STRING;
        out->str = text.data();
        out->len = static_cast<uint32_t>(text.size());
        return true;
      }
      case Kind::OutDtype:
        out->tag = DF_DTYPE;
        out->i = static_cast<int64_t>(value.toTensor().scalar_type());
        return true;
      case Kind::Generator:
      case Kind::Ignored:
        break;
    }
    return true;
  }

  bool put_tensor(const Param& param, IValue& value, DfArg* out) {
    const TensorImpl* impl = value.unsafeToTensorImpl();
    if (impl == c10::UndefinedTensorImpl::singleton()) {
      out->tag = DF_NONE;
      return true;
    }
    if (C10_UNLIKELY(impl->device_type() != kTpu)) {
      const bool scalar = impl->device_type() == c10::kCPU && impl->dim() == 0;
      if (!scalar || param.write) {
        throw_mixed_devices(desc_, op_, values_, param.arg, impl->device());
      }
      describe_host_scalar(impl, out);
      return true;
    }
    if (C10_UNLIKELY(has_lazy_bits(impl))) {
      if (param.write) return false;
      impl = materialise_in_place(value);
    }
    DfTensor* t = scratch_.tensors(1);
    describe(impl, t);
    t->flags = param.write;
    t->write_return = param.write_return;
    out->tag = DF_TENSOR;
    out->len = 1;
    out->tensors = t;
    return true;
  }

  bool put_tensors(const Param& param, IValue& value, DfArg* out) {
    c10::ArrayRef<IValue> items = value.toListRef();
    for (const IValue& item : items) {
      if (C10_LIKELY(item.isNone() || is_plain(item.toTensor()))) continue;
      if (param.write) return false;
      value = make_plain(param, items);
      items = value.toListRef();
      break;
    }
    const auto count = static_cast<uint32_t>(items.size());
    // `write_return` counts to 254.
    if (C10_UNLIKELY(param.write && param.write_return + count > 254)) return false;
    DfTensor* t = scratch_.tensors(count);
    out->tag = DF_TENSORS;
    out->len = count;
    out->tensors = t;
    for (uint32_t i = 0; i < count; ++i, ++t) {
      const IValue& item = items[i];
      if (item.isNone() || !item.toTensor().defined()) {
        *t = DfTensor{};
        continue;
      }
      describe(item.unsafeToTensorImpl(), t);
      t->flags = param.write;
      t->write_return = static_cast<uint8_t>(param.write_return + i);
    }
    return true;
  }

  static bool is_plain(const at::Tensor& tensor) {
    const TensorImpl* impl = tensor.unsafeGetTensorImpl();
    return !tensor.defined() || (impl->device_type() == kTpu && !has_lazy_bits(impl));
  }

  // The same list with every tensor on the device and without lazy bits.
  IValue make_plain(const Param& param, c10::ArrayRef<IValue> items) {
    const auto plain = [&](const at::Tensor& tensor) {
      if (is_plain(tensor)) return tensor;
      if (tensor.is_privateuseone()) return materialise(tensor);
      if (param.kind != Kind::Index || !tensor.is_cpu()) {
        throw_mixed_devices(desc_, op_, values_, param.arg, tensor.device());
      }
      return upload(tensor);
    };
    if (param.kind == Kind::Index) {
      c10::List<std::optional<at::Tensor>> list;
      for (const IValue& item : items) {
        list.push_back(item.isNone() ? std::nullopt : std::optional(plain(item.toTensor())));
      }
      return list;
    }
    c10::List<at::Tensor> list;
    for (const IValue& item : items) list.push_back(plain(item.toTensor()));
    return list;
  }

  static bool put_scalar(const IValue& value, DfArg* out) {
    if (value.isDouble()) {
      out->tag = DF_FLOAT;
      out->d = value.toDouble();
    } else if (value.isInt()) {
      out->tag = DF_INT;
      out->i = value.toInt();
    } else if (value.isBool()) {
      out->tag = DF_BOOL;
      out->i = value.toBool();
    } else if (value.isComplexDouble()) {
      const auto number = value.toComplexDouble();
      out->tag = DF_COMPLEX;
      out->d = number.real();
      out->im = number.imag();
    } else {
      // A symbolic number, backed by a plain one.
      return put_scalar(IValue(at::Scalar(value.toScalar().toDouble())), out);
    }
    return true;
  }

  bool put_numbers(const Param& param, const IValue& value, DfArg* out) {
    const c10::ArrayRef<IValue> items = value.toListRef();
    const auto count = static_cast<uint32_t>(items.size());
    int64_t* ints = scratch_.numbers(count);
    out->len = count;
    Kind kind = param.kind;
    if (kind == Kind::Scalars) {
      out->flags = DF_SLOT;
      const auto all = [&](auto is) { return std::all_of(items.begin(), items.end(), is); };
      if (all([](const IValue& v) { return v.isBool(); })) {
        kind = Kind::Bools;
      } else if (all([](const IValue& v) { return v.isInt(); })) {
        kind = Kind::Ints;
      } else if (all([](const IValue& v) { return v.isDouble(); })) {
        kind = Kind::Floats;
      } else {
        // Complex numbers, or a mixture in which each promotes as its own type.
        return false;
      }
    }
    if (kind == Kind::Floats) {
      static_assert(sizeof(double) == sizeof(int64_t));
      double* floats = reinterpret_cast<double*>(ints);
      for (uint32_t i = 0; i < count; ++i) floats[i] = items[i].toDouble();
      out->tag = DF_FLOATS;
      out->floats = floats;
      return true;
    }
    for (uint32_t i = 0; i < count; ++i) {
      const IValue& item = items[i];
      ints[i] = item.isInt()    ? item.toInt()
                : item.isBool() ? item.toBool()
                                : item.toSymInt().guard_int(__FILE__, __LINE__);
    }
    out->tag = kind == Kind::Bools ? DF_BOOLS : DF_INTS;
    out->ints = ints;
    return true;
  }

  void put_generator(const IValue& value, DfArg* out) {
    if (!drawn_) draw_ = draw(value);
    drawn_ = true;
    out->dtype = 0;
    out->flags = 0;
    out->len = 0;
    out->tag = DF_GENERATOR;
    out->i = static_cast<int64_t>(draw_.seed);
    out->j = static_cast<int64_t>(draw_.counter);
  }

  const OpDesc& desc_;
  const c10::OperatorHandle& op_;
  IValue* values_;
  const uint32_t location_ = here();
  uint32_t count_ = 0;
  // A call that is converted twice, for an out= tensor to be resized, draws once.
  bool drawn_ = false;
  Draw draw_{};
  std::array<DfArg, 40> args_;
  Scratch scratch_;
};

IValue take_fresh(const DfOutput*& out, const DfOutput* end) {
  while (out != end && out->written) ++out;
  if (out == end || out->cell == 0) {
    if (out != end) ++out;
    return at::Tensor();
  }
  return wrap_output(*out++);
}

void give_results(const OpDesc& desc, const DfResult& result, torch::jit::Stack* stack) {
  const size_t base = stack->size() - desc.nargs;
  const DfOutput* out = result.outs;
  const DfOutput* end = out + result.len;
  if (desc.returns.size() == 1) {
    const Ret ret = desc.returns[0];
    IValue value;
    if (ret.kind == Ret::Alias) {
      value = std::move((*stack)[base + ret.arg]);
    } else if (ret.kind == Ret::Fresh) {
      value = take_fresh(out, end);
    }
    if (ret.kind != Ret::FreshList) {
      stack->resize(base);
      stack->push_back(std::move(value));
      return;
    }
  }
  c10::SmallVector<IValue, 6> values;
  size_t fresh_after = 0;
  for (const Ret& ret : desc.returns) fresh_after += ret.kind == Ret::Fresh;
  for (const Ret& ret : desc.returns) {
    switch (ret.kind) {
      case Ret::Alias:
        values.push_back((*stack)[base + ret.arg]);
        break;
      case Ret::Fresh:
        values.push_back(take_fresh(out, end));
        --fresh_after;
        break;
      case Ret::FreshList: {
        c10::List<at::Tensor> list;
        while (static_cast<size_t>(end - out) > fresh_after) {
          list.push_back(take_fresh(out, end).toTensor());
        }
        values.push_back(std::move(list));
        break;
      }
    }
  }
  stack->resize(base);
  for (IValue& value : values) stack->push_back(std::move(value));
}

}  // namespace

void OpKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                          torch::jit::Stack* stack) {
  Call call(desc_, op, stack->data() + (stack->size() - desc_.nargs));
  for (bool resized = false;; resized = true) {
    if (C10_UNLIKELY(!call.convert())) {
      return run_on_cpu(op, stack, "these arguments have no native kernel");
    }
    DfResult result;
    const int32_t status = call.record(&result);
    if (C10_LIKELY(status == DF_OK)) return give_results(desc_, result, stack);
    if (status == DF_RESIZE && !resized) {
      call.resize(result);
      continue;
    }
    TORCH_INTERNAL_ASSERT(status != DF_RESIZE, desc_.name, " asks to resize an out= tensor twice");
    if (df_error_kind() == DF_NOT_IMPLEMENTED) {
      // Copied, as running on the CPU records calls of its own.
      const std::string reason = df_error_message();
      return run_on_cpu(op, stack, reason);
    }
    throw_failure();
  }
}

void throw_failure() {
  const c10::SourceLocation from{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  std::string message = df_error_message();
  switch (df_error_kind()) {
    case DF_INDEX_ERROR: throw c10::IndexError(from, std::move(message));
    case DF_TYPE_ERROR: throw c10::TypeError(from, std::move(message));
    case DF_VALUE_ERROR: throw c10::ValueError(from, std::move(message));
    case DF_NOT_IMPLEMENTED: throw c10::NotImplementedError(from, std::move(message));
    case DF_OUT_OF_MEMORY: throw c10::OutOfMemoryError(from, std::move(message));
    default: throw c10::Error(from, std::move(message));
  }
}

}  // namespace deferandfuse
