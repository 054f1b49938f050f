//! Compiles the C++ shim against the torch of the Python that the package is built for.
//!
//! pip builds in an isolated environment whose interpreter doesn't see the user's packages, so
//! torch is looked up as files, in the site-packages of the environment that interpreter belongs
//! to. It is imported only if it isn't there (an editable or a system-wide installation).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The torch releases whose C++ interface the shim is written for.
const TORCH: &str = "2.15.";

/// Prints the places that matter, one a line: `torch` is a directory.
const LOOK: &str = r#"
import os, sys, sysconfig
paths = sysconfig.get_paths()
places = [paths["platlib"], paths["purelib"], *sys.path]
found = next((p for p in places if os.path.isfile(os.path.join(p, "torch", "version.py"))), None)
if found is None:
    try:
        import torch
        found = os.path.dirname(os.path.dirname(torch.__file__))
    except ImportError:
        found = ""
print(sys.version.split()[0])
print(sys.executable)
print(paths["include"])
print(paths["platlib"])
print(os.path.join(found, "torch") if found else "")
"#;

struct Found {
    include: PathBuf,
    torch: PathBuf,
    version: String,
}

fn fail(message: String) -> ! {
    // Cargo shows the last lines of a build script's stderr.
    eprintln!("\nerror: {message}\n");
    std::process::exit(1);
}

fn look() -> Found {
    let python = env::var("PYO3_PYTHON")
        .or_else(|_| env::var("PYTHON_SYS_EXECUTABLE"))
        .unwrap_or_else(|_| "python3".into());
    let output = Command::new(&python).args(["-c", LOOK]).output();
    let output = output.unwrap_or_else(|e| {
        fail(format!("{python} doesn't run ({e}); set PYO3_PYTHON to a Python with torch 2.15"))
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let [python_version, executable, include, site, torch] = lines[..] else {
        let problem = String::from_utf8_lossy(&output.stderr);
        fail(format!("{python} can't say where its packages are: {problem}"))
    };
    if torch.is_empty() {
        fail(format!(
            "torch isn't installed for {executable} (Python {python_version}): looked in {site}. \
             The extension is compiled against the torch it will run with. Install it first: \
             pip install 'torch=={TORCH}*', then install deferandfuse again."
        ));
    }
    let torch = PathBuf::from(torch);
    let version = torch_version(&torch);
    if !version.starts_with(TORCH) {
        fail(format!(
            "torch {version} is installed in {}, but the extension needs torch {TORCH}*. \
             pip install 'torch=={TORCH}*', then install deferandfuse again.",
            torch.display()
        ));
    }
    if !Path::new(include).join("Python.h").is_file() {
        fail(format!(
            "Python.h of Python {python_version} isn't in {include}: install Python's \
             development files (on Debian: apt install python3-dev)."
        ));
    }
    Found { include: include.into(), torch, version }
}

/// `__version__` of torch/version.py.
fn torch_version(torch: &Path) -> String {
    let file = torch.join("version.py");
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|e| fail(format!("{} can't be read: {e}", file.display())));
    println!("cargo::rerun-if-changed={}", file.display());
    text.lines()
        .find_map(|line| line.strip_prefix("__version__"))
        .and_then(|rest| rest.split(['\'', '"']).nth(1))
        .unwrap_or_else(|| fail(format!("{} doesn't say torch's version", file.display())))
        .to_owned()
}

fn main() {
    for variable in ["PYO3_PYTHON", "PYTHON_SYS_EXECUTABLE", "VIRTUAL_ENV"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=shim");
    let Found { include, torch, version } = look();
    let sources = || std::fs::read_dir("shim").into_iter().flatten().flatten().map(|e| e.path());
    let with = |extension: &'static str| {
        move |path: &PathBuf| path.extension().is_some_and(|e| e == extension)
    };
    // Warnings then name the shim's files as the repository does.
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let short_paths = format!("-ffile-prefix-map={root}/=");

    let mut shim = cc::Build::new();
    shim.cpp(true)
        .std("c++20")
        .opt_level(2)
        .debug(false)
        .warnings(false)
        .flag("-fvisibility=hidden")
        .flag("-Wall")
        .flag("-isystem")
        .flag(torch.join("include"))
        .flag("-isystem")
        .flag(torch.join("include/torch/csrc/api/include"))
        .flag("-isystem")
        .flag(&include)
        .flag(&short_paths)
        .define("DEFERANDFUSE_TORCH_VERSION", format!("\"{version}\"").as_str());
    let mut files: Vec<PathBuf> = sources().filter(with("cpp")).collect();
    files.sort();
    shim.files(files).compile("deferandfuse_shim");

    // CPython's internal headers are C, not C++.
    cc::Build::new()
        .std("c11")
        .opt_level(2)
        .warnings(false)
        .flag("-fvisibility=hidden")
        .flag("-isystem")
        .flag(&include)
        .flag(&short_paths)
        .files(sources().filter(with("c")))
        .compile("deferandfuse_frames");

    // Loaded already when the extension is: Python imports torch first, so no path is recorded.
    println!("cargo::rustc-link-search=native={}", torch.join("lib").display());
    for library in ["torch_python", "torch", "torch_cpu", "c10"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
