#pragma once
#include <ATen/core/boxing/OperatorKernel.h>

#include "schema.h"

namespace deferandfuse {

// The boxed kernel of one op.
class OpKernel final : public c10::OperatorKernel {
 public:
  explicit OpKernel(OpDesc desc) : desc_(std::move(desc)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  const OpDesc desc_;
};

}  // namespace deferandfuse
