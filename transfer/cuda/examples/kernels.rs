//! Compiles kernels to the PTX beside them. Run: `cargo run -p morphgl-cuda --example kernels -- compile FILES…`,
//! or without files for all of the workspace. `MORPHGL_NVRTC` names the compiler's library, of version
//! `morphgl_cuda::compiler::PTX_VERSION`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool prints")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use morphgl_cuda::compiler::{Nvrtc, PTX_ARCHITECTURE, PTX_VERSION, Target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((command, files)) if command == "compile" => compile(files.iter().map(PathBuf::from).collect()),
        _ => Err("usage: kernels compile [FILE.cu …]".to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn compile(mut files: Vec<PathBuf>) -> Result<(), String> {
    let nvrtc = Nvrtc::find()?;
    if nvrtc.version != PTX_VERSION {
        let ((is, of), (major, minor)) = (nvrtc.version, PTX_VERSION);
        return Err(format!(
            "this is NVRTC {is}.{of}, and PTX is made by {major}.{minor}: pip install nvidia-cuda-nvrtc-cu12=={major}.{minor}.105, and name it in MORPHGL_NVRTC"
        ));
    }
    if files.is_empty() {
        find(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")), &mut files)?;
    }
    if files.len() > 1 {
        // A process each: the output for a file depends on earlier compilations.
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        for file in files {
            let status = Command::new(&program).arg("compile").arg(&file).status().map_err(|e| e.to_string())?;
            if !status.success() {
                return Err(format!("{}: see above", file.display()));
            }
        }
        return Ok(());
    }
    for file in files {
        let at = |e: std::io::Error| format!("{}: {e}", file.display());
        let source = fs::read_to_string(&file).map_err(at)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let (ptx, _) = nvrtc.compile(&name, &source, Target::Ptx(PTX_ARCHITECTURE), &[])?;
        let target = file.with_extension("ptx");
        fs::write(&target, &ptx).map_err(at)?;
        println!("{}: {} bytes", target.display(), ptx.len());
    }
    Ok(())
}

/// Adds the kernel files below a folder, except in build and hidden folders.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(at)? {
        let path = entry.map_err(at)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            find(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "cu") {
            files.push(path);
        }
    }
    Ok(())
}
