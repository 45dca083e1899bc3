//! Launches by which the rows that lose edges take the place of those of the graph.

use morphgl_cuda::{Argument, Buffer};
use morphgl_registry::Result;

use crate::buffer::check_len;
use crate::launch::Launch;
use crate::without::Without;

impl Launch<'_> {
    /// Writes the addresses of the cached rows' parts, and those of the mini-batch's own lists after them.
    pub(crate) fn add_part(&self, without: &Without) -> Result<()> {
        let (graph, Without { lists, weights, parts, weight_parts, .. }) = (&self.shared.graph, without);
        let arguments = [
            (graph.num_parts() as u32).into(),
            graph.cached.as_ref().into(),
            lists.into(),
            parts.into(),
            graph.cached_weights.as_ref().into(),
            weights.as_ref().into(),
            weight_parts.as_ref().into(),
        ];
        let grid = self.grid(parts.len() as u64);
        self.run(&self.kernels().sample_add_part, grid, arguments)?;
        // The addresses of times are written as those of lists are.
        let Some((times, parts)) = without.times.as_ref().zip(without.time_parts.as_ref()) else { return Ok(()) };
        let arguments = [
            (graph.num_parts() as u32).into(),
            graph.cached_times.as_ref().into(),
            times.into(),
            parts.into(),
            Argument::NULL,
            Argument::NULL,
            Argument::NULL,
        ];
        self.run(&self.kernels().sample_add_part, grid, arguments)
    }

    /// After [`Launch::locate`] of the same nodes: replaces starts and lengths of the rows that lose edges, and their degrees.
    pub(crate) fn leave_edges_out(
        &self,
        without: &Without,
        nodes: &Buffer<u32>,
        (counts, from, to, limit): (&Buffer<u64>, i32, u32, u64),
        rows: Option<(&Buffer<u64>, &Buffer<u32>, &Buffer<u32>)>,
        degrees: &Buffer<f32>,
    ) -> Result<()> {
        check_len(nodes, limit);
        check_len(degrees, limit);
        let (start, len) = rows.map(|(start, len, _)| (start, len)).unzip();
        start.inspect(|start| check_len(start, limit));
        len.inspect(|len| check_len(len, limit));
        let arguments = [
            nodes.into(),
            counts.into(),
            from.into(),
            to.into(),
            (&without.nodes).into(),
            (without.nodes.len() as u32).into(),
            (&without.starts).into(),
            (&without.lens).into(),
            (&without.degrees).into(),
            start.into(),
            len.into(),
            degrees.into(),
        ];
        self.run(&self.kernels().sample_leave_out, self.grid(limit), arguments)
    }
}
