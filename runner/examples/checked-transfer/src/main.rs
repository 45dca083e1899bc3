//! `morphgl` with one more operator linked in.

use morphgl_transferring_cpu_checked as _;

fn main() -> std::process::ExitCode {
    morphgl::cli::main()
}
