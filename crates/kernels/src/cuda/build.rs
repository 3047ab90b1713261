//! The kernels' machine code: compiled by NVRTC for the device at hand, and kept in the user's cache folder.

use std::ffi::{CStr, CString, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use cudarc::nvrtc::{result, sys};

/// Every kernel, one file behind the other.
pub(super) const SOURCE: &str = concat!(
    include_str!("linear.cu"),
    "\n",
    include_str!("operands.cu"),
    "\n",
    include_str!("words.cu"),
    "\n",
    include_str!("prg.cu")
);

/// What a device's machine code is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// Compute capability: 9.0 is 90.
    pub capability: i32,
}

impl Target {
    /// Whether it has the tensor cores of Hopper, whose instructions no other generation has.
    pub fn is_hopper(self) -> bool {
        self.capability == 90
    }

    fn options(self) -> Vec<String> {
        let hopper = self.is_hopper();
        let architecture = format!("--gpu-architecture=sm_{}{}", self.capability, if hopper { "a" } else { "" });
        let mut options = vec![architecture, "--std=c++17".to_owned()];
        options.extend(hopper.then(|| "-DHOPPER".to_owned()));
        options
    }
}

/// The machine code for a device, from the cache where it is there.
///
/// # Errors
/// If NVRTC is missing or refuses the source, in words.
pub(super) fn machine_code(target: Target) -> Result<Vec<u8>, String> {
    open_library()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there; both are written to.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(|error| format!("NVRTC: {error:?}"))?;
    let mut hasher = DefaultHasher::new();
    (SOURCE, target, major, minor).hash(&mut hasher);
    let file = cache_folder().map(|folder| folder.join(format!("kernels-{:016x}.cubin", hasher.finish())));
    if let Some(code) = file.as_ref().and_then(|file| fs::read(file).ok()).filter(|code| is_whole(code)) {
        return Ok(code);
    }
    let code = compile(target)?;
    if let Some(file) = file {
        // Without a cache the next process compiles again.
        let _ = keep(&file, &code);
    }
    Ok(code)
}

/// Whether a file has the first bytes of machine code; it appears in its place only when it is complete.
fn is_whole(code: &[u8]) -> bool {
    code.starts_with(b"\x7FELF")
}

/// `$XDG_CACHE_HOME/covey`, or `.cache/covey` at home.
fn cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    folder.is_absolute().then(|| folder.join("covey"))
}

/// Writes the machine code under another name first, so that no other process reads half of it.
fn keep(file: &Path, code: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let beside = file.with_extension(format!("{}", std::process::id()));
    let mut written = fs::File::create(&beside)?;
    written.write_all(code)?;
    fs::rename(&beside, file)
}

/// [`machine_code`], without a cache.
#[cfg(test)]
pub(super) fn compiled(target: Target) -> Result<Vec<u8>, String> {
    open_library()?;
    compile(target)
}

fn compile(target: Target) -> Result<Vec<u8>, String> {
    let source = CString::new(SOURCE).expect("kernels without NUL");
    let program = result::create_program(&source, Some(c"covey.cu")).map_err(|error| format!("NVRTC: {error:?}"))?;
    let code = compile_program(program, target);
    // SAFETY: it was created above and is not used again.
    let _ = unsafe { result::destroy_program(program) };
    code
}

fn compile_program(program: sys::nvrtcProgram, target: Target) -> Result<Vec<u8>, String> {
    // SAFETY: the program lives, and options are copied.
    if let Err(error) = unsafe { result::compile_program(program, &target.options()) } {
        // SAFETY: the program lives.
        let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
        let log: Vec<u8> = log.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
        return Err(format!(
            "NVRTC refuses the kernels for sm_{}: {error:?} {}",
            target.capability,
            String::from_utf8_lossy(&log)
        ));
    }
    let mut len = 0;
    // SAFETY: the program lives and was compiled for a device's own instructions; the length is written to.
    unsafe { sys::nvrtcGetCUBINSize(program, &mut len) }.result().map_err(|error| format!("NVRTC: {error:?}"))?;
    let mut code: Vec<u8> = vec![0; len];
    // SAFETY: there is room for as many bytes as it said.
    unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast::<c_char>()) }
        .result()
        .map_err(|error| format!("NVRTC: {error:?}"))?;
    Ok(code)
}

/// Makes NVRTC available: where the system finds it, or in the folders where packages put it.
fn open_library() -> Result<(), String> {
    // SAFETY: a library that is loaded and closed again.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    for folder in library_folders() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        names.sort();
        let named = |start: &str| {
            let matches =
                |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
            names.iter().filter(matches).collect::<Vec<_>>()
        };
        // What it compiles with first: it looks for that where the system finds libraries.
        named("libnvrtc-builtins.so").into_iter().for_each(|path| keep_open(path));
        named("libnvrtc.so").into_iter().for_each(|path| keep_open(path));
        // SAFETY: as above.
        if unsafe { sys::is_culib_present() } {
            return Ok(());
        }
    }
    Err("NVRTC (libnvrtc.so) was not found: install CUDA's toolkit, or pip install nvidia-cuda-nvrtc and have COVEY_CUDA_LIBRARIES name its folder".to_owned())
}

fn library_folders() -> Vec<PathBuf> {
    let below = |variable: &str, folder: &str| env::var_os(variable).map(|path| Path::new(&path).join(folder));
    let mut folders: Vec<PathBuf> = env::var_os("COVEY_CUDA_LIBRARIES")
        .iter()
        .flat_map(|paths| env::split_paths(paths).collect::<Vec<_>>())
        .collect();
    folders.extend(below("CUDA_HOME", "lib64"));
    folders.extend(below("CUDA_PATH", "lib64"));
    folders.push("/usr/local/cuda/lib64".into());
    folders
}

/// Loads a library for good; whoever asks for its name afterwards is given it.
fn keep_open(path: &Path) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    let path: &CStr = &path;
    // SAFETY: the path ends with NUL; a library that cannot be loaded gives null.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
}
