//! Which plugin to load.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{Error, Result};

/// The environment variable that names the plugin.
pub const PLUGIN_ENV: &str = "TORCHTPU_PJRT_PLUGIN";

/// The plugins that the caller knows of. Paths are taken as they are; whether a file is a plugin
/// shows when it is loaded.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    /// libtpu, used where this machine has a TPU.
    pub libtpu: Option<PathBuf>,
    /// The plugin to use where nothing else applies (XLA:CPU).
    pub default: Option<PathBuf>,
}

/// Why a plugin was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The environment variable names it.
    Environment,
    /// This machine has a TPU, and libtpu was at hand.
    TpuPresent,
    /// It is the caller's default.
    Default,
    /// A Python interpreter has `xla-cpu-pjrt` installed.
    Python,
}

/// The chosen plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The plugin's path.
    pub path: PathBuf,
    /// Why it was chosen.
    pub reason: Reason,
}

/// Chooses the plugin to load:
///
/// 1. the path in the environment variable [`PLUGIN_ENV`], if set and not empty;
/// 2. libtpu, if the caller has it and this machine has a TPU (see [`tpu_present`]);
/// 3. the caller's default;
/// 4. without one, the XLA:CPU plugin of the `xla-cpu-pjrt` package, found by asking the Python
///    interpreter on the `PATH`.
///
/// # Errors
/// Nothing was found; the message says what was tried.
pub fn discover(candidates: &Candidates) -> Result<Choice> {
    let named = env::var_os(PLUGIN_ENV).filter(|path| !path.is_empty()).map(PathBuf::from);
    choose(named, candidates, tpu_present(), ask_python)
}

fn choose(
    named: Option<PathBuf>,
    candidates: &Candidates,
    tpu: bool,
    ask_python: impl FnOnce() -> Result<PathBuf, String>,
) -> Result<Choice> {
    if let Some(path) = named {
        return Ok(Choice { path, reason: Reason::Environment });
    }
    if let (Some(path), true) = (&candidates.libtpu, tpu) {
        return Ok(Choice { path: path.clone(), reason: Reason::TpuPresent });
    }
    if let Some(path) = &candidates.default {
        return Ok(Choice { path: path.clone(), reason: Reason::Default });
    }
    match ask_python() {
        Ok(path) => Ok(Choice { path, reason: Reason::Python }),
        Err(python) => {
            let tpu = match (&candidates.libtpu, tpu) {
                (Some(_), _) => "libtpu is installed, but this machine has no TPU",
                (None, true) => "this machine has a TPU, but libtpu is not installed",
                (None, false) => "no TPU",
            };
            Err(Error::NoPlugin { tried: format!("{PLUGIN_ENV} is not set; {tpu}; {python}") })
        }
    }
}

/// Whether this machine has a TPU that libtpu could open: a device file `/dev/accel*` of the TPU
/// driver, or a VFIO group under `/dev/vfio` in an environment that TPU machines set up
/// (`TPU_ACCELERATOR_TYPE` or `TPU_WORKER_ID`). VFIO alone does not tell, as it passes through any
/// kind of PCI device.
pub fn tpu_present() -> bool {
    tpu_present_in(
        Path::new("/dev"),
        ["TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID"].iter().any(|name| env::var_os(name).is_some()),
    )
}

fn tpu_present_in(dev: &Path, tpu_environment: bool) -> bool {
    let has_numbered = |folder: &Path, prefix: &str| {
        std::fs::read_dir(folder).is_ok_and(|entries| {
            entries.flatten().any(|entry| {
                entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.strip_prefix(prefix))
                    .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            })
        })
    };
    has_numbered(dev, "accel") || (tpu_environment && has_numbered(&dev.join("vfio"), ""))
}

/// Prints the XLA:CPU plugin's path, without importing anything heavy.
const FIND_PLUGIN: &str = "\
import importlib.util, pathlib, sys
try:
    spec = importlib.util.find_spec('xla_plugins.xla_cpu_pjrt')
except ModuleNotFoundError:
    spec = None
if spec is None:
    sys.exit('xla-cpu-pjrt is not installed in ' + sys.executable)
print(pathlib.Path(spec.submodule_search_locations[0]) / 'xla_cpu_pjrt.so')
";

fn ask_python() -> Result<PathBuf, String> {
    let mut tried = Vec::new();
    for python in ["python3", "python"] {
        match Command::new(python).args(["-c", FIND_PLUGIN]).output() {
            Ok(output) if output.status.success() => {
                return Ok(String::from_utf8_lossy(&output.stdout).trim().into());
            }
            Ok(output) => tried.push(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => tried.push(format!("{python} did not start: {error}")),
        }
    }
    tried.dedup();
    Err(tried.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Candidates {
        Candidates { libtpu: Some("libtpu.so".into()), default: Some("cpu.so".into()) }
    }

    fn no_python() -> Result<PathBuf, String> {
        Err("no Python".to_owned())
    }

    #[test]
    fn the_environment_wins_then_the_tpu_then_the_default() {
        let pick = |named: Option<&str>, tpu| {
            choose(named.map(Into::into), &candidates(), tpu, no_python).unwrap()
        };
        assert_eq!(
            pick(Some("mine.so"), true),
            Choice { path: "mine.so".into(), reason: Reason::Environment }
        );
        assert_eq!(
            pick(None, true),
            Choice { path: "libtpu.so".into(), reason: Reason::TpuPresent }
        );
        assert_eq!(pick(None, false), Choice { path: "cpu.so".into(), reason: Reason::Default });
    }

    #[test]
    fn without_a_default_python_is_asked() {
        let libtpu = Candidates { libtpu: Some("libtpu.so".into()), default: None };
        let found = choose(None, &libtpu, false, || Ok("py.so".into())).unwrap();
        assert_eq!(found, Choice { path: "py.so".into(), reason: Reason::Python });
    }

    #[test]
    fn finding_nothing_says_what_was_tried_and_what_to_do() {
        let error = choose(None, &Candidates::default(), true, no_python).unwrap_err().to_string();
        for part in [PLUGIN_ENV, "libtpu is not installed", "no Python", "pip install xla-cpu-pjrt"]
        {
            assert!(error.contains(part), "{part:?} is missing in: {error}");
        }
    }

    #[test]
    fn a_tpu_is_told_from_other_devices() {
        let dev = env::temp_dir().join(format!("discover-dev-{}", std::process::id()));
        std::fs::create_dir_all(dev.join("vfio")).unwrap();
        std::fs::write(dev.join("accelerometer"), "").unwrap();
        std::fs::write(dev.join("vfio/vfio"), "").unwrap();
        assert!(!tpu_present_in(&dev, true), "no numbered device file");
        std::fs::write(dev.join("vfio/0"), "").unwrap();
        assert!(tpu_present_in(&dev, true));
        assert!(!tpu_present_in(&dev, false), "VFIO without a TPU environment");
        std::fs::write(dev.join("accel0"), "").unwrap();
        assert!(tpu_present_in(&dev, false));
        std::fs::remove_dir_all(&dev).unwrap();
    }
}
