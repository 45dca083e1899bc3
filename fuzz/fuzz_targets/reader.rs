//! The target of the reader that the binary is named after.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use morphgl_fuzz::{READERS, Reader, Sandbox};

static READER: LazyLock<(&Reader, Sandbox)> = LazyLock::new(|| {
    let reader =
        READERS.iter().find(|reader| reader.name == env!("CARGO_BIN_NAME")).expect("a target is named after a reader");
    (reader, reader.sandbox())
});

fuzz_target!(|input: &[u8]| {
    let (reader, sandbox) = &*READER;
    reader.read(sandbox, input);
});
