//! Reads the rows of a task.

use std::path::Path;

use morphgl_graph_store::{Error, MAX_NODES, Result, Types};

use super::nodes::read_times;
use super::{Space, Table, TaskSplit, TaskTable, quoted};
use crate::files::invalid;
use crate::ingest::nodes::labels::{Labelled, Labels};
use crate::ingest::nodes::{NO_SPLIT, Targets, split_of};
use crate::tabular::{Batch, TableFile};
use crate::{Column, Ingest};

/// The rows that were read.
struct Rows {
    nodes: Vec<u32>,
    times: Vec<i64>,
    labels: Option<Labels>,
    targets: Option<Targets>,
    /// Split of each row, or [`NO_SPLIT`]; empty where nothing says it.
    splits: Vec<u8>,
}

/// Indices of the columns of a table that are read.
struct Columns {
    node: usize,
    time: usize,
    label: Option<usize>,
    split: Option<usize>,
    targets: Vec<usize>,
}

/// Reads the tables of a task into the dataset; errors about all of them name `source`.
pub(super) fn read(
    ingest: &mut Ingest<'_>,
    source: &Path,
    task: &TaskTable,
    spaces: &[Space],
    types: &Types,
) -> Result<()> {
    let (mut rows, first_node) = (Rows::of(task), types.range(task.of).start);
    let mut names: Option<Vec<String>> = None;
    for (table, part) in &task.tables {
        let mut file = table.open(ingest.progress())?;
        let columns = Columns::find(task, table, &mut file)?;
        if file.header.named {
            let own: Vec<String> = columns.targets.iter().map(|&of| file.names[of].trim().to_string()).collect();
            if *names.get_or_insert_with(|| own.clone()) != own {
                let what = "its targets have other names than those of an earlier table of the task";
                return invalid(&table.path, what, "give all tables of a task the same columns");
            }
        }
        let all = columns.all();
        while let Some(batch) = file.next(&all)? {
            rows.read(&table.path, &batch, &columns, (&spaces[task.space], first_node))?;
            let splits = splits_of(&table.path, &batch, (task, &columns, *part), &rows.times)?;
            rows.splits.extend(splits);
        }
    }
    rows.write(ingest, source, task, names)
}

/// The split of each row of a batch, whose times are the last of `times`; none where nothing says it.
fn splits_of(
    path: &Path,
    batch: &Batch,
    (task, columns, part): (&TaskTable, &Columns, Option<u8>),
    times: &[i64],
) -> Result<Vec<u8>> {
    Ok(match (&task.split, columns.split, part) {
        (TaskSplit::Times { valid, test }, ..) => {
            let of = |&time: &i64| u8::from(time >= *valid) + u8::from(time >= *test);
            times[times.len() - batch.rows..].iter().map(of).collect()
        }
        (TaskSplit::Column(_), Some(column), _) => {
            let of = |row: usize| {
                let split = split_of(&batch.column(column).text(row));
                split.map_err(|(what, cure)| Error::invalid(path, batch.position(row), what, cure))
            };
            (0..batch.rows).map(of).collect::<Result<_>>()?
        }
        (_, _, Some(part)) => vec![part; batch.rows],
        _ => Vec::new(),
    })
}

impl Columns {
    fn find(task: &TaskTable, table: &Table, file: &mut TableFile<'_>) -> Result<Self> {
        let mut index = |column: &Column| table.index(file, column);
        let (node, time) = (index(&task.node)?, index(&task.time)?);
        let label = task.label.as_ref().map(&mut index).transpose()?;
        let split = if let TaskSplit::Column(column) = &task.split { Some(index(column)?) } else { None };
        if table.header.is_none() && task.targets.iter().any(|column| matches!(column, Column::Name(_))) {
            file.header.named = true;
        }
        let single: Vec<usize> = [Some(node), Some(time), label, split].into_iter().flatten().collect();
        let targets = match &task.targets[..] {
            [] => Vec::new(),
            selected => file.select(selected, &single, "targets")?,
        };
        Ok(Self { node, time, label, split, targets })
    }

    fn all(&self) -> Vec<usize> {
        let optional = self.label.into_iter().chain(self.split);
        [self.node, self.time].into_iter().chain(optional).chain(self.targets.iter().copied()).collect()
    }
}

impl Rows {
    fn of(task: &TaskTable) -> Self {
        Self {
            nodes: Vec::new(),
            times: Vec::new(),
            labels: task.label.as_ref().map(|_| Labels::new(Labelled::ROWS)),
            targets: (!task.targets.is_empty()).then(|| Targets::of_type(None)),
            splits: Vec::new(),
        }
    }

    /// Appends the rows of a batch, whose nodes are those of `space`, from `first_node` on.
    fn read(
        &mut self,
        path: &Path,
        batch: &Batch,
        columns: &Columns,
        (space, first_node): (&Space, u32),
    ) -> Result<()> {
        let ids = batch.column(columns.node);
        for row in 0..batch.rows {
            let Some(number) = space.ids.find(ids, row) else {
                let text = ids.text(row);
                let what = match text.trim_ascii() {
                    b"" => "a row without a node".to_string(),
                    id => format!("there is no node {}", quoted(&String::from_utf8_lossy(id))),
                };
                let cure = "give ids as the nodes of the type have them, or list the node";
                return Err(Error::invalid(path, batch.position(row), what, cure));
            };
            self.nodes.push(first_node + space.node(number).1);
        }
        read_times(path, batch, columns.time, &mut self.times)?;
        if let (Some(labels), Some(column)) = (&mut self.labels, columns.label) {
            labels.read(path, batch, batch.column(column))?;
        }
        if let Some(targets) = &mut self.targets {
            targets.read(path, batch, &columns.targets)?;
        }
        Ok(())
    }

    /// Writes the rows, with labels, targets of these `names`, and splits.
    fn write(self, ingest: &mut Ingest<'_>, source: &Path, task: &TaskTable, names: Option<Vec<String>>) -> Result<()> {
        let Self { nodes, times, labels, targets, splits } = self;
        let path = &task.tables[0].0.path;
        if nodes.is_empty() {
            return invalid(path, "there is no row of the task", "check that this is the right file");
        }
        if nodes.len() as u64 > MAX_NODES {
            let what = format!("{} rows are more than the {MAX_NODES} that numbers of 32 bits allow", nodes.len());
            return invalid(path, what, "leave some out");
        }
        ingest.task(&nodes, &times)?;
        if let Some(labels) = labels {
            let labels = labels.finish(ingest)?;
            let unlabelled = labels.iter().filter(|&&label| label == -1).count();
            if unlabelled > 0 {
                ingest.note(format!("{unlabelled} of {} rows of the task have no label", labels.len()));
            }
            ingest.labels(path, &labels, None)?;
        }
        if let Some(targets) = targets {
            ingest.targets(path, targets.called(names))?;
        }
        if !splits.is_empty() {
            let mut of_parts = [const { Vec::new() }; 3];
            for (row, &part) in (0u32..).zip(&splits).filter(|&(_, &part)| part != NO_SPLIT) {
                of_parts[usize::from(part)].push(row);
            }
            ingest.splits(source, &of_parts[0], &of_parts[1], &of_parts[2])?;
        }
        Ok(())
    }
}
