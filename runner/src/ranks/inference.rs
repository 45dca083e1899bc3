//! Inference as one rank of an MPI run.

use std::time::Duration;

use morphgl_group::gathering_bytes as bytes_of_gathering;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::training::enter;
use super::{RankPlace, Ranks};
use crate::{Inferred, Process, RunContext, Stop, median, words};

/// A rank's part of an inference.
#[derive(Debug, Serialize, Deserialize)]
struct InferencePart {
    threads: usize,
    #[serde(flatten)]
    inferred: Inferred,
}

/// Joins the other ranks where this process was started as one of several, or has joined them in an earlier command. Signals end the
/// command at once, as without ranks.
pub(crate) fn enter_to_infer(process: &Process, limit: Duration) -> anyhow::Result<Option<&Ranks>> {
    match process.ranks() {
        None => enter(process, limit, None, Stop::new),
        joined => Ok(joined),
    }
}

/// Bytes that gathering rows of other ranks takes at most; 0 where there are none.
pub(crate) fn gathering_bytes(context: &RunContext) -> u64 {
    context.ranks().map_or(0, |ranks| bytes_of_gathering(ranks.group.size()))
}

impl Ranks {
    /// Fails at all ranks where they do not infer the same nodes.
    pub(crate) fn check_nodes(&self, nodes: &[u32]) -> anyhow::Result<()> {
        let bytes: Vec<u8> = nodes.iter().flat_map(|v| v.to_le_bytes()).collect();
        let digest = format!("{} of digest {:016x}", words::plural(nodes.len() as u64, "node"), xxh3_64(&bytes));
        self.check_same(&[("--nodes".to_string(), digest)])
    }

    /// The ranks of an inference that is done, for its JSON, and in words.
    pub(crate) fn inference_summary(&self, threads: usize) -> anyhow::Result<(Value, String)> {
        let parts = self.group.gather(&InferencePart { threads, inferred: self.group.inferred() })?;
        let bytes: u64 = parts.iter().map(|part| part.inferred.bytes_sent).sum();
        let seconds = median(&parts.iter().map(|part| part.inferred.exchange_seconds).collect::<Vec<_>>());
        let text = format!(
            "{}: {} of rows sent by all, {seconds:.3} s in exchanges (median)\n",
            self.in_words(),
            words::bytes(bytes)
        );
        let rank = |(part, place): (&InferencePart, &RankPlace)| {
            let mut rank = json!(part);
            rank["host"] = json!(place.host);
            rank
        };
        Ok((parts.iter().zip(self.places()).map(rank).collect(), text))
    }
}
