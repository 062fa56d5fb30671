/* SPDX-License-Identifier: Apache-2.0 */
/* Argument checks of the collectives. They say what c10d's own backends say, so that programs and tests which
 * know those find the words they look for. `name` is the operation's, and begins every text. */
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

namespace hearth_torch
{

using Tensors = std::vector<at::Tensor>;

/* Dense, and on devices that Hearth reaches. */
void check_movable(const char *name, const Tensors &tensors);
/* Also at least one of them, all of one type and shape. */
void check_alike(const char *name, const Tensors &tensors);
/* The same of sparse tensors. */
void check_alike_sparse(const char *name, const Tensors &tensors);
/* Also exactly one; `what` is "", "input " or "output ". */
void check_single(const char *name, const Tensors &tensors, const char *what);
/* Of one type and device, whatever their shapes. */
void check_coalesced(const char *name, const Tensors &tensors);

int check_root(const char *name, int64_t root, int size);
/* Of a message: the other member, and the tag. */
void check_peer(const char *name, int rank, int size);
uint64_t check_tag(const char *name, int tag);

/* Lists with `size` tensors for each of the inputs: like inputs[0], and like it in shape if there are several
 * inputs. Of one input only the list's own tensor, at `rank`, has its shape: members may give differently
 * much. */
void check_gathered(const char *name, const std::vector<Tensors> &outputs, const Tensors &inputs, int rank,
                    int size);
/* The one list of a root, with a tensor for each member, like `own`; `what` is "input" or "output". */
void check_root_list(const char *name, const std::vector<Tensors> &lists, const at::Tensor &own, int size,
                     const char *what);
/* As check_root_list, but only the tensor at `rank` must have the shape of `own`. */
void check_scattered(const char *name, const std::vector<Tensors> &inputs, const at::Tensor &own, int rank,
                     int size);
/* Elsewhere than at the root there must be none. */
void check_no_list(const char *name, const std::vector<Tensors> &lists, const char *what);
/* outputs[i] is like all inputs together. */
void check_gathered_coalesced(const char *name, const std::vector<Tensors> &outputs, const Tensors &inputs,
                              int size);
/* The whole has `size` times the elements of the part, and its type. */
void check_whole(const char *name, const at::Tensor &whole, const at::Tensor &part, int size,
                 const char *whole_is, const char *part_is);

/* How many bytes of the tensor belong to each member, by rows; no splits: the same for all. */
std::vector<size_t> split_bytes(const char *name, const at::Tensor &tensor,
                                const std::vector<int64_t> &splits, int size, const char *what);

} // namespace hearth_torch
