//! The keys of a manifest.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::Column;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "in_order")]
    pub(super) nodes: Vec<(String, NodeEntry)>,
    #[serde(default)]
    pub(super) edges: Vec<EdgeEntry>,
    pub(super) task: Option<TaskEntry>,
}

/// A node type.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeEntry {
    pub(super) file: Option<PathBuf>,
    pub(super) header: Option<bool>,
    pub(super) count: Option<u64>,
    #[serde(default, deserialize_with = "column")]
    pub(super) id: Option<Column>,
    pub(super) features: Option<FeaturesEntry>,
    pub(super) targets: Option<FeaturesEntry>,
    pub(super) time: Option<ValueEntry>,
    pub(super) label: Option<ValueEntry>,
    pub(super) split: Option<OneOf<SplitEntry>>,
}

/// An edge type, or some of its edges.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EdgeEntry {
    #[serde(rename = "type")]
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) header: Option<bool>,
    /// A node type by its name, or by its name and the column of its ids.
    pub(super) source: OneOf<EndEntry>,
    pub(super) target: OneOf<EndEntry>,
    pub(super) weight: Option<ValueEntry>,
    pub(super) time: Option<ValueEntry>,
    pub(super) features: Option<FeaturesEntry>,
    pub(super) reverse: Option<ReverseEntry>,
    #[serde(default)]
    pub(super) links: bool,
}

/// A task: rows of nodes at times.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskEntry {
    /// A file, or one for each split.
    pub(super) file: FilesEntry,
    pub(super) header: Option<bool>,
    /// A node type by its name, or by its name and the column of its ids.
    pub(super) node: OneOf<EndEntry>,
    #[serde(deserialize_with = "a_column")]
    pub(super) time: Column,
    #[serde(default, deserialize_with = "column")]
    pub(super) label: Option<Column>,
    pub(super) targets: Option<Vec<AColumn>>,
    pub(super) split: Option<OneOf<TimesEntry>>,
}

/// Times from which on rows are validated and tested on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimesEntry {
    pub(super) valid: i64,
    pub(super) test: i64,
}

#[derive(Debug)]
pub(super) enum FilesEntry {
    One(PathBuf),
    OfSplits(SplitEntry),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndEntry {
    #[serde(rename = "type")]
    pub(super) of: String,
    #[serde(default, deserialize_with = "column")]
    pub(super) column: Option<Column>,
}

/// A column, or a file of values.
pub(super) type ValueEntry = OneOf<FileEntry>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEntry {
    pub(super) file: PathBuf,
    #[serde(default, deserialize_with = "column")]
    pub(super) column: Option<Column>,
}

/// Files of the ids of training, validation and test nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitEntry {
    pub(super) train: Option<PathBuf>,
    pub(super) valid: Option<PathBuf>,
    pub(super) test: Option<PathBuf>,
}

/// A name or number of a column, or a table of keys.
#[derive(Debug)]
pub(super) enum OneOf<T> {
    Column(Column),
    Map(T),
}

#[derive(Debug)]
pub(super) enum FeaturesEntry {
    File(PathBuf),
    Columns(Vec<Column>),
}

#[derive(Debug)]
pub(super) enum ReverseEntry {
    Add(bool),
    Named(String),
}

/// The entries of a table in the order of the text.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, NodeEntry)>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(Spanned<String>, NodeEntry)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a section [nodes.NAME] for each node type")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    let mut entries = deserializer.deserialize_map(Entries)?;
    entries.sort_by_key(|(name, _)| name.span().start);
    Ok(entries.into_iter().map(|(name, entry)| (name.into_inner(), entry)).collect())
}

/// A column alone.
struct ColumnVisitor;

impl<'de> Visitor<'de> for ColumnVisitor {
    type Value = Column;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column, or its number from 1")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Column, E> {
        Ok(Column::Name(name.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Column, E> {
        match usize::try_from(number) {
            Ok(number @ 1..) => Ok(Column::Number(number)),
            _ => Err(E::custom(format!("the column {number}: columns are numbered from 1"))),
        }
    }
}

/// A [`Column`] as a part of a list.
#[derive(Debug)]
pub(super) struct AColumn(pub(super) Column);

impl<'de> Deserialize<'de> for AColumn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ColumnVisitor).map(Self)
    }
}

fn column<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Column>, D::Error> {
    deserializer.deserialize_any(ColumnVisitor).map(Some)
}

fn a_column<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Column, D::Error> {
    deserializer.deserialize_any(ColumnVisitor)
}

impl<'de> Deserialize<'de> for FilesEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = FilesEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a file, or { train = …, valid = …, test = … }")
            }

            fn visit_str<E: Error>(self, file: &str) -> Result<Self::Value, E> {
                Ok(FilesEntry::One(file.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                SplitEntry::deserialize(MapAccessDeserializer::new(map)).map(FilesEntry::OfSplits)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOf<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, a number from 1, or { … }")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
                ColumnVisitor.visit_str(name).map(OneOf::Column)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                ColumnVisitor.visit_i64(number).map(OneOf::Column)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OneOf::Map)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl<'de> Deserialize<'de> for FeaturesEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = FeaturesEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of columns, or the name of a file")
            }

            fn visit_str<E: Error>(self, file: &str) -> Result<Self::Value, E> {
                Ok(FeaturesEntry::File(file.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut columns: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(AColumn(column)) = columns.next_element()? {
                    all.push(column);
                }
                Ok(FeaturesEntry::Columns(all))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for ReverseEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = ReverseEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or the name of the type of the reverse edges")
            }

            fn visit_bool<E: Error>(self, add: bool) -> Result<Self::Value, E> {
                Ok(ReverseEntry::Add(add))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(ReverseEntry::Named(name.into()))
            }
        }

        deserializer.deserialize_any(Either)
    }
}
