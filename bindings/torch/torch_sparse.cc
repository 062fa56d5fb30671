/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse tensors as bytes: for each member its indices, then its values, then zeros up to a whole block. */
#include "torch_sparse.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "torch_failure.h"

namespace hearth_torch
{

namespace
{

constexpr int64_t DIMS_MAX = 16;
constexpr size_t BLOCK = 16; /* every member's part begins at a multiple: all types are aligned */
enum { ENTRIES, TYPE, SPARSE_DIMS, DIMS, SIZES, SHAPE_LEN = SIZES + DIMS_MAX };

std::string describe(const int64_t *shape)
{
    std::string text = toString(static_cast<at::ScalarType>(shape[TYPE]));
    text += " [";
    for (int64_t i = 0; i < std::min(shape[DIMS], DIMS_MAX); i++)
        text += (i > 0 ? ", " : "") + std::to_string(shape[SIZES + i]);
    return text + "], " + std::to_string(shape[SPARSE_DIMS]) + " of the dimensions sparse";
}

} // namespace

SparseSum::SparseSum(const char *name, const std::vector<at::Tensor> &tensors) : name_(name)
{
    at::NoGradGuard no_grad;
    own_ = tensors[0].cpu();
    for (size_t i = 1; i < tensors.size(); i++)
        own_ = own_ + tensors[i].cpu();
    own_ = own_.coalesce();
    if (own_.dim() > DIMS_MAX)
        refuse_unsupported(std::string(name) + ": a sparse tensor has " + std::to_string(own_.dim()) +
                           " dimensions; at most " + std::to_string(DIMS_MAX) + " are supported");
    shape_ = at::zeros({SHAPE_LEN}, at::kLong);
    auto *shape = shape_.data_ptr<int64_t>();
    shape[ENTRIES] = own_._nnz();
    shape[TYPE] = static_cast<int64_t>(own_.scalar_type());
    shape[SPARSE_DIMS] = own_.sparse_dim();
    shape[DIMS] = own_.dim();
    std::copy(own_.sizes().begin(), own_.sizes().end(), shape + SIZES);
    index_bytes_ = static_cast<size_t>(own_.sparse_dim()) * sizeof(int64_t);
    value_bytes_ = own_.element_size();
    for (int64_t size : own_.sizes().slice(static_cast<size_t>(own_.sparse_dim())))
        value_bytes_ *= static_cast<size_t>(size);
}

void SparseSum::meet(const at::Tensor &shapes)
{
    const auto *first = shapes.data_ptr<int64_t>();
    for (int64_t rank = 0; rank < shapes.numel() / SHAPE_LEN; rank++) {
        const int64_t *shape = first + rank * SHAPE_LEN;
        if (!std::equal(shape + TYPE, shape + SHAPE_LEN, first + TYPE) || shape[ENTRIES] < 0)
            raise(Failure{HEARTH_MISMATCH,
                          std::string(name_) + ": Sparse dimensions do not match: rank " +
                              std::to_string(rank) + " has " + describe(shape) + ", rank 0 has " +
                              describe(first),
                          -1, static_cast<int>(rank)});
        entries_.push_back(shape[ENTRIES]);
        counts_.push_back(bytes_of(shape[ENTRIES]));
    }
}

size_t SparseSum::bytes_of(int64_t entries) const
{
    size_t bytes = static_cast<size_t>(entries) * (index_bytes_ + value_bytes_);
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

at::Tensor SparseSum::pack(int rank) const
{
    auto bytes = static_cast<int64_t>(counts_[static_cast<size_t>(rank)]);
    at::Tensor packed = at::zeros({bytes}, at::kByte);
    at::Tensor indices = own_.indices().contiguous(), values = own_.values().contiguous();
    char *data = static_cast<char *>(packed.data_ptr());
    if (indices.nbytes() > 0)
        memcpy(data, indices.data_ptr(), indices.nbytes());
    if (values.nbytes() > 0)
        memcpy(data + indices.nbytes(), values.data_ptr(), values.nbytes());
    return packed;
}

at::Tensor SparseSum::entries_of(char *data, int64_t entries) const
{
    std::vector<int64_t> value_sizes{entries};
    for (int64_t size : own_.sizes().slice(static_cast<size_t>(own_.sparse_dim())))
        value_sizes.push_back(size);
    at::Tensor indices = at::from_blob(data, {own_.sparse_dim(), entries}, at::kLong);
    at::Tensor values =
        at::from_blob(data + static_cast<size_t>(entries) * index_bytes_, value_sizes, own_.scalar_type());
    return at::sparse_coo_tensor(indices.clone(), values.clone(), own_.sizes(), own_.options());
}

at::Tensor SparseSum::unpack(const at::Tensor &all) const
{
    char *data = static_cast<char *>(all.data_ptr());
    at::Tensor sum;
    for (size_t rank = 0; rank < counts_.size(); rank++) {
        at::Tensor part = entries_of(data, entries_[rank]);
        sum = rank == 0 ? part : sum + part;
        data += counts_[rank];
    }
    return sum.coalesce();
}

} // namespace hearth_torch
