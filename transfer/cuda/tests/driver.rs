//! The driver interface over CUDA, against fake libraries in place of NVIDIA's: signatures, contexts, released objects, and
//! a failure of every function. What kernels compute is tested by tests/emulation.rs.
#![cfg(not(feature = "emulate"))]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use morphgl_cuda::{
    Buffer, CUDA, Device, Event, ForeignStream, HostMemory, Mapped, Pinned, Precision, Shape, ShardedBuffer, Stream,
    Transpose,
};
use morphgl_registry::{Hardware, Key, Machine, Phase, Result};

mod common;

use common::TESTS;

const KEY: Key = Key::new(Phase::Training, Hardware::new(&[CUDA]), "Tests");

/// Compiles the fake libraries once; `None` without a compiler.
fn libraries() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().expect("a directory");
        for name in ["older", "alone", "twelve"] {
            std::fs::create_dir(folder.path().join(name)).expect("disk space");
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/fake.cpp");
        for (name, define) in [
            ("libcuda.so", "FAKE_CUDA"),
            ("libcublas.so.13", "FAKE_CUBLAS"),
            ("twelve/libcuda.so", "FAKE_CUDA"),
            ("twelve/libcublas.so.12", "FAKE_CUBLAS"),
            ("alone/renamed.so", "FAKE_CUBLAS"),
            ("older/libcuda.so", "FAKE_MISSING"),
            ("alone/libcuda.so", "FAKE_CUDA"),
        ] {
            let mut compiler = Command::new("g++");
            compiler.args(["-std=gnu++17", "-O1", "-shared", "-fPIC", "-o"]).arg(folder.path().join(name));
            let compiled = compiler.arg(format!("-D{define}")).arg(&source).status().ok()?;
            assert!(compiled.success(), "{} does not compile", source.display());
        }
        Some(folder)
    };
    FOLDER.get_or_init(make).as_ref().map(|folder| folder.path())
}

/// Runs a part of this file in a process of its own, with the libraries of a folder; returns its output.
#[allow(clippy::print_stderr, reason = "reports what was not tested")]
fn run(part: &str, folder: &str, environment: &[(&str, &str)]) -> Option<String> {
    let Some(libraries) = libraries() else {
        eprintln!("no g++: the driver is not tested");
        return None;
    };
    let folder = libraries.join(folder);
    let mut command = Command::new(std::env::current_exe().expect("the program has a path"));
    command.args(["--exact", "in_a_process_of_its_own", "--nocapture"]);
    command.env("LD_LIBRARY_PATH", &folder).env("XDG_CACHE_HOME", &folder).env("MORPHGL_TEST_PART", part);
    // With NVRTC kernels would be compiled for the device, and a module that fails to load be retried as PTX.
    command.env_remove("MORPHGL_NVRTC");
    let output = command.envs(environment.iter().copied()).output().expect("the program starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{part} {environment:?}: {text}");
    Some(text)
}

#[test]
#[allow(clippy::print_stdout, reason = "the parent process reads it")]
fn in_a_process_of_its_own() {
    match std::env::var("MORPHGL_TEST_PART").as_deref() {
        Ok("probe") => println!("probed: {:?}", morphgl_cuda::probe(&Machine::probe()).map_err(|u| u.reason)),
        Ok("products") => println!("products: {:?}", products().map_err(|e| e.to_string())),
        Ok("apart") => println!("apart: {:?}", peers(&[false, true]).map_err(|e| e.to_string())),
        Ok("all") => {
            println!("all: {:?}", all().map_err(|e| e.to_string()));
            report();
        }
        _ => {}
    }
}

#[allow(clippy::print_stdout, reason = "the parent process reads it")]
fn report() {
    for name in ["libcuda.so", "libcublas.so.13"] {
        // SAFETY: the libraries are those of tests/fake, whose functions have these signatures.
        unsafe {
            let library = libloading::Library::new(name).expect("the library is loaded");
            println!("live {}", library.get::<unsafe extern "C" fn() -> i32>(b"fake_live").expect("there")());
            library.get::<unsafe extern "C" fn()>(b"fake_print_calls").expect("there")();
        }
    }
}

fn products() -> Result<()> {
    let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY)?;
    Stream::new(&device, false)?.prepare_products(Precision::F32)
}

/// Shards memory over two devices for work of the first, twice: enabling peer access again is no failure. Whether the first
/// reaches the second must be one of `expected`.
fn peers(expected: &[bool]) -> Result<()> {
    let open = |place: &str| Device::open(&place.parse().expect("a place"), &KEY);
    let (device, peer) = (open("cuda:0")?, open("cuda:1")?);
    assert!(expected.contains(&device.reaches(&peer)?));
    let (stream, other) = (Stream::new(&device, false)?, Stream::new(&peer, false)?);
    for _ in 0..2 {
        let parts = vec![Buffer::<u8>::new(&stream, 4)?, Buffer::new(&other, 4)?];
        ShardedBuffer::new(&stream, parts)?;
    }
    stream.synchronize()
}

/// Calls every function of the driver interface.
fn all() -> Result<()> {
    peers(&[true])?;
    let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY)?;
    assert_eq!((device.properties()?.multiprocessors, device.properties()?.memory_bytes), (132, 1 << 30));
    // Another thread has another current context.
    std::thread::scope(|scope| scope.spawn(|| device.free_bytes()).join()).expect("no panic")?;
    let (stream, other) = (Stream::new(&device, true)?, Stream::new(&device, false)?);

    let values: Arc<Vec<f32>> = Arc::new((0..6).map(|v| v as f32).collect());
    // SAFETY: the owner keeps the values.
    let mapped = unsafe { Mapped::new(&device, Arc::clone(&values) as _, &values) }?;
    assert_eq!(mapped.refused(), None);
    let mut a = Buffer::<f32>::new(&stream, 6)?;
    stream.copy(&mapped, 0..6, &mut a, 0)?;
    // Host memory that the driver allocates, in either way.
    for memory in [HostMemory::PageLocked, HostMemory::OnNode] {
        let cleared = |allocated: &mut [f32]| assert_eq!(allocated, [0.0; 6], "{memory:?}");
        drop(Mapped::allocate(&device, memory, 6, cleared)?);
        let mapped = Mapped::allocate(&device, memory, 6, |allocated| allocated.copy_from_slice(&values))?;
        stream.copy(&mapped, 0..6, &mut a, 0)?;
    }
    let start = stream.record(true)?;
    other.wait(&start)?;

    // a = [0 1 2; 3 4 5]: a aᵀ, then aᵀ a.
    let mut back = Pinned::<f32>::new(&device, 9)?;
    assert_eq!(back[..], [0.0; 9], "pinned memory is cleared");
    stream.prepare_products(Precision::F32)?;
    let mut out = Buffer::<f32>::new(&stream, 9)?;
    let (no, yes) = (Transpose::No, Transpose::Yes);
    stream.multiply([2, 2, 3], (&a, no), (&a, yes), &mut out, (1.0, 0.0))?;
    stream.copy(&out, 0..4, &mut back, 0)?;
    stream.synchronize()?;
    assert_eq!(back[..4], [5.0, 14.0, 14.0, 50.0]);
    stream.multiply([3, 3, 2], (&a, yes), (&a, no), &mut out, (2.0, 0.0))?;
    stream.copy(&out, 0..9, &mut back, 0)?;
    stream.synchronize()?;
    assert_eq!(back[..], [18.0, 24.0, 30.0, 24.0, 34.0, 44.0, 30.0, 44.0, 58.0]);
    // A factor of more than ten mantissa bits: truncated in TF32, then exact again.
    let precise = 1.0 + 1.0 / 4096.0;
    stream.copy(&Pinned::of(&device, &[precise])?, 0..1, &mut a, 0)?;
    for (precision, expected) in
        [(Precision::F32, precise * precise), (Precision::Tf32, 1.0), (Precision::F32, precise * precise)]
    {
        stream.prepare_products(precision)?;
        stream.multiply([1, 1, 1], (&a, no), (&a, no), &mut out, (1.0, 0.0))?;
        stream.copy(&out, 0..1, &mut back, 0)?;
        stream.synchronize()?;
        assert_eq!(back[0], expected, "{precision:?}");
    }

    let kernel = TESTS.kernel(&device, "test_half")?;
    assert_eq!(kernel.occupancy(256, 0)?, 8);
    // SAFETY: the argument is the kernel's.
    unsafe { stream.launch(&kernel, Shape::linear(1, 32), &mut [(&mut out).into()]) }?;
    stream.copy(&out, 0..4, &mut back, 0)?;
    let end = stream.record(true)?;
    end.synchronize()?;
    assert!(end.is_done());
    assert_eq!(end.elapsed(&start)?.as_micros(), 1500);
    assert_eq!(back[..4], [1.0, -2.0, 65504.0, 1.5]);

    // A default stream, on a thread of another library's that has a context of its own, or none as here, and keeps it.
    std::thread::scope(|scope| scope.spawn(|| foreign(&stream, &end)).join()).expect("no panic")?;

    stream.fill(&mut a, 0)?;
    // A stream's first GEMM creates its handle.
    other.multiply([1; 3], (&a, no), (&a, no), &mut out, (1.0, 0.0))?;
    refused(Buffer::<u8>::new(&stream, 1 << 30), "CUDA_ERROR_OUT_OF_MEMORY (description by the driver)")?;
    stream.synchronize()
}

/// Orders a default stream after an event, and a stream after it.
fn foreign(stream: &Stream, event: &Event) -> Result<()> {
    // SAFETY: a default stream is never destroyed.
    let foreign = unsafe { ForeignStream::new(stream.device(), 1) };
    foreign.wait(event)?;
    foreign.precede(stream)?;
    // SAFETY: the library is that of tests/fake, whose function has this signature.
    let current = unsafe {
        let library = libloading::Library::new("libcuda.so").expect("the library is loaded");
        library.get::<unsafe extern "C" fn() -> usize>(b"fake_current").expect("there")()
    };
    // The failure that is made may be that of the call that sets it.
    assert!(current == 0 || std::env::var_os("FAKE_FAIL").is_some(), "a thread's context is changed");
    Ok(())
}

/// Asserts that an outcome is an error; returns the error unless it contains `words`: then it is the injected failure.
fn refused<T: std::fmt::Debug>(outcome: Result<T>, words: &str) -> Result<()> {
    let error = outcome.expect_err("the call is refused");
    if error.to_string().contains(words) { Ok(()) } else { Err(error) }
}

/// The rest of each line after `begin`.
fn lines<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.split_once(begin).map(|(_, rest)| rest)).collect()
}

/// Whether this machine has one of NVIDIA's libraries.
fn is_installed(names: [&str; 2]) -> bool {
    // SAFETY: the library is loaded, and not called.
    names.into_iter().any(|name| unsafe { libloading::Library::new(name) }.is_ok())
}

#[test]
fn probing_explains_why_no_device_is_usable() {
    for (folder, machine, words) in [
        (".", "no-device", "the CUDA driver finds no device"),
        (".", "old", "the CUDA driver is too old: it is for CUDA 11.8; driver 530 (CUDA 12.1) or later is needed"),
        (".", "old-device", "cuda:0 (Fake): compute capability 7.0 is too old, 8.0 is needed"),
        (".", "no-uva", "cuda:0 (Fake): it does not share the host's addresses (UVA)"),
        (".", "no-memory", "cuda:0 (Fake): its memory is full: end what else uses it"),
        (
            "older",
            "",
            "the CUDA driver is too old: it has no cuLaunchKernel; driver 530 (CUDA 12.1) or later is needed",
        ),
        ("nowhere", "", "no CUDA driver found"),
    ] {
        if folder == "nowhere" && is_installed(["libcuda.so", "libcuda.so.1"]) {
            continue;
        }
        let Some(output) = run("probe", folder, &[("FAKE_CUDA", machine)]) else { return };
        assert_eq!(lines(&output, "probed: "), [format!("Err({words:?})")], "{machine}: {output}");
    }
    let Some(output) = run("probe", ".", &[]) else { return };
    assert_eq!(lines(&output, "probed: "), ["Ok(())"], "{output}");
}

/// Calls whose failure is not reported: releases, and a query whose failure the next wait reports.
const SILENT: [&str; 9] = [
    "cuEventQuery",
    "cuEventDestroy_v2",
    "cuMemAddressFree",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostUnregister",
    "cuMemUnmap",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
];

/// Calls that drops make, too.
const AT_DROP: [&str; 6] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
];

#[test]
fn every_function_is_called_validly_and_its_failure_names_it() {
    let Some(output) = run("all", ".", &[]) else { return };
    assert_eq!(lines(&output, "all: "), ["Ok(())"], "{output}");
    assert_eq!(lines(&output, "live "), ["0", "0"], "every object is released: {output}");
    let call = |line: &str| {
        let (name, count) = line.split_once(' ').expect("a name and a number");
        (name.to_string(), count.parse::<u32>().expect("a number"))
    };
    let calls: BTreeMap<String, u32> = lines(&output, "call ").into_iter().map(call).collect();
    assert!(calls.len() >= 54, "{} functions are called: {calls:?}", calls.len());
    for (function, count) in calls {
        if function.ends_with("Destroy_v2") && function.starts_with("cublas") || SILENT.contains(&&*function) {
            continue;
        }
        // The last call may be one of a drop.
        for call in [1, count.div_ceil(2)] {
            let Some(output) = run("all", ".", &[("FAKE_FAIL", &format!("{function}:{call}"))]) else { return };
            let [outcome] = lines(&output, "all: ")[..] else { panic!("{function}:{call}: {output}") };
            let dropped = call > 1 && AT_DROP.contains(&&*function);
            let named = outcome.contains("Training_CUDA_Tests") && outcome.contains(&function);
            assert!(named || dropped && outcome == "Ok(())", "{function}:{call}: {outcome}");
        }
    }
}

#[test]
fn an_inaccessible_peer_is_named() {
    let Some(output) = run("apart", ".", &[("FAKE_CUDA", "apart")]) else { return };
    let [outcome] = lines(&output, "apart: ")[..] else { panic!("{output}") };
    let expected = "Training_CUDA_Tests: cuCtxEnablePeerAccess: cuda:0 reads the memory of cuda:1: CUDA_ERROR_FAKE";
    assert!(outcome.contains(expected), "{outcome}");
}

#[test]
fn device_memory_is_limited_by_the_environment() {
    for (bytes, words) in [
        ("many", "Training_CUDA_Tests: MORPHGL_CUDA_MEMORY is \\\"many\\\"; give a number of bytes"),
        ("1000", "cuMemAlloc_v2: 512 bytes requested, 512 of the 1000 that MORPHGL_CUDA_MEMORY allows in use"),
    ] {
        let Some(output) = run("apart", ".", &[("MORPHGL_CUDA_MEMORY", bytes)]) else { return };
        let [outcome] = lines(&output, "apart: ")[..] else { panic!("{output}") };
        assert!(outcome.contains(words), "{outcome}");
    }
}

/// Outcome of `Stream::prepare_products` in a process whose loader sees the libraries of `folder`.
fn prepare_products(folder: &str, environment: &[(&str, &str)]) -> Option<String> {
    let output = run("products", folder, environment)?;
    let [outcome] = lines(&output, "products: ")[..] else { panic!("{output}") };
    Some(outcome.to_string())
}

#[test]
fn cublas_is_found_by_both_names_and_by_its_path() {
    let Some(libraries) = libraries() else { return };
    let renamed = libraries.join("alone/renamed.so");
    let path = renamed.to_str().expect("a temporary directory has a UTF-8 name");
    let cases: [(&str, &[_]); 3] = [(".", &[]), ("twelve", &[]), ("alone", &[("MORPHGL_CUBLAS", path)])];
    for (folder, environment) in cases {
        let outcome = prepare_products(folder, environment).expect("there is a compiler");
        assert_eq!(outcome, "Ok(())", "{folder} {environment:?}");
    }
}

#[test]
fn gemm_without_cublas_says_how_to_install_it() {
    let Some(outcome) = prepare_products(".", &[("MORPHGL_CUBLAS", "/no/such/library")]) else { return };
    assert!(outcome.contains("MORPHGL_CUBLAS names /no/such/library"), "{outcome}");
    if is_installed(["libcublas.so.13", "libcublas.so.12"]) {
        return;
    }
    let outcome = prepare_products("alone", &[]).expect("there is a compiler");
    for words in ["Training_CUDA_Tests: cublasCreate_v2", "libcublas.so.13 or libcublas.so.12", "LD_LIBRARY_PATH"] {
        assert!(outcome.contains(words), "{outcome}");
    }
}
