//! The header of a file: <https://neo4j.com/docs/operations-manual/current/import/#import-tool-header-format>.

use std::path::PathBuf;

use morphgl_graph_store::{Error, Position, Result};

use crate::Column;

/// The fields of a header, and the file that has it.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) path: PathBuf,
    pub(super) fields: Vec<Field>,
}

/// A field: `name:ROLE(Space)`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) role: Role,
    /// The set of ids, which may have no name.
    pub(super) space: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Id,
    Label,
    StartId,
    EndId,
    Type,
    /// A property that is a number or a boolean.
    Number,
    /// A property that is neither.
    Unread,
    Ignored,
}

impl Field {
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        // Options such as {id-type:int} stand at the end.
        let text =
            text.strip_suffix('}').and_then(|text| text.rsplit_once('{')).map_or(text, |(text, _)| text.trim_end());
        let (text, space) = text.strip_suffix(')').and_then(|text| text.rsplit_once('(')).unwrap_or((text, ""));
        let (name, kind) = text.rsplit_once(':').unwrap_or((text, "string"));
        let role = match kind.trim().to_ascii_uppercase().as_str() {
            "ID" => Role::Id,
            "LABEL" => Role::Label,
            "START_ID" => Role::StartId,
            "END_ID" => Role::EndId,
            "TYPE" => Role::Type,
            "IGNORE" => Role::Ignored,
            "INT" | "LONG" | "FLOAT" | "DOUBLE" | "BYTE" | "SHORT" | "BOOLEAN" => Role::Number,
            _ => Role::Unread,
        };
        Self { name: name.trim().to_string(), role, space: space.trim().to_string() }
    }
}

impl Header {
    fn fault<T>(&self, what: String, cure: &str) -> Result<T> {
        Err(Error::invalid(&self.path, Position::Line(1), what, cure))
    }

    /// The only field of a role, and its column.
    pub(super) fn one(&self, role: Role) -> Result<Option<(Column, &Field)>> {
        let mut fields = (1..).zip(&self.fields).filter(|(_, field)| field.role == role);
        match (fields.next(), fields.next()) {
            (_, Some(_)) => {
                let name = match role {
                    Role::Id => ":ID",
                    Role::Label => ":LABEL",
                    Role::StartId => ":START_ID",
                    Role::EndId => ":END_ID",
                    _ => ":TYPE",
                };
                self.fault(format!("a header with two columns {name}"), "leave one of them, and call the other :IGNORE")
            }
            (field, None) => Ok(field.map(|(number, field)| (Column::Number(number), field))),
        }
    }

    /// Both ends of relationships; `None` of nodes.
    pub(super) fn ends(&self) -> Result<Option<[(Column, &Field); 2]>> {
        match (self.one(Role::StartId)?, self.one(Role::EndId)?) {
            (Some(from), Some(to)) => Ok(Some([from, to])),
            (None, None) => Ok(None),
            (from, _) => {
                let missing = if from.is_some() { ":END_ID" } else { ":START_ID" };
                self.fault(format!("a header of relationships without {missing}"), "add the column")
            }
        }
    }
}

#[cfg(test)]
mod tests;
