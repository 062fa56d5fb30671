/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as Hearth wants them: stretches of host memory, or of device memory that an adapter reaches; types
 * and operations by Hearth's names. */
#pragma once

#include <hearth.h>

#include <exception>
#include <string>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace hearth_torch
{

/* A list of tensors as one stretch of memory. Tensors that stand one after the other in host memory, dense
 * and in order, are used where they are. All others (on a GPU, strided, apart from each other) are apart: the
 * stretch has addresses that no memory has, and Hearth's copier reads and writes the tensors by them, in
 * pieces, while other operations are under way. */
class Span
{
  public:
    enum class Use { READ, WRITE, BOTH };

    Span() = default;
    Span(std::vector<at::Tensor> tensors, Use use);

    char *data() const
    {
        return data_;
    }
    size_t bytes() const
    {
        return bytes_;
    }
    const std::vector<at::Tensor> &tensors() const
    {
        return tensors_;
    }
    bool is_apart() const
    {
        return apart_;
    }
    /* Whether it has this address. */
    bool holds(const void *at) const;
    /* Apart: bytes from an address of it on. */
    void read(const char *at, char *host, size_t len) const;
    void write(const char *at, const char *host, size_t len) const;
    /* After the operation, without gradients: tensors that were written by way of a copy get it. */
    void deliver() const;
    bool overlaps(const Span &other) const;
    /* A copy from now on: for sources that must not be where the target is. */
    void move_away();

  private:
    void measure();
    void stage();
    bool stand_in_a_row();
    void set_apart();
    at::Tensor bytes_of(size_t index) const;
    template <typename Copy> void each_piece(size_t from, size_t len, const Copy &copy) const;

    std::vector<at::Tensor> tensors_;
    std::vector<size_t> offsets_;
    at::Tensor copy_; /* undefined: the tensors themselves */
    char *data_ = nullptr;
    size_t bytes_ = 0;
    Use use_ = Use::READ;
    bool apart_ = false;
    std::vector<c10::Stream> streams_; /* of each tensor that has one: what computes it when it is given */
    mutable std::vector<at::Tensor> dense_; /* of each tensor that is not: made by the copier */
};

/* The memory adapter of one operation, which must not move while it runs. */
class SpanMemory
{
  public:
    /* NULL: both spans are host memory. */
    const hearth_memory *of(const Span &source, const Span &target);
    /* What a copy has thrown; NULL: nothing. After the operation. */
    std::exception_ptr failure() const
    {
        return failure_;
    }

  private:
    static int copy_in(void *arg, void *host, const void *device, size_t len);
    static int copy_out(void *arg, void *device, const void *host, size_t len);
    static int wait(void *arg);
    const Span *span_of(const void *at) const;

    const Span *spans_[2] = {nullptr, nullptr};
    hearth_memory memory_;
    std::exception_ptr failure_;
};

/* How tensors of a type are reduced. */
struct Reduction {
    hearth_dtype dtype;
    hearth_op op;
    size_t count_of(size_t bytes) const
    {
        return bytes / hearth_dtype_size(dtype);
    }
};

/* Refuses what Hearth cannot reduce. `name` is the operation's, for the text. */
Reduction reduction_of(const char *name, at::ScalarType type, const c10d::ReduceOp &op);

/* Several tensors of this process, of one type and shape, as one: a new tensor on the host. */
at::Tensor reduce_here(const char *name, const std::vector<at::Tensor> &tensors, const c10d::ReduceOp &op);

} // namespace hearth_torch
