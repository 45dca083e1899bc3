//! Every kernel of the workspace: listed in a `module!`, accepted by the compiler, with up-to-date PTX beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use morphgl_cuda::compiler::{Nvrtc, PTX_ARCHITECTURE, PTX_VERSION, Target};

/// Files below a folder with an extension, except in build and hidden folders.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            paths.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    paths
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

/// Source without comments and macro definitions.
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
        // `void` and the launch bounds precede the name, in any order.
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

/// Names in a file's `MORPHGL_KERNEL(…)`.
fn exported(source: &str) -> Vec<String> {
    source.split("MORPHGL_KERNEL(").skip(1).map(|text| text.chars().take_while(|c| is_name(*c)).collect()).collect()
}

/// Path and kernels of each `module!` of a Rust file, or of a macro around it: `"kernels/x.cu" { a, b }`.
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
        assert_eq!(exported(&source), kernels, "{at}: each __global__ is followed by its MORPHGL_KERNEL");
        let manifest = path.ancestors().find(|a| a.join("Cargo.toml").exists()).expect("kernels belong to a crate");
        let within = path.strip_prefix(manifest).expect("the file is in the crate").to_string_lossy().into_owned();
        let of_crate = rust.iter().filter(|(p, _)| p.starts_with(manifest)).flat_map(|(_, text)| modules(text));
        let mut listed: Vec<String> = of_crate.filter(|(p, _)| *p == within).flat_map(|(_, kernels)| kernels).collect();
        listed.sort();
        listed.dedup();
        let unlisted: Vec<&String> = kernels.iter().filter(|kernel| !listed.contains(kernel)).collect();
        assert!(unlisted.is_empty() && !listed.is_empty(), "{at}: not in a module!: {unlisted:?}");
        // Kernels defined by macros are in the PTX, too.
        assert_eq!(entries(&read(&path.with_extension("ptx"))), listed, "{at}: kernels of its PTX, and of module!");
        all.extend(listed);
    }
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "kernel names are unique: {all:?}");
}

/// Resources of a kernel, as reported by the assembler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Resources {
    /// Name of the kernel.
    kernel: String,
    /// Registers per thread.
    registers: u32,
    /// Bytes of static shared memory per block.
    shared: u32,
    /// Bytes of register spills per thread, stores plus loads.
    spills: u32,
    /// Bytes of stack per thread.
    stack: u32,
}

/// Parses the assembler's log: for each kernel its name, then stack and spills, then registers and shared memory.
fn resources(log: &str) -> Vec<Resources> {
    /// The number before each of the words, 0 if missing.
    fn before<const N: usize>(line: &str, words: [&str; N]) -> [u32; N] {
        words.map(|word| {
            let text = line.split_once(word).map_or("", |(before, _)| before.trim_end());
            text.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse().unwrap_or(0)
        })
    }
    let mut all: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Compiling entry function '") {
            let kernel = name.split('\'').next().unwrap_or_default().to_string();
            all.push(Resources { kernel, ..Resources::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        if line.contains("bytes stack frame") {
            let [stack, stores, loads] =
                before(line, [" bytes stack frame", " bytes spill stores", " bytes spill loads"]);
            (last.stack, last.spills) = (stack, stores + loads);
        } else if line.contains("Used ") {
            [last.registers, last.shared] = before(line, [" registers", " bytes smem"]);
        }
    }
    all
}

#[test]
fn the_assembler_s_log_is_parsed() {
    let log = "ptxas info    : 304 bytes gmem\n\
               ptxas info    : Compiling entry function 'a' for 'sm_90'\n\
               ptxas info    : Function properties for a\n\
               ptxas         .     8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n\
               ptxas info    : Used 53 registers, used 1 barriers, 8 bytes cumulative stack size, 2048 bytes smem\n\
               ptxas info    : Compiling entry function 'b' for 'sm_90'\n\
               ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               ptxas info    : Used 14 registers, 372 bytes cmem[0]\n";
    let kernel = |kernel: &str| kernel.to_string();
    let expected = [
        Resources { kernel: kernel("a"), registers: 53, shared: 2048, spills: 40, stack: 8 },
        Resources { kernel: kernel("b"), registers: 14, ..Resources::default() },
    ];
    assert_eq!(resources(log), expected);
}

/// PTX of a file, compiled in a process of its own: it depends on earlier compilations.
fn ptx(path: &Path) -> String {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("ptx");
    let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
    command.args(["--exact", "in_a_process_of_its_own"]).env("MORPHGL_TEST_FILE", path).env("MORPHGL_TEST_OUT", &out);
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stdout));
    read(&out)
}

#[test]
fn in_a_process_of_its_own() {
    let of = |name| std::env::var_os(name).map(PathBuf::from);
    let Some((path, out)) = of("MORPHGL_TEST_FILE").zip(of("MORPHGL_TEST_OUT")) else { return };
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let nvrtc = Nvrtc::find().expect("the parent process found NVRTC");
    let compiled = nvrtc.compile(&name, &read(&path), Target::Ptx(PTX_ARCHITECTURE), &[]);
    let (ptx, _) = compiled.unwrap_or_else(|e| panic!("{e}"));
    fs::write(out, ptx).expect("disk space");
}

#[test]
#[allow(clippy::print_stderr, reason = "reports what was not tested")]
fn every_kernel_compiles_and_its_ptx_is_up_to_date() {
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(why) => {
            assert!(std::env::var_os("MORPHGL_NVRTC").is_none(), "{why}");
            return eprintln!("kernels are not compiled: {why}");
        }
    };
    // The latest architecture depends on the compiler.
    let later = nvrtc.architectures.iter().copied().filter(|a| [100, 120].contains(a));
    let architectures: Vec<u32> = [80, 90].into_iter().chain(later).collect();
    let check = |path: &Path| {
        let (source, name) = (read(path), path.file_name().expect("a name").to_string_lossy().into_owned());
        for &architecture in &architectures {
            let compiled = nvrtc.compile(&name, &source, Target::Cubin(architecture), &["--ptxas-options=-v"]);
            let (cubin, log) = compiled.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(&cubin[..4], b"\x7fELF", "{}: sm_{architecture}", path.display());
            let kernels = resources(&log);
            assert!(!kernels.is_empty(), "{}: no resources in the assembler's log", path.display());
            for Resources { kernel, registers, shared, spills, stack } in kernels {
                assert!(registers > 0, "{kernel}: no registers in the assembler's log");
                eprintln!(
                    "{name:16} {:32} sm_{architecture:<4} {registers:4} registers {shared:6} B shared {spills:4} B spilled {stack:4} B stack",
                    kernel
                );
                // A spilled register costs memory accesses.
                assert_eq!(spills, 0, "{}: {kernel} spills on sm_{architecture}", path.display());
            }
        }
        let compiled = ptx(path);
        for kernel in exported(&code(&source)) {
            assert!(entries(&compiled).contains(&kernel), "{}: no {kernel} in its PTX", path.display());
        }
        if nvrtc.version == PTX_VERSION {
            let ptx = path.with_extension("ptx");
            let same = fs::read_to_string(&ptx).is_ok_and(|ptx| ptx == compiled);
            let cure = "run: cargo run -p morphgl-cuda --example kernels -- compile";
            assert!(same, "{} differs from the output of NVRTC; {cure}", ptx.display());
        }
    };
    // Concurrently: each takes more than a second.
    std::thread::scope(|scope| {
        let check = &check;
        files(&root(), "cu").into_iter().for_each(|path| drop(scope.spawn(move || check(&path))));
    });
    eprintln!("compiled for {architectures:?} by {nvrtc:?}");
}

#[test]
#[allow(clippy::print_stderr, reason = "reports what was not tested")]
fn invalid_kernels_are_refused_with_the_compiler_s_log() {
    let Ok(nvrtc) = Nvrtc::find() else { return eprintln!("no NVRTC: its log is not tested") };
    let wrong = "#include \"morphgl.cuh\"\nextern \"C\" __global__ void f() { undeclared = 1; }\n";
    let error = nvrtc.compile("wrong.cu", wrong, Target::Cubin(80), &[]).expect_err("the source is invalid");
    assert!(error.contains("wrong.cu") && error.contains("undeclared") && !error.contains('\n'), "{error}");
}

#[test]
fn a_missing_library_is_named() {
    let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
    command.args(["--exact", "every_kernel_compiles_and_its_ptx_is_up_to_date", "--nocapture"]);
    let output = command.env("MORPHGL_NVRTC", "/nowhere/libnvrtc.so").output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("MORPHGL_NVRTC names /nowhere/libnvrtc.so"), "{text}");
}
