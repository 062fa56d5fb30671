/* SPDX-License-Identifier: Apache-2.0 */
/* Failures as Python exceptions. They derive from torch's python_error, which torch hands through unchanged,
 * even where it crosses threads, as in the backward pass of DistributedDataParallel. */
#include "torch_failure.h"

#include <stdexcept>

#include <torch/csrc/Exceptions.h>

namespace py = pybind11;

namespace hearth_torch
{

namespace
{

/* Takes over a reference to the exception object. */
struct PythonFailure : python_error {
    PythonFailure(const std::string &text, PyObject *object)
    {
        message = text;
        value = object;
        type = reinterpret_cast<PyObject *>(Py_TYPE(object));
        Py_INCREF(type);
    }
    /* What Python has raised. */
    explicit PythonFailure(py::error_already_set &raised)
        : PythonFailure(raised.what(), raised.value().inc_ref().ptr())
    {
    }
};

std::exception_ptr make_python_exception(const Failure &failure)
{
    py::gil_scoped_acquire gil;
    py::object rank = py::none();
    if (failure.rank >= 0)
        rank = py::int_(failure.rank);
    py::object make = py::module_::import("hearth._errors").attr("make");
    py::object exception =
        make(failure.status, failure.text, rank, failure.peer, static_cast<int>(failure.reason));
    return std::make_exception_ptr(PythonFailure(failure.text, exception.release().ptr()));
}

} // namespace

bool python_runs()
{
    return Py_IsInitialized() && !_Py_IsFinalizing();
}

Failure last_failure(int status, int rank)
{
    return Failure{status, hearth_error_text(), rank, hearth_error_rank(), hearth_error_reason()};
}

std::exception_ptr make_exception(const Failure &failure)
{
    try {
        if (python_runs())
            return make_python_exception(failure);
    } catch (const py::error_already_set &) {
        /* The package cannot be imported any more: the text remains. */
    }
    return std::make_exception_ptr(std::runtime_error(failure.text));
}

std::exception_ptr interruption()
{
    if (!python_runs())
        return nullptr;
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0)
        return nullptr;
    py::error_already_set raised;
    return std::make_exception_ptr(PythonFailure(raised));
}

void raise(const Failure &failure)
{
    std::rethrow_exception(make_exception(failure));
}

void refuse(const std::string &text)
{
    raise(Failure{HEARTH_INVALID, text});
}

void refuse_unsupported(const std::string &text)
{
    raise(Failure{HEARTH_UNSUPPORTED, text});
}

void register_failures()
{
    py::register_exception_translator([](std::exception_ptr thrown) {
        try {
            if (thrown)
                std::rethrow_exception(thrown);
        } catch (PythonFailure &failure) {
            failure.restore();
        }
    });
}

} // namespace hearth_torch
