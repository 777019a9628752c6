// Objects of Python as owners of memory.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDA_MEM_ARROW_PYTHON_HPP
#define CUDA_MEM_ARROW_PYTHON_HPP

#include <Python.h>

#include <memory>

namespace cuda_mem_arrow {

/// Whether a thread may still run Python. A thread that asks for the GIL at the end of the interpreter would never get it.
inline bool runs_python()
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsInitialized() && !Py_IsFinalizing();
#else
    return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

/// Owns an object of Python. It may end on any thread; after the end of the interpreter it ends without effect.
inline std::shared_ptr<void> owner_of(PyObject *object)
{
    Py_INCREF(object);
    return std::shared_ptr<void>(object, [](void *owned) {
        if (runs_python()) {
            const PyGILState_STATE state = PyGILState_Ensure();
            Py_DECREF(static_cast<PyObject *>(owned));
            PyGILState_Release(state);
        }
    });
}

} // namespace cuda_mem_arrow

#endif // CUDA_MEM_ARROW_PYTHON_HPP
