//! The stream of feature rows into a dataset.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use morphgl_graph_store::{ArrayMeta, Dtype, Element, Error, Load, Meta, NpyWriter, Position, Result, read_npy};
use morphgl_platform::{PagePool, Pages};
use rayon::prelude::*;

use crate::elements::Kind;
use crate::encode::{Encode, Normalize, Unstorable};
use crate::files::invalid;
use crate::npy::ArrayReader;
use crate::plain::FilledPages;
use crate::segment::Segment;
use crate::{FeatureNorm, Ingest, RandomFeatures, pipeline, random};

/// The array of the features of all nodes.
pub(crate) const FEATURES: &str = "features";

/// Prefix of the names of arrays of edge features.
const EDGES: &str = "edge_";

/// Feature values pushed at a time.
pub(crate) const BATCH_VALUES: usize = 1 << 20;

/// Values converted at a time by one thread.
const CHUNK: usize = 1 << 14;
/// Bytes of a value in flight: as it is read, decoded, and as it is stored.
const VALUE_BYTES: u64 = 3 * 4;
/// Maximum number of values of an array in one segment.
const MAX_SEGMENT: u64 = 1 << 19;
/// File of the sums of normalised rows, inside the unfinished dataset.
pub(super) const SUMS: &str = "features.sums.npy";
/// Maximum number of features of a node.
const MAX_DIM: u64 = 1 << 24;

/// Sink of feature rows: takes them as f32 in the order of nodes, and stores them in the element type that the options name.
#[derive(Debug)]
pub struct FeatureSink<'s, 'a> {
    ingest: &'s mut Ingest<'a>,
    /// The array that is written: `features`, or those of a node type.
    name: String,
    source: PathBuf,
    encode: Encode,
    out: Box<dyn WriteBytes>,
    /// Divisors of normalised rows, in a temporary file: the search for copies of the labels undoes the division.
    sums: Option<NpyWriter<f32>>,
    /// Number of values written.
    written: u64,
    /// Buffer of encoded rows, reused by every push.
    buffer: Pages,
    /// Temporary file of all rows in f32, where the lowest value must be known before one is stored, and the type to store.
    spool: Option<(PathBuf, Dtype)>,
}

impl<'a> Ingest<'a> {
    /// Opens the stream of feature rows of `dim` values. `stored` is their type in `source`, kept unless the options name
    /// another.
    ///
    /// # Errors
    ///
    /// No columns; features from another file; an IO error.
    pub fn features<'s>(&'s mut self, source: &Path, dim: usize, stored: Dtype) -> Result<FeatureSink<'s, 'a>> {
        self.refuse_second("features", source)?;
        self.features_as(FEATURES, source, dim, stored)
    }

    /// As [`Ingest::features`], into the array `name`, whose rows the caller counts where it is not that of all nodes.
    pub(crate) fn features_as<'s>(
        &'s mut self,
        name: &str,
        source: &Path,
        dim: usize,
        stored: Dtype,
    ) -> Result<FeatureSink<'s, 'a>> {
        let of_edges = name.starts_with(EDGES);
        self.has_features_by_type |= name != FEATURES && !of_edges;
        let options = self.options();
        let normalize = options.normalize_features.filter(|_| !of_edges);
        let kept = match stored {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => stored,
            Dtype::U8 if normalize.is_none() => stored,
            _ => Dtype::F32,
        };
        if dim == 0 {
            return invalid(source, "the features have no columns", "leave the features out or give them columns");
        }
        check_dim(source, dim as u64)?;
        let dtype = options.feature_dtype.unwrap_or(kept);
        match normalize {
            Some(FeatureNorm::Pyg) => FeatureSink::spooled(name, source, self, dim, dtype),
            normalize => {
                let normalize = normalize.map(|_| Normalize::Sum);
                FeatureSink::create(name, source, self, Encode { dim, dtype, normalize })
            }
        }
    }
}

impl<'s, 'a> FeatureSink<'s, 'a> {
    pub(super) fn create(name: &str, source: &Path, ingest: &'s mut Ingest<'a>, encode: Encode) -> Result<Self> {
        let writer = &ingest.writer;
        let out: Box<dyn WriteBytes> = match encode.dtype {
            Dtype::F16 => Box::new(writer.stream::<f16>(name)?),
            Dtype::Bf16 => Box::new(writer.stream::<bf16>(name)?),
            Dtype::U8 => Box::new(writer.stream::<u8>(name)?),
            _ => Box::new(writer.stream::<f32>(name)?),
        };
        let normalize = encode.normalize.filter(|_| name == FEATURES);
        let sums = normalize.map(|_| NpyWriter::create(ingest.dir().join(SUMS))).transpose()?;
        let (name, source) = (name.to_string(), source.to_path_buf());
        Ok(Self { ingest, name, source, encode, out, sums, written: 0, buffer: Pages::new(), spool: None })
    }

    /// A sink into a temporary file, whose rows are stored once all are known.
    fn spooled(name: &str, source: &Path, ingest: &'s mut Ingest<'a>, dim: usize, dtype: Dtype) -> Result<Self> {
        let path = ingest.dir().join("features.spool.npy");
        let out = Box::new(NpyWriter::<f32>::create(&path)?);
        let encode = Encode { dim, dtype: Dtype::F32, normalize: None };
        let (name, source, spool) = (name.to_string(), source.to_path_buf(), Some((path, dtype)));
        Ok(Self { ingest, name, source, encode, out, sums: None, written: 0, buffer: Pages::new(), spool })
    }

    /// Appends whole rows, any number of them at a time (many at once is faster: they are converted in parallel).
    ///
    /// # Errors
    ///
    /// A value that is NaN or infinite, or that the stored type cannot hold.
    ///
    /// # Panics
    ///
    /// When `rows` is not a whole number of rows.
    pub fn push(&mut self, rows: &[f32]) -> Result<()> {
        let (encode, mut buffer) = (self.encode, std::mem::take(&mut self.buffer));
        let (dim, size) = (encode.dim, encode.dtype.size());
        assert_eq!(rows.len() % dim, 0, "{} values in rows of {dim}", rows.len());
        let step = CHUNK.next_multiple_of(dim);
        let out = buffer.resize(rows.len() * size);
        let pieces = out.par_chunks_mut(step * size).zip(rows.par_chunks(step)).enumerate();
        let faults = pieces.filter_map(|(i, (out, rows))| encode.values(rows, out).map(|fault| fault.after(i * step)));
        let fault = faults.min_by_key(|fault| fault.index);
        let result = self.append(&buffer, fault, &encode.sums(rows));
        self.buffer = buffer;
        result
    }

    /// Appends `num_rows` rows in batches; `fill` writes the row of a number.
    pub(crate) fn push_rows(&mut self, num_rows: usize, mut fill: impl FnMut(usize, &mut [f32])) -> Result<()> {
        let (dim, progress) = (self.encode.dim, self.ingest.progress());
        progress.stage("features", Some(num_rows as u64));
        let batch_rows = (BATCH_VALUES / dim).clamp(1, num_rows.max(1));
        let mut batch = vec![0.0; batch_rows * dim];
        for start in (0..num_rows).step_by(batch_rows) {
            let count = batch_rows.min(num_rows - start);
            let rows = batch.chunks_exact_mut(dim).take(count);
            rows.enumerate().for_each(|(i, row)| fill(start + i, row));
            self.push(&batch[..count * dim])?;
            progress.advance(count as u64);
        }
        Ok(())
    }

    /// Appends all rows of `array`, in segments that are read and converted in parallel.
    ///
    /// # Errors
    ///
    /// As of [`FeatureSink::push`], and what is wrong with the array.
    fn push_array(&mut self, array: &mut ArrayReader<'_>) -> Result<()> {
        let (encode, pool) = (self.encode, PagePool::new());
        let (dim, size) = (encode.dim as u64, encode.dtype.size());
        let (progress, memory) = (self.ingest.progress(), self.ingest.options().memory);
        // A few segments per thread are in flight, read and converted.
        let segment = (memory / 64 / array.ty.size.max(4) as u64).clamp(1 << 12, MAX_SEGMENT);
        let step = (segment / dim).max(1) * dim;
        let same = array.ty.is(encode.dtype) && encode.normalize.is_none();
        let next = || if array.remaining() == 0 { Ok(None) } else { array.segment(step, &pool).map(Some) };
        let work = |segment: Segment| {
            if same {
                let bytes = segment.read(&pool)?;
                let fault = encode.stored_fault(&bytes);
                return Ok((bytes, fault, Vec::new()));
            }
            let mut values = Vec::new();
            segment.floats(&pool, &mut values)?;
            let mut out = pool.take();
            let fault = encode.values(&values, out.resize(values.len() * size));
            Ok((FilledPages::from(out), fault, encode.sums(&values)))
        };
        pipeline::ordered(pipeline::ahead(memory, step * VALUE_BYTES), next, work, |(bytes, fault, sums)| {
            self.append(&bytes, fault, &sums)?;
            progress.advance((bytes.len() / size) as u64 / dim);
            Ok(())
        })
    }

    /// Writes encoded rows and their sums, or fails with the fault of one of them.
    fn append(&mut self, bytes: &[u8], fault: Option<Unstorable>, sums: &[f32]) -> Result<()> {
        let (dim, dtype) = (self.encode.dim as u64, self.encode.dtype);
        let Some(Unstorable { index, value }) = fault else {
            self.written += (bytes.len() / dtype.size()) as u64;
            if let Some(out) = &mut self.sums {
                out.write(sums)?;
            }
            return self.out.write_bytes(bytes);
        };
        let element = self.written + index as u64;
        let (node, column) = (element / dim, element % dim);
        let (what, cure) = if value.is_finite() {
            (format!("{value}, which {dtype} cannot hold"), "choose the feature type f32")
        } else {
            (format!("{value}, not a finite number"), "clean the data")
        };
        let of = if self.name.starts_with(EDGES) { "edge" } else { "node" };
        let what = format!("the feature of {of} {node}, column {column} is {what}");
        Err(Error::invalid(&self.source, Position::Element(element), what, cure))
    }

    /// Ends the features.
    ///
    /// # Errors
    ///
    /// An IO error.
    pub fn finish(self) -> Result<()> {
        let Encode { dim, dtype, .. } = self.encode;
        let meta = self.out.finish(dim)?;
        if let Some((spool, dtype)) = self.spool {
            let (values, _) = read_npy::<f32>(&spool, Load::Mmap)?;
            let lowest = values.par_iter().copied().reduce(|| f32::INFINITY, f32::min);
            let normalize = Some(Normalize::FromLowest(lowest));
            let encode = Encode { dim, dtype, normalize };
            let mut sink = FeatureSink::create(&self.name, &self.source, self.ingest, encode)?;
            values.chunks((BATCH_VALUES / dim).max(1) * dim).try_for_each(|rows| sink.push(rows))?;
            sink.finish()?;
            drop(values);
            return std::fs::remove_file(&spool).map_err(|e| Error::io(&spool, e));
        }
        if self.name != FEATURES {
            self.ingest.writer.add(&self.name, meta);
            return Ok(());
        }
        self.ingest.feature_dtype = Some(dtype);
        if let Some(sums) = self.sums {
            sums.finish(None)?;
        }
        self.ingest.add_rows(FEATURES, &self.source, self.written / dim as u64, meta);
        Ok(())
    }
}

/// A `.npy` stream that takes elements as bytes.
trait WriteBytes: Debug + Send {
    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()>;

    /// Ends a matrix of `dim` columns.
    fn finish(self: Box<Self>, dim: usize) -> Result<ArrayMeta>;
}

impl<T: Element> WriteBytes for NpyWriter<T> {
    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytemuck::cast_slice(bytes))
    }

    fn finish(self: Box<Self>, dim: usize) -> Result<ArrayMeta> {
        Self::finish(*self, Some(dim))
    }
}

/// Writes random features for `num_nodes` nodes; errors name `source`.
pub(crate) fn random(
    ingest: &mut Ingest<'_>,
    source: &Path,
    num_nodes: u64,
    &RandomFeatures { dim, dtype, seed }: &RandomFeatures,
) -> Result<()> {
    let (total, block) = (num_nodes * dim as u64, ((BATCH_VALUES / dim).max(1) * dim) as u64);
    let progress = ingest.progress();
    progress.stage("random features", Some(total));
    let mut sink = FeatureSink::create(FEATURES, source, ingest, Encode { dim, dtype, normalize: None })?;
    for start in (0..total).step_by(block as usize) {
        let values: Vec<f32> = (start..total.min(start + block))
            .into_par_iter()
            .map(|i| if dtype == Dtype::U8 { (random::hash(seed, i) >> 56) as f32 } else { random::normal(seed, i) })
            .collect();
        sink.push(&values)?;
        progress.advance(values.len() as u64);
    }
    sink.finish()
}

/// Refuses rows of more values than are read.
pub(crate) fn check_dim(path: &Path, dim: u64) -> Result<()> {
    if dim > MAX_DIM { invalid(path, format!("{dim} features per node"), "keep some of them") } else { Ok(()) }
}

/// Number of values in a row of a feature matrix.
pub(crate) fn feature_dim(array: &ArrayReader<'_>) -> Result<usize> {
    if matches!(array.ty.kind, Kind::Object | Kind::Other) {
        let cure = "save them as numbers, with astype('float32')";
        return invalid(&array.path, "its elements are not numbers but objects or text", cure);
    }
    match array.shape.as_slice() {
        &[_, dim] if !array.fortran => check_dim(&array.path, dim).map(|()| dim as usize),
        shape => {
            let order = if array.fortran { " in Fortran order" } else { "" };
            let what = format!("features of shape {shape:?}{order}, expected [nodes, values] in C order");
            invalid(&array.path, what, "save them with numpy.ascontiguousarray and reshape")
        }
    }
}

/// Streams a feature matrix. Elements of other types than those stored become `wide`.
pub(crate) fn push_array(ingest: &mut Ingest<'_>, array: ArrayReader<'_>, wide: Dtype) -> Result<()> {
    ingest.refuse_second(FEATURES, &array.path)?;
    push_array_as(ingest, FEATURES, array, wide)
}

/// Streams the features of edges, which were numbered as they were pushed.
pub(crate) fn push_edge_features(ingest: &mut Ingest<'_>, mut array: ArrayReader<'_>) -> Result<()> {
    if let [rows] = array.shape[..] {
        // A number per edge.
        array.shape = vec![rows, 1];
    }
    feature_dim(&array)?;
    let num_edges = ingest.pushed_edges;
    if array.shape[0] != num_edges {
        let what = format!("{} rows for {num_edges} edges", array.shape[0]);
        return invalid(&array.path, what, "give every edge its row");
    }
    push_array_as(ingest, &Meta::edge_features_of(None), array, Dtype::F32)
}

/// As [`push_array`], into the array `name`.
pub(crate) fn push_array_as(
    ingest: &mut Ingest<'_>,
    name: &str,
    mut array: ArrayReader<'_>,
    wide: Dtype,
) -> Result<()> {
    let path = array.path.clone();
    let (dim, rows) = (feature_dim(&array)?, array.shape[0]);
    let stored = match (array.ty.kind, array.ty.size) {
        (Kind::Bool, _) | (Kind::Uint, 1) => Dtype::U8,
        (Kind::Float, 2) => Dtype::F16,
        _ => wide,
    };
    ingest.progress().stage("features", Some(rows));
    let mut sink = ingest.features_as(name, &path, dim, stored)?;
    sink.push_array(&mut array)?;
    sink.finish()
}
