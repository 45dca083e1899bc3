//! The arrays that are read from their files.

use morphgl_graph_store::{ArrayFile, Dataset, Dtype, Error as StoreError, Position};
use morphgl_platform::direct::{self, DirectFile, Fetch, Reader, Settings};
use morphgl_registry::{Error, Result};

use crate::options::Options;

/// Bytes of a read in a pass over a whole array.
const LONG: usize = 1 << 20;
/// Such reads in flight.
const LONG_DEPTH: usize = 8;

/// An array in a file.
#[derive(Debug, Clone)]
pub(crate) struct OnDisk {
    pub(crate) file: DirectFile,
    /// Byte that the first element begins at.
    pub(crate) base: u64,
    /// Bytes of an element; of a matrix, of a row.
    pub(crate) unit: usize,
    /// Number of elements; of a matrix, of rows.
    pub(crate) len: u64,
}

impl OnDisk {
    /// The error of what is impossible at `element`.
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
        // Pages stand in for the elements: there are far fewer of them.
        let (start, piece) = (self.base + first * self.unit as u64, 4096);
        let whole = (out.len() / piece) as u64;
        let fetches: Vec<Fetch> = (0..whole).map(|i| Fetch { element: i, to: i as u32 }).collect();
        let read = |reader: &mut Reader, base, unit, fetches: &[Fetch], out: &mut [u8]| {
            reader.read(&self.file, base, unit, fetches, out).map_err(failed)
        };
        read(reader, start, piece, &fetches, out)?;
        let done = whole as usize * piece;
        let rest = &mut out[done..];
        if rest.is_empty() {
            return Ok(());
        }
        let unit = rest.len();
        read(reader, start + done as u64, unit, &[Fetch { element: 0, to: 0 }], rest)
    }
}

/// The files of a dataset.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) indptr: OnDisk,
    pub(crate) indices: OnDisk,
    /// Where features are gathered.
    pub(crate) features: Option<OnDisk>,
    pub(crate) labels: Option<OnDisk>,
}

impl Files {
    pub(crate) fn open(dataset: &Dataset, gather: bool, options: &Options) -> Result<Self> {
        if dataset.path.as_os_str().is_empty() {
            let cure = "write it to a directory first, with `morphgl generate` or `morphgl import`";
            let what = format!("{} was made in memory and has no files to read from; {cure}", dataset.name);
            return Err(Error::setting("dataset", what));
        }
        let failed = |e: StoreError| Error::failed("opening the dataset", e);
        let find = |name: &str, dtype: Option<Dtype>| -> Result<Option<OnDisk>> {
            let Some(array) = ArrayFile::find(&dataset.path, name).map_err(failed)? else { return Ok(None) };
            if let Some(dtype) = dtype.filter(|d| *d != array.dtype) {
                let what = format!("{name} is {}, expected {dtype}", array.dtype);
                let cure = "import the dataset again";
                return Err(failed(StoreError::invalid(&array.path, Position::File, what, cure)));
            }
            let file = DirectFile::open(&array.path, options.block).map_err(|e| failed(store_error(e)))?;
            let row = array.shape[1..].iter().product::<u64>() as usize;
            let unit = row * array.dtype.size();
            Ok(Some(OnDisk { file, base: array.offset, unit, len: array.shape[0] }))
        };
        let needed = |name: &str, found: Option<OnDisk>| {
            found.ok_or_else(|| Error::setting("dataset", format!("it has no {name}; import it again")))
        };
        Ok(Self {
            indptr: needed("indptr", find("indptr", Some(Dtype::U64))?)?,
            indices: needed("indices", find("indices", Some(Dtype::U32))?)?,
            features: if gather { find("features", None)? } else { None },
            labels: find("labels", Some(Dtype::I32))?,
        })
    }

    /// A reader of scattered elements.
    pub(crate) fn reader(&self, options: &Options) -> Result<Reader> {
        let row = self.features.as_ref().map_or(0, |f| f.unit);
        // Room for a row that begins at the end of a block.
        let most = (16 << 10).max(row.next_multiple_of(4096) + 8192);
        let settings = Settings { depth: options.depth, most, gap: options.gap, method: options.method() };
        reader(settings)
    }

    /// A reader of whole arrays.
    pub(crate) fn long_reader(&self, options: &Options) -> Result<Reader> {
        let row = self.features.as_ref().map_or(0, |f| f.unit);
        let most = LONG.max(row.next_multiple_of(4096) + 8192);
        reader(Settings { depth: LONG_DEPTH, most, gap: 16 << 10, method: options.method() })
    }
}

fn reader(settings: Settings) -> Result<Reader> {
    Reader::new(settings).map_err(|e| Error::failed("starting reads", e))
}

fn failed(error: direct::Error) -> Error {
    Error::failed("reading the dataset", store_error(error))
}

/// The failed read of a dataset's file, with its cure.
fn store_error(error: direct::Error) -> StoreError {
    use direct::ErrorKind::{Open, Read, Short};
    let direct::Error { path, kind } = error;
    let (at, what, cure) = match kind {
        Open(error) => return StoreError::io(path, error),
        Read { at, error } => {
            (at, format!("cannot be read ({error})"), "check the disk, or copy the dataset to another one")
        }
        Short { at, end } => {
            let what = format!("the file ends here, and is read up to byte {end}");
            (at, what, "the file was cut short: copy or create the dataset again")
        }
    };
    StoreError::invalid(path, Position::Byte(at), what, cure)
}
