//! Parquet and Arrow IPC files, by the `parquet` and `arrow-ipc` crates.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatchReader};
use arrow_ipc::reader::FileReader;
use arrow_schema::DataType;
use morphgl_graph_store::{Error, Position, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{Batch, Columnar, Source, Texts, Values, batch_rows};
use crate::elements::Parsed;
use crate::files::invalid;

/// Runs code of the crates arrow and parquet, which panic on some damaged files, and makes an error of a panic.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| invalid(path, "the table is damaged", "copy or write the file again"))
}

/// A table, the names of its columns, and its number of rows where that is known.
type Opened = (Box<dyn Source>, Vec<String>, Option<u64>);

/// Opens the file; its columns are read from the first call of `next` on.
pub(super) fn open(path: &Path, kind: Columnar) -> Result<Opened> {
    guarded(path, || {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let (schema, unread, rows) = match kind {
            Columnar::Parquet => {
                let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| wrong(path, &e))?;
                let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).ok();
                (Arc::clone(builder.schema()), Unread::Parquet(builder), rows)
            }
            Columnar::Feather => {
                let reader = FileReader::try_new_buffered(file, None).map_err(|e| wrong(path, &e))?;
                (reader.schema(), Unread::Feather, None)
            }
        };
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let table = Columns { path: path.into(), names: names.clone(), unread: Some(unread), reader: None, done: 0 };
        Ok((Box::new(table) as _, names, rows))
    })
}

/// A file whose columns are not chosen yet.
enum Unread {
    Parquet(ParquetRecordBatchReaderBuilder<File>),
    Feather,
}

struct Columns {
    path: PathBuf,
    names: Vec<String>,
    unread: Option<Unread>,
    /// The reader, and the index of each requested column in its batches.
    reader: Option<(Box<dyn RecordBatchReader>, Vec<usize>)>,
    /// Number of rows read.
    done: u64,
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> Error {
    let what = format!("the table cannot be read ({error})");
    let cure = "if the file is whole, write it again without that, or as csv";
    Error::invalid(path, Position::File, what, cure)
}

impl Source for Columns {
    fn next(&mut self, columns: &[usize], _header: bool) -> Result<Option<Batch>> {
        let path = self.path.clone();
        guarded(&path, || self.batch(columns))
    }
}

impl Columns {
    /// Begins to read `columns`, each once and in the file's order.
    fn begin(&self, unread: Unread, columns: &[usize]) -> Result<(Box<dyn RecordBatchReader>, Vec<usize>)> {
        let mut roots = columns.to_vec();
        roots.sort_unstable();
        roots.dedup();
        let indices = columns.iter().map(|c| roots.binary_search(c).expect("every column is a root")).collect();
        let path = &self.path;
        let reader: Box<dyn RecordBatchReader> = match unread {
            Unread::Parquet(builder) => {
                let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
                let reader = builder.with_projection(mask).with_batch_size(batch_rows(columns.len())).build();
                Box::new(reader.map_err(|e| wrong(path, &e))?)
            }
            Unread::Feather => {
                let file = File::open(path).map_err(|e| Error::io(path, e))?;
                Box::new(FileReader::try_new_buffered(file, Some(roots)).map_err(|e| wrong(path, &e))?)
            }
        };
        Ok((reader, indices))
    }

    fn batch(&mut self, columns: &[usize]) -> Result<Option<Batch>> {
        if let Some(unread) = self.unread.take() {
            self.reader = Some(self.begin(unread, columns)?);
        }
        let Some((reader, indices)) = &mut self.reader else { return Ok(None) };
        let Some(batch) = reader.next().transpose().map_err(|e| wrong(&self.path, &e))? else { return Ok(None) };
        let values = indices.iter().zip(columns).map(|(&index, &column)| {
            let values = values(batch.column(index)).or_else(|what| {
                let what = format!("the column {:?} {what}", self.names[column]);
                invalid(&self.path, what, "write it as whole numbers, numbers or text")
            });
            Ok((column, values?))
        });
        let (columns, rows, first) = (values.collect::<Result<_>>()?, batch.num_rows(), self.done);
        self.done += rows as u64;
        Ok(Some(Batch { columns, rows, first, lines: Vec::new() }))
    }
}

fn missing(array: &dyn Array) -> Option<Vec<bool>> {
    (array.null_count() > 0).then(|| (0..array.len()).map(|i| array.is_null(i)).collect())
}

fn ints<T: ArrowPrimitiveType>(array: &ArrayRef, as_int: impl Fn(T::Native) -> i64) -> Values {
    Values::Ints(array.as_primitive::<T>().values().iter().map(|&v| as_int(v)).collect(), missing(array))
}

fn reals<T: ArrowPrimitiveType>(array: &ArrayRef, as_real: impl Fn(T::Native) -> f64) -> Values {
    let array = array.as_primitive::<T>();
    let at = |i: usize| if array.is_null(i) { f64::NAN } else { as_real(array.value(i)) };
    Values::Reals((0..array.len()).map(at).collect())
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Values {
    let mut texts = Texts::default();
    values.for_each(|value| texts.push(value.unwrap_or_default().as_bytes()));
    Values::Texts(texts)
}

/// The values of an array; `Err` describes what is not supported.
fn values(array: &ArrayRef) -> Parsed<Values> {
    Ok(match array.data_type() {
        DataType::Int8 => ints::<Int8Type>(array, i64::from),
        DataType::Int16 => ints::<Int16Type>(array, i64::from),
        DataType::Int32 => ints::<Int32Type>(array, i64::from),
        DataType::Int64 => ints::<Int64Type>(array, |v| v),
        DataType::UInt8 => ints::<UInt8Type>(array, i64::from),
        DataType::UInt16 => ints::<UInt16Type>(array, i64::from),
        DataType::UInt32 => ints::<UInt32Type>(array, i64::from),
        DataType::UInt64 => match array.as_primitive::<UInt64Type>().values().iter().find(|&&v| v > i64::MAX as u64) {
            Some(large) => return Err(format!("has the value {large}, which does not fit 63 bits")),
            None => ints::<UInt64Type>(array, |v| v as i64),
        },
        DataType::Boolean => {
            let flags = array.as_boolean();
            Values::Ints((0..flags.len()).map(|i| i64::from(flags.value(i))).collect(), missing(array))
        }
        DataType::Float16 => reals::<Float16Type>(array, f64::from),
        DataType::Float32 => reals::<Float32Type>(array, f64::from),
        DataType::Float64 => reals::<Float64Type>(array, |v| v),
        DataType::Utf8 => texts(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(array.as_string::<i64>().iter()),
        DataType::Utf8View => texts(array.as_string_view().iter()),
        DataType::Dictionary(..) => {
            // A dictionary-encoded column: pandas' categories.
            let dictionary = array.as_any_dictionary();
            let (keys, values) = (dictionary.normalized_keys(), values(dictionary.values())?);
            let mut texts = Texts::default();
            for (i, key) in keys.into_iter().enumerate() {
                texts.push(&if array.is_null(i) { Default::default() } else { values.text(key) });
            }
            Values::Texts(texts)
        }
        DataType::List(_) => vectors(array.as_list::<i32>().iter())?,
        DataType::LargeList(_) => vectors(array.as_list::<i64>().iter())?,
        DataType::FixedSizeList(..) => vectors(array.as_fixed_size_list().iter())?,
        other => return Err(format!("is of type {other}")),
    })
}

/// The rows of a column of lists, which must be of one length.
fn vectors(lists: impl Iterator<Item = Option<ArrayRef>>) -> Parsed<Values> {
    let (mut dim, mut out) = (None, Vec::new());
    for list in lists {
        let list = list.ok_or("has a list that is missing")?;
        if *dim.get_or_insert(list.len()) != list.len() {
            return Err(format!("has lists of {} and of {} values", dim.unwrap_or(0), list.len()));
        }
        let values = values(&list)?;
        for i in 0..list.len() {
            out.push(values.real(i).map_err(|text| format!("has a list with {text:?} in it"))?);
        }
    }
    Ok(Values::Vectors(dim.unwrap_or(0), out))
}
