/* SPDX-License-Identifier: Apache-2.0 */
/* The Python module hearth_backend, which hearth.torch loads. */
#include "process_group_hearth.h"

namespace py = pybind11;

using hearth_torch::ProcessGroupHearth;

PYBIND11_MODULE(hearth_backend, module)
{
    module.doc() = "The c10d backend of Hearth; use it by torch.distributed.init_process_group(\"hearth\").";
    module.attr("torch_version") = HEARTH_TORCH_VERSION;
    module.attr("hearth_version") =
        HEARTH_VERSION_MAJOR << 16 | HEARTH_VERSION_MINOR << 8 | HEARTH_VERSION_PATCH;
    py::module_::import("torch.distributed"); /* knows the base class */
    hearth_torch::register_failures();
    py::class_<ProcessGroupHearth, c10d::ProcessGroup, c10::intrusive_ptr<ProcessGroupHearth>>(
        module, "ProcessGroupHearth", "A process group on a Hearth node of its own.")
        .def(py::init([](py::object owner, uintptr_t node, double timeout_s, bool ordered_futures) {
                 ProcessGroupHearth::Settings settings;
                 settings.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
                 settings.ordered_futures = ordered_futures;
                 return c10::make_intrusive<ProcessGroupHearth>(
                     std::move(owner), reinterpret_cast<hearth_node *>(node), settings);
             }),
             py::arg("owner"), py::arg("node"), py::arg("timeout"), py::arg("ordered_futures") = false,
             "owner: has close(), which closes the node; node: its address; timeout: seconds")
        .def("shutdown", &ProcessGroupHearth::shutdown, "Ends what is in flight and closes the node.");
}
