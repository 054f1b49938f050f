"""Whether the extension fits the torch that is installed, asked before it is loaded.

A C++ extension built against another torch fails with an undefined symbol, or worse, runs. The
library says in a marker string which torch it was built for; it is read from the file.
"""

import importlib.util
import mmap
import re

_MARKER = re.compile(rb"DEFERANDFUSE_BUILT_FOR_TORCH=([^;\0]+);")


def built_for(path: str) -> str:
    """The torch version that the extension library at ``path`` was compiled against.

    Raises ImportError if the file carries no marker.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        match = _MARKER.search(data)
        if match is None:
            raise ImportError(f"{path} isn't the extension of deferandfuse: reinstall deferandfuse")
        return match.group(1).decode()


def check(torch_version: str) -> None:
    """Raises ImportError unless the installed extension was built for ``torch_version``."""
    spec = importlib.util.find_spec("deferandfuse._core")
    if spec is None or spec.origin is None:
        raise ImportError(
            "deferandfuse is installed without its extension deferandfuse._core for this Python: "
            "reinstall deferandfuse with this interpreter's pip"
        )
    built = built_for(spec.origin)
    if built.split(".")[:2] != torch_version.split(".")[:2]:
        raise ImportError(
            f"deferandfuse was built for torch {built}, but torch {torch_version} is installed; "
            "their C++ interfaces differ. Reinstall deferandfuse against this torch "
            "(pip install --force-reinstall --no-deps --no-cache-dir <deferandfuse>), or install "
            f"torch {'.'.join(built.split('.')[:2])}.*"
        )
