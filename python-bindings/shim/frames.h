// The Python frames of the calling thread, read without the GIL.
//
// A thread's own chain of frames can't change while the thread is in C code, so reading it needs
// no lock. The layout of a frame is CPython's own affair and changes with each minor version;
// frames.c alone knows it.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DfFrame {
  void* code;      // PyCodeObject*, borrowed from the frame
  int byte_offset; // of the current instruction, for PyCode_Addr2Line
  void* next;      // for df_frame_next
} DfFrame;

// The innermost Python frame of this thread. 0: there is none, or this Python's layout isn't
// known.
int df_frame_first(DfFrame* frame);
// The frame that called `frame`.
int df_frame_next(DfFrame* frame);

#ifdef __cplusplus
}
#endif
