// An op as the core is told of it, worked out once from its schema.
#pragma once
#include <ATen/core/function_schema.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <vector>

#include "shim.h"

namespace deferandfuse {

enum class Kind : uint8_t {
  Tensor,
  Tensors,     // Tensor[], Tensor?[]
  Index,       // Tensor?[] that index a tensor: CPU tensors among them are uploaded
  Scalar,      // Scalar
  Float,
  Int,
  Bool,
  Ints,
  Floats,
  Bools,
  Scalars,     // Scalar[]
  String,
  Dtype,
  Generator,
  Ignored,     // device, layout, memory format, pin_memory
  OutDtype,    // the dtype of an out= tensor, for an overload without dtype argument
};

struct Param {
  Kind kind;
  uint8_t arg = 0;  // position on the stack
  // The call writes it: DF_WRITE, DF_OUT, and the (first) return that lands here.
  uint8_t write = 0;
  uint8_t write_return = 0;
};

struct Ret {
  enum Kind : uint8_t { Fresh, FreshList, Alias } kind;
  uint8_t arg = 0;  // Alias: the argument that is returned
};

struct OpDesc {
  std::string name;  // of the functional overload
  uint32_t op = 0;   // the core's handle
  uint32_t nargs = 0;
  bool draws = false;      // takes random numbers without a Generator argument
  bool has_lists = false;  // of tensors
  c10::SmallVector<Param, 12> params;
  c10::SmallVector<Ret, 3> returns;
};

// Overloads by base name, to find the functional one of a variant.
class Schemas {
 public:
  Schemas();
  std::string functional_name(const c10::FunctionSchema& schema) const;
  // What to register for an op; nothing if the core doesn't define it, or it can't be told.
  std::optional<OpDesc> describe(const c10::FunctionSchema& schema) const;

 private:
  const c10::FunctionSchema* functional(const c10::FunctionSchema& schema) const;
  std::unordered_map<std::string, std::vector<const c10::FunctionSchema*>> overloads_;
};

}  // namespace deferandfuse
