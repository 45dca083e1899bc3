//! Given rows on a device: the rows of a super-batch are copied there once, and each mini-batch takes its own from them.

use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaBatch, Kernel, Shape, Stream};
use morphgl_registry::{GivenTable, Result};

morphgl_cuda::module! {
    /// Copies given rows.
    static GIVEN = "kernels/given.cu" { given_rows }
}

/// Threads of a block, as in the kernel.
const BLOCK: u32 = 128;
/// Number of tables that are held: where one super-batch ends, mini-batches of two are in flight.
const TABLES: usize = 2;

/// The newest tables in the memory of a device, used by one stream; none at first.
#[derive(Debug, Default)]
pub(crate) struct GivenTables {
    /// With the most blocks of a grid, once there is a table.
    kernel: Option<(Kernel, usize)>,
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Table {
    list: Arc<[u32]>,
    nodes: Buffer<u32>,
    matrices: Vec<Buffer<f32>>,
}

impl GivenTables {
    /// Copies the rows of a mini-batch's given nodes from `table`, where there is one, after the earlier work of `stream`, and replaces
    /// its `ready` event; uploads the table, if it is not on the device. Returns the number of bytes uploaded. The stream is the same
    /// each time.
    ///
    /// # Errors
    ///
    /// The device's memory is full, or the driver fails.
    pub(crate) fn fill(
        &mut self,
        stream: &Stream,
        batch: &mut CudaBatch,
        table: Option<&dyn GivenTable>,
    ) -> Result<u64> {
        let (Some(given), Some(table)) = (&mut batch.given, table) else { return Ok(0) };
        let (uploaded, num_bytes) = self.upload(stream, table)?;
        let (kernel, max_blocks) = match &self.kernel {
            Some(loaded) => loaded,
            None => {
                let device = stream.device();
                let max_blocks = device.properties()?.multiprocessors as usize * 16;
                self.kernel.insert((GIVEN.kernel(device, "given_rows")?, max_blocks))
            }
        };
        let Table { nodes, matrices, .. } = &self.tables[uploaded];
        let num_rows = given.nodes.len();
        let mut copies = matrices.iter().map(|matrix| {
            let width = matrix.len() / nodes.len();
            let rows = Buffer::new(stream, num_rows * width)?;
            let mut arguments = [
                (&given.nodes).into(),
                (num_rows as u32).into(),
                nodes.into(),
                (nodes.len() as u32).into(),
                matrix.into(),
                (width as u32).into(),
                (&rows).into(),
            ];
            let shape = Shape::linear(num_rows.div_ceil(BLOCK as usize / 32).clamp(1, *max_blocks), BLOCK);
            // SAFETY: the arguments are the kernel's. The matrix has a row of that width for each node of the table, and `rows` has one
            // for each given node.
            unsafe { stream.launch(kernel, shape, &mut arguments) }?;
            Ok(rows)
        });
        if let Some(rows) = copies.next() {
            given.rows = rows?;
        }
        given.inputs = copies.collect::<Result<_>>()?;
        given.version = table.version();
        batch.ready = stream.record(false)?;
        Ok(num_bytes)
    }

    /// The index of a table, and the number of bytes that were uploaded for it now.
    fn upload(&mut self, stream: &Stream, table: &dyn GivenTable) -> Result<(usize, u64)> {
        let list = table.nodes();
        if let Some(index) = self.tables.iter().position(|uploaded| Arc::ptr_eq(&uploaded.list, list)) {
            return Ok((index, 0));
        }
        // The oldest one's memory is reused.
        self.tables.drain(..(self.tables.len() + 1).saturating_sub(TABLES));
        let nodes = Buffer::of(stream, list)?;
        let matrices = table.matrices().into_iter().map(|matrix| Buffer::of(stream, matrix));
        let matrices: Vec<Buffer<f32>> = matrices.collect::<Result<_>>()?;
        let elements = list.len() + matrices.iter().map(Buffer::len).sum::<usize>();
        self.tables.push(Table { list: Arc::clone(list), nodes, matrices });
        Ok((self.tables.len() - 1, 4 * elements as u64))
    }
}
