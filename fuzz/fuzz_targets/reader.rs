//! The reader that `MORPHGL_FUZZ_READER` names as a target of libFuzzer.
//!
//! Where `MORPHGL_FUZZ_DIR` names a directory, the reader's files lie there, and its seeds and dictionary are written there before
//! libFuzzer looks for them.
#![no_main]

#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/counting.rs"]
mod counting;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::{env, fs};

use clock::cpu_time;
use counting::{NOW, PEAK};
use libfuzzer_sys::fuzz_target;
use morphgl_fuzz::{LIMIT, MEMORY, READERS, Reader, Sandbox};

static READER: LazyLock<(&Reader, Sandbox)> = LazyLock::new(|| {
    let name = env::var("MORPHGL_FUZZ_READER").expect("MORPHGL_FUZZ_READER names a reader");
    let reader = READERS.iter().find(|reader| reader.name == name);
    let reader = reader.unwrap_or_else(|| panic!("no reader {name}; readers: {READERS:?}"));
    let Some(dir) = env::var_os("MORPHGL_FUZZ_DIR").map(PathBuf::from) else { return (reader, reader.sandbox()) };
    let seeds = dir.join("seeds");
    fs::create_dir_all(&seeds).expect("room");
    let write = |(i, seed)| fs::write(seeds.join(format!("{i}")), seed).expect("room");
    reader.seeds().into_iter().enumerate().for_each(write);
    let escaped = |token: &&str| token.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let dictionary: String = reader.tokens.iter().map(|token| format!("\"{}\"\n", escaped(token))).collect();
    fs::write(dir.join("dictionary"), dictionary).expect("room");
    (reader, Sandbox::within(&dir, reader.name, reader.files))
});

/// Makes the reader's files, after libFuzzer's hook is set, which ends the process at a panic.
fn prepare() {
    LazyLock::force(&READER);
    morphgl_fuzz::pass_over_decoders();
}

fuzz_target!(init: prepare(), |input: &[u8]| {
    let (reader, sandbox) = &*READER;
    let (before, start) = (NOW.load(Relaxed), cpu_time());
    PEAK.store(before, Relaxed);
    reader.read(sandbox, input);
    let (taken, time) = (PEAK.load(Relaxed) - before, cpu_time() - start);
    assert!(taken <= MEMORY, "{taken} bytes");
    assert!(time <= LIMIT, "{time:?} of processor time");
});
