//! What the rows of a cache are ranked by, where the user names a policy.

use std::sync::Arc;

use morphgl_hotness::PolicyKind;
use morphgl_registry::{Error, Key, Result, TransferringContext};

/// How rows are ranked.
pub(crate) enum Ranking {
    /// By these scores, one a row.
    Scores(Arc<[f32]>),
    /// By the accesses of so many mini-batches, still to be counted.
    Count(u32),
}

/// Scores the dataset's topology in host memory by `kind`; pre-sampling counts the run's own mini-batches instead, its K epochs
/// of them.
///
/// # Errors
///
/// The context does not say what mini-batches are sampled from, or the policy's own.
pub(crate) fn rank(operator: &Key, kind: PolicyKind, context: &TransferringContext) -> Result<Ranking> {
    let wrong = |what: &str| Error::setting(operator, format!("options: cache {kind}: {what}"));
    let Some((seeds, settings)) = &context.sampled else {
        return Err(wrong("the seeds and sampler settings of the mini-batches are not known; give auto or none"));
    };
    if let PolicyKind::PreSample { epochs } = kind {
        let batches = seeds.nodes().len().div_ceil(settings.batch_size.max(1)) as u64 * u64::from(epochs.get());
        return Ok(Ranking::Count(u32::try_from(batches).unwrap_or(u32::MAX)));
    }
    let unscored = || wrong("it is not scored by the topology alone; give presample:K, or another policy");
    let policy = kind.policy(settings.seed).ok_or_else(unscored)?;
    Ok(Ranking::Scores(policy.score(&context.dataset.topology, seeds.nodes(), settings)?.features))
}
