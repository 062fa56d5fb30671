/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse tensors in all_reduce: members tell each other how many entries they have, then all of them get all
 * entries and add them up in the order of ranks, so that the result is the same everywhere. */
#pragma once

#include <vector>

#include <ATen/ATen.h>

namespace hearth_torch
{

class SparseSum
{
  public:
    /* Tensors of one shape and type; they are added up here. */
    SparseSum(const char *name, const std::vector<at::Tensor> &tensors);

    /* What the others must know: a vector of the same length everywhere. */
    const at::Tensor &shape() const
    {
        return shape_;
    }
    /* Takes what all members have told, in the order of ranks. Refuses tensors that do not match, in the same
     * words on all members. */
    void meet(const at::Tensor &shapes);

    /* After meet: how many bytes each member gives, and our own. */
    const std::vector<size_t> &counts() const
    {
        return counts_;
    }
    at::Tensor pack(int rank) const;
    /* Of the bytes of all members. */
    at::Tensor unpack(const at::Tensor &all) const;

  private:
    size_t bytes_of(int64_t entries) const;
    at::Tensor entries_of(char *data, int64_t entries) const;

    const char *const name_;
    at::Tensor own_, shape_;
    size_t index_bytes_, value_bytes_; /* of one entry */
    std::vector<int64_t> entries_;     /* of each member */
    std::vector<size_t> counts_;
};

} // namespace hearth_torch
