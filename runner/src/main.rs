//! The `morphgl` command.

mod allocator;

fn main() -> std::process::ExitCode {
    morphgl::give_back_by(allocator::give_back);
    morphgl::keep_freed_by(allocator::keep_freed);
    morphgl::cli::main()
}
