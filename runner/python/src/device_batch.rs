//! A mini-batch on a device, as Python sees it: with the names of [`Batch`](crate::batch::Batch).

use std::sync::Arc;

use morphgl_cuda::{Exported, ExportedArray, ExportedBlock};
use pyo3::prelude::*;

use crate::batch::Form;
use crate::buffer::Buffer;

/// One mini-batch. Its memory is used again once it and its arrays are gone, after the work of the streams that took them.
#[pyclass(frozen, module = "morphgl._morphgl")]
pub(crate) struct DeviceBatch {
    exported: Arc<Exported>,
    form: Form,
}

impl DeviceBatch {
    pub(crate) fn new(exported: Arc<Exported>, form: Form) -> Self {
        Self { exported, form }
    }
}

fn some(array: Option<ExportedArray>) -> Option<Buffer> {
    array.map(Buffer::on_device)
}

#[pymethods]
impl DeviceBatch {
    #[getter]
    fn epoch(&self) -> u32 {
        self.exported.id().epoch
    }

    #[getter]
    fn index(&self) -> u32 {
        self.exported.id().index
    }

    #[getter]
    fn batch_size(&self) -> usize {
        self.exported.num_seeds()
    }

    #[getter]
    fn n_id(&self) -> Buffer {
        Buffer::on_device(self.exported.n_id())
    }

    #[getter]
    fn y(&self) -> Option<Buffer> {
        some(self.exported.classes())
    }

    #[getter]
    fn targets(&self) -> Option<Buffer> {
        some(self.exported.targets())
    }

    #[getter]
    fn pairs(&self) -> Option<Buffer> {
        some(self.exported.pairs())
    }

    #[getter]
    fn num_positives(&self) -> usize {
        self.exported.num_positives()
    }

    #[getter]
    fn pair_labels(&self) -> Buffer {
        Buffer::on_device(self.exported.labels())
    }

    #[getter]
    fn pair_targets(&self) -> Buffer {
        Buffer::on_device(self.exported.row_targets())
    }

    #[getter]
    fn x(&self) -> Option<Buffer> {
        some(self.exported.features())
    }

    #[getter]
    fn edge_index(&self) -> Option<Buffer> {
        some(self.exported.edge_index())
    }

    #[getter]
    fn edge_weight(&self) -> Option<Buffer> {
        some(self.exported.edge_weight())
    }

    /// Devices number no edges.
    #[getter]
    fn e_id(&self) -> Option<Buffer> {
        None
    }

    #[getter]
    fn num_sampled_nodes(&self) -> Vec<usize> {
        let seeds = self.exported.num_seeds();
        match self.form {
            Form::Induced => vec![seeds, self.exported.num_nodes() - seeds],
            _ => std::iter::once(seeds).chain(self.exported.hops().rev().map(|(src, dst, _)| src - dst)).collect(),
        }
    }

    #[getter]
    fn num_sampled_edges(&self) -> Vec<usize> {
        let hops = if self.form == Form::Induced { 1 } else { usize::MAX };
        self.exported.hops().rev().take(hops).map(|(_, _, edges)| edges).collect()
    }

    #[getter]
    fn blocks(&self) -> Vec<(Buffer, Buffer, Option<Buffer>, usize, usize)> {
        let block = |block: ExportedBlock| {
            let (indptr, indices) = (Buffer::on_device(block.indptr), Buffer::on_device(block.indices));
            (indptr, indices, some(block.weights), block.num_src, block.num_dst)
        };
        self.exported.blocks().into_iter().map(block).collect()
    }
}
