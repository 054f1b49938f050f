#include "frames.h"

#define Py_BUILD_CORE 1
#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030F0000 && !defined(Py_GIL_DISABLED) && \
    !defined(PYPY_VERSION)

#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#else
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#endif

typedef struct _PyInterpreterFrame Frame;

static Frame* innermost(PyThreadState* thread) {
#if PY_VERSION_HEX < 0x030D0000
  return thread->cframe->current_frame;
#else
  return thread->current_frame;
#endif
}

// The frame's code object, or null for an entry of C code or one without code.
static PyCodeObject* code_of(Frame* frame) {
#if PY_VERSION_HEX >= 0x030E0000
  if (frame->owner >= FRAME_OWNED_BY_INTERPRETER) return NULL;
  PyObject* code = PyStackRef_AsPyObjectBorrow(frame->f_executable);
#elif PY_VERSION_HEX >= 0x030D0000
  if (frame->owner == FRAME_OWNED_BY_CSTACK) return NULL;
  PyObject* code = frame->f_executable;
#elif PY_VERSION_HEX >= 0x030C0000
  if (frame->owner == FRAME_OWNED_BY_CSTACK) return NULL;
  PyObject* code = (PyObject*)frame->f_code;
#else
  PyObject* code = (PyObject*)frame->f_code;
#endif
  return code != NULL && PyCode_Check(code) ? (PyCodeObject*)code : NULL;
}

static int offset_of(Frame* frame, PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030D0000
  const char* at = (const char*)frame->instr_ptr;
#else
  const char* at = (const char*)frame->prev_instr;
#endif
  return (int)(at - (const char*)_PyCode_CODE(code));
}

static int describe(Frame* frame, DfFrame* out) {
  for (; frame != NULL; frame = frame->previous) {
    PyCodeObject* code = code_of(frame);
    if (code == NULL) continue;
    const int offset = offset_of(frame, code);
    // A frame that hasn't started: its function is being set up by C code.
    if (offset < 0) continue;
    out->code = code;
    out->byte_offset = offset;
    out->next = frame->previous;
    return 1;
  }
  return 0;
}

int df_frame_first(DfFrame* frame) {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  return thread != NULL && describe(innermost(thread), frame);
}

int df_frame_next(DfFrame* frame) { return describe((Frame*)frame->next, frame); }

#else

int df_frame_first(DfFrame* frame) {
  (void)frame;
  return 0;
}

int df_frame_next(DfFrame* frame) {
  (void)frame;
  return 0;
}

#endif
