//! Every kernel of the workspace: listed where it has to be, and accepted by the compiler, whose PTX lies beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use morphgl_cuda::compiler::{Nvrtc, PTX_ARCHITECTURE, PTX_VERSION, Target};

/// Files below a folder with an ending, but for those of builds and hidden folders.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Source without its comments and the definitions of macros.
fn code(source: &str) -> String {
    let mut defining = false;
    let line = |line: &str| {
        let line = line.split("//").next().unwrap_or_default();
        let inside = defining || line.trim_start().starts_with("#define");
        defining = inside && line.trim_end().ends_with('\\');
        if inside { String::new() } else { line.to_string() }
    };
    source.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Names of the kernels of a file of PTX.
fn entries(ptx: &str) -> Vec<String> {
    let mut names: Vec<String> =
        ptx.split(".entry ").skip(1).map(|text| text.chars().take_while(|c| is_name(*c)).collect()).collect();
    names.sort();
    names
}

/// Names of the `__global__` functions of a file.
fn globals(source: &str) -> Vec<String> {
    let function = |text: &str| {
        // Before the name stand void and the bounds, in any order.
        let mut text = text.trim_start();
        loop {
            if let Some(bounds) = text.strip_prefix("__launch_bounds__") {
                text = bounds.split_once(')').expect("bounds end").1.trim_start();
            } else if let Some(rest) = text.strip_prefix("void ") {
                text = rest.trim_start();
            } else {
                return text.chars().take_while(|c| is_name(*c)).collect();
            }
        }
    };
    source.split("__global__").skip(1).map(function).collect()
}

/// Names that a file gives to MORPHGL_KERNEL.
fn given(source: &str) -> Vec<String> {
    source.split("MORPHGL_KERNEL(").skip(1).map(|text| text.chars().take_while(|c| is_name(*c)).collect()).collect()
}

/// Path and kernels of each `module!` of a file of Rust, or of what a crate makes of it: `"kernels/x.cu" { a, b }`.
fn modules(source: &str) -> Vec<(String, Vec<String>)> {
    const MARK: &str = ".cu\" {";
    let module = |(at, _): (usize, &str)| {
        let path = source[..at].rsplit('"').next().expect("a part").to_string() + ".cu";
        let kernels = source[at + MARK.len()..].split_once('}')?.0;
        let kernels = kernels.split(',').map(|k| k.trim().to_string()).filter(|k| !k.is_empty()).collect();
        Some((path, kernels))
    };
    source.match_indices(MARK).filter_map(module).collect()
}

#[test]
fn every_kernel_is_listed_once_in_its_file_and_in_a_module() {
    let sources = files(&root(), "cu");
    assert!(!sources.is_empty(), "{}: no kernels", root().display());
    let rust: Vec<(PathBuf, String)> = files(&root(), "rs").into_iter().map(|p| (p.clone(), code(&read(&p)))).collect();
    let mut all: Vec<String> = Vec::new();
    for path in sources {
        let source = code(&read(&path));
        let (kernels, at) = (globals(&source), path.display());
        assert_eq!(given(&source), kernels, "{at}: each __global__ is followed by its MORPHGL_KERNEL");
        let manifest = path.ancestors().find(|a| a.join("Cargo.toml").exists()).expect("it is in a crate");
        let within = path.strip_prefix(manifest).expect("it is inside").to_string_lossy().into_owned();
        let of_crate = rust.iter().filter(|(p, _)| p.starts_with(manifest)).flat_map(|(_, text)| modules(text));
        let mut listed: Vec<String> = of_crate.filter(|(p, _)| *p == within).flat_map(|(_, kernels)| kernels).collect();
        listed.sort();
        listed.dedup();
        let unlisted: Vec<&String> = kernels.iter().filter(|kernel| !listed.contains(kernel)).collect();
        assert!(unlisted.is_empty() && !listed.is_empty(), "{at}: not in a module!: {unlisted:?}");
        // Kernels that macros make are in the PTX, too.
        assert_eq!(entries(&read(&path.with_extension("ptx"))), listed, "{at}: kernels of its PTX, and of a module!");
        all.extend(listed);
    }
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "two kernels of one name: {all:?}");
}

/// PTX of a file, made in a process of its own: it depends on what the compiler made before.
fn ptx(path: &Path) -> String {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("ptx");
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(["--exact", "in_a_process_of_its_own"]).env("MORPHGL_TEST_FILE", path).env("MORPHGL_TEST_OUT", &out);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stdout));
    read(&out)
}

#[test]
fn in_a_process_of_its_own() {
    let of = |name| std::env::var_os(name).map(PathBuf::from);
    let Some((path, out)) = of("MORPHGL_TEST_FILE").zip(of("MORPHGL_TEST_OUT")) else { return };
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let nvrtc = Nvrtc::find().expect("its parent found it");
    let made = nvrtc.compile(&name, &read(&path), Target::Ptx(PTX_ARCHITECTURE)).unwrap_or_else(|e| panic!("{e}"));
    fs::write(out, made).expect("room on the disk");
}

#[test]
#[allow(clippy::print_stderr, reason = "says what was not tested")]
fn every_kernel_compiles_and_its_ptx_lies_beside_it() {
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(why) => {
            assert!(std::env::var_os("MORPHGL_NVRTC").is_none(), "{why}");
            return eprintln!("kernels are not compiled: {why}");
        }
    };
    // What the newest one is, depends on the compiler.
    let later = nvrtc.architectures().iter().copied().filter(|a| [100, 120].contains(a));
    let architectures: Vec<u32> = [80, 90].into_iter().chain(later).collect();
    let check = |path: &Path| {
        let (source, name) = (read(path), path.file_name().expect("a name").to_string_lossy().into_owned());
        for &architecture in &architectures {
            let assembled = nvrtc.assemble(&name, &source, architecture);
            let (cubin, found) = assembled.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(&cubin[..4], b"\x7fELF", "{}: sm_{architecture}", path.display());
            // A register that is spilled is memory that a thread waits for.
            assert!(!found.is_empty(), "{}: the assembler says nothing", path.display());
            for r in found {
                let (registers, shared, spills, stack) = (r.registers, r.shared, r.spills, r.stack);
                eprintln!(
                    "{name:16} {:32} sm_{architecture:<4} {registers:4} registers {shared:6} B shared {spills:4} B spilled {stack:4} B stack",
                    r.kernel
                );
                assert_eq!(spills, 0, "{}: {} spills on sm_{architecture}", path.display(), r.kernel);
            }
        }
        let made = ptx(path);
        for kernel in given(&code(&source)) {
            assert!(entries(&made).contains(&kernel), "{}: no {kernel} in its PTX", path.display());
        }
        if nvrtc.version() == PTX_VERSION {
            let ptx = path.with_extension("ptx");
            let same = fs::read_to_string(&ptx).is_ok_and(|kept| kept == made);
            let cure = "make it: cargo run -p morphgl-cuda --example kernels -- compile";
            assert!(same, "{} is not what NVRTC makes of its kernels; {cure}", ptx.display());
        }
    };
    // Side by side: they take a second and more each.
    std::thread::scope(|scope| {
        let check = &check;
        files(&root(), "cu").into_iter().for_each(|path| drop(scope.spawn(move || check(&path))));
    });
    eprintln!("compiled for {architectures:?} by {nvrtc:?}");
}

#[test]
#[allow(clippy::print_stderr, reason = "says what was not tested")]
fn kernels_that_are_wrong_are_refused_with_the_compiler_s_words() {
    let Ok(nvrtc) = Nvrtc::find() else { return eprintln!("no NVRTC: its words are not tested") };
    let wrong = "#include \"morphgl.cuh\"\nextern \"C\" __global__ void f() { undeclared = 1; }\n";
    let error = nvrtc.compile("wrong.cu", wrong, Target::Cubin(80)).expect_err("it is wrong");
    assert!(error.contains("wrong.cu") && error.contains("undeclared") && !error.contains('\n'), "{error}");
}

#[test]
fn a_library_that_is_none_is_named() {
    let error = Nvrtc::open("/nowhere/libnvrtc.so".as_ref()).expect_err("there is none");
    assert!(error.starts_with("/nowhere/libnvrtc.so: cannot be loaded as NVRTC"), "{error}");
}
