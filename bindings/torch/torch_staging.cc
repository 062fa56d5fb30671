/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as stretches of host memory. */
#include "torch_staging.h"

#include <cstring>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "torch_failure.h"

namespace hearth_torch
{

namespace
{

/* Where the types in a list differ, each tensor of a copy begins at a multiple of this: all are aligned. */
constexpr size_t ALIGNMENT = 16;

bool is_dense(const at::Tensor &tensor)
{
    return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/* A part of a copy, seen as the tensor that it stands for. */
at::Tensor part_of_copy(const at::Tensor &tensor, char *data)
{
    return at::from_blob(data, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
}

void take(const at::Tensor &tensor, char *data)
{
    if (is_dense(tensor))
        memcpy(data, tensor.data_ptr(), tensor.nbytes());
    else
        part_of_copy(tensor, data).copy_(tensor);
}

/* CUDA is written after the manual and has not been run yet: the copy goes over the device's current stream
 * and has ended when this returns. */
void give(const at::Tensor &tensor, char *data)
{
    if (is_dense(tensor)) {
        memcpy(tensor.data_ptr(), data, tensor.nbytes());
        return;
    }
    c10::OptionalDeviceGuard guard;
    if (tensor.is_cuda())
        guard.reset_device(tensor.device());
    const_cast<at::Tensor &>(tensor).copy_(part_of_copy(tensor, data));
}

const char *op_text(c10d::ReduceOp::RedOpType op)
{
    static const char *const texts[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                        "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};
    return texts[op <= c10d::ReduceOp::UNUSED ? op : c10d::ReduceOp::UNUSED];
}

/* Bytes that are 0 or 1. */
bool bool_op_of(c10d::ReduceOp::RedOpType op, hearth_op *out)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        *out = HEARTH_OP_BOR;
        return true;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        *out = HEARTH_OP_BAND;
        return true;
    case c10d::ReduceOp::BXOR:
        *out = HEARTH_OP_BXOR;
        return true;
    default:
        return false;
    }
}

bool op_of(c10d::ReduceOp::RedOpType op, hearth_op *out)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
        *out = HEARTH_OP_SUM;
        return true;
    case c10d::ReduceOp::AVG:
        *out = HEARTH_OP_AVG;
        return true;
    case c10d::ReduceOp::PRODUCT:
        *out = HEARTH_OP_PROD;
        return true;
    case c10d::ReduceOp::MIN:
        *out = HEARTH_OP_MIN;
        return true;
    case c10d::ReduceOp::MAX:
        *out = HEARTH_OP_MAX;
        return true;
    case c10d::ReduceOp::BAND:
        *out = HEARTH_OP_BAND;
        return true;
    case c10d::ReduceOp::BOR:
        *out = HEARTH_OP_BOR;
        return true;
    case c10d::ReduceOp::BXOR:
        *out = HEARTH_OP_BXOR;
        return true;
    default:
        return false;
    }
}

bool dtype_of(at::ScalarType type, hearth_dtype *out)
{
    switch (type) {
    case at::kFloat:
    case at::kComplexFloat: /* two numbers each, which only sums and averages may take apart */
        *out = HEARTH_F32;
        return true;
    case at::kDouble:
    case at::kComplexDouble:
        *out = HEARTH_F64;
        return true;
    case at::kHalf:
        *out = HEARTH_F16;
        return true;
    case at::kBFloat16:
        *out = HEARTH_BF16;
        return true;
    case at::kChar:
        *out = HEARTH_I8;
        return true;
    case at::kInt:
        *out = HEARTH_I32;
        return true;
    case at::kLong:
        *out = HEARTH_I64;
        return true;
    case at::kByte:
        *out = HEARTH_U8;
        return true;
    default:
        return false;
    }
}

} // namespace

/* ---- spans ---- */

Span::Span(std::vector<at::Tensor> tensors, Use use) : tensors_(std::move(tensors))
{
    measure();
    if (stand_in_a_row())
        return;
    stage();
    for (size_t i = 0; use != Use::WRITE && i < tensors_.size(); i++)
        take(tensors_[i], data_ + offsets_[i]);
}

void Span::measure()
{
    size_t alignment = 1;
    for (const auto &tensor : tensors_) {
        if (tensor.scalar_type() != tensors_[0].scalar_type())
            alignment = ALIGNMENT;
    }
    offsets_.reserve(tensors_.size());
    for (const auto &tensor : tensors_) {
        offsets_.push_back(bytes_);
        bytes_ += (tensor.nbytes() + alignment - 1) / alignment * alignment;
    }
}

/* True if no copy is needed. */
bool Span::stand_in_a_row()
{
    char *begin = nullptr;
    size_t seen = 0;
    for (const auto &tensor : tensors_) {
        if (!is_dense(tensor))
            return false;
        if (tensor.nbytes() == 0)
            continue;
        char *data = static_cast<char *>(tensor.data_ptr());
        begin = begin != nullptr ? begin : data;
        if (data != begin + seen)
            return false;
        seen += tensor.nbytes();
    }
    if (seen != bytes_) /* a copy would have gaps between the tensors */
        return false;
    data_ = begin;
    return true;
}

void Span::stage()
{
    bool cuda = false;
    for (const auto &tensor : tensors_)
        cuda = cuda || tensor.is_cuda();
    auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(cuda);
    copy_ = at::empty({static_cast<int64_t>(bytes_)}, options);
    data_ = static_cast<char *>(copy_.data_ptr());
}

void Span::deliver() const
{
    if (!copy_.defined())
        return;
    for (size_t i = 0; i < tensors_.size(); i++)
        give(tensors_[i], data_ + offsets_[i]);
}

bool Span::overlaps(const Span &other) const
{
    return bytes_ > 0 && other.bytes_ > 0 && data_ < other.data_ + other.bytes_ &&
           other.data_ < data_ + bytes_;
}

void Span::move_away()
{
    if (copy_.defined())
        return;
    stage();
    for (size_t i = 0; i < tensors_.size(); i++)
        take(tensors_[i], data_ + offsets_[i]);
}

/* ---- reductions ---- */

Reduction reduction_of(const char *name, at::ScalarType type, const c10d::ReduceOp &op)
{
    Reduction reduction = {HEARTH_U8, HEARTH_OP_MAX};
    bool truth = type == at::kBool, complex = at::isComplexType(type);
    if (!truth && !dtype_of(type, &reduction.dtype))
        refuse_unsupported(std::string(name) +
                           ": Invalid scalar type: Hearth does not reduce tensors of type " + toString(type) +
                           "; it does float, double, half, bfloat16, char, byte, int, long and bool");
    bool known = truth ? bool_op_of(op.op_, &reduction.op) : op_of(op.op_, &reduction.op);
    if (known && reduction.op >= HEARTH_OP_BAND && !at::isIntegralType(type, true))
        refuse_unsupported(std::string(name) + ": Cannot use ReduceOp." + op_text(op.op_) +
                           " with non-integral dtype " + toString(type));
    if (!known || (complex && reduction.op != HEARTH_OP_SUM && reduction.op != HEARTH_OP_AVG))
        refuse_unsupported(std::string(name) + ": Hearth does not have ReduceOp." + op_text(op.op_) +
                           " for tensors of type " + toString(type));
    return reduction;
}

at::Tensor reduce_here(const char *name, const std::vector<at::Tensor> &tensors, const c10d::ReduceOp &op)
{
    at::NoGradGuard no_grad;
    at::Tensor all = tensors[0].cpu().clone(at::MemoryFormat::Contiguous);
    for (size_t i = 1; i < tensors.size(); i++) {
        at::Tensor next = tensors[i].cpu();
        switch (op.op_) {
        case c10d::ReduceOp::SUM:
            all.add_(next);
            break;
        case c10d::ReduceOp::PRODUCT:
            all.mul_(next);
            break;
        case c10d::ReduceOp::MIN:
            all = at::minimum(all, next);
            break;
        case c10d::ReduceOp::MAX:
            all = at::maximum(all, next);
            break;
        case c10d::ReduceOp::BAND:
            all.bitwise_and_(next);
            break;
        case c10d::ReduceOp::BOR:
            all.bitwise_or_(next);
            break;
        case c10d::ReduceOp::BXOR:
            all.bitwise_xor_(next);
            break;
        default:
            refuse_unsupported(std::string(name) + ": Hearth takes one tensor a call for ReduceOp." +
                               op_text(op.op_));
        }
    }
    return all;
}

} // namespace hearth_torch
