//! The `morphgl` command.

mod allocator;

fn main() -> std::process::ExitCode {
    let hooks = morphgl::AllocatorHooks { release: allocator::release, keep_freed: allocator::keep_freed };
    morphgl::cli::main_with(hooks)
}
