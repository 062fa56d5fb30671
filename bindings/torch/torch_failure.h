/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong in the torch backend: a C++ exception that becomes an exception of the package hearth. */
#pragma once

#include <hearth.h>

#include <exception>
#include <string>

namespace hearth_torch
{

struct Failure {
    int status;
    std::string text;
    int rank = -1; /* ours; -1: not known */
    int peer = -1; /* whom it is about; -1: nobody */
    hearth_reason reason = HEARTH_REASON_NONE;
};

/* The failure of the hearth_* call that this thread made last. */
Failure last_failure(int status, int rank);

/* An exception that Python code sees as the right class of the package hearth, with code, reason, rank
 * and peer.
 * Takes the GIL. While the interpreter ends, it is a plain std::runtime_error. */
std::exception_ptr make_exception(const Failure &failure);
[[noreturn]] void raise(const Failure &failure);

/* What a signal handler of Python raises, like KeyboardInterrupt; NULL: nothing. Only Python's main thread
 * runs them. */
std::exception_ptr interruption();

/* The caller gave something that cannot be: hearth.Invalid, or hearth.Unsupported. */
[[noreturn]] void refuse(const std::string &text);
[[noreturn]] void refuse_unsupported(const std::string &text);

/* False while the interpreter ends: then threads must not ask for the GIL any more. */
bool python_runs();

/* Makes functions of Python modules raise these exceptions. Once, when the module is loaded. */
void register_failures();

} // namespace hearth_torch
