// The C ABI between the dispatcher shim (C++, knows tensors) and the Rust core (knows ops).
//
// Every function returns promptly and never unwinds: a failure is a non-zero status, and
// `df_error_message`/`df_error_kind` describe it for the calling thread.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A strided window on a storage cell, as at::Tensor describes it. Sizes, strides and offset
// count elements of `dtype` (the numeric value of c10::ScalarType).
typedef struct DfTensor {
  uint64_t cell;  // 0: an undefined element of a tensor list
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;
  uint32_t ndim;
  uint8_t dtype;
  uint8_t flags;         // DF_WRITE, DF_OUT
  uint8_t write_return;  // with DF_WRITE: which return of the op lands here
  uint8_t reserved;
} DfTensor;

enum {
  DF_WRITE = 1,  // the call writes this tensor (in-place self, out=)
  DF_OUT = 2,    // an out= tensor: its old value is not read and it may be resized
};

typedef enum DfTag {
  DF_NONE = 0,       // None, or an undefined tensor
  DF_TENSOR = 1,     // tensors[0]
  DF_TENSORS = 2,    // tensors[0..len]
  DF_INT = 3,        // i
  DF_FLOAT = 4,      // d
  DF_BOOL = 5,       // i: 0 or 1
  DF_COMPLEX = 6,    // d + im·i
  DF_INTS = 7,       // ints[0..len]
  DF_FLOATS = 8,     // floats[0..len]
  DF_BOOLS = 9,      // ints[0..len]
  DF_STRING = 10,    // str[0..len], UTF-8
  DF_DTYPE = 11,     // i: c10::ScalarType
  DF_GENERATOR = 12, // i: seed bits, j: call counter of the generator, already advanced
  DF_HOST_SCALAR = 13, // a 0-dim CPU tensor: `dtype` says its type; value in i (integers, bool),
                       // d (floats) or d, im (complex)
  DF_IGNORED = 14,   // device, layout, memory format, pin_memory: no part of the op's meaning
} DfTag;

enum {
  DF_SLOT = 1,     // a Python number the schema types as Scalar or float: may change from call
                   // to call without changing the graph
  DF_WRAPPED = 2,  // with DF_HOST_SCALAR: made from a Python number (c10 wrapped number)
};

typedef struct DfArg {
  uint8_t tag;    // DfTag
  uint8_t dtype;  // DF_HOST_SCALAR
  uint8_t flags;  // DF_SLOT, DF_WRAPPED
  uint8_t reserved;
  uint32_t len;
  union {
    int64_t i;
    double d;
    const DfTensor* tensors;
    const int64_t* ints;
    const double* floats;
    const char* str;
  };
  union {
    double im;
    int64_t j;
  };
} DfArg;

// One tensor made by a call. `sizes` stays valid for the life of the process.
typedef struct DfOutput {
  uint64_t cell;  // a new storage cell owned by the caller; 0: an undefined tensor
  void* address;  // the unique, never dereferenced address to show as data_ptr
  uint64_t nbytes;
  const int64_t* sizes;
  uint32_t ndim;
  uint8_t dtype;
  uint8_t written;  // this return landed in a DF_WRITE tensor instead; cell is 0
} DfOutput;

typedef struct DfResult {
  const DfOutput* outs;  // valid until the next call on this thread
  uint32_t len;
} DfResult;

typedef enum DfStatus {
  DF_OK = 0,
  DF_ERROR = 1,
  DF_RESIZE = 2,  // an out= tensor has another shape: result->outs says the shape each out=
                  // tensor must have (in order of return). Resize them and call again.
} DfStatus;

typedef enum DfErrorKind {
  DF_RUNTIME_ERROR = 0,
  DF_INDEX_ERROR = 1,
  DF_TYPE_ERROR = 2,
  DF_VALUE_ERROR = 3,
  DF_NOT_IMPLEMENTED = 4,
  DF_OUT_OF_MEMORY = 5,
} DfErrorKind;

// The last failure on this thread. The text lives until the next failing call on it.
const char* df_error_message(void);
int32_t df_error_kind(void);

// ---- Ops -----------------------------------------------------------------------------------
// The handle of the op that the core defines under a functional overload name such as
// "aten::add.Tensor" ("aten::relu" for the default overload); 0 if it defines none.
enum {
  DF_OP_RANDOM = 1,  // draws random numbers though its schema has no Generator argument: append
                     // a DF_GENERATOR argument of the default generator
};
uint32_t df_op_lookup(const char* name, uint32_t* flags);
// Every functional overload name the core defines: the i-th, or null past the end.
const char* df_op_name(uint32_t i);
// Records one call. `location` is from df_location (0: unknown).
int32_t df_record(uint32_t op, const DfArg* args, uint32_t nargs, uint32_t location,
                  DfResult* result);
// Interns a Python source line. Strings are copied.
uint32_t df_location(const char* file, uint32_t line, const char* function);
// Its text, " recorded at" and all, to append to an error's message: "" for 0. Valid until the next
// call on this thread.
const char* df_location_text(uint32_t location);
// Notes that an op ran on the CPU instead. 0: first time (warn), 1: warned already, 2: the user
// asked for an error (TORCHTPU_FALLBACK=error).
int32_t df_note_fallback(const char* op);

// ---- Storage -------------------------------------------------------------------------------
// A new cell of `nbytes` (contents unspecified, read as zeros). 0 on failure.
uint64_t df_cell_new(uint64_t nbytes, void** address);
void df_cell_free(uint64_t cell);
// The cell whose bytes `address` lies in, and where it starts: for a storage that torch made of
// an address alone (pickling does). 0: there is none.
uint64_t df_cell_at(const void* address, void** start);
// Grows or shrinks a cell; what both sizes share keeps its contents.
int32_t df_cell_resize(uint64_t cell, uint64_t nbytes);
// Copies `src` (row-major, dst's sizes and dtype) into the window. Done with `src` on return.
int32_t df_upload(const DfTensor* dst, const void* src, uint32_t location);
// Flushes what the window needs, waits, and copies it to `dst` row-major.
int32_t df_download(const DfTensor* src, void* dst, uint32_t location);

// ---- Control -------------------------------------------------------------------------------
// Flushes and waits until the device is idle; reports a deferred failure if there is one.
int32_t df_synchronize(void);
// Flushes without waiting.
int32_t df_flush(void);
// Forgets every deferred failure and marks the process as forked: every later call fails with a
// clear message.
void df_after_fork_in_child(void);
// Bytes: current and peak (since the last reset) device memory in live buffers.
void df_memory_stats(uint64_t* current, uint64_t* peak, uint64_t* allocations);
void df_memory_reset_peak(void);

#ifdef __cplusplus
}
#endif
