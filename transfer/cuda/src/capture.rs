//! CUDA graphs: work that is captured once and replayed.

use std::fmt;

use morphgl_registry::Result;

use crate::driver::Id;
use crate::{Device, Stream};

/// Captured work of a stream.
pub struct Graph {
    device: Device,
    id: Id,
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.device.driver().free_graph(self.id);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph(of {:?})", self.device)
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
        let capture = Capture(Some(self));
        let queued = work();
        let graph = capture.end();
        queued?;
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

/// A capture in progress; it ends on drop, also in a panic.
struct Capture<'a>(Option<&'a Stream>);

impl Capture<'_> {
    fn end(mut self) -> Result<Graph> {
        let stream = self.0.take().expect("a capture ends once");
        let graph = stream.device().driver().end_capture(stream.id());
        stream.device().pools().end_capture(stream.bit());
        Ok(Graph { id: stream.check(graph)?, device: stream.device().clone() })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            // The graph of a panicking capture is discarded.
            let _ = Capture(Some(stream)).end();
        }
    }
}
