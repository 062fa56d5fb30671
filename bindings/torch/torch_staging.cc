/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as stretches of memory, and how Hearth's copier reaches them. */
#include "torch_staging.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

/* Addresses of spans that are apart: of no memory, so that a mistake is a fault and not a wrong byte. */
char *address_for(size_t bytes)
{
    static std::atomic<uintptr_t> next{uintptr_t(1) << 62};
    size_t room = (bytes / ALIGNMENT + 2) * ALIGNMENT;
    return reinterpret_cast<char *>(next.fetch_add(room));
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

Span::Span(std::vector<at::Tensor> tensors, Use use) : tensors_(std::move(tensors)), use_(use)
{
    measure();
    if (!stand_in_a_row())
        set_apart();
}

/* Copies are made on the streams that the caller's thread has now: behind what computes the tensors. */
void Span::set_apart()
{
    apart_ = true;
    data_ = address_for(bytes_);
    dense_.resize(tensors_.size());
    for (const auto &tensor : tensors_) {
        if (tensor.is_cuda())
            streams_.push_back(
                c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
    }
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
    copy_ = at::empty({static_cast<int64_t>(bytes_)}, at::TensorOptions().dtype(at::kByte));
    data_ = static_cast<char *>(copy_.data_ptr());
}

bool Span::holds(const void *at) const
{
    const char *place = static_cast<const char *>(at);
    return bytes_ > 0 && place >= data_ && place < data_ + bytes_;
}

/* A tensor as a row of bytes where it is, or of its dense copy there. */
at::Tensor Span::bytes_of(size_t index) const
{
    const at::Tensor &tensor = tensors_[index];
    bool dense = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
    if (!dense && !dense_[index].defined())
        dense_[index] = use_ == Use::WRITE ? at::empty(tensor.sizes(), tensor.options())
                                           : tensor.resolve_conj().resolve_neg().contiguous();
    /* The strides of a single element may be anything. */
    return (dense ? tensor : dense_[index]).detach().as_strided({tensor.numel()}, {1}).view(at::kByte);
}

template <typename Copy> void Span::each_piece(size_t from, size_t len, const Copy &copy) const
{
    for (size_t i = 0; i < tensors_.size(); i++) {
        size_t begin = std::max(from, offsets_[i]),
               end = std::min(from + len, offsets_[i] + tensors_[i].nbytes());
        if (begin < end)
            copy(bytes_of(i).narrow(0, static_cast<int64_t>(begin - offsets_[i]),
                                    static_cast<int64_t>(end - begin)),
                 begin - from);
    }
}

void Span::read(const char *at, char *host, size_t len) const
{
    at::NoGradGuard no_grad;
    c10::MultiStreamGuard guard(streams_);
    each_piece(static_cast<size_t>(at - data_), len, [&](const at::Tensor &piece, size_t offset) {
        at::from_blob(host + offset, piece.sizes(), at::TensorOptions().dtype(at::kByte)).copy_(piece);
    });
}

void Span::write(const char *at, const char *host, size_t len) const
{
    at::NoGradGuard no_grad;
    c10::MultiStreamGuard guard(streams_);
    each_piece(static_cast<size_t>(at - data_), len, [&](at::Tensor piece, size_t offset) {
        piece.copy_(at::from_blob(const_cast<char *>(host) + offset, piece.sizes(),
                                  at::TensorOptions().dtype(at::kByte)));
    });
}

void Span::deliver() const
{
    if (!apart_ || use_ == Use::READ)
        return;
    c10::MultiStreamGuard guard(streams_);
    for (size_t i = 0; i < tensors_.size(); i++) {
        if (dense_[i].defined())
            const_cast<at::Tensor &>(tensors_[i]).copy_(dense_[i]);
    }
}

bool Span::overlaps(const Span &other) const
{
    return bytes_ > 0 && other.bytes_ > 0 && data_ < other.data_ + other.bytes_ &&
           other.data_ < data_ + bytes_;
}

void Span::move_away()
{
    if (apart_ || copy_.defined())
        return;
    stage();
    for (size_t i = 0; i < tensors_.size(); i++)
        memcpy(data_ + offsets_[i], tensors_[i].data_ptr(), tensors_[i].nbytes());
}

/* ---- the adapter ---- */

const hearth_memory *SpanMemory::of(const Span &source, const Span &target)
{
    spans_[0] = &source;
    spans_[1] = &target;
    hearth_memory_init(&memory_);
    memory_.arg = this;
    memory_.copy_in = copy_in;
    memory_.copy_out = copy_out;
    memory_.wait = wait;
    return source.is_apart() || target.is_apart() ? &memory_ : nullptr;
}

/* NULL: host memory. */
const Span *SpanMemory::span_of(const void *at) const
{
    for (const Span *span : spans_) {
        if (span->is_apart() && span->holds(at))
            return span;
    }
    return nullptr;
}

int SpanMemory::copy_in(void *arg, void *host, const void *device, size_t len)
{
    auto *self = static_cast<SpanMemory *>(arg);
    const Span *span = self->span_of(device);
    try {
        if (span != nullptr)
            span->read(static_cast<const char *>(device), static_cast<char *>(host), len);
        else
            memcpy(host, device, len);
    } catch (...) {
        self->failure_ = std::current_exception();
        return -1;
    }
    return 0;
}

int SpanMemory::copy_out(void *arg, void *device, const void *host, size_t len)
{
    auto *self = static_cast<SpanMemory *>(arg);
    const Span *span = self->span_of(device);
    try {
        if (span != nullptr)
            span->write(static_cast<char *>(device), static_cast<const char *>(host), len);
        else
            memcpy(device, host, len);
    } catch (...) {
        self->failure_ = std::current_exception();
        return -1;
    }
    return 0;
}

/* A copy between device and pageable host memory has ended when it returns. */
int SpanMemory::wait(void *)
{
    return 0;
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
