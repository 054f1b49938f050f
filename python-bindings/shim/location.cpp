// Which line of the user's program an op comes from.
//
// In the steady state this takes no lock and no GIL: frames are read as frames.h says, and what
// was learnt of a code object is kept per thread. Only a line seen for the first time takes the
// GIL. Code objects in a cache are kept alive for ever, so that an address means one code object;
// that is bounded by the size of the program.
#include <Python.h>

#include <torch/csrc/autograd/node.h>

#include <string_view>
#include <typeinfo>
#include <vector>

#include "frames.h"
#include "shim.h"

namespace deferandfuse {
namespace {

// An open-addressing map from (pointer, number) to a number. Never shrinks.
class Table {
 public:
  // Null if absent. Valid until the next insert.
  const uint32_t* find(const void* key, uint32_t minor) const {
    for (size_t i = hash(key, minor);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.key == key && slot.minor == minor) return &slot.value;
      if (slot.key == nullptr) return nullptr;
    }
  }

  void insert(const void* key, uint32_t minor, uint32_t value) {
    if (2 * ++count_ > slots_.size()) {
      std::vector<Slot> old(2 * slots_.size());
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.key != nullptr) place(slot);
      }
    }
    place({key, minor, value});
  }

  size_t size() const { return count_; }

 private:
  struct Slot {
    const void* key = nullptr;
    uint32_t minor = 0;
    uint32_t value = 0;
  };

  static size_t hash(const void* key, uint32_t minor) {
    const uint64_t bits = (reinterpret_cast<uint64_t>(key) >> 4) ^ (uint64_t{minor} << 32);
    return static_cast<size_t>((bits * 0x9E3779B97F4A7C15u) >> 32);
  }

  void place(const Slot& slot) {
    size_t i = hash(slot.key, slot.minor);
    while (slots_[i & (slots_.size() - 1)].key != nullptr) ++i;
    slots_[i & (slots_.size() - 1)] = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(256);
  size_t count_ = 0;
};

struct Cache {
  Table internal;  // (code, 0) → is it library code
  Table lines;     // (code, offset) → location
  Table nodes;     // (autograd node type, 0) → location
};

thread_local Cache cache;

// Past this many code objects a program makes them at run time; these aren't kept.
constexpr size_t kMostCodes = 1 << 17;

// Directories whose code is not the user's: torch, this package, the standard library.
std::vector<std::string>& library_dirs() {
  static auto* dirs = new std::vector<std::string>;
  return *dirs;
}

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

const char* utf8(PyObject* text) {
  const char* chars = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
  if (chars == nullptr) PyErr_Clear();
  return chars != nullptr ? chars : "?";
}

bool is_library(std::string_view file) {
  if (file.starts_with("<frozen ")) return true;
  for (const std::string& dir : library_dirs()) {
    if (file.size() <= dir.size() || !file.starts_with(dir) || file[dir.size()] != '/') continue;
    // Packages are installed below the standard library: those aren't part of it.
    const std::string_view rest = file.substr(dir.size());
    return !rest.starts_with("/site-packages/") && !rest.starts_with("/dist-packages/");
  }
  return false;
}

bool is_library_code(PyCodeObject* code) {
  if (const uint32_t* known = cache.internal.find(code, 0)) return *known != 0;
  const Gil gil;
  const bool library = is_library(utf8(code->co_filename));
  if (cache.internal.size() < kMostCodes) {
    Py_INCREF(code);
    cache.internal.insert(code, 0, library);
  }
  return library;
}

uint32_t line_of(const DfFrame& frame) {
  auto* code = static_cast<PyCodeObject*>(frame.code);
  const auto offset = static_cast<uint32_t>(frame.byte_offset);
  if (const uint32_t* known = cache.lines.find(code, offset)) return *known;
  const Gil gil;
  const int line = PyCode_Addr2Line(code, frame.byte_offset);
  const uint32_t location = df_location(utf8(code->co_filename),
                                        static_cast<uint32_t>(std::max(line, 0)),
                                        utf8(code->co_qualname));
  // Only a code object that `is_library_code` keeps alive may be a key.
  if (cache.internal.find(code, 0) != nullptr) cache.lines.insert(code, offset, location);
  return location;
}

// In an autograd thread there is no Python frame: the node says what is being differentiated.
uint32_t backward_location() {
  const auto node = torch::autograd::get_current_node();
  if (!node) return 0;
  const torch::autograd::Node& running = *node;
  const std::type_info* type = &typeid(running);
  if (const uint32_t* known = cache.nodes.find(type, 0)) return *known;
  std::string name = node->name();
  if (const size_t colon = name.rfind("::"); colon != std::string::npos) {
    name.erase(0, colon + 2);
  }
  const uint32_t location = df_location("<backward>", 0, name.c_str());
  // Every Python autograd.Function has the same C++ type.
  const bool python = std::string_view(type->name()).find("PyNode") != std::string_view::npos;
  if (!python) cache.nodes.insert(type, 0, location);
  return location;
}

void add_library(const char* module) {
  PyObject* imported = PyImport_ImportModule(module);
  PyObject* file = imported != nullptr ? PyObject_GetAttrString(imported, "__file__") : nullptr;
  if (file != nullptr && PyUnicode_Check(file)) {
    const std::string path = utf8(file);
    library_dirs().push_back(path.substr(0, path.rfind('/')));
  }
  Py_XDECREF(file);
  Py_XDECREF(imported);
  PyErr_Clear();
}

}  // namespace

void register_location() {
  for (const char* module : {"torch", "deferandfuse", "os"}) add_library(module);
}

uint32_t here() {
  DfFrame frame;
  if (!Py_IsInitialized()) return 0;
  if (!df_frame_first(&frame)) return backward_location();
  const DfFrame innermost = frame;
  do {
    if (!is_library_code(static_cast<PyCodeObject*>(frame.code))) return line_of(frame);
  } while (df_frame_next(&frame));
  return line_of(innermost);
}

}  // namespace deferandfuse
