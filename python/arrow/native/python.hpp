// Objects of Python as owners of memory.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDA_MEM_ARROW_PYTHON_HPP
#define CUDA_MEM_ARROW_PYTHON_HPP

#include <Python.h>

#include <memory>

namespace cuda_mem_arrow {

/// Owns an object of Python. It may end on any thread; after the end of the interpreter it ends without effect.
inline std::shared_ptr<void> owner_of(PyObject *object)
{
    Py_INCREF(object);
    return std::shared_ptr<void>(object, [](void *owned) {
        if (Py_IsInitialized()) {
            const PyGILState_STATE state = PyGILState_Ensure();
            Py_DECREF(static_cast<PyObject *>(owned));
            PyGILState_Release(state);
        }
    });
}

} // namespace cuda_mem_arrow

#endif // CUDA_MEM_ARROW_PYTHON_HPP
