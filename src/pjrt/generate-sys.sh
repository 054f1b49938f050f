#!/bin/sh
# Regenerates src/pjrt/sys.rs from the pjrt_c_api.h that ships in the xla-cpu-pjrt wheel.
#
#   sh src/pjrt/generate-sys.sh
#
# Needs: `python3` (or $PYTHON) with xla-cpu-pjrt installed, `bindgen` (cargo install bindgen-cli),
# libclang (if it is not where the linker looks, name its folder in LIBCLANG_PATH) and gcc or clang
# for the compiler's own headers (stddef.h and the like).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
header=$("${PYTHON:-python3}" - <<'EOF'
import importlib.util, pathlib
spec = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
if spec is None:
    raise SystemExit("xla-cpu-pjrt is not installed in this Python: pip install xla-cpu-pjrt")
print(pathlib.Path(spec.submodule_search_locations[0]) / "include" / "pjrt_c_api.h")
EOF
)
builtin_headers=$("${CC:-cc}" -print-file-name=include)

bindgen "$header" \
    --output "$here/sys.rs" \
    --no-doc-comments \
    --allowlist-item '_?PJRT_.*' \
    --default-enum-style consts \
    --no-prepend-enum-name \
    --with-derive-default \
    --no-derive-debug \
    --no-layout-tests \
    --rust-target 1.85 \
    --rust-edition 2024 \
    -- -isystem "$builtin_headers"
