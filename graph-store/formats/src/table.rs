//! Arrays by name, from a directory of `.npy` files or an `.npz` archive.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use morphgl_graph_store::{Error, Position, Result};

use crate::Column;
use crate::archive::{Archive, Member, Source};
use crate::plain::PlainFile;

/// An array being read.
pub(crate) type Table<'t> = Member<'t>;

/// Where the arrays lie.
pub(crate) enum Tables {
    Directory(PathBuf),
    Archive(Archive),
}

impl Tables {
    pub(crate) fn open(source: &Path) -> Result<Self> {
        let metadata = fs::metadata(source).map_err(|e| Error::io(source, e))?;
        if metadata.is_dir() { Ok(Self::Directory(source.into())) } else { Archive::open(source).map(Self::Archive) }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(path) => path.join(format!("{name}.npy")).is_file(),
            Self::Archive(archive) => archive.has(name),
        }
    }

    /// Names of all arrays, in order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = match self {
            Self::Directory(path) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(path).map_err(|e| Error::io(path, e))? {
                    let name = entry.map_err(|e| Error::io(path, e))?.file_name();
                    names.extend(name.to_string_lossy().strip_suffix(".npy").map(str::to_string));
                }
                names
            }
            Self::Archive(archive) => archive.names(),
        };
        names.sort_unstable();
        Ok(names)
    }

    /// The one of `names` that exists.
    pub(crate) fn one_of<'n>(&self, names: &[&'n str]) -> Result<Option<&'n str>> {
        let mut found = names.iter().filter(|name| self.has(name));
        let first = found.next().copied();
        if let (Some(first), Some(second)) = (first, found.next()) {
            let what = format!("both {first} and {second} are given, which mean the same");
            return Err(Error::invalid(self.path(), Position::File, what, "remove one of them"));
        }
        Ok(first)
    }

    /// Opens the array `name`.
    pub(crate) fn array(&mut self, name: &str) -> Result<Table<'_>> {
        match self {
            Self::Directory(path) => open_array(&path.join(format!("{name}.npy"))),
            Self::Archive(archive) => archive.member(name),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Directory(path) => path,
            Self::Archive(archive) => &archive.path,
        }
    }
}

/// Opens a `.npy` file.
pub(crate) fn open_array<'t>(path: &Path) -> Result<Table<'t>> {
    let io = |e| Error::io(path, e);
    let source = if cfg!(unix) {
        Source::File(Arc::new(PlainFile::open(path).map_err(io)?))
    } else {
        let file = File::open(path).map_err(io)?;
        Source::Stream(Box::new(BufReader::with_capacity(1 << 18, file)))
    };
    Table::new(path.into(), source)
}

impl Table<'_> {
    /// The column to read of an array `[nodes, K]`, `None` for an array `[nodes]`; `option` is the command's option that
    /// `column` comes from.
    pub(crate) fn expect_column(&self, column: &Option<Column>, option: &str) -> Result<Option<usize>> {
        let wrong = |what: String, cure: String| Err(Error::invalid(&self.path, Position::File, what, cure));
        match (self.shape.as_slice(), column) {
            ([_] | [_, 1], _) => Ok(None),
            (&[_, columns], Some(Column::Number(n))) if *n >= 1 && *n as u64 <= columns => Ok(Some(n - 1)),
            (&[_, columns], Some(column)) => wrong(
                format!("there is no column {column}: there are {columns}"),
                format!("give {option} a number from 1"),
            ),
            (&[_, columns], None) => {
                let one_hot = if option == "--label-column" { "; of one-hot labels save y.argmax(1)" } else { "" };
                let what = format!("an array of shape {:?}, where one value a node is expected", self.shape);
                wrong(what, format!("read one of its columns by {option} 1 to {columns}{one_hot}"))
            }
            _ => wrong(format!("an array of shape {:?}, expected one dimension", self.shape), "reshape it".into()),
        }
    }

    /// All elements of a vector of node ids.
    pub(crate) fn all_ids(&mut self) -> Result<Vec<u64>> {
        let path = self.path.clone();
        let id = |(i, id): (usize, i64)| {
            let what = || format!("the node id is {id}");
            u64::try_from(id).map_err(|_| Error::invalid(&path, Position::Element(i as u64), what(), "correct the ids"))
        };
        self.all_ints()?.into_iter().enumerate().map(id).collect()
    }

    /// All whole numbers of the array, or of one of its columns.
    pub(crate) fn ints_of(&mut self, column: Option<usize>) -> Result<Vec<i64>> {
        let values = self.all_ints()?;
        Ok(self.column(values, column))
    }

    /// All class numbers of the array, or of one of its columns.
    pub(crate) fn labels_of(&mut self, column: Option<usize>) -> Result<Vec<i32>> {
        let labels = self.labels()?;
        Ok(self.column(labels, column))
    }

    fn column<T: Copy>(&self, values: Vec<T>, column: Option<usize>) -> Vec<T> {
        let Some(column) = column else { return values };
        let [rows, columns] = [self.shape[0] as usize, self.shape[1] as usize];
        let at = |row| if self.fortran { column * rows + row } else { row * columns + column };
        (0..rows).map(|row| values[at(row)]).collect()
    }

    /// Refuses anything but one dimension (or a second one of length 1).
    pub(crate) fn expect_vector(&self) -> Result<()> {
        if matches!(self.shape.as_slice(), [_] | [_, 1]) {
            return Ok(());
        }
        let what = format!("an array of shape {:?}, expected one dimension", self.shape);
        Err(Error::invalid(&self.path, Position::File, what, "reshape it"))
    }
}
