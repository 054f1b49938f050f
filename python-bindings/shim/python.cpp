// What the Python package asks of the shim itself, as functions of the extension module.
#include <Python.h>

#include <torch/csrc/Generator.h>

#include "shim.h"

namespace deferandfuse {
namespace {

PyObject* py_default_generator(PyObject*, PyObject*) {
  try {
    return THPGenerator_Wrap(default_generator());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
    return nullptr;
  }
}

PyObject* py_in_bad_fork(PyObject*, PyObject*) { return PyBool_FromLong(in_bad_fork()); }

PyMethodDef methods[] = {
    {"default_generator", py_default_generator, METH_NOARGS,
     "The device's default torch.Generator."},
    {"in_bad_fork", py_in_bad_fork, METH_NOARGS,
     "Whether this process was forked from one that used the device."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void register_python() {
  PyObject* module = PyImport_ImportModule("deferandfuse._core");
  const bool added = module != nullptr && PyModule_AddFunctions(module, methods) == 0;
  Py_XDECREF(module);
  if (!added) {
    PyErr_Clear();
    TORCH_CHECK(false, "deferandfuse._core can't be extended");
  }
}

}  // namespace deferandfuse
