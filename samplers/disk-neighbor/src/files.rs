//! The files of the arrays.

use std::ops::Range;

use morphgl_graph_store::{Dataset, Dtype, Error as StoreError, FeatureMatrix, Meta, Position};
use morphgl_platform::direct::{self, DirectFile, Fetch, Reader, Settings};
use morphgl_registry::{Error, Result};

use crate::options::Options;

/// Bytes of a read of a pass over a whole array.
const PASS_BYTES: usize = 1 << 20;
/// Reads in flight of a pass.
const PASS_DEPTH: usize = 8;

/// An array in a file.
#[derive(Debug, Clone)]
pub(crate) struct OnDisk {
    pub(crate) file: DirectFile,
    /// Byte offset of the first element.
    pub(crate) base: u64,
    /// Bytes of an element, or of a row of a matrix.
    pub(crate) unit: usize,
    /// Number of elements, or of rows of a matrix.
    pub(crate) len: u64,
}

impl OnDisk {
    /// The error of invalid content at `element`.
    pub(crate) fn wrong(&self, element: u64, what: String) -> Error {
        let at = Position::Byte(self.base + element * self.unit as u64);
        let cure = "the dataset is damaged: import it again";
        Error::failed("reading the dataset", StoreError::invalid(self.file.path(), at, what, cure))
    }

    /// Reads scattered elements.
    pub(crate) fn read(&self, reader: &mut Reader, fetches: &[Fetch], out: &mut [u8]) -> Result<()> {
        reader.read(&self.file, self.base, self.unit, fetches, out).map_err(failed)
    }

    /// Reads consecutive elements from `first` on until `out` is full, by a [`Files::long_reader`].
    pub(crate) fn pass(&self, reader: &mut Reader, first: u64, out: &mut [u8]) -> Result<()> {
        // The fetched units are pages, of which there are far fewer than elements, and then the rest.
        let start = self.base + first * self.unit as u64;
        let (pages, rest) = out.as_chunks_mut::<4096>();
        let fetches: Vec<Fetch> = (0..pages.len() as u32).map(|i| Fetch { element: i.into(), to: i }).collect();
        reader.read(&self.file, start, 4096, &fetches, pages.as_flattened_mut()).map_err(failed)?;
        if rest.is_empty() {
            return Ok(());
        }
        let start = start + 4096 * pages.len() as u64;
        reader.read(&self.file, start, rest.len(), &[Fetch { element: 0, to: 0 }], rest).map_err(failed)
    }
}

/// A matrix of features in a file.
#[derive(Debug)]
pub(crate) struct FeatureRows {
    pub(crate) rows: OnDisk,
    /// The nodes, in the order of their rows.
    pub(crate) nodes: Range<u32>,
    /// Number of the nodes' type, where there is a matrix per type.
    pub(crate) node_type: Option<usize>,
}

impl FeatureRows {
    /// The row of a node, to be read to the position `to`.
    pub(crate) fn fetch(&self, node: u32, to: u32) -> Fetch {
        Fetch { element: u64::from(node - self.nodes.start), to }
    }
}

/// The matrices of features with bytes, and the numbers of the types of their nodes.
pub(crate) fn matrices(dataset: &Dataset) -> Vec<(&FeatureMatrix, Option<usize>)> {
    let by_type = dataset.features_by_type.iter().enumerate();
    let by_type = by_type.filter_map(|(node_type, matrix)| Some((matrix.as_ref()?, Some(node_type))));
    let all = dataset.features.iter().map(|matrix| (matrix, None));
    all.chain(by_type).filter(|(matrix, _)| matrix.row_bytes() > 0).collect()
}

/// The files of a dataset.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) indptr: OnDisk,
    pub(crate) indices: OnDisk,
    /// Types and times, if edges are sampled by type.
    pub(crate) edge_types: Option<OnDisk>,
    pub(crate) edge_times: Option<OnDisk>,
    /// Rows of the edges' features, if edges have some.
    pub(crate) edge_ids: Option<OnDisk>,
    pub(crate) node_times: Option<OnDisk>,
    /// The features, if they are gathered: one matrix of all nodes, or one per node type with features.
    pub(crate) features: Vec<FeatureRows>,
    pub(crate) labels: Option<OnDisk>,
    pub(crate) targets: Option<OnDisk>,
}

impl Files {
    /// Opens the files of `dataset` itself, whatever is at its path by now.
    pub(crate) fn open(dataset: &Dataset, gather: bool, by_type: bool, options: &Options) -> Result<Self> {
        if dataset.path.as_os_str().is_empty() {
            let cure = "write it to a directory first, with `morphgl generate` or `morphgl import`";
            let what = format!("{} was made in memory and has no files to read from; {cure}", dataset.name);
            return Err(Error::setting("dataset", what));
        }
        let failed = |e: StoreError| Error::failed("opening the dataset", e);
        let find = |name: &str, dtype: Option<Dtype>| -> Result<Option<OnDisk>> {
            let Some(array) = dataset.path.array(name).map_err(failed)? else { return Ok(None) };
            if let Some(dtype) = dtype.filter(|d| *d != array.dtype) {
                let what = format!("{name} is {}, expected {dtype}", array.dtype);
                let cure = "import the dataset again";
                return Err(failed(StoreError::invalid(&array.path, Position::File, what, cure)));
            }
            let file = DirectFile::of(&array.file, &array.path, options.block).map_err(|e| failed(e.into()))?;
            let row = array.shape[1..].iter().product::<u64>() as usize;
            let unit = row * array.dtype.size();
            Ok(Some(OnDisk { file, base: array.offset, unit, len: array.shape[0] }))
        };
        let needed = |name: &str, found: Option<OnDisk>| {
            found.ok_or_else(|| Error::setting("dataset", format!("it has no {name}; import it again")))
        };
        let mut features = Vec::new();
        for (matrix, node_type) in if gather { matrices(dataset) } else { Vec::new() } {
            let name = node_type.map_or_else(|| "features".to_string(), Meta::features_of);
            let rows = needed(&name, find(&name, None)?)?;
            let types = dataset.topology.types();
            let nodes = node_type.zip(types).map(|(node_type, types)| types.range(node_type));
            let nodes = nodes.unwrap_or(0..dataset.num_nodes() as u32);
            if (rows.len, rows.unit) != (nodes.len() as u64, matrix.row_bytes()) {
                return Err(rows.wrong(0, format!("{} rows for {} nodes", rows.len, nodes.len())));
            }
            features.push(FeatureRows { rows, nodes, node_type });
        }
        Ok(Self {
            indptr: needed("indptr", find("indptr", Some(Dtype::U64))?)?,
            indices: needed("indices", find("indices", Some(Dtype::U32))?)?,
            edge_types: if by_type { find("edge_types", Some(Dtype::U16))? } else { None },
            edge_times: if by_type { find("edge_times", Some(Dtype::I64))? } else { None },
            edge_ids: if dataset.topology.edge_ids().is_some() { find("edge_ids", Some(Dtype::U32))? } else { None },
            node_times: if by_type { find("node_times", Some(Dtype::I64))? } else { None },
            features,
            labels: find("labels", Some(Dtype::I32))?,
            targets: find("targets", Some(Dtype::F32))?,
        })
    }

    /// A reader of scattered elements.
    pub(crate) fn reader(&self, options: &Options) -> Result<Reader> {
        self.start_reader(Settings { depth: options.depth, most: 16 << 10, gap: options.gap, method: options.method() })
    }

    /// A reader of whole arrays.
    pub(crate) fn long_reader(&self, options: &Options) -> Result<Reader> {
        let method = options.method();
        self.start_reader(Settings { depth: PASS_DEPTH, most: PASS_BYTES, gap: 16 << 10, method })
    }

    /// A reader whose reads are long enough for a row of a matrix that begins at the end of a block.
    fn start_reader(&self, settings: Settings) -> Result<Reader> {
        let row_bytes = self
            .features
            .iter()
            .map(|matrix| &matrix.rows)
            .chain(&self.targets)
            .map(|rows| rows.unit)
            .max()
            .unwrap_or(0);
        let most = settings.most.max(row_bytes.next_multiple_of(4096) + 8192);
        Reader::new(Settings { most, ..settings }).map_err(|e| Error::failed("starting reads", e))
    }
}

fn failed(error: direct::Error) -> Error {
    Error::failed("reading the dataset", StoreError::from(error))
}
