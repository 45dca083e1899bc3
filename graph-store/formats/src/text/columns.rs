//! Columns of an edge list: by the names in its first line, or as the options name them.

use std::fmt;

use super::kinds::two_kinds;
use super::{NEIGHBORS, excerpt};
use crate::files::Fault;

/// A column, by its name in the header or by its number, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// By name; upper and lower case are the same.
    Name(String),
    /// By number.
    Number(usize),
}

/// The columns of an edge list, as far as they are named. Default: by the names in the file's first line, or source, target
/// and perhaps a weight, in this order, where it has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// The source's id.
    pub src: Option<Column>,
    /// The target's id.
    pub dst: Option<Column>,
    /// The weight.
    pub weight: Option<Column>,
    /// Names of all columns, for a file whose first line has none.
    pub names: Option<Vec<String>>,
    /// The class of an edge, which is to be predicted. Default: none.
    pub label: Option<Column>,
    /// Values of an edge, or labels of 0 and 1, which are to be predicted. Default: none.
    pub targets: Vec<Column>,
    /// Features of an edge: names, numbers, ranges of numbers (`2-9`) and patterns (`f*`). Default: none.
    pub features: Vec<Column>,
}

impl Columns {
    /// Whether any is to be predicted.
    pub(crate) fn are_labelled(&self) -> bool {
        self.label.is_some() || !self.targets.is_empty()
    }

    /// Those that are not to be predicted.
    pub(crate) fn unlabelled(&self) -> Self {
        Self { label: None, targets: Vec::new(), ..self.clone() }
    }

    /// Those that are neither to be predicted nor features.
    pub(crate) fn ids_and_weight(&self) -> Self {
        Self { features: Vec::new(), ..self.unlabelled() }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Name(name) => write!(f, "{name:?}"),
            Column::Number(number) => write!(f, "{number}"),
        }
    }
}

/// The first row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// Names of the columns, in lower case; without a header, the first fields.
    pub(crate) names: Vec<String>,
    /// Whether these name the columns.
    pub(crate) named: bool,
}

/// Separator of the fields of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
    /// One byte; fields may be empty, or in quotes.
    Byte(u8),
    /// One or more blanks or tabs.
    Blanks,
}

/// Indices of the columns of a table of edges that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EdgeColumns {
    pub(crate) source: usize,
    pub(crate) target: usize,
    pub(crate) weight: Option<usize>,
}

impl EdgeColumns {
    /// The note of the columns that were read, of `count`; `describe` names the column of an index.
    pub(crate) fn note(&self, count: usize, ignored: &[String], describe: impl Fn(usize) -> String) -> String {
        let weight = self.weight.map_or(String::new(), |column| format!(", weight {}", describe(column)));
        let rest = if ignored.is_empty() { String::new() } else { format!("; left out: {}", ignored.join(", ")) };
        let (source, target) = (describe(self.source), describe(self.target));
        format!("columns: source {source}, target {target}{weight} of {count}{rest}")
    }
}

/// The form of the lines of an edge list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) separator: Separator,
    pub(crate) columns: EdgeColumns,
    /// Fields of a line.
    pub(crate) count: usize,
    /// Whether a line ends in a dictionary of attributes, as networkx writes it; the weight is in there.
    pub(crate) attributes: bool,
    /// Whether the options name the columns that are read.
    pub(crate) named: bool,
}

impl Layout {
    /// Source, target and, if `weighted`, a weight: the form that is read fastest.
    pub(crate) fn plain(weighted: bool) -> Self {
        let columns = EdgeColumns { source: 0, target: 1, weight: weighted.then_some(2) };
        Self {
            separator: Separator::Blanks,
            columns,
            count: 2 + usize::from(weighted),
            attributes: false,
            named: false,
        }
    }

    /// Whether lines are of that form, up to what separates their fields.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self { separator: self.separator, named: self.named, ..Self::plain(self.columns.weight.is_some()) }
    }
}

/// The first line of a file that is no comment.
#[derive(Debug, PartialEq)]
pub(crate) struct FirstLine {
    pub(crate) layout: Layout,
    /// Whether the line names the columns, and is no edge.
    pub(crate) is_header: bool,
    /// Names of columns that are not read.
    pub(crate) ignored: Vec<String>,
    /// As of [`Chosen`].
    pub(crate) two_kinds: Option<[String; 2]>,
}

/// The columns of a table of edges.
#[derive(Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) columns: EdgeColumns,
    /// Names of columns that are not read.
    pub(crate) ignored: Vec<String>,
    /// The names of the columns of ids, where they seem to be ids of two kinds of nodes: `userid` and `movieid`.
    pub(crate) two_kinds: Option<[String; 2]>,
    /// The column of classes that are to be predicted, and those of values.
    pub(crate) label: Option<usize>,
    pub(crate) targets: Vec<usize>,
    /// The columns of features.
    pub(crate) features: Vec<usize>,
}

/// Finds the columns of features, by the header and the columns that are taken.
pub(crate) type SelectFeatures<'s> = &'s dyn Fn(&Header, &[usize]) -> Result<Vec<usize>, Fault>;

/// Known names, in lower case: of the source's column, the target's, the weight's, and of columns that are never read.
const SRC: &[&str] =
    &["src", "source", "from", "u", "row", "source_id", "from_id", "fromnodeid", "id_1", "node_1", "id1", "node1"];
const DST: &[&str] = &[
    "dst",
    "target",
    "to",
    "v",
    "col",
    "destination",
    "target_id",
    "to_id",
    "tonodeid",
    "id_2",
    "node_2",
    "id2",
    "node2",
];
const WEIGHT: &[&str] = &["weight", "w", "weights", "edge_weight"];
const INDEX: &[&str] = &["", "id", "index", "unnamed: 0", "edge_id"];

/// Maximum number of names in a message.
const MAX_LISTED: usize = 16;

/// The separator of the fields of `line`.
pub(crate) fn separator_of(line: &[u8]) -> Separator {
    let byte = [b',', b';', b'\t'].into_iter().find(|b| line.contains(b));
    // Numbers with decimal commas are separated by semicolons.
    let number = |field: &[u8]| is_number(field) || super::has_comma(field);
    let is_european = line.contains(&b';') && fields(line, Separator::Byte(b';')).all(number);
    let byte = if is_european { Some(b';') } else { byte };
    let separator = byte.map_or(Separator::Blanks, Separator::Byte);
    // KONECT has blanks between some numbers of a line and tabs between others.
    let mixed = byte == Some(b'\t')
        && fields(line, Separator::Blanks).all(is_number)
        && fields(line, Separator::Blanks).count() > fields(line, separator).count();
    if mixed { Separator::Blanks } else { separator }
}

/// A line's ids and the dictionary after them, if there is one.
pub(crate) fn with_attributes(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (ids, attributes) = line.split_at(line.iter().position(|&b| b == b'{')?);
    let ids = ids.trim_ascii();
    let ids = ids.strip_suffix(b",").or_else(|| ids.strip_suffix(b";")).unwrap_or(ids);
    Some((ids, attributes.trim_ascii()))
}

/// The value of a number in a dictionary such as `{'weight': 3.0, 'kind': 'x'}`.
pub(crate) fn attribute<'t>(attributes: &'t [u8], name: &str) -> Option<&'t [u8]> {
    let text = std::str::from_utf8(attributes).ok()?;
    let rest = ["'", "\""].into_iter().find_map(|q| text.split_once(&format!("{q}{name}{q}:")))?.1;
    Some(rest.split([',', '}']).next().unwrap_or_default().trim().as_bytes())
}

/// Reads the first line of a file that is no comment.
pub(crate) fn first_line(line: &[u8], columns: &Columns) -> Result<FirstLine, Fault> {
    let by_names = columns == &Columns::default();
    if let (Some((ids, attributes)), true) = (with_attributes(line), by_names) {
        let separator = separator_of(ids);
        if fields(ids, separator).filter(|f| is_number(f)).count() == 2 {
            let weighted = attribute(attributes, "weight").is_some();
            let ignored = if weighted || attributes == b"{}" { vec![] } else { vec!["attributes".into()] };
            let layout = Layout { separator, count: 2, attributes: true, ..Layout::plain(weighted) };
            return Ok(FirstLine { layout, is_header: false, ignored, two_kinds: None });
        }
    }
    let separator = separator_of(line);
    let texts: Vec<&[u8]> = fields(line, separator).collect();
    let count = texts.len();
    if count < 2 {
        let what = format!("expected two node ids or the names of two columns, found \"{}\"", excerpt(line));
        return Err((what, LONE_FIELD));
    }
    let numbers = texts.iter().filter(|f| is_number(f)).count();
    let is_header = numbers == 0;
    if !is_header && numbers < count && by_names {
        let what = format!("the first line is neither numbers nor names of columns: \"{}\"", excerpt(line));
        let lists_neighbors = texts[0].ends_with(b":") || texts.iter().any(|field| field.contains(&b'\t'));
        return Err((what, if lists_neighbors { NEIGHBORS } else { TEXT_LINE }));
    }
    let header = Header::new(texts.iter().map(|f| String::from_utf8_lossy(f)), is_header);
    let named = columns.src.is_some() && columns.dst.is_some();
    let Chosen { columns, ignored, two_kinds, .. } = choose(&header, columns, &|_, _| Ok(Vec::new()))?;
    let layout = Layout { separator, columns, count, attributes: false, named };
    Ok(FirstLine { layout, is_header, ignored, two_kinds })
}

/// Cure for a first line with fields that are no numbers.
pub(crate) const TEXT_LINE: &str =
    "correct it, or, where it is an edge whose ids are text, read the file with --ids strings --columns src,dst";

/// Cure for a first line of ids that are text.
pub(crate) const NEIGHBORS_OR_NAMES: &str =
    concat!(neighbors_command!(), "; if it is an edge with more than its ids, name all columns by --columns");

/// Cure for a first line of one field.
const LONE_FIELD: &str = concat!("check that this is a list of edges, one per line; ", neighbors_command!());

/// A name without the type that RecBole adds to it; `None` where it has none.
fn untyped(name: &str) -> Option<&str> {
    let (name, kind) = name.rsplit_once(':')?;
    matches!(kind, "token" | "float" | "token_seq" | "float_seq").then_some(name)
}

impl Header {
    /// The header of these names; where all have a type, as in RecBole's atomic files (`user_id:token`), it is left out.
    pub(crate) fn new(names: impl IntoIterator<Item = impl AsRef<str>>, named: bool) -> Self {
        let mut names: Vec<String> = names.into_iter().map(|name| name.as_ref().trim().to_lowercase()).collect();
        if names.iter().all(|name| untyped(name).is_some()) {
            names.iter_mut().for_each(|name| name.truncate(untyped(name).map_or(0, str::len)));
        }
        Self { names, named }
    }

    /// The index of a column.
    pub(crate) fn index(&self, column: &Column) -> Result<usize, Fault> {
        let index = match column {
            Column::Number(n) => n.checked_sub(1).filter(|&index| index < self.names.len()),
            Column::Name(name) => {
                let name = name.trim().to_lowercase();
                self.find(&[&name]).or_else(|| self.find(&[untyped(&name)?]))
            }
        };
        index.ok_or_else(|| {
            let names = if self.named { format!("named {}", self.list()) } else { "without names".into() };
            let what = format!("there is no column {column}: there are {}, {names}", self.names.len());
            (what, "give its name or its number from 1")
        })
    }

    /// The first column that has one of `names`.
    pub(crate) fn find(&self, names: &[&str]) -> Option<usize> {
        self.names.iter().position(|name| self.named && names.contains(&name.as_str()))
    }

    /// The names, for messages: of many, the first and how many there are.
    pub(crate) fn list(&self) -> String {
        let some = self.names.iter().take(MAX_LISTED).map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
        if self.names.len() > MAX_LISTED { format!("{some}, … ({} in all)", self.names.len()) } else { some }
    }

    /// The column of an index, for messages: its name, or its number from 1.
    pub(crate) fn describe(&self, index: usize) -> String {
        if self.named { format!("{:?}", self.names[index]) } else { (index + 1).to_string() }
    }
}

/// Chooses the columns of a table of edges; `select_features` finds those of features.
pub(crate) fn choose(first: &Header, columns: &Columns, select_features: SelectFeatures<'_>) -> Result<Chosen, Fault> {
    let count = first.names.len();
    let option = columns.names.as_ref().map(|names| Header::new(names, true));
    if let Some(header) = option.as_ref().filter(|header| header.names.len() != count) {
        let what = format!("--columns has {} names, the first line {count} fields", header.names.len());
        return Err((what, "name every column, those that are not read too"));
    }
    let header = option.as_ref().unwrap_or(first);
    let named = header.named;
    let index = |column: &Option<Column>, names: &[&str], default: usize| match column {
        Some(column) => header.index(column).map(Some),
        None if named => Ok(header.find(names)),
        None => Ok(Some(default).filter(|&index| index < count)),
    };
    let unknown = || {
        let what = format!("the columns are named {}, of which not all are known", header.list());
        // A first line of two fields may be an edge between nodes with names.
        let may_be_edge = count == 2 && option.is_none();
        Err((what, if may_be_edge { NAME_THEM_OR_TEXT } else { NAME_THEM }))
    };
    let (Some(source), Some(target)) = (index(&columns.src, SRC, 0)?, index(&columns.dst, DST, 1)?) else {
        return unknown();
    };
    let ids_named = columns.src.is_some() || columns.dst.is_some();
    let label = columns.label.as_ref().map(|column| header.index(column)).transpose()?;
    let targets: Vec<usize> = columns.targets.iter().map(|column| header.index(column)).collect::<Result<_, _>>()?;
    let mut to_predict: Vec<usize> = label.into_iter().chain(targets.iter().copied()).collect();
    if to_predict.contains(&source) || to_predict.contains(&target) {
        let cure = "name another by --edge-label-column and --edge-target-columns";
        return Err(("a column of ids is to be predicted".to_string(), cure));
    }
    to_predict.sort_unstable();
    if to_predict.array_windows().any(|[a, b]| a == b) {
        return Err(("one column is to be predicted twice".to_string(), "name each once"));
    }
    let given_weight = columns.weight.as_ref().map(|column| header.index(column)).transpose()?;
    let taken: Vec<usize> = [source, target].into_iter().chain(given_weight).chain(to_predict).collect();
    let features = select_features(header, &taken)?;
    // What is to be predicted or a feature is no weight, unless it is said to be one.
    let has_role = |column: &usize| label == Some(*column) || targets.contains(column) || features.contains(column);
    let weight = match given_weight {
        None if !named && ids_named => None,
        None if !named && (3..count).any(|column| !has_role(&column)) => {
            return Err((format!("the first line has {count} columns: \"{}\"", first.names.join(" ")), MANY_COLUMNS));
        }
        None => index(&None, WEIGHT, 2)?.filter(|column| !has_role(column)),
        given => given,
    };
    if source == target || weight.is_some_and(|w| w == source || w == target) {
        return Err(("one column is to be read twice".to_string(), "name different columns"));
    }
    let read = [Some(source), Some(target), weight];
    let is_read = |i: usize| read.contains(&Some(i)) || has_role(&i);
    let others = || (0..count).filter(|&i| named && !is_read(i)).map(|i| &header.names[i]);
    // Options that name both columns of ids leave out the others on purpose.
    let both_named = columns.src.is_some() && columns.dst.is_some();
    if !both_named && others().any(|name| !INDEX.contains(&name.as_str())) {
        return unknown();
    }
    let names = [source, target].map(|column| header.names[column].clone());
    Ok(Chosen {
        columns: EdgeColumns { source, target, weight },
        ignored: others().cloned().collect(),
        two_kinds: (named && two_kinds(&names)).then_some(names),
        label,
        targets,
        features,
    })
}

const NAME_THEM: &str = "say by --src, --dst and --weight which ones are read, or name all of them by --columns";
const NAME_THEM_OR_TEXT: &str = "say by --src and --dst which ones are read, or, where the first line is an edge whose ids are text, read the file with --ids strings --columns src,dst";
const MANY_COLUMNS: &str = concat!(
    "say by --src, --dst and --weight which ones are read, and by --bipartite if these are ids of two kinds of nodes; ",
    neighbors_command!()
);

/// Whether a field is a number.
pub(crate) fn is_number(field: &[u8]) -> bool {
    super::real(field).is_some() && field.iter().any(u8::is_ascii_digit)
}

/// The fields of a line, without blanks around them and without their quotes.
pub(crate) fn fields(line: &[u8], separator: Separator) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line.trim_ascii_end());
    std::iter::from_fn(move || {
        let text = match separator {
            Separator::Byte(_) => rest?,
            Separator::Blanks => rest.map(<[u8]>::trim_ascii_start).filter(|text| !text.is_empty())?,
        };
        let ends = |b: u8| match separator {
            Separator::Byte(byte) => b == byte,
            Separator::Blanks => matches!(b, b' ' | b'\t'),
        };
        // A quoted field ends at its closing quote, whatever separators it contains. Blanks may precede the opening quote, but a tab that
        // is the separator ends the field.
        let start = text.iter().position(|&b| ends(b) || !b.is_ascii_whitespace()).unwrap_or(text.len());
        let quoted = text.get(start).filter(|b| matches!(b, b'"' | b'\''));
        let skipped = quoted.and_then(|quote| Some(start + 2 + text[start + 1..].iter().position(|b| b == quote)?));
        let skipped = skipped.unwrap_or(0);
        let end = text[skipped..].iter().position(|&b| ends(b)).map(|i| skipped + i);
        let field = text[..end.unwrap_or(text.len())].trim_ascii();
        rest = end.map(|end| &text[end + 1..]);
        let unquoted = |quote: u8| field.strip_prefix(&[quote][..]).and_then(|f| f.strip_suffix(&[quote][..]));
        Some(unquoted(b'"').or_else(|| unquoted(b'\'')).unwrap_or(field))
    })
}

#[cfg(test)]
mod tests;
