//! The `morphgl` command.

mod allocator;

fn main() -> std::process::ExitCode {
    let hooks = morphgl::AllocatorHooks { release: allocator::release, keep_freed: allocator::keep_freed };
    morphgl::set_allocator_hooks(hooks);
    morphgl::cli::main()
}
