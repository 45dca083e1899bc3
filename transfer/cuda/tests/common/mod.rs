//! The kernels of `emulation.cu`, for all tests of this crate.

morphgl_cuda::module! {
    /// Kernels that use every device facility the emulation has, and some with deliberate defects.
    pub(crate) static TESTS = "tests/emulation.cu" {
        test_scan, test_blocks, test_stuck, test_half, test_votes, test_race, test_overrun, test_shared_overrun,
        test_unordered, test_ordered, test_spread,
    }
}
