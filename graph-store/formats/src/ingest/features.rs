//! Feature rows on their way into a dataset.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use morphgl_graph_store::{ArrayMeta, Dtype, Error, NpyWriter, Position, Result};
use morphgl_platform::{PagePool, Pages};
use rayon::prelude::*;

use crate::elements::Kind;
use crate::encode::{Bad, Encode};
use crate::plain::Filled;
use crate::raw::Raw;
use crate::table::Table;
use crate::{Ingest, Progress, RandomFeatures, pipeline, random};

/// Feature values pushed at a time.
pub(crate) const BATCH_VALUES: usize = 1 << 20;

/// Values converted at a time by one thread.
const CHUNK: usize = 1 << 14;
/// Bytes a value takes on its way: as it is read, decoded, and as it is stored.
const VALUE_BYTES: u64 = 3 * 4;
/// Values of a table that are read at a time.
const STRETCH: u64 = 1 << 19;

/// Takes feature rows in order, as f32, and stores them in the type of the options.
#[derive(Debug)]
pub struct FeatureSink<'s, 'a> {
    ingest: &'s mut Ingest<'a>,
    source: PathBuf,
    rows: Rows,
    normalize: bool,
}

impl<'s, 'a> FeatureSink<'s, 'a> {
    pub(crate) fn new(source: &Path, ingest: &'s mut Ingest<'a>, dim: usize, stored: Dtype) -> Result<Self> {
        let options = ingest.options();
        let normalize = options.normalize_features;
        let kept = match stored {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => stored,
            Dtype::U8 if !normalize => stored,
            _ => Dtype::F32,
        };
        if dim == 0 {
            let cure = "leave the features out or give them columns";
            return Err(Error::invalid(source, Position::File, "the features have no columns", cure));
        }
        let rows = Rows::create(ingest, dim, options.feature_dtype.unwrap_or(kept))?;
        Ok(Self { ingest, source: source.to_path_buf(), rows, normalize })
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
        let (dim, encode) = (self.rows.dim, self.encode());
        assert_eq!(rows.len() % dim, 0, "{} values in rows of {dim}", rows.len());
        let size = encode.dtype.size();
        let mut buffer = std::mem::take(&mut self.rows.buffer);
        let step = CHUNK.next_multiple_of(dim);
        let out = buffer.resize(rows.len() * size);
        let pieces = out.par_chunks_mut(step * size).zip(rows.par_chunks(step)).enumerate();
        let bad = pieces.filter_map(|(i, (out, rows))| encode.values(rows, out).map(|bad| bad.after(i * step)));
        let bad = bad.min_by_key(|bad| bad.at);
        let result = self.append(&buffer, bad);
        self.rows.buffer = buffer;
        result
    }

    /// Appends all rows of `table`, in stretches that are read and converted in parallel.
    ///
    /// # Errors
    ///
    /// As of [`FeatureSink::push`], and what is wrong with the table.
    pub(crate) fn push_table(&mut self, table: &mut Table<'_>, memory: u64, progress: &dyn Progress) -> Result<()> {
        let (dim, encode, pool) = (self.rows.dim as u64, self.encode(), PagePool::new());
        // A few stretches a thread are under way, read and converted.
        let stretch = (memory / 64 / table.ty.size.max(4) as u64).clamp(1 << 12, STRETCH);
        let step = (stretch / dim).max(1) * dim;
        let same = table.ty.is(encode.dtype) && !encode.normalize;
        let next = || if table.remaining() == 0 { Ok(None) } else { table.raw(step, &pool).map(Some) };
        let work = |raw: Raw| {
            if same {
                let bytes = raw.read(&pool)?;
                let bad = encode.bad_bytes(&bytes);
                return Ok((bytes, bad));
            }
            let mut values = Vec::new();
            raw.floats(&pool, &mut values)?;
            let mut out = pool.take();
            let bad = encode.values(&values, out.resize(values.len() * encode.dtype.size()));
            Ok((Filled::from(out), bad))
        };
        pipeline::ordered(pipeline::ahead(memory, step * VALUE_BYTES), next, work, |(bytes, bad)| {
            self.append(&bytes, bad)?;
            progress.advance(bytes.len() as u64 / encode.dtype.size() as u64 / dim);
            Ok(())
        })
    }

    fn encode(&self) -> Encode {
        Encode { dim: self.rows.dim, dtype: self.rows.dtype(), normalize: self.normalize }
    }

    /// Writes encoded rows, or says what is wrong with one of them.
    fn append(&mut self, bytes: &[u8], bad: Option<Bad>) -> Result<()> {
        let Some(Bad { at, value }) = bad else { return self.rows.write(bytes) };
        let (dim, dtype) = (self.rows.dim as u64, self.rows.dtype());
        let element = self.rows.written + at as u64;
        let (node, column) = (element / dim, element % dim);
        let (what, cure) = if value.is_finite() {
            (format!("{value}, which {dtype} cannot hold"), "choose the feature type f32")
        } else {
            (format!("{value}, not a finite number"), "clean the data")
        };
        let what = format!("the feature of node {node}, column {column} is {what}");
        Err(Error::invalid(&self.source, Position::Element(element), what, cure))
    }

    /// Ends the features.
    ///
    /// # Errors
    ///
    /// What the disk refuses.
    pub fn finish(self) -> Result<()> {
        let num_rows = self.rows.written / self.rows.dim as u64;
        let meta = self.rows.finish()?;
        self.ingest.add_features(&self.source, num_rows, meta);
        Ok(())
    }
}

/// Writes random features for `num_nodes` nodes.
pub(crate) fn random(ingest: &Ingest<'_>, num_nodes: u64, wanted: &RandomFeatures) -> Result<ArrayMeta> {
    const BLOCK: u64 = 1 << 20;
    let mut rows = Rows::create(ingest, wanted.dim, wanted.dtype)?;
    let total = num_nodes * wanted.dim as u64;
    ingest.progress().stage("random features", Some(total));
    for start in (0..total).step_by(BLOCK as usize) {
        let range = start..total.min(start + BLOCK);
        let len = range.end - range.start;
        let values: Vec<f32> = match wanted.dtype {
            Dtype::U8 => range.into_par_iter().map(|i| (random::hash(wanted.seed, i) >> 56) as f32).collect(),
            _ => range.into_par_iter().map(|i| random::normal(wanted.seed, i)).collect(),
        };
        let (mut buffer, encode) =
            (std::mem::take(&mut rows.buffer), Encode { dim: 1, dtype: wanted.dtype, normalize: false });
        let size = wanted.dtype.size();
        let pieces = buffer.resize(values.len() * size).par_chunks_mut(CHUNK * size).zip(values.par_chunks(CHUNK));
        let bad = pieces.filter_map(|(out, values)| encode.values(values, out)).count();
        assert_eq!(bad, 0, "every random value fits every feature type");
        rows.write(&buffer)?;
        rows.buffer = buffer;
        ingest.progress().advance(len);
    }
    rows.finish()
}

/// A feature matrix being written in its stored type.
#[derive(Debug)]
struct Rows {
    dim: usize,
    written: u64,
    out: Out,
    /// Room for encoded rows, from one push to the next.
    buffer: Pages,
}

#[derive(Debug)]
enum Out {
    F32(NpyWriter<f32>),
    F16(NpyWriter<f16>),
    Bf16(NpyWriter<bf16>),
    U8(NpyWriter<u8>),
}

impl Rows {
    fn create(ingest: &Ingest<'_>, dim: usize, dtype: Dtype) -> Result<Self> {
        let writer = &ingest.writer;
        let out = match dtype {
            Dtype::F16 => Out::F16(writer.stream("features")?),
            Dtype::Bf16 => Out::Bf16(writer.stream("features")?),
            Dtype::U8 => Out::U8(writer.stream("features")?),
            _ => Out::F32(writer.stream("features")?),
        };
        Ok(Self { dim, written: 0, out, buffer: Pages::new() })
    }

    fn dtype(&self) -> Dtype {
        match self.out {
            Out::F32(_) => Dtype::F32,
            Out::F16(_) => Dtype::F16,
            Out::Bf16(_) => Dtype::Bf16,
            Out::U8(_) => Dtype::U8,
        }
    }

    /// Appends values in the stored type.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += (bytes.len() / self.dtype().size()) as u64;
        match &mut self.out {
            Out::F32(out) => out.write(bytemuck::cast_slice(bytes)),
            Out::F16(out) => out.write(bytemuck::cast_slice(bytes)),
            Out::Bf16(out) => out.write(bytemuck::cast_slice(bytes)),
            Out::U8(out) => out.write(bytes),
        }
    }

    fn finish(self) -> Result<ArrayMeta> {
        let dim = Some(self.dim);
        match self.out {
            Out::F32(out) => out.finish(dim),
            Out::F16(out) => out.finish(dim),
            Out::Bf16(out) => out.finish(dim),
            Out::U8(out) => out.finish(dim),
        }
    }
}

/// Number of values a row of a feature matrix has.
pub(crate) fn feature_dim(table: &Table<'_>) -> Result<usize> {
    if matches!(table.ty.kind, Kind::Object | Kind::Other) {
        let cure = "save them as numbers, with astype('float32')";
        return Err(Error::invalid(
            &table.path,
            Position::File,
            "its elements are not numbers but objects or text",
            cure,
        ));
    }
    let (&[_, dim], false) = (table.shape.as_slice(), table.fortran && table.shape.len() > 1) else {
        let order = if table.fortran { " in Fortran order" } else { "" };
        let what = format!("features of shape {:?}{order}, expected [nodes, values] in C order", table.shape);
        let cure = "save them with numpy.ascontiguousarray and reshape";
        return Err(Error::invalid(&table.path, Position::File, what, cure));
    };
    Ok(usize::try_from(dim).unwrap_or(usize::MAX))
}

/// Streams a feature matrix.
pub(crate) fn push_table(ingest: &mut Ingest<'_>, mut table: Table<'_>) -> Result<()> {
    let path = table.path.clone();
    let (dim, rows) = (feature_dim(&table)?, table.shape[0]);
    let stored = match (table.ty.kind, table.ty.size) {
        (Kind::Bool, _) | (Kind::Uint, 1) => Dtype::U8,
        (Kind::Float, 2) => Dtype::F16,
        _ => Dtype::F32,
    };
    ingest.progress().stage("features", Some(rows));
    let (progress, memory) = (ingest.progress(), ingest.options().memory);
    let mut sink = ingest.features(&path, dim, stored)?;
    sink.push_table(&mut table, memory, progress)?;
    sink.finish()
}
