//! Triples of a head, a relation and a tail: fields of a line, or RDF as N-Triples (<https://www.w3.org/TR/n-triples/>).

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result};

use crate::Ingest;
use crate::tabular::{Batch, Texts};
use crate::text::{Text, open_any_text};

/// Triples of a batch.
const ROWS: usize = 1 << 16;
/// Maximum bytes of a line.
const MAX_LINE: u64 = 1 << 20;

/// The syntax of triples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Three fields with tabs between them, or blanks in a line without tabs.
    Fields,
    NTriples,
}

/// Reader of triples whose objects are no literals.
pub(super) struct Triples {
    path: PathBuf,
    syntax: Syntax,
    input: BufReader<Box<dyn Read + Send>>,
    /// Lines read so far.
    lines: u64,
    /// Triples that were left out: their objects are literals, which are no nodes.
    pub(super) literals: u64,
}

/// A term of a triple.
#[derive(Debug, PartialEq)]
pub(super) enum Term<'t> {
    /// An IRI without its brackets, or the label of a blank node with `_:`.
    Node(&'t [u8]),
    Literal,
}

impl Triples {
    pub(super) fn open(path: &Path, syntax: Syntax, ingest: &Ingest<'_>) -> Result<Self> {
        let Text { reader, .. } = open_any_text(path, "read", ingest.progress())?;
        let input = BufReader::with_capacity(1 << 18, reader);
        Ok(Self { path: path.into(), syntax, input, lines: 0, literals: 0 })
    }

    /// The next triples, as columns of subjects, predicates and objects; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        let (mut columns, mut lines) = (vec![Texts::default(); 3], Vec::new());
        let mut line = Vec::new();
        while lines.len() < ROWS {
            line.clear();
            self.lines += 1;
            let fault = |what: String| {
                let cure = match self.syntax {
                    Syntax::Fields => "correct the line: head, relation and tail, with tabs between them",
                    Syntax::NTriples => "correct the line: <subject> <predicate> <object> .",
                };
                Error::invalid(&self.path, Position::Line(self.lines), what, cure)
            };
            let read = self.input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
            if read.map_err(|e| Error::io(&self.path, e))? == 0 {
                break;
            }
            if line.len() as u64 > MAX_LINE {
                return Err(fault(format!("a line of more than {MAX_LINE} bytes")));
            }
            std::str::from_utf8(&line).map_err(|_| fault("the line is not UTF-8".into()))?;
            let terms = match self.syntax {
                Syntax::Fields => fields(&line),
                Syntax::NTriples => triple(&line),
            };
            match terms.map_err(|what| fault(what.into()))? {
                None => {}
                Some([_, _, Term::Literal]) => self.literals += 1,
                Some([Term::Node(subject), Term::Node(predicate), Term::Node(object)]) => {
                    for (column, text) in columns.iter_mut().zip([subject, predicate, object]) {
                        column.push(text);
                    }
                    lines.push(self.lines);
                }
                Some(_) => return Err(fault("the subject or the predicate is a literal".into())),
            }
        }
        Ok((!lines.is_empty()).then(|| Batch::of_texts(columns, lines)))
    }
}

/// The fields of a line; `None` where it has none, `Err` says what is wrong.
pub(super) fn fields(line: &[u8]) -> std::result::Result<Option<[Term<'_>; 3]>, &'static str> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let all: Vec<&[u8]> = match line.contains(&b'\t') {
        true => line.split(|&b| b == b'\t').map(<[u8]>::trim_ascii).collect(),
        false => line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect(),
    };
    match all[..] {
        [head, relation, tail] if ![head, relation, tail].contains(&&b""[..]) => {
            Ok(Some([head, relation, tail].map(Term::Node)))
        }
        [_, _, _] => Err("a triple with an empty field"),
        [_, _] | [_] => Err("a triple of fewer than three fields"),
        _ => Err("a triple of more than three fields"),
    }
}

/// The terms of a line; `None` where it has none, `Err` says what is wrong.
pub(super) fn triple(line: &[u8]) -> std::result::Result<Option<[Term<'_>; 3]>, &'static str> {
    let mut rest = line.trim_ascii();
    if rest.is_empty() || rest.starts_with(b"#") {
        return Ok(None);
    }
    let terms = [term(&mut rest)?, term(&mut rest)?, term(&mut rest)?];
    let rest = rest.trim_ascii_start().strip_prefix(b".").ok_or("a triple that does not end with a dot")?;
    match rest.trim_ascii_start() {
        [] | [b'#', ..] => Ok(Some(terms)),
        _ => Err("more than a triple"),
    }
}

/// Cuts a term off the beginning of `rest`.
fn term<'t>(rest: &mut &'t [u8]) -> std::result::Result<Term<'t>, &'static str> {
    let text = rest.trim_ascii_start();
    let end = |is_end: &dyn Fn(u8) -> bool| text.iter().position(|&b| is_end(b)).unwrap_or(text.len());
    let (term, after) = match text {
        [b'<', iri @ ..] => {
            let end = iri.iter().position(|&b| b == b'>').ok_or("an IRI without its >")?;
            (Term::Node(&iri[..end]), &iri[end + 1..])
        }
        [b'_', b':', ..] => {
            let (label, after) = text.split_at(end(&|b| b.is_ascii_whitespace() || b == b'<'));
            // The dot that ends the triple may follow at once.
            let cut = label.strip_suffix(b".").filter(|_| after.trim_ascii().is_empty());
            (Term::Node(cut.unwrap_or(label)), &text[cut.unwrap_or(label).len()..])
        }
        [b'"', literal @ ..] => {
            let mut escaped = false;
            let end = literal.iter().position(|&b| {
                let is_end = b == b'"' && !escaped;
                escaped = b == b'\\' && !escaped;
                is_end
            });
            let after = &literal[end.ok_or("a literal without its closing quote")? + 1..];
            let after = match after {
                [b'^', b'^', datatype @ ..] => {
                    let mut datatype = datatype;
                    term(&mut datatype)?;
                    datatype
                }
                [b'@', ..] => {
                    let tag = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
                    let end = 1 + after[1..].iter().position(|&b| !tag(b)).unwrap_or(after.len() - 1);
                    &after[end..]
                }
                after => after,
            };
            (Term::Literal, after)
        }
        [] | [b'.', ..] => return Err("a triple of fewer than three terms"),
        _ => return Err("a term that is no IRI, blank node or literal"),
    };
    if term == Term::Node(b"") {
        return Err("an empty IRI");
    }
    *rest = after;
    Ok(term)
}

#[cfg(test)]
mod tests;
