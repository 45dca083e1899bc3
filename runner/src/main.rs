//! The `morphgl` command.

// Training makes and drops large tensors at every step; with this allocator a step takes half the time
// (`docs/decisions.md` has the figures).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    morphgl::cli::main()
}
