/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as Hearth wants them: stretches of host memory, and types and operations by Hearth's names. */
#pragma once

#include <hearth.h>

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace hearth_torch
{

/* A list of tensors that stand one after the other in host memory. Tensors that do so already, dense and in
 * order, are used where they are; all others (strided, apart from each other, on a GPU) by way of a copy. */
class Span
{
  public:
    enum class Use { READ, WRITE, BOTH };

    Span() = default;
    /* READ and BOTH: a copy is made now. */
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
    /* After the operation, without gradients: the tensors get what is in the copy, if there is one. */
    void deliver() const;
    bool overlaps(const Span &other) const;
    /* A copy from now on: for sources that must not be where the target is. */
    void move_away();

  private:
    void measure();
    void stage();
    bool stand_in_a_row();

    std::vector<at::Tensor> tensors_;
    std::vector<size_t> offsets_;
    at::Tensor copy_; /* undefined: the tensors themselves */
    char *data_ = nullptr;
    size_t bytes_ = 0;
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
