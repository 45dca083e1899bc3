//! CUDA graphs: work that is captured once and replayed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use morphgl_registry::Result;

use crate::driver::Id;
use crate::{Device, Stream};

/// Captured work of a stream.
#[derive(Debug)]
pub struct Graph {
    device: Device,
    id: Id,
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.device.driver().free_graph(self.id);
    }
}

impl Stream {
    /// Captures the work that `work` queues on this stream, without executing it.
    ///
    /// # Errors
    ///
    /// The error of `work`, or work that cannot be captured: allocating memory for the stream, waiting for it or for events
    /// from outside the capture, its first GEMM (see [`Stream::prepare_products`]).
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let pools = self.device().pools();
        // The pools come first: no event may be recorded for memory that another thread releases in between.
        pools.begin_capture(self.bit());
        if let Err(failure) = self.device().driver().begin_capture(self.id()) {
            pools.end_capture(self.bit());
            return Err(self.device().error(&failure));
        }
        let queued = catch_unwind(AssertUnwindSafe(work));
        let graph = self.device().driver().end_capture(self.id());
        pools.end_capture(self.bit());
        let graph = self.check(graph).map(|id| Graph { device: self.device().clone(), id });
        // The capture has ended also after a panic, and the graph is discarded.
        queued.unwrap_or_else(|panic| resume_unwind(panic))?;
        graph
    }

    /// Executes captured work.
    ///
    /// # Safety
    ///
    /// All memory that the work uses is still allocated, and the conditions of [`Stream::launch`] hold. On another stream
    /// than the capturing one, the memory stays until the work is done.
    pub unsafe fn replay(&self, graph: &Graph) -> Result<()> {
        // SAFETY: the caller's promise.
        self.check(unsafe { self.device().driver().replay(graph.id, self.id()) })
    }
}
