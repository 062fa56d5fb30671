/* SPDX-License-Identifier: Apache-2.0 */
/* Argument checks of the collectives, in c10d's words; many are c10d's own functions. */
#include "torch_checks.h"

#include <functional>
#include <string>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "torch_failure.h"

namespace hearth_torch
{

namespace
{

using std::to_string;

std::function<void(const std::string &)> refuser(const char *name)
{
    return [name](const std::string &text) { refuse(std::string(name) + ": " + text); };
}

/* c10d's own function prints all options of both. */
void check_type(const char *name, const at::Tensor &tensor, const at::Tensor &like, size_t index)
{
    if (!tensor.options().type_equal(like.options()))
        refuse(std::string(name) + ": invalid tensor type at index " + to_string(index) + " (expected " +
               like.toString() + ", got " + tensor.toString() + ")");
}

/* Every tensor is of this type; those at the places that `shaped` tells have this shape too. */
void check_like(const char *name, const Tensors &tensors, const at::Tensor &like,
                const std::function<bool(size_t)> &shaped)
{
    auto no = refuser(name);
    for (size_t i = 0; i < tensors.size(); i++) {
        check_movable(name, {tensors[i]});
        check_type(name, tensors[i], like, i);
        if (shaped(i))
            c10d::assertSizesMatch(no, like.sizes(), tensors, i);
    }
}

bool always(size_t)
{
    return true;
}

void check_list_of_one(const char *name, const std::vector<Tensors> &lists, int size, const char *what)
{
    auto no = refuser(name);
    std::string members = to_string(size);
    if (lists.size() != 1)
        no(std::string("requires a single-element ") + what + " list containing a list with " + members +
           " tensors");
    if (lists[0].size() != static_cast<size_t>(size))
        no(std::string("Incorrect ") + what + " list size " + to_string(lists[0].size()) + ". " +
           (what[0] == 'i' ? "Input" : "Output") + " list size should be " + members +
           ", same as size of the process group.");
}

} // namespace

void check_movable(const char *name, const Tensors &tensors)
{
    for (const auto &tensor : tensors) {
        if (!tensor.defined())
            refuse(std::string(name) + ": a tensor is undefined");
        if (tensor.layout() != at::kStrided)
            refuse_unsupported(std::string(name) + ": only supports dense tensors; call to_dense() first");
        if (!tensor.device().is_cpu() && !tensor.is_cuda())
            refuse_unsupported(std::string(name) + ": unsupported device type " + tensor.device().str());
    }
}

void check_alike(const char *name, const Tensors &tensors)
{
    auto no = refuser(name);
    c10d::assertNonEmpty(no, tensors);
    c10d::assertLayoutMatch(no, tensors);
    check_like(name, tensors, tensors[0], always);
}

void check_alike_sparse(const char *name, const Tensors &tensors)
{
    auto no = refuser(name);
    c10d::assertNonEmpty(no, tensors);
    c10d::assertLayoutMatch(no, tensors);
    c10d::assertTypeAndSizesMatch(no, tensors);
}

void check_single(const char *name, const Tensors &tensors, const char *what)
{
    if (tensors.size() != 1)
        refuse(std::string(name) + ": requires a single-element " + what + "tensor list");
    check_movable(name, tensors);
}

void check_coalesced(const char *name, const Tensors &tensors)
{
    auto no = refuser(name);
    c10d::assertNonEmpty(no, tensors);
    c10d::assertLayoutMatch(no, tensors);
    for (const auto &tensor : tensors) {
        if (tensor.scalar_type() != tensors[0].scalar_type())
            no("tensors must all have the same type");
        if (tensor.device() != tensors[0].device())
            no("tensors must all be on the same device");
    }
    if (tensors[0].layout() != at::kStrided)
        no("unsupported layout");
    check_movable(name, tensors);
}

int check_root(const char *name, int64_t root, int size)
{
    if (root < 0 || root >= size)
        refuse(std::string(name) + ": invalid root rank: " + to_string(root) + " (the group has " +
               to_string(size) + ")");
    return static_cast<int>(root);
}

void check_peer(const char *name, int rank, int size)
{
    if (rank < 0 || rank >= size)
        refuse(std::string(name) + ": invalid rank: " + to_string(rank) + " (the group has " +
               to_string(size) + ")");
}

uint64_t check_tag(const char *name, int tag)
{
    if (tag < 0)
        refuse(std::string(name) + ": Tag must be nonnegative: " + to_string(tag));
    return static_cast<uint64_t>(tag);
}

void check_gathered(const char *name, const std::vector<Tensors> &outputs, const Tensors &inputs, int rank,
                    int size)
{
    auto no = refuser(name);
    if (inputs.empty())
        no("requires non-empty input tensor list");
    if (inputs.size() != outputs.size())
        no("requires input/output tensor lists to have the same length");
    size_t expected = inputs.size() * static_cast<size_t>(size);
    for (size_t i = 0; i < outputs.size(); i++) {
        if (outputs[i].size() != expected)
            no("invalid output tensor list at index " + to_string(i) + " (expected length " +
               to_string(expected) + ", got " + to_string(outputs[i].size()) + ")");
    }
    check_alike(name, inputs);
    for (const auto &output : outputs)
        check_like(name, output, inputs[0],
                   [&](size_t i) { return inputs.size() > 1 || i == static_cast<size_t>(rank); });
}

void check_root_list(const char *name, const std::vector<Tensors> &lists, const at::Tensor &own, int size,
                     const char *what)
{
    check_list_of_one(name, lists, size, what);
    check_like(name, lists[0], own, always);
}

void check_scattered(const char *name, const std::vector<Tensors> &inputs, const at::Tensor &own, int rank,
                     int size)
{
    check_list_of_one(name, inputs, size, "input");
    check_like(name, inputs[0], own, [&](size_t i) { return i == static_cast<size_t>(rank); });
}

void check_no_list(const char *name, const std::vector<Tensors> &lists, const char *what)
{
    if (!lists.empty())
        refuse(std::string(name) + ": requires empty " + what + " on non-root");
}

void check_gathered_coalesced(const char *name, const std::vector<Tensors> &outputs, const Tensors &inputs,
                              int size)
{
    auto no = refuser(name);
    if (inputs.empty())
        no("requires non-empty input tensor list");
    if (outputs.size() != static_cast<size_t>(size))
        no("output lists should be equal to world size");
    check_movable(name, inputs);
    for (const auto &list : outputs) {
        if (list.size() != inputs.size())
            no("invalid output size: (expected length " + to_string(inputs.size()) + ", got " +
               to_string(list.size()) + ")");
        check_movable(name, list);
        for (size_t i = 0; i < list.size(); i++) {
            if (list[i].sizes() != inputs[i].sizes())
                no("invalid size of output tensor at index " + to_string(i) + " (expected length " +
                   c10d::toString(inputs[i].sizes()) + ", got " + c10d::toString(list[i].sizes()) + ")");
            check_type(name, list[i], inputs[i], i);
        }
    }
}

void check_whole(const char *name, const at::Tensor &whole, const at::Tensor &part, int size,
                 const char *whole_is, const char *part_is)
{
    check_movable(name, {whole, part});
    std::string text = std::string(name) + ": " + whole_is + " tensor ";
    if (whole.scalar_type() != part.scalar_type())
        refuse(text + "must have the same type as " + part_is + " tensor (" + toString(whole.scalar_type()) +
               ", not " + toString(part.scalar_type()) + ")");
    if (whole.numel() != part.numel() * size)
        refuse(text + "size must be equal to world_size times " + part_is + " tensor size (" +
               to_string(whole.numel()) + " elements, not " + to_string(size) + " times " +
               to_string(part.numel()) + ")");
}

std::vector<size_t> split_bytes(const char *name, const at::Tensor &tensor,
                                const std::vector<int64_t> &splits, int size, const char *what)
{
    size_t members = static_cast<size_t>(size);
    int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    std::string text = std::string(name) + ": " + what + ": ";
    if (splits.empty()) {
        if (rows % size != 0)
            refuse(text + "Tensor's dim 0 does not divide equally across group size (" + to_string(rows) +
                   " rows, " + to_string(size) + " members)");
        return std::vector<size_t>(members, tensor.nbytes() / members);
    }
    if (splits.size() != members)
        refuse(text + "Number of tensor splits not equal to group size (" + to_string(splits.size()) +
               ", not " + to_string(size) + ")");
    int64_t sum = 0;
    size_t row = rows > 0 ? tensor.nbytes() / static_cast<size_t>(rows) : 0;
    std::vector<size_t> bytes;
    for (int64_t split : splits) {
        if (split < 0)
            refuse(text + "split sizes must not be negative");
        sum += split;
        bytes.push_back(row * static_cast<size_t>(split));
    }
    if (sum != rows)
        refuse(text + "Split sizes doesn't match total dim 0 size (" + to_string(sum) + ", not " +
               to_string(rows) + ")");
    return bytes;
}

} // namespace hearth_torch
